// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
)

// holdFinalizer is the finalizer of a controller that is not Corral.
const holdFinalizer = "example.com/hold"

// hold adds a finalizer to each object of a kind in a namespace as soon as it is created. letGo removes the
// finalizers.
func (w *story) hold(t *testing.T, namespace string, list client.ObjectList) (letGo func()) {
	t.Helper()
	c, err := client.NewWithWatch(w.Cluster.Config, client.Options{Scheme: kube.Scheme()})
	must(t, err)
	events, err := c.Watch(t.Context(), list, client.InNamespace(namespace))
	must(t, err)
	t.Cleanup(events.Stop)
	set := func(object client.Object, finalizers []string) error {
		before := object.DeepCopyObject().(client.Object)
		object.SetFinalizers(finalizers)
		return client.IgnoreNotFound(c.Patch(t.Context(), object, client.MergeFrom(before)))
	}
	go func() {
		for e := range events.ResultChan() {
			if object, ok := e.Object.(client.Object); ok && e.Type == watch.Added {
				_ = set(object, append(slices.Clone(object.GetFinalizers()), holdFinalizer)) // an object that is being deleted accepts no finalizer
			}
		}
	}()
	return func() {
		t.Helper()
		events.Stop()
		eventually(t, func(ctx context.Context) error {
			if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return err
			}
			return meta.EachListItem(list, func(item runtime.Object) error {
				object := item.(client.Object)
				return set(object, slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == holdFinalizer }))
			})
		})
	}
}

// held returns the runners of a namespace that exist only because of another controller's finalizer.
func (w *story) held(ctx context.Context, namespace string) ([]v1alpha1.Runner, error) {
	list := &v1alpha1.RunnerList{}
	if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(r v1alpha1.Runner) bool {
		return r.DeletionTimestamp.IsZero() || !slices.Equal(r.Finalizers, []string{holdFinalizer})
	}), nil
}

// Another controller's finalizer keeps each deleted Runner. The pool does not count these Runners, even after a
// restart, and all jobs run.
func TestRunnersThatAnotherFinalizerKeeps(t *testing.T) {
	const namespace = "held"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "held-org"))
	first := w.start(t)
	letGo := w.hold(t, namespace, &v1alpha1.RunnerList{})
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme", atMost(2))))
	ids := w.addJobs(t, "held-org", "linux", 10, 50*time.Millisecond)
	w.untilDone(t, ids, 4)
	first.Kill()
	w.start(t)
	w.allDone(t, ids)
	var kept []v1alpha1.Runner
	eventually(t, func(ctx context.Context) (err error) {
		kept, err = w.held(ctx, namespace)
		if err == nil && len(kept) < len(ids)/2 {
			err = fmt.Errorf("%d runners are kept", len(kept))
		}
		return err
	})
	for _, r := range kept {
		if r.Status.State != v1alpha1.RunnerFinished {
			t.Errorf("runner %s, which has ended, is %s", r.Name, r.Status.State)
		}
	}
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, key(namespace, "linux"), p); err != nil || p.Status.Runners.Total != 0 {
			return fmt.Errorf("%w: the pool has %+v", err, p.Status.Runners)
		}
		return nil
	})
	ran := map[string]string{}
	for _, j := range w.GitHub.Jobs() {
		if other := ran[j.Runner]; other != "" {
			t.Errorf("jobs %s and %s both ran on %s", other, j.ID, j.Runner)
		}
		ran[j.Runner] = j.ID
	}
	w.waitEvent(t, namespace, "linux", "RunnersHeld", holdFinalizer)
	letGo()
	w.cleanUp(t, namespace)
}

// The Secrets of finished runners remain, as without a garbage collector. A restarted controller does not reuse
// names, and registers each runner only once.
func TestSecretsOfFormerRunnersThatStay(t *testing.T) {
	const namespace = "uncollected"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "uncollected-org"))
	first := w.start(t)
	letGo := w.hold(t, namespace, &corev1.SecretList{})
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme")))
	w.allDone(t, w.addJobs(t, "uncollected-org", "linux", 6, 50*time.Millisecond))
	eventually(t, func(ctx context.Context) error { return w.noRunners(ctx, namespace) })
	first.Kill()
	before := w.GitHub.Report()
	w.start(t)
	const jobs = 3
	w.allDone(t, w.addJobs(t, "uncollected-org", "linux", jobs, 50*time.Millisecond))
	after := w.GitHub.Report()
	made := after.RunnersMade - before.RunnersMade
	if calls := after.Requests[githubsim.EndpointJITConfig] - before.Requests[githubsim.EndpointJITConfig]; calls > made {
		t.Errorf("%d calls registered %d runners", calls, made)
	}
	if made > 2*jobs {
		t.Errorf("%d runners were registered for %d jobs", made, jobs)
	}
	letGo()
	w.cleanUp(t, namespace)
}

// noRunners returns an error if a namespace has Runners.
func (w *story) noRunners(ctx context.Context, namespace string) error {
	list := &v1alpha1.RunnerList{}
	if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil || len(list.Items) > 0 {
		return fmt.Errorf("%d runners are left: %w", len(list.Items), err)
	}
	return nil
}
