// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// orphanAfter is how long deletion waits for a connection that is gone.
	orphanAfter = 5 * time.Minute
	// drainRetry is the time to the next look at remaining runners, should a watch miss one.
	drainRetry = 15 * time.Second
	// closeTimeout bounds the closing of a session.
	closeTimeout = 10 * time.Second
)

// finalize deletes the scale set on GitHub: it takes in nothing more, the pool's
// runners end first, and only who holds the session deletes.
func (x *run) finalize(ctx context.Context) error {
	if x.isForged() {
		return x.release(ctx)
	}
	x.Sessions.Announce(x.key, 0)
	if !x.Access.CleansUp(ctx, x.connectionKey(), x.set.Namespace) {
		x.closeSession(ctx, v1alpha1.AccessDeniedReason)
		return x.orphan(ctx, true, x.Access.Denial(x.connectionKey(), x.set.Namespace))
	}
	gh, ok := x.Clients.Get(connections.Key(x.connectionKey()))
	if !ok {
		gone, err := connections.Gone(ctx, x.Client, x.connectionKey())
		if err != nil {
			return err
		}
		return x.orphan(ctx, gone, fmt.Sprintf("GitHubConnection %q is gone", x.set.Spec.ConnectionRef.Name))
	}
	x.github = gh
	there, err := x.locate(ctx)
	if err != nil {
		return err
	}
	if there {
		x.ensureSession() // the runners that are waited for are told of their jobs by it, and deregistered by who holds it
		x.Sessions.Announce(x.key, 0)
	}
	if err := x.drained(ctx); err != nil {
		return err
	}
	if there {
		if err := x.deleteThere(ctx); err != nil {
			return err
		}
	}
	return x.release(ctx)
}

// drained waits until none of the pool's runners is left.
func (x *run) drained(ctx context.Context) error {
	runners := &v1alpha1.RunnerList{}
	if err := x.Client.List(ctx, runners, client.InNamespace(x.key.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: x.set.Spec.PoolRef.Name}); err != nil {
		return fmt.Errorf("listing runners: %w", err)
	}
	left := 0
	for i := range runners.Items {
		if owner := metav1.GetControllerOf(&runners.Items[i]); owner != nil && owner.UID == types.UID(x.set.Spec.PoolUID) {
			left++
		}
	}
	if left > 0 {
		return kube.Wait(v1alpha1.DrainingReason, drainRetry, "waiting for %d runners to end", left)
	}
	return nil
}

// locate reports whether there is something to delete; a lost answer to the creation
// may have left a scale set whose id was never written down.
func (x *run) locate(ctx context.Context) (bool, error) {
	if x.set.Status.ID != 0 {
		return true, nil
	}
	group, err := x.github.RunnerGroupID(ctx, x.set.Spec.RunnerGroup)
	if github.IsRunnerGroupNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, outcome(err)
	}
	remote, err := x.github.Find(ctx, group, x.set.Spec.Name)
	if err != nil || remote == nil {
		return false, outcome(err)
	}
	x.remote = remote
	x.recordRemote()
	return true, nil
}

// deleteThere deletes the scale set, unless another pool has it: then it is left to that one, for which a session may be closed for a moment.
func (x *run) deleteThere(ctx context.Context) error {
	shared, err := x.anotherHas(ctx, x.set.Status.ID, func(*v1alpha1.ScaleSet) bool { return true })
	if err != nil {
		return err
	}
	if shared {
		x.Event(x.set, corev1.EventTypeNormal, v1alpha1.OwnedElsewhereReason,
			fmt.Sprintf("scale set %q (id %d) is left on GitHub: another RunnerPool of this cluster has it", x.set.Spec.Name, x.set.Status.ID))
		return nil
	}
	x.ensureSession()
	x.Sessions.Announce(x.key, 0)
	switch {
	case x.snapshot.State == scaleset.OwnedElsewhere:
		x.Event(x.set, corev1.EventTypeWarning, v1alpha1.OwnedElsewhereReason,
			fmt.Sprintf("scale set %q (id %d) is left on GitHub: it is held by %s", x.set.Spec.Name, x.set.Status.ID, x.snapshot.Owner))
		return nil
	case github.IsNotFound(x.snapshot.Err):
		return nil
	case x.isRefused() && x.Now().Sub(x.set.DeletionTimestamp.Time) >= orphanAfter:
		x.abandon(x.snapshot.Message)
		return nil
	case x.snapshot.State != scaleset.Listening:
		return kube.Wait(v1alpha1.DrainingReason, connectionRetry, "deleting needs the session: %s", x.snapshot.State)
	}
	stopping, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	x.Sessions.Stop(stopping, x.key)
	return outcome(x.github.Delete(ctx, x.set.Status.ID))
}

// orphan waits for a connection that isn't ready; for one that is gone or denies access, a bounded
// time. Then the scale set is left on GitHub, to be adopted when its name is declared
// again.
func (x *run) orphan(ctx context.Context, gone bool, reason string) error {
	if !gone || x.set.Status.ID != 0 && x.Now().Sub(x.set.DeletionTimestamp.Time) < orphanAfter {
		return kube.Wait(v1alpha1.ConnectionNotReadyReason, connectionRetry, "deleting the scale set needs GitHubConnection %q", x.set.Spec.ConnectionRef.Name)
	}
	if x.set.Status.ID != 0 {
		x.abandon(reason)
	}
	return x.release(ctx)
}

// isRefused reports whether GitHub refuses the credentials: the token was revoked, or the App removed.
func (x *run) isRefused() bool {
	return github.IsUnauthorized(x.snapshot.Err) || github.IsForbidden(x.snapshot.Err)
}

// abandon tells that the scale set is left on GitHub.
func (x *run) abandon(why string) {
	orphansTotal.Inc()
	x.Event(x.set, corev1.EventTypeWarning, v1alpha1.ConnectionNotReadyReason,
		fmt.Sprintf("scale set %q (id %d) is left on GitHub: %s", x.set.Spec.Name, x.set.Status.ID, why))
}

// release ends the session and removes the finalizer.
func (x *run) release(ctx context.Context) error {
	stopping, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	x.Sessions.Stop(stopping, x.key)
	x.Sessions.lose(x.key)
	x.verified.Delete(x.set.UID)
	base := x.set.DeepCopy()
	controllerutil.RemoveFinalizer(x.set, v1alpha1.ScaleSetFinalizer)
	if err := x.Client.Patch(ctx, x.set.DeepCopy(), client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting go of the scale set: %w", err)
	}
	return nil
}
