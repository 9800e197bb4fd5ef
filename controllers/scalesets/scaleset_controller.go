// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scalesets reconciles RunnerScaleSets: it keeps the scale set of each pool on GitHub as the pool declares it, and
// runs the message sessions.
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
	// settingRetry is the delay before the next attempt after an outcome that stalls, because a user may fix the problem on
	// GitHub.
	settingRetry = time.Minute
	// connectionRetry is the delay before the next check of a connection that is not ready.
	connectionRetry = 5 * time.Second
)

// Clients finds the GitHub client of a connection by NAMESPACE/NAME.
type Clients interface {
	Get(key string) (*scaleset.Client, bool)
}

// JobMeter measures jobs.
type JobMeter interface {
	// Observe may receive an event more than once.
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
	// Access reports which connections of other namespaces may be used. If nil, none may be used.
	Access *connections.Access
	Memory *runners.Memory
	// Jobs measures the jobs in messages; nil to measure nothing.
	Jobs JobMeter
	// Cluster identifies this cluster in the session owner's name.
	Cluster string
	Now     func() time.Time

	verified sync.Map // types.NamespacedName → verification
}

// New returns a Reconciler. cluster identifies this cluster in the names of session owners, and now is the clock that all
// leaders share.
func New(report kube.Reporter, clients Clients, sessions *Sessions, access *connections.Access, memory *runners.Memory, jobs JobMeter, cluster string, now func() time.Time) *Reconciler {
	return &Reconciler{Reporter: report, Clients: clients, Sessions: sessions, Access: access, Memory: memory, Jobs: jobs, Cluster: cluster, Now: now}
}

// verification is the last state of the scale set on GitHub, for a generation of the record, and when it was read.
type verification struct {
	uid        types.UID // of the record
	remote     *scaleset.Set
	generation int64
	at         time.Time
	asked      bool // remote is GitHub's answer to an update; if GitHub kept other values, the update is not repeated in each pass
}

// observation is the result of one pass. Fields that are nil leave the status unchanged.
type observation struct {
	remote    *scaleset.Set // state on GitHub, now or when it was last read
	listening *kube.State   // state of the session
	session   *string       // its ID while it is open; empty while another owner has it
	labels    *kube.State   // whether GitHub accepted all labels
}

// Reconcile keeps one scale set as its record declares it:
//
//  1. connect: get the connection's client
//  2. exist: find, adopt or create it on GitHub, and check it from time to time
//  3. listen: hold a message session; only its holder may change or delete the scale set
//  4. update: name, group and labels
//  5. project: set the status, once
//
// For a deleted record, the pass waits until the pool's runners are gone, and then deletes the scale set on GitHub
// (finalize.go).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &v1alpha1.RunnerScaleSet{}
	if err := r.Client.Get(ctx, req.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.Sessions.Stop(ctx, req.NamespacedName) // its finalizer was removed by another client
			r.forget(req.NamespacedName)
			r.verified.Delete(req.NamespacedName)
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
		return ctrl.Result{}, nil // its finalizer is removed, so there is no status to write any more
	}
	project(set, o)
	set.Status.Outage = connections.OutageOf(err)
	after := verifyInterval
	if kube.IsStalled(err) {
		after = settingRetry
	}
	return attempt.Finish(ctx, kube.Done{Message: "listening", After: after, Elsewhere: connections.ReportsReason(kube.ReasonOf(err, ""))}, err)
}

// keep makes the scale set on GitHub match the record, and keeps its session open.
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

// project writes the results of a pass into the status.
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

// connect returns the connection's client.
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

// isForged reports whether the record names the UID of a pool in another namespace. Such a record would open a session in
// that pool's name.
func (r *Reconciler) isForged(set *v1alpha1.RunnerScaleSet) bool {
	holder, _, err := r.holder(r.Cluster + "/" + set.Spec.PoolUID)
	return err == nil && holder != nil && holder.Namespace != set.Namespace
}

// checkOwner returns a Stall if the scale set belongs to a pool of another namespace, on the same or another connection: a
// pool with a stronger claim, or with an equal claim and an older record. The holder of the session also excludes other
// pools, but not while its session is closed for a moment. A pool that is listening now keeps its scale set.
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

// claim returns the strength of a record's claim to a scale set. The strongest evidence is the seal of a session, which
// proves that the pool held the session. The next is the name that the pool declares. The ID in a status counts least,
// because users can forge it.
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

