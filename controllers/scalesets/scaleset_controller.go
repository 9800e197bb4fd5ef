// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scalesets keeps what exists on GitHub for each pool as the pool declares
// it, and runs the message sessions.
package scalesets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// verifyInterval is how often the scale set on GitHub is compared with the record.
	verifyInterval = 10 * time.Minute
	// settingRetry is the time to the next look for what only a human on GitHub can mend.
	settingRetry = time.Minute
	// connectionRetry is the time to the next look for a connection that isn't ready.
	connectionRetry = 5 * time.Second
)

// Clients finds the GitHub client of a connection by NAMESPACE/NAME.
type Clients interface {
	Get(key string) (*scaleset.Client, bool)
}

// JobMeter measures jobs.
type JobMeter interface {
	// Observe may get an event again.
	Observe(pool types.NamespacedName, events []scaleset.JobEvent)
	Forget(pool types.NamespacedName)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runnerscalesets,verbs=list;watch;patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerscalesets/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;runners,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles RunnerScaleSets.
type Reconciler struct {
	kube.Reporter
	Clients  Clients
	Sessions *Sessions
	// Access says which connections of other namespaces may be used; nil for none.
	Access *connections.Access
	Memory *runners.Memory
	// Jobs is told of the jobs that messages tell of, and of pools that are gone; nil for nobody.
	Jobs JobMeter
	// Cluster identifies this cluster in the session owner's name.
	Cluster string
	Now     func() time.Time

	verified sync.Map // types.UID → verification
}

// New returns a Reconciler. cluster identifies this cluster in the names of session owners, and now is the clock that all leaders have in common.
func New(report kube.Reporter, clients Clients, sessions *Sessions, access *connections.Access, memory *runners.Memory, jobs JobMeter, cluster string, now func() time.Time) *Reconciler {
	return &Reconciler{Reporter: report, Clients: clients, Sessions: sessions, Access: access, Memory: memory, Jobs: jobs, Cluster: cluster, Now: now}
}

// verification is what GitHub had when it was last asked, for which generation of
// the record, and when.
type verification struct {
	remote     *scaleset.Set
	generation int64
	at         time.Time
	asked      bool // for the record's name, group and labels: a server that keeps others isn't asked at each pass
}

// observation is what one pass learns of a scale set, as far as it comes: what is nil stays in the status as it was.
type observation struct {
	remote    *scaleset.Set // as GitHub has it, now or when it was last asked
	listening *kube.State   // how the session stands
	session   *string       // its id while it is open, "" while it is another's
	labels    *kube.State   // whether GitHub took all labels
}

// Reconcile keeps one scale set as its record wants it:
//
//  1. connect: the connection's client
//  2. exist: found, adopted or created on GitHub, and looked at again now and then
//  3. listen: a message session; only who holds it may change or delete
//  4. update: name, group and labels
//  5. project: the status, once
//
// A deleted one is drained, then deleted there (finalize.go).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &v1alpha1.RunnerScaleSet{}
	if err := r.Client.Get(ctx, req.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.Sessions.Stop(ctx, req.NamespacedName) // somebody took its finalizer away
			r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ctx = github.InFlow(ctx, req.String())
	attempt := r.Begin(set)
	isDeleted := !set.DeletionTimestamp.IsZero()
	if err := kube.Unreadable(set); err != nil && !isDeleted {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	pass := r.keep
	if isDeleted {
		if !controllerutil.ContainsFinalizer(set, v1alpha1.ScaleSetFinalizer) {
			return ctrl.Result{}, nil
		}
		pass = r.finalize
	}
	o, err := pass(ctx, set)
	if err == nil && isDeleted {
		return ctrl.Result{}, nil // its finalizer is off: there is no status to write any more
	}
	project(set, o)
	set.Status.Outage = connections.OutageOf(err)
	after := verifyInterval
	if kube.IsStalled(err) {
		after = settingRetry
	}
	return attempt.Finish(ctx, kube.Done{Message: "listening", After: after, Elsewhere: connections.Tells(kube.ReasonOf(err, ""))}, err)
}

// keep makes GitHub have what the record wants, and listens.
func (r *Reconciler) keep(ctx context.Context, set *v1alpha1.RunnerScaleSet) (o observation, err error) {
	gh, err := r.connect(ctx, set)
	if err != nil {
		if kube.ReasonOf(err, "") == v1alpha1.AccessDeniedReason {
			o.listening = r.closeSession(ctx, set, catalog.SessionClosedWithoutAccess)
		}
		return o, err
	}
	remote, err := r.exist(ctx, gh, set)
	if err != nil {
		if kube.ReasonOf(err, "") == v1alpha1.OwnedElsewhereReason {
			o.listening = r.closeSession(ctx, set, catalog.SessionClosedForOwner)
			r.Sessions.lose(client.ObjectKeyFromObject(set))
		}
		return o, err
	}
	o.remote = remote
	session, owner := r.ensureSession(set, gh, remote.ID), ""
	switch session.State {
	case scaleset.Listening:
		o.session = new(r.seals(set, gh, remote.ID, session.Session)[0])
	case scaleset.Refused:
		owner = r.Cluster + "/" + set.Spec.PoolUID
	case scaleset.OwnedElsewhere:
		owner, o.session = r.nameHolder(ctx, gh, set, remote, session.Owner), new("")
	}
	if o.listening, err = listening(set.Spec.Name, session, owner, conditions.Has(set, v1alpha1.ListeningCondition), r.Now()); err != nil {
		return o, err
	}
	if o.remote, err = r.update(ctx, gh, set, remote); err != nil {
		return o, err
	}
	o.labels = labelsAccepted(o.remote.Labels, set.Spec.Labels)
	return o, nil
}

// project writes into the status what a pass learnt.
func project(set *v1alpha1.RunnerScaleSet, o observation) {
	if s := &set.Status; o.remote != nil {
		s.ID, s.Name, s.RunnerGroup, s.Labels = o.remote.ID, o.remote.Name, o.remote.GroupName, o.remote.Labels
	}
	if o.session != nil {
		set.Status.SessionID = *o.session
	}
	o.listening.SetOn(set)
	o.labels.SetOn(set)
}

// connect finds the connection's client.
func (r *Reconciler) connect(ctx context.Context, set *v1alpha1.RunnerScaleSet) (*scaleset.Client, error) {
	if r.isForged(set) {
		return nil, kube.Stall(catalog.PoolOfAnotherNamespace.With())
	}
	key := connectionOf(set)
	if err := r.Access.Check(ctx, key, set.Namespace); err != nil {
		return nil, err
	}
	gh, ok := r.Clients.Get(connections.Key(key))
	if !ok {
		return nil, connections.NotReady(ctx, r.Client, key)
	}
	return gh, nil
}

// isForged reports whether the record names a pool of another namespace as its own: a session would be opened in that pool's name.
func (r *Reconciler) isForged(set *v1alpha1.RunnerScaleSet) bool {
	holder, _, err := r.holder(r.Cluster + "/" + set.Spec.PoolUID)
	return err == nil && holder != nil && holder.Namespace != set.Namespace
}

// checkOwner refuses a scale set that a pool of another namespace has, by whatever connection: one with a stronger claim, or that had an
// equal one first. Who holds the session would tell, too, but not while the other's is closed for a moment. Who listens now keeps it.
func (r *Reconciler) checkOwner(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, remote *scaleset.Set) error {
	session, _ := r.Sessions.Snapshot(client.ObjectKeyFromObject(set))
	if session.State == scaleset.Listening && set.Status.ID == remote.ID {
		return nil
	}
	own := r.claim(set, gh, remote)
	had, err := r.anotherHas(ctx, gh, set, remote, func(o *v1alpha1.RunnerScaleSet) bool {
		theirs := r.claim(o, gh, remote)
		first := o.CreationTimestamp.Before(&set.CreationTimestamp) || o.CreationTimestamp.Equal(&set.CreationTimestamp) && o.UID < set.UID
		return o.Namespace != set.Namespace && (theirs > own || theirs == own && first)
	})
	if err != nil || !had {
		return err
	}
	return kube.Stall(catalog.ScaleSetOfAnotherNamespace.With(set.Spec.Name))
}

// claim returns how strong the claim of a record to a scale set is. The seal of a session shows that the pool had it. The name is what the pool
// asks for. The id in a status can be anybody's.
func (r *Reconciler) claim(s *v1alpha1.RunnerScaleSet, gh *scaleset.Client, remote *scaleset.Set) (strength int) {
	if own, ok := r.Clients.Get(connections.Key(connectionOf(s))); ok {
		gh = own
	}
	if r.unsealed(s, gh, remote.ID) != "" {
		strength = 4
	}
	if declares(s, remote) {
		strength += 2
	}
	if s.Status.ID == remote.ID {
		strength++
	}
	return strength
}

// declares reports whether a record asks for a scale set by its name.
func declares(s *v1alpha1.RunnerScaleSet, remote *scaleset.Set) bool {
	return strings.EqualFold(s.Spec.Name, remote.Name) && strings.EqualFold(s.Spec.RunnerGroup, remote.GroupName)
}

// anotherHas reports whether the record of another pool, which stays, has the scale set by its id. If its id may have been lost, the name
// counts, in another namespace and with a connection that serves. Other connections count that lead to the same place on GitHub.
func (r *Reconciler) anotherHas(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, remote *scaleset.Set, counts func(*v1alpha1.RunnerScaleSet) bool) (bool, error) {
	places := &v1alpha1.GitHubConnectionList{}
	if err := r.Client.List(ctx, places, client.MatchingFields{placeField: gh.Target().Place()}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("looking which connections lead to the scale set: %w", err)
	}
	keys := map[types.NamespacedName]bool{connectionOf(set): true}
	for i := range places.Items {
		keys[client.ObjectKeyFromObject(&places.Items[i])] = true
	}
	for connection := range keys {
		_, serves := r.Clients.Get(connections.Key(connection))
		for _, field := range []string{byID(connection, remote.ID), byName(connection, remote.GroupName, remote.Name)} {
			sets := &v1alpha1.RunnerScaleSetList{}
			if err := r.Client.List(ctx, sets, client.MatchingFields{remoteField: field}, client.UnsafeDisableDeepCopy); err != nil {
				return false, fmt.Errorf("looking who has the scale set: %w", err)
			}
			if slices.ContainsFunc(sets.Items, func(o v1alpha1.RunnerScaleSet) bool {
				mayHave := o.Status.ID == remote.ID || serves && o.Namespace != set.Namespace
				return mayHave && o.UID != set.UID && o.DeletionTimestamp.IsZero() && counts(&o)
			}) {
				return true, nil
			}
		}
	}
	return false, nil
}

// closeSession ends the session of a scale set that is another's, or whose connection isn't the namespace's to use any more. What is on GitHub
// stays, for consent may come back.
func (r *Reconciler) closeSession(ctx context.Context, set *v1alpha1.RunnerScaleSet, row *catalog.Row) *kube.State {
	r.stop(ctx, set)
	return kube.NewState(v1alpha1.ListeningCondition, metav1.ConditionFalse, row.With())
}

// stop ends the session, if there is one.
func (r *Reconciler) stop(ctx context.Context, set *v1alpha1.RunnerScaleSet) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	r.Sessions.Stop(ctx, client.ObjectKeyFromObject(set))
}

func connectionOf(set *v1alpha1.RunnerScaleSet) types.NamespacedName {
	return set.Spec.ConnectionRef.From(set.Namespace)
}

func (r *Reconciler) lastVerified(set *v1alpha1.RunnerScaleSet) verification {
	last, _ := r.verified.Load(set.UID)
	v, _ := last.(verification)
	return v
}

// exist makes sure that the scale set is there. What GitHub has is asked for when
// the record changed, when the session says that it is gone, and now and then.
func (r *Reconciler) exist(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet) (*scaleset.Set, error) {
	v := r.lastVerified(set)
	session, _ := r.Sessions.Snapshot(client.ObjectKeyFromObject(set))
	if v.remote != nil && set.Status.ID == v.remote.ID && v.generation == set.Generation &&
		r.Now().Sub(v.at) < verifyInterval && !github.IsNotFound(session.Err) {
		return v.remote, nil
	}
	group, err := groupOf(ctx, gh, set)
	if err != nil {
		return nil, err
	}
	remote, created, err := findOrCreate(ctx, gh, set, group)
	if err != nil {
		return nil, outcome(err)
	}
	if !created {
		if err := r.checkOwner(ctx, gh, set, remote); err != nil {
			return nil, err
		}
	}
	r.verify(set, remote, false)
	return remote, nil
}

// verify remembers what GitHub has, and whether that is its answer to what was asked for.
func (r *Reconciler) verify(set *v1alpha1.RunnerScaleSet, remote *scaleset.Set, asked bool) {
	r.verified.Store(set.UID, verification{remote: remote, generation: set.Generation, at: r.Now(), asked: asked})
}

// groupOf finds the id of the runner group.
func groupOf(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet) (int64, error) {
	id, err := gh.RunnerGroupID(ctx, set.Spec.RunnerGroup)
	if github.IsRunnerGroupNotFound(err) {
		return 0, kube.Stall(catalog.RunnerGroupMissing.With(set.Spec.RunnerGroup, set.Spec.ConnectionRef.Name))
	}
	return id, outcome(err)
}

// findOrCreate looks by id, then by name, then creates. A name that is taken in
// between is looked up again by the next attempt.
func findOrCreate(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, group int64) (remote *scaleset.Set, created bool, err error) {
	if id := set.Status.ID; id != 0 {
		remote, err = gh.Get(ctx, id)
		if err == nil || !github.IsNotFound(err) {
			return remote, false, err
		}
	}
	remote, err = gh.Find(ctx, group, set.Spec.Name)
	if err != nil || remote != nil {
		return remote, false, err
	}
	remote, err = gh.Create(ctx, scaleset.Set{Name: set.Spec.Name, GroupID: group, Labels: set.Spec.Labels})
	return remote, true, err
}

// listening says how the session stands, and what is to be waited for; nil of one that is being opened if the condition is said already. Owner
// names who holds a session that is another's; of one that is refused, the pool.
func listening(name string, s scaleset.Snapshot, owner string, isSaid bool, now time.Time) (*kube.State, error) {
	const condition = v1alpha1.ListeningCondition
	switch s.State {
	case scaleset.Listening:
		return &kube.State{Condition: *conditions.TrueCondition(condition, v1alpha1.SucceededReason, "session open")}, nil
	case scaleset.OwnedElsewhere:
		err := kube.Stall(catalog.ScaleSetHeld.With(name, owner))
		return kube.NewState(condition, metav1.ConditionFalse, kube.CausesOf(err)...), err
	case scaleset.Refused:
		err := refused(name, s, owner, now)
		return kube.NewState(condition, metav1.ConditionFalse, kube.CausesOf(err)...), err
	}
	opening := kube.NewState(condition, metav1.ConditionUnknown, catalog.SessionOpening.With())
	if s.Err != nil {
		failed := catalog.GitHubUnavailable.With().Wrap(github.Summarize(s.Err))
		if err := outcome(s.Err); kube.ReasonOf(err, "") != "" {
			failed = kube.CausesOf(err)[0]
		}
		return kube.NewState(condition, metav1.ConditionFalse, failed), kube.Wait(connectionRetry, failed, catalog.Listening.With())
	}
	if isSaid {
		opening = nil
	}
	return opening, kube.Starting(connectionRetry, catalog.SessionOpening.With())
}

// copied is how long a session in the way is taken for an earlier one: that has surely expired by then.
const copied = 2 * scaleset.SessionLife

// refused is why a session can't be opened that is in the way of one of the owner's own, or of a pool of this cluster that is gone.
func refused(name string, s scaleset.Snapshot, owner string, now time.Time) error {
	switch {
	case now.Sub(s.Since) > copied:
		return kube.Stall(catalog.ScaleSetHeldByTwin.With(name))
	case s.Owner != owner:
		return kube.Wait(connectionRetry, catalog.SessionOfFormerPool.With())
	}
	return kube.Wait(connectionRetry, catalog.SessionUnexpired.With())
}

// labelsAccepted says whether GitHub kept all labels.
func labelsAccepted(kept, want []string) *kube.State {
	if sameLabels(kept, want) {
		return &kube.State{Condition: *conditions.TrueCondition(v1alpha1.LabelsAcceptedCondition, v1alpha1.SucceededReason, "%s", strings.Join(want, ", "))}
	}
	row := catalog.GroupLabelsDropped
	if slices.ContainsFunc(kept, func(l string) bool { return !containsFold(want, l) }) {
		row = catalog.FormerLabelsKept
	}
	return kube.NewState(v1alpha1.LabelsAcceptedCondition, metav1.ConditionFalse, row.With(strings.Join(kept, ", "), strings.Join(want, ", ")))
}

// ensureSession runs the session, and returns how it stands.
func (r *Reconciler) ensureSession(set *v1alpha1.RunnerScaleSet, gh *scaleset.Client, id int64) scaleset.Snapshot {
	key := client.ObjectKeyFromObject(set)
	r.Sessions.Ensure(key, connectionOf(set), scaleset.Config{
		Client: gh, SetID: id, Owner: r.Cluster + "/" + set.Spec.PoolUID,
		Recorder:  measured{&runners.Recorder{Client: r.Client, Namespace: set.Namespace, Memory: r.Memory}, r.Jobs, key},
		OwnerGone: r.ownerGone, Now: r.Now,
		Log: slog.New(logr.ToSlogHandler(log.Log.WithName("session").WithValues("scaleSet", klog.KObj(set)))),
	}, r.unsealed(set, gh, id))
	s, _ := r.Sessions.Snapshot(key)
	return s
}

// measured is a Recorder that has jobs measured whose events are durable.
type measured struct {
	scaleset.Recorder
	jobs JobMeter
	pool types.NamespacedName
}

// RecordJobs records events, and then measures them: what can't be recorded comes again.
func (m measured) RecordJobs(ctx context.Context, events []scaleset.JobEvent) error {
	if err := m.Recorder.RecordJobs(ctx, events); err != nil {
		return err
	}
	if m.jobs != nil {
		m.jobs.Observe(m.pool, events)
	}
	return nil
}

// forget forgets a pool that is no more.
func (r *Reconciler) forget(pool types.NamespacedName) {
	r.Sessions.forget(pool)
	if r.Jobs != nil {
		r.Jobs.Forget(pool)
	}
}

// seals returns the id of a session as the status has it: with a seal, for whoever may write a status could claim to have held any. The first is
// written, and each is believed. The leaders' key makes a seal that outlives the credentials. Without an election, and in versions that had no
// such key, the credentials make it.
func (r *Reconciler) seals(set *v1alpha1.RunnerScaleSet, gh *scaleset.Client, id int64, session string) []string {
	text := fmt.Sprintf("%s/%s %d %s", r.Cluster, set.Spec.PoolUID, id, session)
	sealed := []string{session + "." + gh.Seal(text)}
	if key := r.Sessions.lease.Key(); key != "" {
		sealed = append([]string{session + "." + github.Seal([]byte(key), text)}, sealed...)
	}
	return sealed
}

// unsealed is the id of the session that the pool held last; "" for none, and for one that isn't known to be the pool's.
func (r *Reconciler) unsealed(set *v1alpha1.RunnerScaleSet, gh *scaleset.Client, id int64) string {
	session, _, _ := strings.Cut(set.Status.SessionID, ".")
	if !slices.Contains(r.seals(set, gh, id, session), set.Status.SessionID) {
		return ""
	}
	return session
}

// ownerGone reports whether a session owner of this cluster is a pool that is not
// there any more, as after a restore of all objects under new UIDs.
func (r *Reconciler) ownerGone(owner string) bool {
	holder, ours, err := r.holder(owner)
	return ours && err == nil && holder == nil
}

// holder finds the pool of this cluster that a session owner is; ours is false of an
// owner in another cluster.
func (r *Reconciler) holder(owner string) (pool *v1alpha1.RunnerPool, ours bool, err error) {
	uid, ours := strings.CutPrefix(owner, r.Cluster+"/")
	if !ours {
		return nil, false, nil
	}
	pools := &v1alpha1.RunnerPoolList{}
	err = r.Client.List(context.Background(), pools, client.MatchingFields{kube.UIDField: uid}, client.UnsafeDisableDeepCopy)
	if err != nil || len(pools.Items) == 0 {
		return nil, true, err
	}
	return &pools.Items[0], true, nil
}

// nameHolder names who holds the session of a scale set. If GitHub doesn't say, it may be a pool of this cluster whose record has a session.
func (r *Reconciler) nameHolder(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, remote *scaleset.Set, owner string) string {
	if owner != "" {
		return r.nameOwner(owner, set.Namespace)
	}
	holds := func(o *v1alpha1.RunnerScaleSet) bool {
		if o.Status.SessionID != "" {
			owner = r.Cluster + "/" + o.Spec.PoolUID
		}
		return owner != ""
	}
	_, _ = r.anotherHas(ctx, gh, set, remote, holds) // without an answer it's somebody else
	return r.nameOwner(owner, set.Namespace)
}

// nameOwner says who holds a session, in words for a namespace.
func (r *Reconciler) nameOwner(owner, namespace string) string {
	switch holder, ours, _ := r.holder(owner); {
	case holder != nil && holder.Namespace != namespace:
		return "a RunnerPool of another namespace of this cluster"
	case holder != nil:
		return fmt.Sprintf("RunnerPool %s/%s of this cluster", holder.Namespace, holder.Name)
	case ours:
		return "a deleted pool of this cluster"
	case owner == "":
		return "another process"
	}
	return fmt.Sprintf("another cluster or program, as %q", owner)
}

// update changes name, group and labels on GitHub where they differ, and returns what GitHub has then. It runs only
// after listening: who does not hold the session changes nothing.
func (r *Reconciler) update(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, remote *scaleset.Set) (*scaleset.Set, error) {
	want := set.Spec
	if r.lastVerified(set).asked {
		return remote, nil
	}
	if remote.Name == want.Name && strings.EqualFold(remote.GroupName, want.RunnerGroup) && sameLabels(remote.Labels, want.Labels) {
		return remote, nil
	}
	group, err := groupOf(ctx, gh, set)
	if err != nil {
		return remote, err
	}
	updated, err := gh.Update(ctx, remote.ID, scaleset.Set{Name: want.Name, GroupID: group, Labels: want.Labels})
	if err != nil {
		r.verified.Delete(set.UID)
		return remote, outcome(err)
	}
	r.verify(set, updated, true)
	return updated, nil
}

// sameLabels compares labels as GitHub does: whatever their order and case.
func sameLabels(a, b []string) bool {
	return slices.Equal(normalLabels(a), normalLabels(b))
}

func containsFold(labels []string, label string) bool {
	return slices.ContainsFunc(labels, func(l string) bool { return strings.EqualFold(l, label) })
}

func normalLabels(labels []string) []string {
	lower := make([]string, len(labels))
	for i, l := range labels {
		lower[i] = strings.ToLower(l)
	}
	slices.Sort(lower)
	return slices.Compact(lower)
}

// outcome turns GitHub's answers into outcomes: limits and outages are waited for,
// refusals stall until somebody changes something.
func outcome(err error) error {
	if after, away := github.ComeBack(err); away {
		return kube.Wait(max(after, connectionRetry), connections.Unavailable(err))
	}
	switch {
	case github.IsUnauthorized(err):
		return kube.Stall(catalog.CredentialsRefused.With().Wrap(github.Summarize(err)))
	case github.IsForbidden(err):
		return kube.Stall(catalog.PermissionMissing.With().Wrap(github.Summarize(err)))
	case err != nil:
		return errors.New(github.Summary(err)) // without the request's ids: the same message each time
	}
	return nil
}
