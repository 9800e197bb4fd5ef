// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// orphanAfter is how long deletion waits for a connection that is gone, denies access or has credentials that GitHub
	// refuses.
	orphanAfter = 5 * time.Minute
	// drainRetry is the delay before the next check of remaining runners, in case a watch misses a change.
	drainRetry = 15 * time.Second
	// goneAfter is how long GitHub must answer that a scale set does not exist before its record is deleted.
	goneAfter = 10 * time.Second
	// closeTimeout limits closing a session.
	closeTimeout = 10 * time.Second
)

// finalize deletes the scale set on GitHub. It first announces a capacity of 0, so that GitHub assigns no more jobs, and
// waits until the pool's runners are gone. Only the pool that holds the session deletes the scale set.
func (r *Reconciler) finalize(ctx context.Context, set *v1alpha1.RunnerScaleSet) (o observation, err error) {
	if r.isForged(set) {
		return o, r.release(ctx, set)
	}
	key, connection := client.ObjectKeyFromObject(set), connectionOf(set)
	r.Sessions.Announce(key, 0)
	if !r.Access.CleansUp(ctx, connection, set.Namespace) {
		o.listening = r.closeSession(ctx, set, catalog.SessionClosedWithoutAccess)
		return o, r.orphan(ctx, set, true, r.Access.Denial(connection, set.Namespace).String())
	}
	gh, ok := r.Clients.Get(connections.Key(connection))
	if !ok {
		gone, err := connections.Gone(ctx, r.Client, connection)
		if err != nil {
			return o, err
		}
		return o, r.orphan(ctx, set, gone, fmt.Sprintf("GitHubConnection %q is gone", set.Spec.ConnectionRef.Name))
	}
	id := set.Status.ID
	if id == 0 {
		if o.remote, err = locate(ctx, gh, set); err != nil {
			return o, err
		}
		if o.remote != nil {
			id = o.remote.ID
		}
	}
	if id != 0 && r.checkOwner(ctx, gh, set, recorded(set, id)) == nil {
		r.ensureSession(set, gh, id) // the session reports the jobs of the remaining runners, and its holder may deregister them
		r.Sessions.Announce(key, 0)
	}
	if err := r.drained(ctx, set); err != nil {
		return o, err
	}
	if id != 0 {
		if err := r.deleteThere(ctx, gh, set, id); err != nil {
			return o, err
		}
	}
	return o, r.release(ctx, set)
}

// drained returns nil once none of the pool's runners remain, and an outcome that waits until then.
func (r *Reconciler) drained(ctx context.Context, set *v1alpha1.RunnerScaleSet) error {
	runners := &v1alpha1.RunnerList{}
	if err := r.Client.List(ctx, runners, client.InNamespace(set.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: set.Spec.PoolRef.Name}); err != nil {
		return fmt.Errorf("listing runners: %w", err)
	}
	working, ending := 0, 0
	for i := range runners.Items {
		x := &runners.Items[i]
		switch owner := metav1.GetControllerOf(x); {
		case owner == nil || owner.UID != types.UID(set.Spec.PoolUID), x.IsReleased():
		case x.Status.State == v1alpha1.RunnerBusy:
			working++
		default:
			ending++
		}
	}
	if working+ending > 0 {
		return kube.Wait(drainRetry, catalog.RunnersLeaving.With(wording.Leaving(set.DeletionTimestamp.Time, working, ending)))
	}
	return nil
}

// locate looks for a scale set whose ID was never stored, because the answer to its creation may have been lost. It returns
// nil if there is none.
func locate(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet) (*scaleset.Set, error) {
	group, err := gh.RunnerGroupID(ctx, set.Spec.RunnerGroup)
	if github.IsRunnerGroupNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, outcome(err)
	}
	remote, err := gh.Find(ctx, group, set.Spec.Name)
	return remote, outcome(err)
}

// recorded returns a scale set according to its record.
func recorded(set *v1alpha1.RunnerScaleSet, id int64) *scaleset.Set {
	return &scaleset.Set{ID: id, Name: cmp.Or(set.Status.Name, set.Spec.Name), GroupName: cmp.Or(set.Status.RunnerGroup, set.Spec.RunnerGroup)}
}

