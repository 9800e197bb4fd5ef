// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

// Limits for a failed runner's entry in the pool's status: bytes of text, and number of taints.
const (
	maxReason = 300
	maxLog    = 500
	maxTaint  = 100
	maxTaints = 3
)

// isToRetry reports whether a user requested a retry on which no pass has acted yet.
func (o observation) isToRetry() bool {
	asked := o.pool.Annotations[v1alpha1.RetryAnnotation]
	return asked != "" && asked != o.pool.Status.LastHandledRetryAt && asked != o.memory.health.retried
}

// retryRequested passes updates that change the retry annotation.
func retryRequested() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.RetryAnnotation] != e.ObjectNew.GetAnnotations()[v1alpha1.RetryAnnotation]
	}}
}

// failuresOf returns the failures of the runners that this pass gives up.
func failuresOf(o observation, failed map[string]poolstatus.Assessment) (list []runners.Failure) {
	for _, x := range o.runners {
		if why, ok := failed[x.runner.Name]; ok {
			list = append(list, runners.Failure{
				Runner: x.runner.Name, Revision: x.runner.Spec.Revision, Cause: why.Cause, Message: why.Reason, Node: x.node,
				Began: x.runner.CreationTimestamp.Time, At: o.now,
			})
		}
	}
	return list
}

// lastFailures returns the last failures of the pool's runners, newest first. A process that has just started continues
// with the list in the status.
func lastFailures(o observation, fresh []runners.Failure) []v1alpha1.RunnerFailure {
	known := o.memory.health.failures
	if known == nil {
		known = o.pool.Status.Failures
	}
	list := make([]v1alpha1.RunnerFailure, 0, len(fresh)+len(known))
	for _, f := range slices.Backward(fresh) {
		list = append(list, failureOf(f))
	}
	list = append(list, known...)
	return list[:min(len(list), v1alpha1.MaxFailures)]
}

// failureOf returns a failure in the form of the status: shortened, and with a time that the API server keeps unchanged.
func failureOf(f runners.Failure) v1alpha1.RunnerFailure {
	short := v1alpha1.RunnerFailure{
		Runner: f.Runner, Time: metav1.Time{Time: f.At.Truncate(time.Second)}, Revision: f.Revision, Cause: f.Cause, Reason: wording.Truncate(f.Message, maxReason),
		Node: f.Node,
	}
	if f.Exit != nil {
		exit := v1alpha1.RunnerExit{Actor: f.Exit.Actor, Code: f.Exit.Code, Reason: f.Exit.Reason, Signal: f.Exit.Signal, Message: wording.TruncateStart(f.Exit.Message, maxLog)}
		for _, t := range f.Exit.Taints[:min(len(f.Exit.Taints), maxTaints)] {
			exit.Taints = append(exit.Taints, wording.Truncate(t, maxTaint))
		}
		short.Exit = &exit
	}
	return short
}

// logFailed logs one line per failed runner. Its level is info, because another runner replaces the failed one. If the
// replacements fail too, the pool's condition Ready is logged as a warning.
func logFailed(ctx context.Context, o observation) {
	for _, f := range o.health.failures {
		short := failureOf(f)
		about := []any{"runner", f.Runner, "revision", f.Revision, "cause", f.Cause, "reason", short.Reason, "node", f.Node, "hadJob", f.HadJob}
		if short.Exit != nil {
			about = append(about, "exit", short.Exit.String())
		}
		log.FromContext(ctx).Info("Runner failed", about...)
	}
	if o.health.retries {
		log.FromContext(ctx).Info("Retrying because of the annotation", "annotation", v1alpha1.RetryAnnotation, "value", o.memory.health.retried)
	}
}

// keptTooLong returns the kept pods to delete: all but the last one, and also that one if its time has expired or the pool
// no longer keeps any.
func keptTooLong(pool *v1alpha1.RunnerPool, kept []*corev1.Pod, now time.Time) []*corev1.Pod {
	until := func(pod *corev1.Pod) time.Time { return runners.KeptUntil(pod, now) }
	kept = slices.SortedFunc(slices.Values(kept), func(a, b *corev1.Pod) int {
		return cmp.Or(until(b).Compare(until(a)), strings.Compare(b.Name, a.Name))
	})
	if len(kept) > 0 && pool.Spec.GetFailedPodTTL() > 0 && until(kept[0]).After(now) {
		return kept[1:]
	}
	return kept
}

// forgetKept deletes the kept pods of failed runners of a pool that is gone.
func (r *Reconciler) forgetKept(ctx context.Context, pool types.NamespacedName) error {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods of a pool that is gone: %w", err)
	}
	var kept []*corev1.Pod
	for i := range pods.Items {
		if pods.Items[i].Annotations[v1alpha1.KeptUntilAnnotation] != "" {
			kept = append(kept, &pods.Items[i])
		}
	}
	return r.deletePods(ctx, kept)
}

func (r *Reconciler) deletePods(ctx context.Context, pods []*corev1.Pod) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, pod := range pods {
		g.Go(func() error {
			of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
			if err := r.Client.Delete(ctx, of, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting pod %s, which was kept: %w", pod.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}
