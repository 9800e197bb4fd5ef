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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/runners"
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

// +kubebuilder:rbac:groups=corral.dev,resources=scalesets,verbs=list;watch;patch
// +kubebuilder:rbac:groups=corral.dev,resources=scalesets/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;runners,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles ScaleSets.
type Reconciler struct {
	kube.Reporter
	Clients  Clients
	Sessions *Sessions
	// Access says which connections of other namespaces may be used; nil for none.
	Access *connections.Access
	Memory *runners.Memory
	// Cluster identifies this cluster in the session owner's name.
	Cluster string
	Now     func() time.Time

	verified sync.Map // types.UID → verification
}

// New returns a Reconciler. cluster identifies this cluster in the names of session owners.
func New(report kube.Reporter, clients Clients, sessions *Sessions, access *connections.Access, memory *runners.Memory, cluster string) *Reconciler {
	return &Reconciler{Reporter: report, Clients: clients, Sessions: sessions, Access: access, Memory: memory, Cluster: cluster, Now: time.Now}
}

// verification is what GitHub had when it was last asked, for which generation of
// the record, and when.
type verification struct {
	remote     *scaleset.Set
	generation int64
	at         time.Time
}

// run is one reconciliation of one scale set.
type run struct {
	*Reconciler
	key      types.NamespacedName
	set      *v1alpha1.ScaleSet
	github   *scaleset.Client
	remote   *scaleset.Set // as GitHub has it, now or when it was last asked
	snapshot scaleset.Snapshot
}

// Reconcile keeps one scale set as its record wants it:
//
//  1. connect: the connection's client
//  2. exist: found, adopted or created on GitHub, and looked at again now and then
//  3. listen: a message session; only who holds it may change or delete
//  4. update: name, group and labels
//
// A deleted one is drained, then deleted there (finalize.go).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &v1alpha1.ScaleSet{}
	if err := r.Client.Get(ctx, req.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.Sessions.Stop(ctx, req.NamespacedName) // somebody took its finalizer away
			r.Sessions.lose(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ctx = github.InFlow(ctx, req.String())
	x := &run{Reconciler: r, key: req.NamespacedName, set: set}
	attempt := r.Begin(set)
	if err := kube.Unreadable(set); err != nil && set.DeletionTimestamp.IsZero() {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	steps := []func(context.Context) error{x.connect, x.exist, x.listen, x.update}
	if !set.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(set, v1alpha1.ScaleSetFinalizer) {
			return ctrl.Result{}, nil
		}
		steps = []func(context.Context) error{x.finalize}
	}
	var err error
	for _, step := range steps {
		if err = step(ctx); err != nil {
			break
		}
	}
	if err == nil && !set.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its finalizer is off: there is no status to write any more
	}
	after := verifyInterval
	if kube.IsStalled(err) {
		after = settingRetry
	}
	return attempt.Finish(ctx, kube.Done{Message: "listening", After: after}, err)
}

func (x *run) connect(ctx context.Context) error {
	key := x.connectionKey()
	if x.isForged() {
		return kube.Stall(v1alpha1.InvalidSpecReason, "spec.poolUID is that of a pool of another namespace")
	}
	if err := x.Access.Check(ctx, key, x.set.Namespace); err != nil {
		if kube.IsStalled(err) {
			x.closeSession(ctx, v1alpha1.AccessDeniedReason)
		}
		return err
	}
	gh, ok := x.Clients.Get(connections.Key(key))
	if !ok {
		return connections.NotReady(ctx, x.Client, key)
	}
	x.github = gh
	return nil
}

// isForged reports whether the record names a pool of another namespace as its own: a session would be opened in that pool's name.
func (x *run) isForged() bool {
	holder, _, err := x.holder(x.Cluster + "/" + x.set.Spec.PoolUID)
	return err == nil && holder != nil && holder.Namespace != x.set.Namespace
}

// checkOwner refuses a scale set that a pool of another namespace has by the same connection: one that declares its name or, if both do or
// neither does, that had it first. An id in a status can be anybody's. Who holds the session would tell, too, but
// not while the other's is closed for a moment. Who listens now keeps it.
func (x *run) checkOwner(ctx context.Context) error {
	if x.snapshot.State == scaleset.Listening && x.set.Status.ID == x.remote.ID {
		return nil
	}
	had, err := x.anotherHas(ctx, x.remote.ID, func(o *v1alpha1.ScaleSet) bool {
		first := o.CreationTimestamp.Before(&x.set.CreationTimestamp) || o.CreationTimestamp.Equal(&x.set.CreationTimestamp) && o.UID < x.set.UID
		if theirs := declares(o, x.remote); theirs != declares(x.set, x.remote) {
			first = theirs
		}
		return o.Namespace != x.set.Namespace && first
	})
	if err != nil || !had {
		return err
	}
	x.closeSession(ctx, v1alpha1.OwnedElsewhereReason)
	x.Sessions.lose(x.key)
	return kube.Stall(v1alpha1.OwnedElsewhereReason, "the scale set %q is that of a RunnerPool of another namespace of this cluster; choose another spec.scaleSetName", x.set.Spec.Name)
}

