// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/sim/githubsim"
)

// victims registers another team's runner with the scale set and returns its ID.
func (b *bench) victims(name string) int64 {
	b.t.Helper()
	jit, err := b.Clients.(*registry).client.GenerateJIT(b.t.Context(), b.set.ID, name)
	if err != nil {
		b.t.Fatal(err)
	}
	return jit.RunnerID
}

// restart starts a new process with an empty memory.
func (b *bench) restart() { b.Memory = NewMemory() }

// finish deletes the Runner and waits for the longest time-out.
func (b *bench) finish() {
	b.t.Helper()
	b.delete()
	b.now = b.runner().DeletionTimestamp.Time
	b.reconcile()
	b.now = b.now.Add(orphanAfter)
	for range 2 {
		_, _ = b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: "linux-a"}})
	}
	if b.runner() != nil {
		b.t.Errorf("it is there: %+v", b.runner().Status)
	}
}

// Each case is a Runner that a user with the right to create Runners in a namespace may write, on a connection that others
// use too.
func TestAForgedRunnerIsNotRegistered(t *testing.T) {
	for name, forge := range map[string]func(b *bench, r *v1alpha1.Runner){
		"without a pool":                  func(_ *bench, r *v1alpha1.Runner) { r.Spec.PoolRef.Name = "none" },
		"of a pool that didn't make it":   func(_ *bench, r *v1alpha1.Runner) { r.OwnerReferences = nil },
		"with an owner that isn't there":  func(_ *bench, r *v1alpha1.Runner) { r.OwnerReferences[0].UID = "p2" },
		"with another's scale set":        func(b *bench, _ *v1alpha1.Runner) { b.Sets.(*holder).who = "victim/linux acme p2" },
		"with one that nobody holds":      func(b *bench, _ *v1alpha1.Runner) { b.Sets.(*holder).set = 0 },
		"on a connection of another pool": func(_ *bench, r *v1alpha1.Runner) { r.Spec.ConnectionRef.Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id := b.victims("linux-a")
			r := b.runner()
			forge(b, r)
			b.update(r)
			b.reconcile()
			b.reconcile()
			if known := b.github.Report().Runners; len(known) != 1 || int64(known[0].ID) != id || b.pod() != nil || get(b, &corev1.Secret{}, "linux-a-jit") != nil {
				t.Errorf("registered are %+v, pod %v", known, b.pod())
			}
			if cause := b.runner().Status.Cause; cause != "" && !strings.Contains(name, "another") && !strings.Contains(name, "nobody") {
				t.Errorf("it is for %s that no pool made it", cause)
			}
		})
	}
}

func TestAForgedRESTRunnerIsNotRegistered(t *testing.T) {
	for name, forge := range map[string]func(r *v1alpha1.Runner){
		"with another pool's mark": func(r *v1alpha1.Runner) {
			r.Spec.REST.Labels[len(r.Spec.REST.Labels)-1] = v1alpha1.OwnerLabel(testCluster, "p2")
		},
		"with more labels":           func(r *v1alpha1.Runner) { r.Spec.REST.Labels = append(r.Spec.REST.Labels, "gpu-of-others") },
		"in another group":           func(r *v1alpha1.Runner) { r.Spec.REST.RunnerGroup = "others" },
		"of a pool that isn't there": func(r *v1alpha1.Runner) { r.OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newRESTBench(t)
			b.github.AddRunnerGroup("acme", githubsim.Group{Name: "others"})
			r := b.runner()
			forge(r)
			b.update(r)
			b.reconcile()
			if b.registered() != 0 || b.pod() != nil {
				t.Errorf("%d registrations, pod %v", b.registered(), b.pod())
			}
		})
	}
}

// An ID may come from a status, a pod or a Secret, and all of them can be forged.
func TestARunnerEndsNoRegistrationButItsOwn(t *testing.T) {
	for name, forge := range map[string]func(b *bench, r *v1alpha1.Runner, victim int64){
		"an id in its status": func(_ *bench, r *v1alpha1.Runner, victim int64) { r.Status.RunnerID = victim },
		"a name and a scale set": func(b *bench, r *v1alpha1.Runner, _ int64) {
			b.victims("linux-a")
			b.Sets.(*holder).who = "victim/linux acme p2"
			r.Status.RunnerID = 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id, r := b.victims("linux-b"), b.runner()
			forge(b, r, id)
			if err := b.Client.Status().Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			before := b.registered()
			b.finish()
			if n := b.registered(); n != before {
				t.Errorf("%d of %d registrations are left", n, before)
			}
		})
	}
}

