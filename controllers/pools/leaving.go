// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

// deletedEvent is the event reason for a deleted pool that still has runners.
const deletedEvent = "Deleted"

// leaving describes the runners of a pool that is being deleted, or is gone.
type leaving struct {
	uid     types.UID // UID of the pool
	working []string  // names of the runners with a job
	ending  int       // number of other runners
	counts  v1alpha1.RunnerCounts
}

func (l leaving) total() int { return len(l.working) + l.ending }

func (l leaving) text(deleted time.Time) string {
	return wording.Leaving(deleted, len(l.working), l.ending)
}

// leavingOf lists the remaining runners of a pool.
func (r *Reconciler) leavingOf(ctx context.Context, key types.NamespacedName) (l leaving, err error) {
	list := &v1alpha1.RunnerList{}
	if err := r.Client.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return l, fmt.Errorf("listing runners of a pool that is gone: %w", err)
	}
	for i := range list.Items {
		x := &list.Items[i]
		if owner := metav1.GetControllerOf(x); owner != nil {
			l.uid = owner.UID
		}
		if x.IsReleased() {
			continue
		}
		poolstatus.Count(&l.counts, x.Status.State, false)
		if job, _ := r.Results.LastJob(x); x.Status.State == v1alpha1.RunnerBusy || job != nil && !job.IsOver() {
			l.working = append(l.working, x.Name)
		} else {
			l.ending++
		}
	}
	return l, nil
}

// leave reports how many runners remain for a pool that is deleted in the foreground, which therefore stays until its
// runners have ended.
func (r *Reconciler) leave(ctx context.Context, attempt *kube.Attempt, pool *v1alpha1.RunnerPool) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(pool)
	l, err := r.leavingOf(ctx, key)
	if err == nil {
		unmeasure(key)
		setLeft(key, l.total())
		l.project(pool, r.Now())
		err = kube.Wait(recheck, catalog.RunnersLeaving.With(l.text(pool.DeletionTimestamp.Time)))
	}
	return attempt.Finish(ctx, kube.Done{}, err)
}

// project reduces the status to what still applies to a pool that takes no jobs and starts no runners any more.
func (l leaving) project(pool *v1alpha1.RunnerPool, now time.Time) {
	for _, c := range slices.Clone(pool.Status.Conditions) {
		if !slices.Contains([]string{v1alpha1.ReadyCondition, v1alpha1.ReconcilingCondition, v1alpha1.StalledCondition}, c.Type) {
			conditions.Delete(pool, c.Type)
		}
	}
	s := &pool.Status
	jobs := int32(len(l.working)) //nolint:gosec // far below
	s.Jobs, s.JobsWaiting, s.Runners = &jobs, 0, l.counts
	s.Demand, s.Schedule, s.Observation, s.Update = nil, nil, nil, nil
	const why = "deleted: runners with a job finish it"
	if d := s.Decision; d == nil || d.Desired != jobs || d.Announced != 0 || d.Reason != why {
		s.Decision = &v1alpha1.Decision{Time: metav1.Time{Time: now}, Desired: jobs, Reason: why}
	}
}

// forget drops the state of a pool that is gone. Its runners with a job continue, and still count under the ceilings
// that the pool shared. Each runner that ends triggers another call. Only the process that knew the pool reports the
// remaining runners, once.
func (r *Reconciler) forget(ctx context.Context, key types.NamespacedName) error {
	wasKnown := r.memory.drop(key)
	r.Results.SinceLastPass(key)
	r.Claims.Forget(key)
	unmeasure(key)
	if err := r.forgetKept(ctx, key); err != nil {
		return err
	}
	l, err := r.leavingOf(ctx, key)
	if err != nil {
		return err
	}
	r.Policies.Forget(key, int32(l.total())) //nolint:gosec // far below
	if l.total() == 0 {
		return nil
	}
	setLeft(key, l.total())
	if wasKnown {
		gone := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: l.uid}}
		text := l.text(r.Now())
		if len(l.working) > 0 {
			text += ": " + wording.List(l.working, maxNamed)
		}
		r.Event(gone, corev1.EventTypeNormal, deletedEvent, text)
		log.FromContext(ctx).Info("The pool is gone", "message", text)
	}
	return nil
}
