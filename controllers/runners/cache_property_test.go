// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/github/scaleset"
)

var errKilled = errors.New("the process was killed")

// snapshot is what a watch shows. It may be older than the actual state.
type snapshot struct {
	runners v1alpha1.RunnerList
	pods    corev1.PodList
	claims  corev1.PersistentVolumeClaimList
}

// cacheWorld is a pool with a cache whose runners come and go in any order. Its controller is killed at arbitrary writes,
// sees a stale cache, and loses all status.
type cacheWorld struct {
	*bench
	*rand.Rand
	truth client.WithWatch
	shown snapshot
	// writes is the number of writes until the process is killed; a negative number means never. lost means that the last
	// write is not made either.
	writes     int
	lost, dead bool
	made       int
	// dirty maps the UIDs of claims whose container did not end well to the runner.
	dirty map[types.UID]string
	// synced is true if the cache has shown everything since the process began. gone is true if a user has deleted a claim
	// since then.
	synced, gone bool
	// taken counts claims that another runner took over, to prove that the test covers that.
	taken int
}

const (
	worldClaims = 3
	worldSteps  = 200
	worldSeeds  = 8
)

func newCacheWorld(t *testing.T, seed uint64) *cacheWorld {
	w := &cacheWorld{bench: newCachedBench(t, worldClaims), Rand: rand.New(rand.NewPCG(seed, 1)), writes: -1, dirty: map[types.UID]string{}}
	w.truth = w.Client.(client.WithWatch)
	w.Events = silent{}
	first := w.runner()
	first.Finalizers = nil
	w.update(first)
	if err := w.truth.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w.Client = interceptor.NewClient(w.truth, interceptor.Funcs{
		Get: w.get, List: w.list,
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
				o.SetFinalizers([]string{"kubernetes.io/pvc-protection"})
				o.SetUID(types.UID(fmt.Sprint(w.Uint64())))
			}
			return w.write(func() error { return w.truth.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write(func() error { return w.truth.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, _ client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.write(func() error {
				err := w.truth.Patch(ctx, o, p, opts...)
				if _, ok := o.(*corev1.PersistentVolumeClaim); ok && err == nil {
					w.taken++
				}
				return err
			})
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.write(func() error { return w.truth.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	w.sync()
	return w
}

// silent drops all events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func shownAs[T client.Object](key client.ObjectKey, items []T, into func(T)) error {
	for _, x := range items {
		if client.ObjectKeyFromObject(x) == key {
			into(x)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func pointers[T any](items []T) (all []*T) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// get reads watched kinds from the snapshot.
func (w *cacheWorld) get(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	switch o := o.(type) {
	case *v1alpha1.Runner:
		return shownAs(key, pointers(w.shown.runners.Items), func(x *v1alpha1.Runner) { x.DeepCopyInto(o) })
	case *corev1.Pod:
		return shownAs(key, pointers(w.shown.pods.Items), func(x *corev1.Pod) { x.DeepCopyInto(o) })
	}
	return w.truth.Get(ctx, key, o, opts...)
}

func (w *cacheWorld) list(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
	switch l := l.(type) { // all belong to the pool
	case *corev1.PersistentVolumeClaimList:
		w.shown.claims.DeepCopyInto(l)
	case *corev1.PodList:
		w.shown.pods.DeepCopyInto(l)
	default:
		return w.truth.List(ctx, l, opts...)
	}
	return nil
}

// write performs a write unless the process is killed at it. Then the write may or may not have happened, and no later
// write happens.
func (w *cacheWorld) write(do func() error) error {
	if w.dead {
		return errKilled
	}
	if w.writes == 0 {
		w.dead = true
		if !w.lost {
			_ = do()
		}
		w.check()
		return errKilled
	}
	w.writes--
	err := do()
	w.check()
	return err
}

func (w *cacheWorld) lists(s *snapshot) {
	w.t.Helper()
	for _, l := range []client.ObjectList{&s.runners, &s.pods, &s.claims} {
		if err := w.truth.List(w.t.Context(), l); err != nil {
			w.t.Fatal(err)
		}
	}
}

// sync makes the cache show the actual state.
func (w *cacheWorld) sync() {
	w.shown, w.synced, w.gone = snapshot{}, true, false
	w.lists(&w.shown)
}

// check fails on a claim that two pods mount, a pod that mounts a dirty claim, and more claims than the pool allows.
func (w *cacheWorld) check() {
	w.t.Helper()
	var s snapshot
	w.lists(&s)
	uids, mounts := map[string]types.UID{}, map[string]string{}
	for _, c := range s.claims.Items {
		uids[c.Name] = c.UID
	}
	for _, pod := range s.pods.Items {
		claim := pod.Annotations[v1alpha1.CacheClaimAnnotation]
		if claim == "" {
			continue
		}
		if other := mounts[claim]; other != "" {
			w.t.Fatalf("claim %s is in %s and in %s", claim, other, pod.Name)
		}
		mounts[claim] = pod.Name
		if by := w.dirty[uids[claim]]; by != "" && by != pod.Name {
			w.t.Fatalf("claim %s was left by %s, which didn't end well, and is in %s", claim, by, pod.Name)
		}
	}
	if n := len(s.claims.Items); n > worldClaims {
		w.t.Fatalf("%d claims", n)
	}
}

// protect releases deleted claims that no pod with a node mounts, as Kubernetes does.
func (w *cacheWorld) protect() {
	w.t.Helper()
	var s snapshot
	w.lists(&s)
	mounted := map[string]bool{}
	for _, p := range s.pods.Items {
		mounted[p.Annotations[v1alpha1.CacheClaimAnnotation]] = mounted[p.Annotations[v1alpha1.CacheClaimAnnotation]] || p.Spec.NodeName != ""
	}
	for _, c := range pointers(s.claims.Items) {
		if !c.DeletionTimestamp.IsZero() && !mounted[c.Name] {
			c.Finalizers = nil
			if err := w.truth.Update(w.t.Context(), c); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// pass reconciles one runner, and sometimes kills the process at one of its writes.
func (w *cacheWorld) pass(name string) {
	w.writes = -1
	if w.IntN(4) == 0 {
		w.writes, w.lost = w.IntN(4), w.IntN(2) == 0
	}
	_, _ = w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: name}})
	if w.writes = -1; w.dead {
		w.again()
	}
}

// again starts another process, whose cache may be as old as before, because an API server that is behind may fill it. But
// its cache shows what a user deleted.
func (w *cacheWorld) again() {
	if w.Memory, w.dead, w.writes, w.synced = NewMemory(), false, -1, false; w.IntN(2) == 0 || w.gone {
		w.sync()
	}
}

// strike changes a runner's pod: it disappears, runs, dies or completes its job.
func (w *cacheWorld) strike(pod *corev1.Pod) {
	w.t.Helper()
	at, what := metav1.Time{Time: w.now}, w.IntN(4)
	statuses := pod.Status.ContainerStatuses
	over := len(statuses) > 0 && statuses[0].State.Terminated != nil
	state := running(w.now)
	switch {
	case what == 0:
		if err := w.truth.Delete(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
	case over:
		return
	case what == 1:
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, StartedAt: at, FinishedAt: at}}
		c := &corev1.PersistentVolumeClaim{}
		if err := w.truth.Get(w.t.Context(), client.ObjectKey{Namespace: "ci", Name: pod.Annotations[v1alpha1.CacheClaimAnnotation]}, c); err == nil {
			w.dirty[c.UID] = pod.Name
		}
	case what == 2:
		state = ended(w.now)
	}
	if what != 0 {
		pod.Spec.NodeName = "n1"
		w.update(pod)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: state}}
		if err := w.truth.Status().Update(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
	}
	w.sync()
	if what == 2 {
		recorder := &Recorder{Client: w.truth, Namespace: "ci", Memory: w.Memory}
		for _, e := range []scaleset.EventType{scaleset.JobStarted, scaleset.JobCompleted} {
			if err := recorder.RecordJobs(w.t.Context(), []scaleset.JobEvent{{Type: e, JobID: "j", RunnerName: pod.Name, Result: "succeeded", At: w.now}}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// wipe deletes the status of all runners.
func (w *cacheWorld) wipe() {
	w.t.Helper()
	var s snapshot
	w.lists(&s)
	for _, r := range pointers(s.runners.Items) {
		r.Status = v1alpha1.RunnerStatus{}
		if err := w.truth.Status().Update(w.t.Context(), r); err != nil {
			w.t.Fatal(err)
		}
	}
	w.again()
}

// step performs one random action.
func (w *cacheWorld) step() {
	w.t.Helper()
	var s snapshot
	w.lists(&s)
	runners, pods := s.runners.Items, s.pods.Items
	switch what := w.IntN(20); {
	case what < 4 && len(runners) < worldClaims+2:
		w.made++
		w.another(fmt.Sprintf("linux-%d", w.made), fmt.Sprintf("u-%d", w.made))
	case what < 12 && len(runners) > 0:
		w.pass(runners[w.IntN(len(runners))].Name)
	case what < 13:
		w.pass(fmt.Sprintf("linux-%d", 1+w.IntN(w.made+1))) // the runner may be gone
	case what < 15 && len(pods) > 0:
		w.strike(&pods[w.IntN(len(pods))])
	case what < 16 && len(runners) > 0:
		if err := w.truth.Delete(w.t.Context(), &runners[w.IntN(len(runners))]); err != nil {
			w.t.Fatal(err)
		}
	case what < 17:
		w.protect()
	case what < 18:
		w.now = w.now.Add(time.Duration(w.IntN(90)) * time.Second)
	case what == 18 && w.IntN(4) == 0:
		w.wipe()
	case what == 18 && w.IntN(2) == 0 && w.synced && len(s.claims.Items) > 0:
		if err := w.truth.Delete(w.t.Context(), &s.claims.Items[w.IntN(len(s.claims.Items))]); err != nil {
			w.t.Fatal(err)
		}
		w.gone = true
		w.protect()
	default:
		w.sync()
	}
}

// settle ends all runners, and deletes the claims that the pool does not need any more.
func (w *cacheWorld) settle() {
	w.t.Helper()
	var s snapshot
	for range 60 {
		w.lists(&s)
		for _, r := range pointers(s.runners.Items) {
			if at := r.DeletionTimestamp; at != nil && w.now.Before(at.Time) {
				w.now = at.Time
			}
			_ = client.IgnoreNotFound(w.truth.Delete(w.t.Context(), r))
			w.sync()
			_, _ = w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)})
		}
		w.now = w.now.Add(time.Minute)
		w.protect()
		w.sync()
	}
	for n := range w.made {
		w.pass(fmt.Sprintf("linux-%d", n+1))
	}
	c := w.claimsOf()
	all, err := c.Of(w.t.Context(), w.pool())
	if err != nil {
		w.t.Fatal(err)
	}
	list := make([]claims.Claim, 0, len(all))
	for _, x := range all {
		list = append(list, x.Claim)
	}
	if err := c.Remove(w.t.Context(), w.pool(), w.Reporter, all, claims.Remove(nil, list, w.now)); err != nil {
		w.t.Fatal(err)
	}
	w.protect()
	if w.lists(&s); len(s.runners.Items)+len(s.pods.Items)+len(s.claims.Items) > 0 {
		w.t.Errorf("left: %d runners, %d pods, %d claims", len(s.runners.Items), len(s.pods.Items), len(s.claims.Items))
	}
}

func (w *cacheWorld) claimsOf() Claims { return Claims{w.Client, w.Live, w.Memory} }

// For any order of events, any point at which the process is killed, and any loss: no claim is mounted by two pods, no
// dirty claim reaches another runner, the pool never has more claims than allowed, and none is leaked.
func TestNoClaimIsEverHeldTwice(t *testing.T) {
	taken := 0
	for seed := range uint64(worldSeeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newCacheWorld(t, seed)
			for range worldSteps {
				w.step()
			}
			w.writes = -1
			w.settle()
			taken += w.taken
		})
	}
	if taken == 0 {
		t.Error("no claim was taken over: the test tests nothing")
	}
}
