// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// collectTick is how often the collector checks which connections are due.
	collectTick = 5 * time.Second
	// collectInterval is the interval between two listings of a connection's runners. It is longer for long lists, by
	// collectInterval for each collectSize runners in the list. restInterval applies while this cluster has no runners
	// without a scale set on the connection.
	collectInterval, restInterval = time.Minute, 10 * time.Minute
	collectSize                   = 500
	// ListedWithin is how long it takes at most until GitHub's list shows that a runner is not connected, except if the
	// list is longer than collectSize.
	ListedWithin = 2 * collectInterval
	// justNow is the maximum age of a runner that may be missing in the list only because it registered after GitHub
	// created the list.
	justNow = 30 * time.Second
	// leakAfter is how long the collector ignores a registration that belongs to a pool of this cluster but has no Runner.
	// The Runner may not be in the cache yet, or the registration is already being removed.
	leakAfter = 2 * time.Minute
	// markLife is how long after the deletion of a pool the collector looks for registrations of the pool.
	markLife = time.Hour
)

// RunnerCollector compares GitHub's list of runners, per connection, with the Runners that registered through the REST API.
// These runners have no message session, and their webhooks may be lost. The collector records jobs whose start no event
// reported, requests checks of runners that are not in the list, and deletes Runners that are not connected. It also
// removes leaks, which are registrations without a Runner, even in scale sets (leftset.go). It is a manager.Runnable.
type RunnerCollector struct {
	kube.Reporter
	// Live reads without a cache.
	Live client.Reader
	// Clients and REST find the clients of connections.
	Clients Clients
	REST    RESTClients
	// Sessions reports which scale sets pools hold, and GitHub's statistics about them.
	Sessions Sessions
	// Access reports which connections of other namespaces may be used. If nil, none may be used.
	Access *connections.Access
	Memory *Memory
	// Cluster identifies this cluster in the runners' marks.
	Cluster string
	Now     func() time.Time

	mu       sync.Mutex
	memories map[types.NamespacedName]*connectionMemory
}

// connectionMemory is the state of one connection. Only the goroutine that claimed it uses it.
type connectionMemory struct {
	busy bool // guarded by RunnerCollector
	next time.Time
	// marks maps the owner labels of the connection's pools to their namespaces, and to the time when the pool last existed.
	marks map[string]mark
	// leaks maps registrations without a Runner, by ID, to the time when they were first seen.
	leaks map[int64]time.Time
	// online contains the runners that a list has ever shown as connected. offline contains the runners that should have
	// been connected at the last visit but were not.
	online, offline map[types.UID]bool
}

// mark describes a pool with an owner label on GitHub: its namespace, and when it was last seen.
type mark struct {
	namespace string
	last      time.Time
}

// NewCollector returns a RunnerCollector to be added to a manager. cluster identifies this cluster in the runners' labels.
func NewCollector(report kube.Reporter, live client.Reader, clients Clients, gh RESTClients, sessions Sessions, access *connections.Access, memory *Memory, cluster string, now func() time.Time) *RunnerCollector {
	return &RunnerCollector{Reporter: report, Live: live, Clients: clients, REST: gh, Sessions: sessions, Access: access, Memory: memory, Cluster: cluster, Now: now}
}

// Start visits each connection at most once a minute, until ctx ends.
func (c *RunnerCollector) Start(ctx context.Context) error {
	tick := time.NewTicker(collectTick)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		c.round(ctx, &running)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// NeedLeaderElection returns true, because only the leader deletes runners.
func (*RunnerCollector) NeedLeaderElection() bool { return true }

// fleet holds the pools and Runners of a connection that register through the REST API, and its scale sets that may have
// leaked registrations.
type fleet struct {
	pools   []*v1alpha1.RunnerPool
	runners []*v1alpha1.Runner
	sets    []leftSet
	// names contains the names of all Runners, and of all placeholders that pools need, on any connection.
	names map[string]bool
	// owned contains the registrations of all Runners, in any namespace.
	owned map[registration]bool
}

// registration identifies a registration on GitHub by its place and its ID, which is valid in one place only. The place is
// empty if it is unknown.
type registration struct {
	place string
	id    int64
}

// round starts a comparison for each connection that is due. Connections do not wait for each other.
func (c *RunnerCollector) round(ctx context.Context, running *sync.WaitGroup) {
	fleets, err := c.fleets(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "Comparing runners with those on GitHub")
		return
	}
	for key, w := range fleets {
		s := c.claim(key)
		if s == nil {
			continue
		}
		running.Go(func() {
			ctx := log.IntoContext(ctx, log.FromContext(ctx).WithValues("connection", key.String()))
			s.next = c.Now().Add(c.visit(ctx, key, s, w))
			c.mu.Lock()
			defer c.mu.Unlock()
			s.busy = false
		})
	}
}

