// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/kube"
)

func TestDescribeHeld(t *testing.T) {
	var held []*v1alpha1.Runner
	for _, finalizers := range [][]string{{"example.com/b"}, {"example.com/a", "example.com/b"}} {
		held = append(held, &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers}})
	}
	const want = "finalizer example.com/a keeps 1 Runner, finalizer example.com/b keeps 2 Runners; " +
		"they have ended and do not count; the controller that added the finalizer must remove it"
	if got := describeHeld(held); got != want {
		t.Errorf("got %q", got)
	}
}

// An event is emitted after half a minute, and then once an hour, even if no Runner was held in between.
func TestReportHeld(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Reporter: kube.Reporter{Events: recorder}}
	held := []*v1alpha1.Runner{{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/hold"}}}}
	o := observation{pool: &v1alpha1.RunnerPool{}, now: time.Unix(1_000_000, 0)}
	for _, step := range []struct {
		after time.Duration
		held  []*v1alpha1.Runner
		want  int
	}{{0, held, 0}, {29 * time.Second, held, 0}, {time.Second, held, 1}, {59 * time.Minute, held, 0}, {time.Minute, held, 1}, {30 * time.Minute, nil, 0}, {0, held, 0}, {time.Minute, held, 0}, {29 * time.Minute, held, 1}} {
		o.now = o.now.Add(step.after)
		o.memory.held = r.reportHeld(o, step.held)
		if got := len(recorder.Events); got != step.want {
			t.Errorf("at %s: %d events, want %d", o.now, got, step.want)
		}
		for range len(recorder.Events) {
			<-recorder.Events
		}
	}
}

// The more names are taken, the more numbers are skipped.
func TestAvoid(t *testing.T) {
	e := &expectations{last: 3}
	taken := make([]runners.Failure, 5)
	for i := range taken {
		taken[i].NameTaken = i != 2
	}
	e.avoid(taken)
	if got := e.next(); got != 3+0+1+2+4+1 {
		t.Errorf("the next number is %d", got)
	}
	for range 100 {
		e.avoid(taken)
	}
	if e.leap != maxLeap {
		t.Errorf("%d numbers are left out", e.leap)
	}
}

// The API server refuses to delete runners without a job. No event reports that they ended, and the deletion is not retried
// in each pass.
func TestSurplusThatMayNotBeDeleted(t *testing.T) {
	b := newBench(t)
	b.start()
	b.warm(3)
	b.runAll()
	b.allEvents()
	tries, inner := 0, b.Client.(client.WithWatch)
	b.Client = interceptor.NewClient(inner, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
		tries++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "runners"}, o.GetName(), errors.New("frozen"))
	}})
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(0)) })
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: budgetName}}
	must(t, inner.Delete(t.Context(), budget)) // the runners with a job stay protected
	for range 60 {
		b.now = b.now.Add(time.Second)
		b.reconcile()
		if tries > 0 && conditions.GetReason(b.pool(), v1alpha1.ReadyCondition) != v1alpha1.DeletionRefusedReason {
			t.Fatal(b.readyReason())
		}
	}
	if tries < 6 || tries > 12 {
		t.Errorf("%d attempts to delete 3 runners", tries)
	}
	must(t, inner.Get(t.Context(), client.ObjectKeyFromObject(budget), &policyv1.PodDisruptionBudget{}))
	for _, e := range b.allEvents() {
		if strings.Contains(e, drainedEvent) {
			t.Error(e)
		}
	}
}

// Another controller's finalizer keeps the RunnerScaleSet of an earlier pool with the name.
func TestAFormerScaleSetThatAnotherFinalizerKeeps(t *testing.T) {
	b := newBench(t)
	b.start()
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, set))
	set.Finalizers = []string{"example.com/hold"}
	must(t, b.Client.Update(t.Context(), set))
	must(t, b.Client.Delete(t.Context(), set))
	b.reconcile()
	if got := b.readyReason(); !strings.HasPrefix(got, "False "+v1alpha1.DrainingReason) || !strings.Contains(got, "example.com/hold") {
		t.Errorf("ready: %s", got)
	}
}
