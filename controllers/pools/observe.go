// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// observed is one runner and the state it is in.
type observed struct {
	runner  *v1alpha1.Runner
	verdict poolstatus.Verdict
}

// observe judges every runner by its object, its pod and what GitHub said last.
// The words of GitHub are taken first: a runner created after them is then surely
// seen, and one whose job they completed is judged by them.
func (x *run) observe(ctx context.Context) error {
	x.words, _ = x.Sessions.Snapshot(x.key)
	runners, err := x.list(ctx)
	if err != nil {
		return err
	}
	pods, err := x.pods(ctx)
	if err != nil {
		return err
	}
	begin := stem(x.pool.Name, x.pool.UID)
	present := make(map[string]bool, len(runners))
	for _, r := range runners {
		present[r.Name] = true
		x.recall.count(numberOf(begin, r.Name))
		x.runners = append(x.runners, observed{runner: r, verdict: x.judge(r, pods[r.Name])})
	}
	keep := func(name string) bool { return present[name] }
	x.Sessions.Retain(x.key, keep)
	x.Desk.Retain(x.key, keep)
	return nil
}

func (x *run) judge(r *v1alpha1.Runner, pod *corev1.Pod) poolstatus.Verdict {
	if pod != nil && !podspec.BelongsTo(pod, r) {
		pod = nil
	}
	seen := *r // what is changed below is its own
	id := cmp.Or(r.Status.RunnerID, registrationOf(pod))
	if e, ok := x.words.Started[r.Name]; ok && e.IsAbout(id) {
		seen.Status.Job = runners.Merge(seen.Status.Job, e)
	}
	if e, ok := x.words.Completed[r.Name]; ok && e.IsAbout(id) {
		seen.Status.Job = runners.Merge(seen.Status.Job, e)
	}
	if at, over := x.Failures.Completion(types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, r.UID); over && r.Spec.REST != nil {
		job := v1alpha1.JobReference{ID: v1alpha1.UnknownJob}
		switch {
		case seen.Status.Job != nil:
			job = *seen.Status.Job
		case pod != nil && poolstatus.JobOf(pod) != nil:
			job = *poolstatus.JobOf(pod)
		}
		job.CompletedAt = &metav1.Time{Time: at}
		seen.Status.Job = &job
	}
	return poolstatus.Judge(poolstatus.Observe(&seen, pod, x.pool.Spec.Deadlines.GetStartup(), x.Now()), x.Now())
}

func registrationOf(pod *corev1.Pod) int64 {
	if pod == nil {
		return 0
	}
	return podspec.RegistrationOf(pod)
}

// list returns the pool's runners, sorted by name, with those just created that
// the cache does not show yet. They are the cache's own: not to be changed.
func (x *run) list(ctx context.Context) ([]*v1alpha1.Runner, error) {
	list := &v1alpha1.RunnerList{}
	if err := x.Client.List(ctx, list, client.InNamespace(x.key.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: x.pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing runners: %w", err)
	}
	var runners []*v1alpha1.Runner
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], x.pool) {
			runners = append(runners, &list.Items[i])
		}
	}
	runners = append(runners, x.recall.missing(runners, x.Now())...)
	slices.SortFunc(runners, func(a, b *v1alpha1.Runner) int { return strings.Compare(a.Name, b.Name) })
	return runners, nil
}

func (x *run) pods(ctx context.Context) (map[string]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := x.Client.List(ctx, list, client.InNamespace(x.key.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: x.pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	pods := make(map[string]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}