// deleteThere deletes the scale set on GitHub. If the record of another pool refers to the scale set, it leaves it to that
// pool, even if that pool's session is closed at the moment.
func (r *Reconciler) deleteThere(ctx context.Context, gh *scaleset.Client, set *v1alpha1.RunnerScaleSet, id int64) error {
	left := func(kind, why string) {
		r.Event(set, kind, v1alpha1.OwnedElsewhereReason, fmt.Sprintf("scale set %q (id %d) is left on GitHub: %s", set.Spec.Name, id, why))
	}
	shared, err := r.anotherHas(ctx, gh, set, recorded(set, id), func(*v1alpha1.RunnerScaleSet) bool { return true })
	if err != nil {
		return err
	}
	if shared {
		left(corev1.EventTypeNormal, "another RunnerPool of this cluster has it")
		return nil
	}
	session := r.ensureSession(set, gh, id)
	r.Sessions.Announce(client.ObjectKeyFromObject(set), 0)
	switch {
	case session.State == scaleset.OwnedElsewhere:
		left(corev1.EventTypeWarning, "it is held by "+session.Owner)
		return nil
	case github.IsNotFound(session.Err) && r.Now().Sub(session.Since) < goneAfter:
		return kube.Wait(connectionRetry, catalog.ScaleSetUnknown.With(id))
	case github.IsNotFound(session.Err):
		return nil
	case isRefused(session.Err) && r.Now().Sub(set.DeletionTimestamp.Time) >= orphanAfter:
		r.abandon(set, id, session.Message)
		return nil
	case session.State != scaleset.Listening:
		return kube.Wait(connectionRetry, catalog.SessionNeeded.With(session.State))
	}
	r.stop(ctx, set)
	if err := gh.Delete(ctx, id); err != nil {
		return outcome(err)
	}
	log.FromContext(ctx).Info("Deleted on GitHub", "deleted", "scale set "+set.Spec.Name, "id", id, "reason", "its pool was deleted or no longer uses it")
	return nil
}

// orphan returns the outcome for a scale set that has no usable connection. It waits for a connection that is not ready. If
// the connection is gone or denies access, it waits a limited time and then leaves the scale set on GitHub. A pool that
// declares the name of the scale set later adopts it.
func (r *Reconciler) orphan(ctx context.Context, set *v1alpha1.RunnerScaleSet, gone bool, reason string) error {
	if !gone {
		return connections.NotReady(ctx, r.Client, connectionOf(set))
	}
	if set.Status.ID != 0 && r.Now().Sub(set.DeletionTimestamp.Time) < orphanAfter {
		return kube.Wait(connectionRetry, catalog.DeletionNeedsConnection.With(set.Spec.ConnectionRef.Name))
	}
	if set.Status.ID != 0 {
		r.abandon(set, set.Status.ID, reason)
	}
	return r.release(ctx, set)
}

// isRefused reports whether GitHub refuses the credentials because the token was revoked or the App removed.
func isRefused(err error) bool { return github.IsUnauthorized(err) || github.IsForbidden(err) }

// abandon reports that the scale set stays on GitHub.
func (r *Reconciler) abandon(set *v1alpha1.RunnerScaleSet, id int64, why string) {
	orphansTotal.Inc()
	r.Event(set, corev1.EventTypeWarning, v1alpha1.ConnectionNotReadyReason, fmt.Sprintf("scale set %q (id %d) is left on GitHub: %s", set.Spec.Name, id, why))
}

// release ends the session and removes the finalizer.
func (r *Reconciler) release(ctx context.Context, set *v1alpha1.RunnerScaleSet) error {
	r.stop(ctx, set)
	r.forget(client.ObjectKeyFromObject(set))
	r.verified.Delete(client.ObjectKeyFromObject(set))
	base := set.DeepCopy()
	controllerutil.RemoveFinalizer(set, v1alpha1.ScaleSetFinalizer)
	if err := r.Client.Patch(ctx, set.DeepCopy(), client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of the scale set: %w", err)
	}
	return nil
}