// claim returns the memory of a connection if it is due and no other goroutine uses it.
func (c *RunnerCollector) claim(key types.NamespacedName) *connectionMemory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memories == nil {
		c.memories = map[types.NamespacedName]*connectionMemory{}
	}
	s := c.memories[key]
	if s == nil {
		s = &connectionMemory{marks: map[string]mark{}, leaks: map[int64]time.Time{}, online: map[types.UID]bool{}, offline: map[types.UID]bool{}}
		c.memories[key] = s
	}
	if s.busy || c.Now().Before(s.next) {
		return nil
	}
	s.busy = true
	return s
}

// fleets groups the pools and the Runners by connection. It also returns connections that pools used within markLife, and
// forgets connections that nothing uses any more.
func (c *RunnerCollector) fleets(ctx context.Context) (map[types.NamespacedName]*fleet, error) {
	pools, runners := &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}
	for _, list := range []client.ObjectList{pools, runners} {
		if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing pools and runners: %w", err)
		}
	}
	fleets, names, owned, have := map[types.NamespacedName]*fleet{}, map[string]bool{}, map[registration]bool{}, map[types.NamespacedName]int{}
	of := func(key types.NamespacedName) *fleet {
		if fleets[key] == nil {
			fleets[key] = &fleet{names: names, owned: owned}
		}
		return fleets[key]
	}
	for i := range runners.Items {
		r := &runners.Items[i]
		if r.IsReleased() {
			continue
		}
		names[r.Name] = true
		have[types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.PoolRef.Name}]++
		owned[c.registrationOf(r)] = true
		if r.Spec.REST != nil && c.Access.CleansUp(ctx, r.Spec.ConnectionRef.From(r.Namespace), r.Namespace) {
			w := of(r.Spec.ConnectionRef.From(r.Namespace))
			w.runners = append(w.runners, r)
		}
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		if c.serves(ctx, p) {
			w := of(p.Spec.ConnectionRef.From(p.Namespace))
			w.pools = append(w.pools, p)
			if wantsPlaceholder(p) {
				names[placeholderName(c.Cluster, p)] = true
			}
		} else if set, ok := c.leftSet(ctx, p, have[client.ObjectKeyFromObject(p)]); ok {
			w := of(p.Spec.ConnectionRef.From(p.Namespace))
			w.sets = append(w.sets, set)
		}
	}
	for _, key := range c.left(fleets) {
		of(key)
	}
	return fleets, nil
}

// registrationOf returns the registration of a Runner.
func (c *RunnerCollector) registrationOf(r *v1alpha1.Runner) registration {
	known := registration{id: max(r.Status.RunnerID, c.Memory.registration(client.ObjectKeyFromObject(r), r.UID))}
	if r.Spec.REST != nil {
		if target, err := github.ParseURL(r.Spec.REST.URL); err == nil {
			known.place = target.Place()
		}
	} else if gh, ok := c.REST.Get(connections.Key(r.Spec.ConnectionRef.From(r.Namespace))); ok {
		known.place = gh.Target().Place()
	}
	return known
}

// owns reports whether a Runner has a registration of the visited connection, or may have it.
func (v *visit) owns(known rest.Runner) bool {
	return v.names[known.Name] || v.owned[registration{v.gh.Target().Place(), known.ID}] || v.owned[registration{"", known.ID}]
}

// left returns the connections that no pool or Runner uses but that still have marks. It forgets other unused connections.
func (c *RunnerCollector) left(fleets map[types.NamespacedName]*fleet) (keys []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.memories {
		switch {
		case fleets[key] != nil, s.busy:
		case len(s.marks) > 0:
			keys = append(keys, key)
		default:
			delete(c.memories, key)
		}
	}
	return keys
}

