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
	// collectTick is how often the collector looks which connections are due.
	collectTick = 5 * time.Second
	// collectInterval is the time between two lists of a connection's runners, for each collectSize
	// of them; restInterval while it has none of ours.
	collectInterval, restInterval = time.Minute, 10 * time.Minute
	collectSize                   = 500
	// ListedWithin is within which time the list shows a runner that is not connected, unless there are very many.
	ListedWithin = 2 * collectInterval
	// justNow is how young a runner is that the list may have missed.
	justNow = 30 * time.Second
	// leakAfter is how long a registration with our mark and without a Runner is left alone: the
	// Runner may have been created and not be in the cache, or the registration be on its way out.
	leakAfter = 2 * time.Minute
	// markLife is how long registrations are looked for that a pool left behind which is gone.
	markLife = time.Hour
)

// RunnerCollector compares GitHub's list of runners, per connection, with the Runners that registered by the
// REST API. No session tells of those; webhooks do, if they come. It records jobs that began unnoticed,
// suspects runners that GitHub has forgotten, ends those that never connect, and deregisters what was
// left behind, also in scale sets (leftset.go). It is a manager.Runnable.
type RunnerCollector struct {
	kube.Reporter
	// Live reads without a cache.
	Live client.Reader
	// Clients and REST find the clients of connections.
	Clients Clients
	REST    RESTClients
	// Sessions say which scale sets pools hold, and what GitHub counts there.
	Sessions Sessions
	// Access says which connections of other namespaces may be used; nil for none.
	Access *connections.Access
	Memory *Memory
	// Cluster identifies this cluster in the runners' marks.
	Cluster string
	Now     func() time.Time

	mu       sync.Mutex
	memories map[types.NamespacedName]*connectionMemory
}

// connectionMemory is what is remembered of one connection, for the one goroutine that claimed it.
type connectionMemory struct {
	busy bool // guarded by RunnerCollector
	next time.Time
	// marks are the owner's labels of the connection's pools, where those are, and when they were last there.
	marks map[string]mark
	// leaks are registrations that nothing was found for, by id, and since when.
	leaks map[int64]time.Time
	// online are runners that GitHub was seen to see; offline those that it didn't see last time.
	online, offline map[types.UID]bool
}

// mark is where a pool is that has a label of its own on GitHub, and when it was last there.
type mark struct {
	namespace string
	last      time.Time
}

// NewCollector returns a RunnerCollector, to be added to a manager. cluster identifies this cluster in the runners' labels.
func NewCollector(report kube.Reporter, live client.Reader, clients Clients, gh RESTClients, sessions Sessions, access *connections.Access, memory *Memory, cluster string, now func() time.Time) *RunnerCollector {
	return &RunnerCollector{Reporter: report, Live: live, Clients: clients, REST: gh, Sessions: sessions, Access: access, Memory: memory, Cluster: cluster, Now: now}
}

// Start compares the runners of each connection every minute or more, until ctx ends.
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

// NeedLeaderElection is true: only the leader ends runners.
func (*RunnerCollector) NeedLeaderElection() bool { return true }

// fleet holds the pools and Runners of a connection that register by the REST API, and its scale sets with registrations that may be left behind.
type fleet struct {
	pools   []*v1alpha1.RunnerPool
	runners []*v1alpha1.Runner
	sets    []leftSet
	// names are those of Runners, and of the placeholders that pools want, of any connection.
	names map[string]bool
	// owned are the ids of the registrations that Runners of any namespace have.
	owned map[int64]bool
}

// round begins a comparison of each connection that is due. None waits for another.
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

// claim returns the memory of a connection if it is due and nobody has it.
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

// fleets gathers the pools and the Runners by connection, those of connections that pools have left
// a while ago included. A connection that nothing is on any more is forgotten.
func (c *RunnerCollector) fleets(ctx context.Context) (map[types.NamespacedName]*fleet, error) {
	pools, runners := &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}
	for _, list := range []client.ObjectList{pools, runners} {
		if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing pools and runners: %w", err)
		}
	}
	fleets, names, owned, have := map[types.NamespacedName]*fleet{}, map[string]bool{}, map[int64]bool{}, map[types.NamespacedName]int{}
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
		owned[max(r.Status.RunnerID, c.Memory.registration(client.ObjectKeyFromObject(r), r.UID))] = true
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

// left returns the connections that nothing is on any more and that runners were marked of, and forgets the others that nothing is on.
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

// serves reports whether a pool has runners registered without a scale set, by a connection that allows it.
func (c *RunnerCollector) serves(ctx context.Context, p *v1alpha1.RunnerPool) bool {
	if p.Spec.GetRegistration() != v1alpha1.RegisterREST || p.Spec.GetMode() != v1alpha1.Active {
		return false
	}
	allowed, err := c.Access.Allows(ctx, p.Spec.ConnectionRef.From(p.Namespace), p.Namespace)
	return allowed && err == nil
}

// visit compares one connection's runners, and returns the time to the next time.
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

// mark notes whose registrations are looked for: those of the pools there are, and for a while of
// those that are gone.
func (c *RunnerCollector) mark(s *connectionMemory, w *fleet) {
	for _, p := range w.pools {
		s.marks[v1alpha1.OwnerLabel(c.Cluster, string(p.UID))] = mark{p.Namespace, c.Now()}
	}
	for _, r := range w.runners {
		l := r.Spec.REST.Mark()
		// A Runner may be forged with the mark of another's pool: that one's is where to look.
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
	at   time.Time // of the list
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

// suspect has the registration looked up of a Runner that wasn't in the list. One that is young may
// have registered after it.
func (v *visit) suspect(r *v1alpha1.Runner) {
	if v.at.Sub(r.CreationTimestamp.Time) > justNow {
		v.Memory.Suspect(client.ObjectKeyFromObject(r), v.online[r.UID], v.Now())
	}
}

// check looks at a Runner that has a job or isn't connected. It reports whether the Runner should have been
// connected, and ends it when that was so the last time, too.
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
			v.log.Error(err, "Ending a runner that GitHub doesn't see", "runner", r.Name)
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

// recordJob records a job that no event told of yet.
func (v *visit) recordJob(ctx context.Context, r *v1alpha1.Runner, known rest.Runner) {
	v.record(ctx, r, scaleset.JobEvent{Type: scaleset.JobStarted, JobID: v1alpha1.UnknownJob, RunnerID: known.ID, RunnerName: r.Name, At: v.at})
}

func (v *visit) record(ctx context.Context, r *v1alpha1.Runner, event scaleset.JobEvent) {
	recorder := &Recorder{Client: v.Client, Namespace: r.Namespace, Memory: v.Memory}
	if err := recorder.RecordJobs(ctx, []scaleset.JobEvent{event}); err != nil {
		v.log.Error(err, "Recording that a runner has a job", "runner", r.Name) // seen again next time
	}
}

// removeLeaks deregisters what was made for one of our pools and is no Runner's: an answer of GitHub's was lost, a Runner was deleted by force, or
// etcd was restored. One with a job is left alone.
func (v *visit) removeLeaks(ctx context.Context) {
	leaks := map[int64]time.Time{}
	for id, known := range v.byID {
		namespace, set := v.ownerOf(known)
		if namespace == "" || v.names[known.Name] || v.owned[id] {
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
		return // it is there after all, or nobody can tell
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
	if err == nil { // it had no job, and gets none
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
