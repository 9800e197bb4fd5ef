// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connection"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	actions "github.com/corral-dev/corral/internal/scaleset"
)

const (
	// busyRetry is the time to the next attempt to deregister a runner that has a job.
	// The end of its pod is noticed at once; this is for what no watch shows.
	busyRetry = 15 * time.Second
	// orphanAfter is how long deregistering waits for a connection or rights that are gone.
	orphanAfter = 5 * time.Minute
)

// finalize ends a runner: GitHub forgets it first, so that no job can reach it,
// then its pod goes, then its finalizer. A runner with a job is waited for.
func (x *run) finalize(ctx context.Context) error {
	if err := x.observe(ctx); err != nil {
		return err
	}
	if err := x.deregister(ctx); err != nil {
		return err
	}
	if err := x.deletePod(ctx); err != nil {
		return err
	}
	base := x.runner.DeepCopy()
	controllerutil.RemoveFinalizer(x.runner, v1alpha1.RunnerFinalizer)
	if err := x.Client.Patch(ctx, x.runner.DeepCopy(), client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting go of the runner: %w", err)
	}
	x.gone = true
	return nil
}

// deregister removes the registration, once.
func (x *run) deregister(ctx context.Context) error {
	name := client.ObjectKeyFromObject(x.runner)
	if uid, ok := x.deregistered.Load(name); x.runner.Status.DeregisteredAt != nil || ok && uid == x.runner.UID {
		return nil
	}
	gh, ok := x.client()
	if !ok {
		return x.orphan(ctx)
	}
	id, err := x.registration(ctx, gh)
	if err != nil || id == 0 {
		return err
	}
	switch err := gh.RemoveRunner(ctx, id); {
	case actions.IsUnauthorized(err), actions.IsForbidden(err):
		return x.giveUp(actions.Summary(err))
	case actions.IsJobStillRunning(err):
		return kube.Wait(v1alpha1.DrainingReason, busyRetry, "its job goes on; the runner ends after it")
	case err != nil:
		return githubOutcome(err)
	}
	x.deregistered.Store(name, x.runner.UID)
	x.runner.Status.DeregisteredAt = &metav1.Time{Time: x.Now()}
	return nil
}

// registration finds the id of the registration; 0 when there is none.
func (x *run) registration(ctx context.Context, gh *actions.Client) (int64, error) {
	if id := x.runner.Status.RunnerID; id != 0 {
		return id, nil
	}
	known, err := gh.RunnerByName(ctx, x.runner.Name)
	if err != nil {
		return 0, githubOutcome(err)
	}
	if known == nil || known.SetID != x.runner.Spec.ScaleSetID {
		return 0, nil
	}
	x.runner.Status.RunnerID = known.ID
	return known.ID, nil
}

// orphan waits for a connection that isn't ready; one that is gone is given up.
func (x *run) orphan(ctx context.Context) error {
	gone, err := connection.Gone(ctx, x.Client, client.ObjectKey{Namespace: x.runner.Namespace, Name: x.runner.Spec.ConnectionRef.Name})
	if err != nil {
		return err
	}
	if !gone {
		return kube.Wait(v1alpha1.ConnectionNotReadyReason, connectionRetry, "deregistering needs GitHubConnection %q", x.runner.Spec.ConnectionRef.Name)
	}
	return x.giveUp(fmt.Sprintf("GitHubConnection %q is gone", x.runner.Spec.ConnectionRef.Name))
}

// giveUp waits a bounded time for rights that were taken away; then the registration is
// left to GitHub, which purges it after about a day. A runner known to have a job is
// waited for all the same.
func (x *run) giveUp(why string) error {
	if x.verdict.State == v1alpha1.RunnerBusy || x.Now().Sub(x.runner.DeletionTimestamp.Time) < orphanAfter {
		return kube.Wait(v1alpha1.ConnectionNotReadyReason, connectionRetry, "deregistering: %s", why)
	}
	orphansTotal.Inc()
	x.Event(x.runner, corev1.EventTypeWarning, v1alpha1.ConnectionNotReadyReason,
		fmt.Sprintf("runner %d may still be registered on GitHub: %s", x.runner.Status.RunnerID, why))
	return nil
}

// deletePod deletes the pod, within its grace period, and waits for one that still
// runs to go. It is never a busy one: its registration could not have been removed.
func (x *run) deletePod(ctx context.Context) error {
	if err := x.findPod(ctx); err != nil || x.pod == nil {
		return err
	}
	if x.pod.DeletionTimestamp.IsZero() {
		uid := x.pod.UID
		if err := x.Client.Delete(ctx, x.pod, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the pod: %w", err)
		}
	}
	if x.runner.Status.EndedAt != nil {
		return nil
	}
	return kube.Wait(v1alpha1.DrainingReason, poolstatus.Settle, "waiting for the pod to end")
}

// findPod looks for a pod that the cache may not show yet: one that was created just
// before the runner was ended would stay behind for ever.
func (x *run) findPod(ctx context.Context) error {
	if x.pod != nil || x.runner.Status.StartedAt != nil {
		return nil
	}
	pod := &corev1.Pod{}
	if err := x.Live.Get(ctx, client.ObjectKeyFromObject(x.runner), pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("looking for the pod: %w", err)
	}
	if podspec.BelongsTo(pod, x.runner) {
		x.pod = pod
	}
	return nil
}