// serves reports whether the collector handles a pool's runners: the pool is active, its runners register without a scale
// set, and its connection allows its namespace.
func (c *RunnerCollector) serves(ctx context.Context, p *v1alpha1.RunnerPool) bool {
	if p.Spec.GetRegistration() != v1alpha1.RegisterREST || p.Spec.GetMode() != v1alpha1.Active {
		return false
	}
	allowed, err := c.Access.Allows(ctx, p.Spec.ConnectionRef.From(p.Namespace), p.Namespace)
	return allowed && err == nil
}

// visit compares one connection's runners and returns the delay until its next visit.
func (c *RunnerCollector) visit(ctx context.Context, key types.NamespacedName, s *connectionMemory, w *fleet) time.Duration {
	c.mark(s, w)
	gh, ok := c.REST.Get(connections.Key(key))
	if !ok {
		return collectTick
	}
	list, err := gh.Runners(github.InFlow(ctx, key.String()), 0)
	if err != nil {
		after, _ := github.ComeBack(err)
		log.FromContext(ctx).V(1).Info("GitHub's runners can't be listed", "reason", github.Summary(err))
		return max(after, collectInterval)
	}
	v := visit{RunnerCollector: c, key: key, connectionMemory: s, fleet: w, gh: gh, at: list.At, byID: make(map[int64]rest.Runner, len(list.Runners)), log: log.FromContext(ctx)}
	for _, known := range list.Runners {
		v.byID[known.ID] = known
	}
	v.compare(ctx)
	v.removeLeaks(ctx)
	v.keepPlaceholders(ctx, list.Runners)
	if len(w.runners) == 0 && len(s.leaks) == 0 && !slices.ContainsFunc(w.pools, wantsPlaceholder) {
		return restInterval
	}
	return collectInterval * time.Duration(1+len(list.Runners)/collectSize)
}

// mark updates the owner labels, which identify registrations of this cluster: the labels of existing pools and, for markLife,
// of deleted pools.
func (c *RunnerCollector) mark(s *connectionMemory, w *fleet) {
	for _, p := range w.pools {
		s.marks[v1alpha1.OwnerLabel(c.Cluster, string(p.UID))] = mark{p.Namespace, c.Now()}
	}
	for _, r := range w.runners {
		l := r.Spec.REST.Mark()
		// A Runner may be forged with the mark of another namespace's pool. The mark then stays with that pool's namespace.
		if m, known := s.marks[l]; l != "" && (!known || m.namespace == r.Namespace) {
			s.marks[l] = mark{r.Namespace, c.Now()}
		}
	}
	for label, m := range s.marks {
		if c.Now().Sub(m.last) > markLife {
			delete(s.marks, label)
		}
	}
}

// visit is one comparison of one connection's runners.
type visit struct {
	*RunnerCollector
	*connectionMemory
	*fleet
	key  types.NamespacedName
	gh   *rest.Client
	at   time.Time // when GitHub sent the list
	byID map[int64]rest.Runner
	log  logr.Logger
}

// compare checks each Runner against GitHub's list.
func (v *visit) compare(ctx context.Context) {
	offline, online := map[types.UID]bool{}, map[types.UID]bool{}
	for _, r := range v.runners {
		id := v.idOf(r)
		if id == 0 && !r.Persists() || !r.DeletionTimestamp.IsZero() || !leadsTo(v.gh, r.Spec.REST) {
			continue
		}
		known, listed := v.byID[id]
		if !listed && id != 0 {
			v.suspect(r)
			continue
		}
		if online[r.UID] = v.online[r.UID] || known.Online; !known.Online || known.Busy || r.Persists() {
			offline[r.UID] = v.check(ctx, r, known)
		}
	}
	v.online, v.offline = online, offline
}

// suspect requests a check of the registration of a Runner that was not in the list. It skips a young Runner, which may
// have registered after GitHub created the list.
func (v *visit) suspect(r *v1alpha1.Runner) {
	if v.at.Sub(r.CreationTimestamp.Time) > justNow {
		v.Memory.Suspect(client.ObjectKeyFromObject(r), v.online[r.UID], v.Now())
	}
}