// declares reports whether a record declares a scale set by its name.
func declares(s *v1alpha1.RunnerScaleSet, remote *scaleset.Set) bool {
	return strings.EqualFold(s.Spec.Name, remote.Name) && strings.EqualFold(s.Spec.RunnerGroup, remote.GroupName)
}

// anotherHas reports whether another record refers to the scale set, is not being deleted, and makes counts return true. A
// record refers to a scale set by its ID or, if it has none, by its name. Records without an ID count only if they are in
// other namespaces and their connection works. anotherHas also checks other connections to the same place on GitHub. A
// record in a namespace that may not use its connection does not count, because users can create such records.
func (r *Reconciler) anotherHas(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, remote *scaleset.Set, counts func(*v1alpha1.RunnerScaleSet) bool) (bool, error) {
	places := &v1alpha1.GitHubConnectionList{}
	if err := r.Client.List(ctx, places, client.MatchingFields{placeField: gh.Target().Place()}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the connections to the scale set's place on GitHub: %w", err)
	}
	keys := map[types.NamespacedName]bool{connectionOf(set): true}
	for i := range places.Items {
		keys[client.ObjectKeyFromObject(&places.Items[i])] = true
	}
	for connection := range keys {
		_, serves := r.Clients.Get(connections.Key(connection))
		for _, field := range []string{byID(connection, remote.ID), byName(connection, remote.GroupName, remote.Name)} {
			had, err := r.anyAllowed(ctx, connection, field, func(o *v1alpha1.RunnerScaleSet) bool {
				mayHave := o.Status.ID == remote.ID || serves && o.Namespace != set.Namespace
				return mayHave && o.UID != set.UID && o.DeletionTimestamp.IsZero() && counts(o)
			})
			if had || err != nil {
				return had, err
			}
		}
	}
	return false, nil
}

