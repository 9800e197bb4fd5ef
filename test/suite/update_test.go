// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// updated returns CUE that declares a pool with idle runners, a version in its template, and update settings.
func updated(version, update string, idle int) string {
	return fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {linux: spec: {
	connectionRef: name: "acme"
	scale: {max: 8, idle: %d}
	update: {%s}
	template: {
		metadata: labels: version: %q
		spec: containers: [{name: "runner", image: "runner:%s"}]
	}
}}
`, idle, update, version, version)
}

// newUpdates creates a source with a pool of version 1, and waits for its idle runners.
func (w *story) newUpdates(t *testing.T, namespace, update string, idle int) *gitops {
	t.Helper()
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	g := &gitops{w: w, Repository: harness.NewRepository(t), namespace: namespace, key: client.ObjectKey{Namespace: namespace, Name: "pools"}}
	g.Write("pools.cue", updated("1", update, idle))
	commit := g.Push("A pool")
	must(t, w.Client.Create(t.Context(), &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pools"},
		Spec:       v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{URL: g.URL()}, Interval: metav1.Duration{Duration: time.Hour}},
	}))
	g.applied(commit)
	g.waitFree(idle)
	return g
}

// pool reads the pool.
func (g *gitops) pool(ctx context.Context) *v1alpha1.RunnerPool {
	g.T.Helper()
	p := &v1alpha1.RunnerPool{}
	must(g.T, g.w.Client.Get(ctx, key(g.namespace, "linux"), p))
	return p
}

// patch changes the pool.
func (g *gitops) patch(merge string) {
	g.T.Helper()
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "linux"}}
	must(g.T, g.w.Client.Patch(g.T.Context(), p, client.RawPatch(types.MergePatchType, []byte(merge))))
}

// runners counts the runners that are not being deleted, by revision: all of them, and the idle ones.
func (g *gitops) runners(ctx context.Context) (all, free map[string]int) {
	g.T.Helper()
	list := &v1alpha1.RunnerList{}
	must(g.T, g.w.Client.List(ctx, list, client.InNamespace(g.namespace)))
	all, free = map[string]int{}, map[string]int{}
	for _, r := range list.Items {
		if r.DeletionTimestamp.IsZero() {
			all[r.Spec.Revision]++
			if r.Status.State == v1alpha1.RunnerIdle {
				free[r.Spec.Revision]++
			}
		}
	}
	return all, free
}

// waitFree waits until the update is complete and the given number of runners, all of the pool's revision, are
// idle.
func (g *gitops) waitFree(n int) {
	g.T.Helper()
	eventually(g.T, func(ctx context.Context) error {
		p := g.pool(ctx)
		all, free := g.runners(ctx)
		if !conditions.IsTrue(p, v1alpha1.UpdatedCondition) || len(all) != 1 || free[p.Status.Revision] != n {
			return fmt.Errorf("%v is free of %v; %+v", free, all, conditions.Get(p, v1alpha1.UpdatedCondition))
		}
		return nil
	})
}

func TestABrokenImageIsRolledBackWhileJobsAreServed(t *testing.T) {
	w := newStory(t, "rollback")
	w.controller(t)
	g := w.newUpdates(t, "rollback", "maxSurge: 3", 2)
	good := g.pool(t.Context()).Status.Revision
	t.Cleanup(w.Node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Namespace: g.namespace, Labels: map[string]string{"version": "2"}}))
	jobs := []string{g.job("linux", 4*time.Second)}
	g.runnerOf(jobs[0])
	g.Write("pools.cue", updated("2", "maxSurge: 3", 2))
	g.sync(g.Push("A broken image"))
	eventually(t, func(ctx context.Context) error {
		if s := g.remote("linux"); s == nil || s.Capacity != 8 {
			return fmt.Errorf("announced is %+v", s)
		}
		p := g.pool(ctx)
		if p.Status.Update == nil || p.Status.Update.Phase != v1alpha1.UpdateRolledBack || p.Status.Update.From != good {
			return fmt.Errorf("the update is %+v", p.Status.Update)
		}
		if reason := conditions.GetReason(p, v1alpha1.ReadyCondition); reason != v1alpha1.RolledBackReason || !conditions.IsStalled(p) {
			return fmt.Errorf("Ready is %s", reason)
		}
		return nil
	})
	for range 6 {
		jobs = append(jobs, g.job("linux", 50*time.Millisecond))
	}
	last := g.job("linux", harness.LongJob)
	if image := g.image(g.runnerOf(last)); image != "runner:1" {
		t.Errorf("a runner has %s", image)
	}
	g.cutShort(last)
	for _, id := range jobs {
		g.finished(id)
	}
	if s := g.remote("linux"); s.Capacity != 8 {
		t.Errorf("announced is %d", s.Capacity)
	}
	g.Write("pools.cue", updated("3", "maxSurge: 3", 2))
	g.sync(g.Push("Mend the image"))
	eventually(t, func(ctx context.Context) error {
		if p := g.pool(ctx); conditions.IsStalled(p) || p.Status.Revision == good {
			return fmt.Errorf("%s: %+v", p.Status.Revision, conditions.Get(p, v1alpha1.ReadyCondition))
		}
		return nil
	})
	g.waitFree(2)
	g.idleAgain()
}

func TestCanariesComeBeforeTheRest(t *testing.T) {
	w := newStory(t, "canary")
	w.controller(t)
	const update = `maxSurge: 1, canary: {runners: 1, pause: "10m"}`
	g := w.newUpdates(t, "canary", update, 3)
	former := g.pool(t.Context()).Status.Revision
	g.Write("pools.cue", updated("2", update, 3))
	g.sync(g.Push("A new image"))
	var current string
	eventually(t, func(ctx context.Context) error {
		p := g.pool(ctx)
		current = p.Status.Revision
		all, free := g.runners(ctx)
		if p.Status.Update == nil || p.Status.Update.Phase != v1alpha1.UpdateCanary || free[current] != 1 {
			return fmt.Errorf("the update is %+v, runners %v", p.Status.Update, all)
		}
		if all[current] != 1 || all[former] != 3 {
			return fmt.Errorf("beside the canary: %v", all)
		}
		return nil
	})
	// While the update is paused manually, it does not proceed, even after the canary's pause.
	g.patch(`{"spec":{"update":{"paused":true,"canary":{"pause":"1s"}}}}`)
	eventually(t, func(ctx context.Context) error {
		if reason := conditions.GetReason(g.pool(ctx), v1alpha1.UpdatedCondition); reason != v1alpha1.UpdateHeldReason {
			return fmt.Errorf("the update is %s", reason)
		}
		return nil
	})
	g.finished(g.job("linux", 2*time.Second))
	if all, _ := g.runners(t.Context()); all[current] > 1 || all[former] < 2 {
		t.Errorf("it goes on: %v", all)
	}
	g.patch(`{"spec":{"update":{"paused":false}}}`)
	g.waitFree(3)
	if revision := g.pool(t.Context()).Status.Revision; revision != current {
		t.Errorf("revision %s", revision)
	}
	id := g.job("linux", harness.LongJob)
	if image := g.image(g.runnerOf(id)); image != "runner:2" {
		t.Errorf("a runner has %s", image)
	}
	g.cutShort(id)
	g.idleAgain()
}
