// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// isOverdue reports whether a runner's deadline for connecting to GitHub had passed at the time asked, to which GitHub's
// answer refers.
func isOverdue(ctx context.Context, c client.Reader, r *v1alpha1.Runner, pod *corev1.Pod, asked, now time.Time) bool {
	o := poolstatus.Observe(r, pod, 0, now)
	if o.StartedAt.IsZero() || !o.EndedAt.IsZero() {
		return false
	}
	return !asked.Before(o.StartedAt.Add(connectDeadline(ctx, c, r)))
}

// connectDeadline returns how long after its container's start a runner may take to connect.
func connectDeadline(ctx context.Context, c client.Reader, r *v1alpha1.Runner) time.Duration {
	pool := &v1alpha1.RunnerPool{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.PoolRef.Name}, pool); err != nil {
		return v1alpha1.DefaultConnectDeadline
	}
	return pool.Spec.Deadlines.GetConnect()
}

// giveUp deletes the Runner of a runner that GitHub does not see as connected. No job is lost, because GitHub refuses to
// deregister a runner that has one, and the pod is deleted only after that.
func giveUp(ctx context.Context, report kube.Reporter, memory *Memory, r *v1alpha1.Runner, pod *corev1.Pod, wasOnline bool, now time.Time) error {
	cause := v1alpha1.CauseNeverConnected
	why := fmt.Sprintf("its container runs, but it has not connected to GitHub after %s: can it reach GitHub?", connectDeadline(ctx, report.Client, r))
	if wasOnline {
		cause, why = v1alpha1.CauseRemoved, "it is no longer connected to GitHub: is its node gone?"
	}
	memory.MarkFailed(client.ObjectKeyFromObject(r), r.UID, poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: now, Cause: cause, Reason: why})
	if _, err := End(ctx, report.Client, r, string(cause)+": "+why); err != nil {
		return err
	}
	report.Event(r, corev1.EventTypeNormal, string(v1alpha1.RunnerFailed), fmt.Sprintf("%s: %s", cause, why))
	memory.recordFailure(types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.PoolRef.Name}, Failure{
		Runner: r.Name, Revision: r.Spec.Revision, Cause: cause, Message: why, Node: nodeOf(pod, nil), Began: r.CreationTimestamp.Time, At: now,
	})
	return nil
}

// judge decides whether to delete a suspected runner that is still registered. It deletes a runner that has no job and is
// not connected, once the deadline for connecting has passed. A runner that was connected before must also be disconnected
// at two consecutive checks.
func (p pass) judge(ctx context.Context, known *registered) error {
	before := p.Memory.looked(client.ObjectKeyFromObject(p.runner), known)
	hasJob := known.busy || p.observe(nil).Job != nil
	now := p.Now()
	switch {
	case !known.offline, hasJob, before.wasOnline && !before.offline, !isOverdue(ctx, p.Client, p.runner, p.pod, now, now):
		return nil
	}
	return giveUp(ctx, p.Reporter, p.Memory, p.runner, p.pod, before.wasOnline, now)
}