func TestARESTRunnerEndsNoRegistrationButItsOwn(t *testing.T) {
	b := newRESTBench(t)
	b.reconcile()
	victim := b.runner()
	id := victim.Status.RunnerID
	pool := restPool()
	pool.Namespace, pool.ResourceVersion = "victim", ""
	if err := b.Client.Delete(t.Context(), b.pool()); err != nil {
		t.Fatal(err)
	}
	b.create(pool) // the Runner has this pool's label
	b.restart()
	b.finish()
	if b.registered() != 1 {
		t.Errorf("runner %d is gone", id)
	}

	b = newRESTBench(t)
	b.reconcile()
	other := restRunner("linux-b", b.now, b.github.ConfigURL("acme"))
	other.UID, other.Status.RunnerID = "u2", b.runner().Status.RunnerID
	b.create(other)
	if err := b.Client.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
		t.Fatal(err)
	}
	if b.registered() != 1 {
		t.Error("a runner of another name is gone")
	}
}

// A registration made by an earlier process is read back once, and removed as usual.
func TestARunnerOfAFormerProcessIsDeregistered(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.restart()
	b.delete()
	b.reconcile()
	b.reconcile()
	if b.registered() != 0 || b.runner() != nil {
		t.Errorf("%d registrations, runner %+v", b.registered(), b.runner())
	}
}

// A runner whose pool does not hold the scale set may have an unreported job.
func TestARunnerThatNobodyVouchesForIsWaitedForWhileItRuns(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.reconcile()
	b.restart()
	b.Sets.(*holder).who = "nobody"
	b.delete()
	b.now = b.runner().DeletionTimestamp.Add(jobUnknownAfter - time.Second)
	b.reconcile()
	if b.pod() == nil || b.registered() != 1 {
		t.Fatal("it was ended")
	}
	b.Sets = &holder{"ci/linux acme " + testPoolUID, b.set.ID}
	b.reconcile()
	if b.registered() != 0 {
		t.Error("it is registered, though its pool holds the scale set again")
	}
}

// GitHub may lose a scale set. Its pool then holds another one, and a runner of the old one gets no more jobs.
func TestARunnerOfAForgottenScaleSetIsDeregisteredAtOnce(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.reconcile()
	b.restart()
	b.github.ForgetScaleSet(int(b.set.ID))
	b.Sets = &holder{"ci/linux acme " + testPoolUID, b.set.ID + 1}
	b.delete()
	b.reconcile()
	b.reconcile()
	if b.registered() != 0 || b.pod() != nil {
		t.Errorf("%d registrations, pod %v", b.registered(), b.pod())
	}
}

// A Runner with another pool's mark must not make the collector look for that pool's runners in the Runner's namespace.
func TestTheCollectorLooksForAMarkWhereItsPoolIs(t *testing.T) {
	b := newRESTBench(t)
	victim, forged := restPool(), restRunner("forged", b.now, b.github.ConfigURL("acme"))
	forged.Namespace = "thief"
	c := &RunnerCollector{Reporter: b.Reporter, Cluster: testCluster, Now: b.Now}
	s := &connectionMemory{marks: map[string]mark{}}
	c.mark(s, &fleet{pools: []*v1alpha1.RunnerPool{victim}, runners: []*v1alpha1.Runner{forged}})
	if at := s.marks[v1alpha1.OwnerLabel(testCluster, testPoolUID)].namespace; at != "ci" {
		t.Errorf("it is looked for in %q", at)
	}
}

// A pool on another connection to the same organization may declare a label that looks like another pool's mark. That gives
// it access to no other registrations: neither to the other pool's, nor to those whose IDs Runners of any namespace have.
func TestALabelThatAPoolDeclaresIsNoMark(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	stop := b.work()
	defer stop()
	b.until("the runner", func(r githubsim.Report) bool { return len(r.Runners) == 1 && r.Runners[0].Online })

	thief := restPool()
	thief.Namespace, thief.UID = "thief", "p2"
	thief.Spec.RunnerLabels = []string{"gpu", v1alpha1.OwnerLabel(testCluster, testPoolUID)}
	b.create(thief)
	own := restRunner("thief-1", b.now, b.github.ConfigURL("acme"))
	own.Namespace, own.UID, own.OwnerReferences[0].UID = "thief", "u2", "p2"
	own.Spec.REST.Labels = thief.GetMarkedLabels(testCluster)
	b.create(own)
	gh, _ := b.REST.Get("")
	jit, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: "thief-1", Labels: own.Spec.REST.Labels})
	if err != nil {
		t.Fatal(err)
	}
	b.Memory.learnRegistration(client.ObjectKeyFromObject(own), own.UID, jit.RunnerID)
	leaked, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: "thief-2", Labels: own.Spec.REST.Labels})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b.collect(c, time.Minute)
	}
	var ids []int64
	for _, r := range b.github.Report().Runners {
		ids = append(ids, int64(r.ID))
	}
	slices.Sort(ids)
	if want := []int64{b.runner().Status.RunnerID, jit.RunnerID}; !slices.Equal(ids, want) {
		t.Errorf("registered are %v, want %v: without %d, which nobody has", ids, want, leaked.RunnerID)
	}
}