// check examines a Runner that is persistent, has a job on GitHub or is not connected. It reports whether the Runner should
// be connected but is not. If that was also the case at the previous visit, it deletes the Runner.
func (v *visit) check(ctx context.Context, r *v1alpha1.Runner, known rest.Runner) (missing bool) {
	pod := v.pod(ctx, r)
	switch {
	case r.Persists():
		if v.followJob(ctx, r, known, pod) || known.Online || !isOverdue(ctx, v.Client, r, pod, v.at, v.Now()) {
			return false
		}
	case r.Status.Job != nil, pod != nil && poolstatus.JobOf(pod) != nil:
		return false
	case known.Busy:
		v.recordJob(ctx, r, known)
		return false
	case !isOverdue(ctx, v.Client, r, pod, v.at, v.Now()):
		return false
	}
	if v.offline[r.UID] {
		if err := giveUp(ctx, v.Reporter, v.Memory, r, pod, v.online[r.UID], v.Now()); err != nil {
			v.log.Error(err, "Ending a runner that is not connected to GitHub", "runner", r.Name)
		}
	}
	return true
}

func (v *visit) pod(ctx context.Context, r *v1alpha1.Runner) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := v.Client.Get(ctx, client.ObjectKeyFromObject(r), pod); err != nil || !podspec.BelongsTo(pod, r) {
		return nil
	}
	return pod
}

// recordJob records a job that no event has reported yet.
func (v *visit) recordJob(ctx context.Context, r *v1alpha1.Runner, known rest.Runner) {
	v.record(ctx, r, scaleset.JobEvent{Type: scaleset.JobStarted, JobID: v1alpha1.UnknownJob, RunnerID: known.ID, RunnerName: r.Name, At: v.at})
}

func (v *visit) record(ctx context.Context, r *v1alpha1.Runner, event scaleset.JobEvent) {
	recorder := &Recorder{Client: v.Client, Namespace: r.Namespace, Memory: v.Memory}
	if err := recorder.RecordJobs(ctx, []scaleset.JobEvent{event}); err != nil {
		v.log.Error(err, "Recording that a runner has a job", "runner", r.Name) // the next visit finds the job again
	}
}

// removeLeaks removes registrations that were created for this cluster's pools but have no Runner. They remain if an answer
// from GitHub was lost, a Runner was deleted without its finalizer, or etcd was restored. A registration with a job is not
// removed.
func (v *visit) removeLeaks(ctx context.Context) {
	leaks := map[int64]time.Time{}
	for id, known := range v.byID {
		namespace, set := v.ownerOf(known)
		if namespace == "" || v.owns(known) {
			continue
		}
		since, seen := v.leaks[id]
		if !seen {
			since = v.Now()
		}
		leaks[id] = since
		if !known.Busy && v.Now().Sub(since) >= leakAfter {
			v.remove(ctx, known, namespace, set)
		}
	}
	v.leaks = leaks
}

func (v *visit) remove(ctx context.Context, known rest.Runner, namespace string, set int64) {
	r := &v1alpha1.Runner{}
	err := v.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: known.Name}, r)
	if !apierrors.IsNotFound(err) && (err != nil || !r.IsReleased()) {
		return // the Runner exists after all, or its existence is unknown
	}
	ctx = github.InFlow(ctx, v.key.String())
	if set == 0 {
		err = v.gh.RemoveRunner(ctx, known.ID)
	} else {
		err = v.removeFrom(ctx, set, known)
	}
	if err != nil && !github.IsNotFound(err) {
		v.log.V(1).Info("A runner that was left behind can't be deregistered yet", "runner", known.Name, "id", known.ID, "reason", github.Summary(err))
		return
	}
	leaksTotal.Inc()
	v.log.Info("Deregistered a runner that was left behind", "runner", known.Name, "id", known.ID)
	if err == nil { // it had no job, and can get none now
		v.deleteLeftPod(ctx, client.ObjectKey{Namespace: namespace, Name: known.Name}, known.ID)
	}
}

// deleteLeftPod deletes the pod of a registration that GitHub removed, if its Runner is gone.
func (v *visit) deleteLeftPod(ctx context.Context, key client.ObjectKey, id int64) {
	pod := &corev1.Pod{}
	err := v.Client.Get(ctx, key, pod)
	if err == nil && pod.Annotations[v1alpha1.RunnerIDAnnotation] == strconv.FormatInt(id, 10) {
		if err = v.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err == nil {
			kube.LogDeleted(ctx, v.Client, pod, pod.Labels[v1alpha1.RevisionLabel], "GitHub removed its registration, and its Runner is gone")
		}
	}
	if client.IgnoreNotFound(err) != nil {
		v.log.Error(err, "Deleting the pod of a runner that was left behind", "pod", key.String())
	}
}