// anyAllowed reports whether one of the records that the index remoteField lists under a value makes counts return true, and
// is in a namespace that may use the connection.
func (r *Reconciler) anyAllowed(ctx context.Context, connection types.NamespacedName, field string, counts func(*v1alpha1.RunnerScaleSet) bool) (bool, error) {
	sets := &v1alpha1.RunnerScaleSetList{}
	if err := r.Client.List(ctx, sets, client.MatchingFields{remoteField: field}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing other records of the scale set: %w", err)
	}
	for i := range sets.Items {
		if !counts(&sets.Items[i]) {
			continue
		}
		allowed, err := r.Access.Allows(ctx, connection, sets.Items[i].Namespace)
		if allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

// closeSession ends the session of a scale set that belongs to another owner, or whose connection does not allow the
// namespace any more. The scale set stays on GitHub, because the connection may allow the namespace again.
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
	last, _ := r.verified.Load(client.ObjectKeyFromObject(set))
	v, _ := last.(verification)
	if v.uid != set.UID {
		return verification{}
	}
	return v
}

// exist ensures that the scale set exists. It reads the scale set from GitHub if the record changed, if the session reports
// that the scale set is gone, and every verifyInterval.
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

// verify records the state on GitHub, and whether it is the answer to an update.
func (r *Reconciler) verify(set *v1alpha1.RunnerScaleSet, remote *scaleset.Set, asked bool) {
	r.verified.Store(client.ObjectKeyFromObject(set), verification{uid: set.UID, remote: remote, generation: set.Generation, at: r.Now(), asked: asked})
}

// groupOf returns the ID of the runner group.
func groupOf(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet) (int64, error) {
	id, err := gh.RunnerGroupID(ctx, set.Spec.RunnerGroup)
	if github.IsRunnerGroupNotFound(err) {
		return 0, kube.Stall(catalog.RunnerGroupMissing.With(set.Spec.RunnerGroup, set.Spec.ConnectionRef.Name))
	}
	return id, outcome(err)
}

// findOrCreate looks for the scale set by ID, then by name, and otherwise creates it. If another client takes the name in
// between, the next attempt finds that scale set.
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

// listening returns the state of the session as a condition, and an outcome unless the session is open. While the session
// is being opened, the condition is nil if isSaid is true, which means that the record already has the condition. owner
// describes the holder of a foreign session or, for a refused session, is the pool's own name as an owner.
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

// copied is how long Corral assumes that a blocking session with the pool's owner name is the pool's own earlier session.
// That session has certainly expired by then, so another process must be using the same owner name.
const copied = 2 * scaleset.SessionLife

// refused returns why a session cannot be opened. A session with the pool's own owner name, or of a deleted pool of this
// cluster, blocks it.
func refused(name string, s scaleset.Snapshot, owner string, now time.Time) error {
	switch {
	case now.Sub(s.Since) > copied:
		return kube.Stall(catalog.ScaleSetHeldByTwin.With(name))
	case s.Owner != owner:
		return kube.Wait(connectionRetry, catalog.SessionOfFormerPool.With())
	}
	return kube.Wait(connectionRetry, catalog.SessionUnexpired.With())
}

// labelsAccepted returns whether GitHub kept all labels, as a condition.
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

// ensureSession runs the session, and returns its state.
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

// measured is a Recorder that measures jobs once their events are stored.
type measured struct {
	scaleset.Recorder
	jobs JobMeter
	pool types.NamespacedName
}

// RecordJobs records events and then measures them. Events that cannot be recorded arrive again.
func (m measured) RecordJobs(ctx context.Context, events []scaleset.JobEvent) error {
	if err := m.Recorder.RecordJobs(ctx, events); err != nil {
		return err
	}
	if m.jobs != nil {
		m.jobs.Observe(m.pool, events)
	}
	return nil
}

// forget drops the state of a pool that is gone.
func (r *Reconciler) forget(pool types.NamespacedName) {
	r.Sessions.forget(pool)
	if r.Jobs != nil {
		r.Jobs.Forget(pool)
	}
}

// seals returns the sealed IDs of a session for the status. Without a seal, anyone who can write a status could claim to
// have held any session. Corral writes the first one, and accepts each of them. The seal that is made with the leaders' key
// survives a change of the credentials. The other seal is made with the credentials. Older versions wrote that seal, and so
// does a process without leader election.
func (r *Reconciler) seals(set *v1alpha1.RunnerScaleSet, gh *scaleset.Client, id int64, session string) []string {
	text := fmt.Sprintf("%s/%s %d %s", r.Cluster, set.Spec.PoolUID, id, session)
	sealed := []string{session + "." + gh.Seal(text)}
	if key := r.Sessions.lease.Key(); key != "" {
		sealed = append([]string{session + "." + github.Seal([]byte(key), text)}, sealed...)
	}
	return sealed
}

// unsealed returns the ID of the session that the pool last held; empty if there is none, or if the status has no valid
// seal for it.
func (r *Reconciler) unsealed(set *v1alpha1.RunnerScaleSet, gh *scaleset.Client, id int64) string {
	session, _, _ := strings.Cut(set.Status.SessionID, ".")
	if !slices.Contains(r.seals(set, gh, id, session), set.Status.SessionID) {
		return ""
	}
	return session
}

// ownerGone reports whether a session owner is a pool of this cluster that no longer exists, for example after all objects
// were restored with new UIDs.
func (r *Reconciler) ownerGone(owner string) bool {
	holder, ours, err := r.holder(owner)
	return ours && err == nil && holder == nil
}

// holder returns the pool that a session owner identifies; nil if there is none. ours is false for an owner in another
// cluster.
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

// nameHolder describes the holder of a scale set's session. If GitHub does not name the holder, nameHolder looks for a pool
// of this cluster whose record has a session.
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
	_, _ = r.anotherHas(ctx, gh, set, remote, holds) // without an answer the holder is unknown
	return r.nameOwner(owner, set.Namespace)
}

// nameOwner describes the holder of a session for users of a namespace. It does not reveal the names of pools in other
// namespaces.
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

// update changes name, group and labels on GitHub if they differ, and returns the new state on GitHub. It runs only after
// listening, because only the holder of the session may change anything.
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
		r.verified.Delete(client.ObjectKeyFromObject(set))
		return remote, outcome(err)
	}
	r.verify(set, updated, true)
	return updated, nil
}

// sameLabels compares labels as GitHub does, ignoring order and case.
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

// outcome converts GitHub's answers to outcomes. Limits and outages wait, and refusals stall until a user changes
// something.
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
		return errors.New(github.Summary(err)) // without request IDs, so that the message stays the same
	}
	return nil
}