// declares reports whether a record asks for a scale set by its name.
func declares(s *v1alpha1.ScaleSet, remote *scaleset.Set) bool {
	return strings.EqualFold(s.Spec.Name, remote.Name) && strings.EqualFold(s.Spec.RunnerGroup, remote.GroupName)
}

// anotherHas reports whether the record of another pool, which stays, has the scale set by the same connection.
func (x *run) anotherHas(ctx context.Context, id int64, counts func(*v1alpha1.ScaleSet) bool) (bool, error) {
	sets := &v1alpha1.ScaleSetList{}
	if err := x.Client.List(ctx, sets, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("looking who has the scale set: %w", err)
	}
	for i := range sets.Items {
		o := &sets.Items[i]
		if o.UID != x.set.UID && o.DeletionTimestamp.IsZero() && o.Status.ID == id && o.Spec.ConnectionRef.From(o.Namespace) == x.connectionKey() && counts(o) {
			return true, nil
		}
	}
	return false, nil
}

// closeSession ends the session of a scale set that is another's, or whose connection isn't the namespace's to use any more. What is on GitHub
// stays, for consent may come back.
func (x *run) closeSession(ctx context.Context, reason string) {
	stopping, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	x.Sessions.Stop(stopping, x.key)
	conditions.MarkFalse(x.set, v1alpha1.ListeningCondition, reason, "the session was closed")
}

func (x *run) connectionKey() types.NamespacedName {
	return x.set.Spec.ConnectionRef.From(x.set.Namespace)
}

// exist makes sure that the scale set is there. What GitHub has is asked for when
// the record changed, when the session says that it is gone, and now and then.
func (x *run) exist(ctx context.Context) error {
	last, _ := x.verified.Load(x.set.UID)
	v, _ := last.(verification)
	x.snapshot, _ = x.Sessions.Snapshot(x.key)
	if v.remote != nil && x.set.Status.ID == v.remote.ID && v.generation == x.set.Generation &&
		x.Now().Sub(v.at) < verifyInterval && !github.IsNotFound(x.snapshot.Err) {
		x.remote = v.remote
		return nil
	}
	group, err := x.group(ctx)
	if err != nil {
		return err
	}
	if x.remote, err = x.findOrCreate(ctx, group); err != nil {
		return outcome(err)
	}
	if err := x.checkOwner(ctx); err != nil {
		return err
	}
	x.recordRemote()
	return nil
}

func (x *run) group(ctx context.Context) (int64, error) {
	id, err := x.github.RunnerGroupID(ctx, x.set.Spec.RunnerGroup)
	if github.IsRunnerGroupNotFound(err) {
		return 0, kube.Stall(v1alpha1.RunnerGroupNotFoundReason,
			"runner group %q is not there, or GitHubConnection %q may not see it: create it on GitHub, or correct spec.runnerGroup", x.set.Spec.RunnerGroup, x.set.Spec.ConnectionRef.Name)
	}
	return id, outcome(err)
}

// findOrCreate looks by id, then by name, then creates. A name that is taken in
// between is looked up again by the next attempt.
func (x *run) findOrCreate(ctx context.Context, group int64) (*scaleset.Set, error) {
	if id := x.set.Status.ID; id != 0 {
		remote, err := x.github.Get(ctx, id)
		if err == nil || !github.IsNotFound(err) {
			return remote, err
		}
	}
	spec := x.set.Spec
	remote, err := x.github.Find(ctx, group, spec.Name)
	if err != nil || remote != nil {
		return remote, err
	}
	return x.github.Create(ctx, scaleset.Set{Name: spec.Name, GroupID: group, Labels: spec.Labels})
}

// listen runs the session and tells how it stands.
func (x *run) listen(context.Context) error {
	x.ensureSession()
	switch s := x.snapshot; s.State {
	case scaleset.Listening:
		conditions.MarkTrue(x.set, v1alpha1.ListeningCondition, v1alpha1.SucceededReason, "session open")
		return nil
	case scaleset.OwnedElsewhere:
		err := kube.Stall(v1alpha1.OwnedElsewhereReason,
			"the scale set %q is held by %s; choose another spec.scaleSetName or end the other", x.set.Spec.Name, x.nameOwner(s.Owner))
		conditions.MarkFalse(x.set, v1alpha1.ListeningCondition, v1alpha1.OwnedElsewhereReason, "%s", err)
		return err
	case scaleset.Refused:
		conditions.MarkFalse(x.set, v1alpha1.ListeningCondition, v1alpha1.SessionRefusedReason, "an earlier session of this pool has not expired yet")
		return kube.Wait(v1alpha1.SessionRefusedReason, connectionRetry, "an earlier session of this pool has not expired yet; jobs are served meanwhile")
	default:
		conditions.MarkUnknown(x.set, v1alpha1.ListeningCondition, v1alpha1.ProgressingReason, "opening a session")
		if s.Err != nil {
			return kube.Wait(v1alpha1.GitHubUnavailableReason, connectionRetry, "listening: %s", s.Message)
		}
		return kube.Progress(connectionRetry, "opening a session")
	}
}

