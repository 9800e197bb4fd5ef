// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// definitions returns CUE with one or two pools on the connection acme.
func definitions(maximum int, label, image string, second bool) string {
	text := fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools
pools: linux: spec: {
	connectionRef: name: "acme"
	runnerLabels: [%q]
	scale: max: %d
	template: spec: containers: [{name: "runner", image: %q}]
}
`, label, maximum, image)
	if second {
		text += `pools: extra: spec: {
	connectionRef: name: "acme"
	runnerLabels: ["extra"]
	template: spec: containers: [{name: "runner", image: "runner:1"}]
}
`
	}
	return text
}

// gitops is a PoolSource with its repository.
type gitops struct {
	*harness.Repository
	w         *story
	namespace string
	key       client.ObjectKey
	requests  int
}

func (w *story) newGitops(t *testing.T, namespace string, interval time.Duration) *gitops {
	t.Helper()
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	return w.newSource(t, namespace, interval)
}

// newSource is like newGitops, for a namespace that already has a connection.
func (w *story) newSource(t *testing.T, namespace string, interval time.Duration) *gitops {
	t.Helper()
	g := &gitops{w: w, Repository: harness.NewRepository(t), namespace: namespace, key: client.ObjectKey{Namespace: namespace, Name: "pools"}}
	g.Write("pools.cue", definitions(3, "linux", "runner:1", true))
	g.Push("Two pools")
	must(t, w.Client.Create(t.Context(), &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pools"},
		Spec: v1alpha1.PoolSourceSpec{
			Git: &v1alpha1.GitSource{URL: g.URL()}, Interval: metav1.Duration{Duration: interval},
		},
	}))
	return g
}

// request triggers a reconciliation, as `flux reconcile` does.
func (g *gitops) request() {
	g.T.Helper()
	g.requests++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, meta.ReconcileRequestAnnotation, g.requests)
	must(g.T, g.w.Client.Patch(g.T.Context(), &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name}},
		client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// applied waits until a commit has been applied.
func (g *gitops) applied(commit string) {
	g.T.Helper()
	eventually(g.T, func(ctx context.Context) error {
		s := &v1alpha1.PoolSource{}
		if err := g.w.Client.Get(ctx, g.key, s); err != nil {
			return err
		}
		if !strings.HasSuffix(s.Status.LastAppliedRevision, commit) || !conditions.IsReady(s) {
			return fmt.Errorf("applied is %q, not %q: %v", s.Status.LastAppliedRevision, commit, conditions.Get(s, meta.ReadyCondition))
		}
		return nil
	})
}

func (g *gitops) job(label string, duration time.Duration) string {
	g.T.Helper()
	id, err := g.w.GitHub.AddJob(githubsim.Job{Repository: g.namespace + "-org/app", Labels: []string{label}, Duration: duration})
	must(g.T, err)
	return id
}

// remote returns the state of a scale set on the simulated GitHub, or nil if it does not exist.
func (g *gitops) remote(name string) *githubsim.ScaleSetReport {
	for _, s := range g.w.GitHub.Report().ScaleSets {
		if s.Name == name && strings.Contains(s.Scope, g.namespace+"-org") {
			return &s
		}
	}
	return nil
}

func (g *gitops) waitRemote(name string, check func(*githubsim.ScaleSetReport) bool) {
	g.T.Helper()
	eventually(g.T, func(context.Context) error {
		if s := g.remote(name); !check(s) {
			return fmt.Errorf("scale set %s on GitHub is %+v", name, s)
		}
		return nil
	})
}

func TestACommitTakesEffectOnRequest(t *testing.T) {
	w := newStory(t, "gitops")
	g := w.newGitops(t, "gitops", time.Hour)
	w.controller(t)
	g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.Capacity == 3 })
	g.waitRemote("extra", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.SessionOwner != "" })
	id := g.remote("linux").ID

	t.Run("a changed max is announced", func(t *testing.T) {
		g.T = t
		g.Write("pools.cue", definitions(7, "linux", "runner:1", true))
		commit := g.Push("Raise max")
		g.request()
		g.applied(commit)
		g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s.Capacity == 7 })
	})
	t.Run("a changed label is set on the same scale set", func(t *testing.T) {
		g.T = t
		g.Write("pools.cue", definitions(7, "linux-x64", "runner:1", true))
		g.Push("Change the label")
		g.request()
		g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool {
			return slices.Equal(s.Labels, []string{"linux-x64"}) && s.ID == id
		})
	})
	t.Run("a field that the source doesn't declare stays as somebody patched it", func(t *testing.T) {
		g.T = t
		pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: "linux"}}
		patch := `{"spec": {"deadlines": {"startup": "20m"}, "scale": {"idlePercentOfBusy": 50}}}`
		must(t, w.Client.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("somebody-on-call")))
		g.Write("pools.cue", definitions(8, "linux-x64", "runner:1", true))
		commit := g.Push("Raise max again")
		g.request()
		g.applied(commit)
		must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		spec := pool.Spec
		if spec.Scale.GetMax() != 8 || spec.Deadlines.GetStartup() != 20*time.Minute || spec.Scale.IdlePercentOfBusy == nil || spec.Scale.Min == nil || spec.RunnerGroup != "default" {
			t.Errorf("the pool has %+v", spec)
		}
	})
	t.Run("a changed template reaches new runners, a busy one finishes", func(t *testing.T) {
		g.T = t
		busy := g.job("linux-x64", harness.LongJob)
		old := g.runnerOf(busy)
		g.Write("pools.cue", definitions(8, "linux-x64", "runner:2", true))
		g.sync(g.Push("New image"))
		if image := g.image(old); image != "runner:1" {
			t.Errorf("the busy runner has %s", image)
		}
		young := g.runnerOf(g.job("linux-x64", time.Millisecond))
		g.cutShort(busy)
		if young == old {
			t.Error("one runner did both jobs")
		}
	})
	t.Run("a broken commit is refused with file, line and column; the last good one runs on", func(t *testing.T) {
		g.T = t
		g.Write("pools.cue", strings.Replace(definitions(8, "linux-x64", "runner:2", true), "scale: max: 8", "scale: {min: 9, max: 8}\n\trunnerLables: [1]", 1))
		commit := g.Push("Break it")
		g.request()
		eventually(t, func(ctx context.Context) error {
			s := &v1alpha1.PoolSource{}
			must(t, w.Client.Get(ctx, g.key, s))
			ready := conditions.Get(s, meta.ReadyCondition)
			if !conditions.IsStalled(s) || !strings.HasSuffix(s.Status.LastAttemptedRevision, commit) || !strings.Contains(recorder.Facts(s, ready.Type), "pools.cue:9:10: ") {
				return fmt.Errorf("attempted %s, ready %+v", s.Status.LastAttemptedRevision, ready)
			}
			if strings.HasSuffix(s.Status.LastAppliedRevision, commit) {
				return fmt.Errorf("the broken commit is said to be applied")
			}
			return nil
		})
		g.finished(g.job("linux-x64", time.Millisecond))
	})
	t.Run("a removed pool drains and disappears here and on GitHub", func(t *testing.T) {
		g.T = t
		busy := g.job("extra", 2*time.Second)
		g.runnerOf(busy)
		g.Write("pools.cue", definitions(7, "linux-x64", "runner:2", false))
		commit := g.Push("Remove a pool")
		g.request()
		g.applied(commit)
		g.waitRemote("extra", func(s *githubsim.ScaleSetReport) bool { return s == nil })
		g.finished(busy)
	})
	g.T = t
	g.idleAgain()
}

func TestACommitTakesEffectWithinOneInterval(t *testing.T) {
	w := newStory(t, "interval")
	g := w.newGitops(t, "interval", time.Second)
	w.controller(t)
	g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.Capacity == 3 })
	g.Write("pools.cue", definitions(5, "lean", "runner:3", true))
	g.applied(g.Push("Change everything"))
	g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool {
		return s.Capacity == 5 && slices.Equal(s.Labels, []string{"lean"})
	})
	job := g.job("lean", harness.LongJob)
	if image := g.image(g.runnerOf(job)); image != "runner:3" {
		t.Errorf("a new runner has %s", image)
	}
	g.cutShort(job)
	g.idleAgain()
}

func TestDeletingAPoolLetsItsJobFinish(t *testing.T) {
	w := newStory(t, "deletion-background", "deletion-foreground")
	w.controller(t)
	// Some GitOps tools prune in the foreground, which deletes all dependents at once.
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			g := w.newGitops(t, "deletion-"+strings.ToLower(string(policy)), time.Hour)
			g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.SessionOwner != "" })
			busy := g.job("linux", 3*time.Second)
			g.runnerOf(busy)
			pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "linux"}}
			must(t, w.Client.Delete(t.Context(), pool, client.PropagationPolicy(policy)))
			g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s == nil })
			g.finished(busy)
			g.idleAgain()
		})
	}
}

func TestDeletingASourceKeepsItsConnectionUntilTheJobIsDone(t *testing.T) {
	t.Parallel()
	for _, propagation := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(propagation), func(t *testing.T) {
			namespace := "source-" + strings.ToLower(string(propagation))
			w := newStory(t, namespace) // the connection is reconciled again after half a minute
			w.controller(t)
			g := w.newGitops(t, namespace, time.Hour)
			acme := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "acme"}}
			patch := func(o client.Object, content string) {
				must(t, w.Client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(content))))
			}
			patch(acme, `{"metadata":{"labels":{"corral.dev/source":"pools"}}}`)
			source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: "pools"}}
			patch(source, `{"spec":{"deletionPolicy":"Delete"}}`)
			g.Write("connections.cue", fmt.Sprintf("package pools\n\nimport \"corral.dev/schema@v0\"\n\n"+
				"connections: schema.#Connections & {acme: spec: {url: %q, secretRef: name: \"acme\"}}\n", acme.Spec.URL))
			g.sync(g.Push("Declare the connection"))
			g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s != nil && s.SessionOwner != "" })
			busy := g.job("linux", 3*time.Second) // with foreground deletion, the pool stays until the job is done
			g.runnerOf(busy)
			must(t, w.Client.Delete(t.Context(), source, client.PropagationPolicy(propagation)))
			eventually(t, func(ctx context.Context) error {
				if err := w.Client.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: "linux"}, &v1alpha1.RunnerPool{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("the pool may be there: %w", err)
				}
				return nil
			})
			must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(acme), acme)) // because the job is still running
			g.finished(busy)
			g.waitRemote("linux", func(s *githubsim.ScaleSetReport) bool { return s == nil })
			eventually(t, func(ctx context.Context) error {
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(acme), acme); !apierrors.IsNotFound(err) {
					return fmt.Errorf("the connection may be there: %w", err)
				}
				return nil
			})
			g.idleAgain()
		})
	}
}

// sync triggers a reconciliation, and waits until a commit has been applied.
func (g *gitops) sync(commit string) {
	g.T.Helper()
	g.request()
	g.applied(commit)
}

// runnerOf waits until a job runs, and returns the name of its runner.
func (g *gitops) runnerOf(job string) string {
	g.T.Helper()
	var runner string
	eventually(g.T, func(context.Context) error {
		for _, j := range g.w.GitHub.Jobs() {
			if j.ID == job && j.Runner != "" {
				runner = j.Runner
				return nil
			}
		}
		return fmt.Errorf("job %s has no runner", job)
	})
	return runner
}

func (g *gitops) image(runner string) string {
	g.T.Helper()
	pod := &corev1.Pod{}
	must(g.T, g.w.Client.Get(g.T.Context(), client.ObjectKey{Namespace: g.namespace, Name: runner}, pod))
	return pod.Spec.Containers[0].Image
}

// cutShort ends a job of harness.LongJob.
func (g *gitops) cutShort(job string) {
	g.T.Helper()
	harness.CutShort(g.T, g.w.GitHub, job)
}

// finished waits until a job has succeeded.
func (g *gitops) finished(job string) {
	g.T.Helper()
	eventually(g.T, func(context.Context) error {
		for _, j := range g.w.GitHub.Jobs() {
			if j.ID == job {
				if j.Result == githubsim.ResultSucceeded {
					return nil
				}
				return fmt.Errorf("job %s is %s %s", job, j.State, j.Result)
			}
		}
		return fmt.Errorf("job %s is unknown", job)
	})
}

// idleAgain deletes everything and checks that nothing is left.
func (g *gitops) idleAgain() {
	g.T.Helper()
	g.w.cleanUp(g.T, g.namespace)
}

// retire deletes the sources of a namespace. It suspends them first, because a running reconciliation could
// otherwise apply the pools again after its source was deleted.
func retire(ctx context.Context, namespace string) error {
	sources := &v1alpha1.PoolSourceList{}
	if err := shared.Client.List(ctx, sources, client.InNamespace(namespace)); err != nil {
		return err
	}
	for _, source := range sources.Items {
		err := shared.Client.Patch(ctx, &source, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))
		if err == nil {
			err = world.Until(ctx, harness.Patience, func(ctx context.Context) error {
				err := shared.Client.Get(ctx, client.ObjectKeyFromObject(&source), &source)
				if err == nil && source.Status.ObservedGeneration != source.Generation {
					err = fmt.Errorf("source %s is still at work: %s", source.Name, conditions.GetReason(&source, v1alpha1.ReadyCondition))
				}
				return err
			})
		}
		if err := errors.Join(err, shared.Client.Delete(ctx, &source)); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp deletes the sources and pools of a namespace. It waits until nothing of them is left in the cluster or
// on GitHub, and checks GitHub's invariants.
func (w *story) cleanUp(t *testing.T, namespace string) {
	t.Helper()
	must(t, retire(t.Context(), namespace))
	must(t, w.Client.DeleteAllOf(t.Context(), &v1alpha1.RunnerPool{}, client.InNamespace(namespace)))
	eventually(t, func(ctx context.Context) error {
		if err := w.Left(ctx, namespace); err != nil {
			return err
		}
		// A pass that began before the deletion may have made the scale set again. The garbage collector removes it.
		if rest := w.GitHub.Leftovers(); len(rest) > 0 {
			return fmt.Errorf("left on GitHub: %v", rest)
		}
		return nil
	})
	w.checkGitHub(t)
}