func (x *run) ensureSession() {
	x.Sessions.Ensure(x.key, x.connectionKey(), scaleset.Config{
		Client: x.github, SetID: x.set.Status.ID, Owner: x.Cluster + "/" + x.set.Spec.PoolUID,
		Recorder:  &runners.Recorder{Client: x.Client, Namespace: x.set.Namespace, Memory: x.Memory},
		OwnerGone: x.ownerGone, Now: x.Now,
		Log: slog.New(logr.ToSlogHandler(log.Log.WithName("session").WithValues("scaleSet", klog.KObj(x.set)))),
	})
	x.snapshot, _ = x.Sessions.Snapshot(x.key)
}

// ownerGone reports whether a session owner of this cluster is a pool that is not
// there any more, as after a restore of all objects under new UIDs.
func (x *run) ownerGone(owner string) bool {
	holder, ours, err := x.holder(owner)
	return ours && err == nil && holder == nil
}

// holder finds the pool of this cluster that a session owner is; ours is false of an
// owner in another cluster.
func (x *run) holder(owner string) (pool *v1alpha1.RunnerPool, ours bool, err error) {
	uid, ours := strings.CutPrefix(owner, x.Cluster+"/")
	if !ours {
		return nil, false, nil
	}
	pools := &v1alpha1.RunnerPoolList{}
	if err := x.Client.List(context.Background(), pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, true, err
	}
	i := slices.IndexFunc(pools.Items, func(p v1alpha1.RunnerPool) bool { return string(p.UID) == uid })
	if i < 0 {
		return nil, true, nil
	}
	return &pools.Items[i], true, nil
}

// nameOwner says who holds a session.
func (x *run) nameOwner(owner string) string {
	switch holder, ours, _ := x.holder(owner); {
	case holder != nil && holder.Namespace != x.set.Namespace:
		return "a RunnerPool of another namespace of this cluster"
	case holder != nil:
		return fmt.Sprintf("RunnerPool %s/%s of this cluster", holder.Namespace, holder.Name)
	case ours:
		return "a former pool of this cluster"
	case owner == "":
		return "somebody else"
	}
	return fmt.Sprintf("another cluster or program, as %q", owner)
}

// update changes name, group and labels on GitHub where they differ. It runs only
// after listen: who does not hold the session changes nothing.
func (x *run) update(ctx context.Context) error {
	want := x.set.Spec
	if x.remote.Name != want.Name || !strings.EqualFold(x.remote.GroupName, want.RunnerGroup) || !sameLabels(x.remote.Labels, want.Labels) {
		group, err := x.group(ctx)
		if err != nil {
			return err
		}
		remote, err := x.github.Update(ctx, x.remote.ID, scaleset.Set{Name: want.Name, GroupID: group, Labels: want.Labels})
		if err != nil {
			x.verified.Delete(x.set.UID)
			return outcome(err)
		}
		x.remote = remote
		x.recordRemote()
	}
	if !sameLabels(x.remote.Labels, want.Labels) {
		conditions.MarkFalse(x.set, v1alpha1.LabelsAcceptedCondition, v1alpha1.LabelsDroppedReason,
			"GitHub kept %s of %s: servers before 3.21 take one label; jobs find this pool by those only", strings.Join(x.remote.Labels, ", "), strings.Join(want.Labels, ", "))
		return nil
	}
	conditions.MarkTrue(x.set, v1alpha1.LabelsAcceptedCondition, v1alpha1.SucceededReason, "%s", strings.Join(want.Labels, ", "))
	return nil
}

// recordRemote writes into the status what GitHub has.
func (x *run) recordRemote() {
	s := &x.set.Status
	s.ID, s.Name, s.RunnerGroup, s.Labels = x.remote.ID, x.remote.Name, x.remote.GroupName, x.remote.Labels
	x.verified.Store(x.set.UID, verification{remote: x.remote, generation: x.set.Generation, at: x.Now()})
}

// sameLabels compares labels as GitHub does: whatever their order and case.
func sameLabels(a, b []string) bool {
	return slices.Equal(normalLabels(a), normalLabels(b))
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
		return kube.Wait(v1alpha1.GitHubUnavailableReason, max(after, connectionRetry), "%s", github.Summary(err))
	}
	switch {
	case github.IsUnauthorized(err):
		return kube.Stall(v1alpha1.CredentialsRefusedReason, "%s", github.Summary(err))
	case github.IsForbidden(err):
		return kube.Stall(v1alpha1.PermissionMissingReason, "%s", github.Summary(err))
	case err != nil:
		return errors.New(github.Summary(err)) // without the request's ids: the same message each time
	}
	return nil
}
