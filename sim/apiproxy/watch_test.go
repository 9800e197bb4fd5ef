// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/corral-dev/corral/sim/apiproxy"
)

// The first of two watches is frozen. The events of the second prove that there was something to hold.
func TestFreezeWatchHoldsEventsUntilCleared(t *testing.T) {
	b := newBench(t)
	frozen := b.watch()
	remove := b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch, Resource: "configmaps", Times: 1})
	w := b.watch()
	must(t, b.create(b.api, "a"))
	must(t, b.create(b.api, "b"))
	b.sees(w, "ADDED a", "ADDED b")
	b.seesNothing(frozen)
	remove()
	b.sees(frozen, "ADDED a", "ADDED b")
}

func TestFreezeWatchHasTheClientResume(t *testing.T) {
	b := newBench(t)
	w := b.watch()
	remove := b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch, Resource: "configmaps", Release: apiproxy.Resume})
	must(t, b.create(b.api, "a"))
	late := b.watch() // opens, but receives no events
	b.seesNothing(w)
	remove()
	b.sees(w, "end")
	b.sees(late, "end")
	b.sees(b.watch(), "ADDED a")
}

func TestCutWatchSparesOtherResources(t *testing.T) {
	b := newBench(t)
	w := b.watch()
	other, err := b.api.CoreV1().Pods(b.namespace).Watch(b.ctx, metav1.ListOptions{})
	must(t, err)
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.CutWatch, Resource: "configmaps"})
	b.sees(w, "end")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err = b.api.CoreV1().Pods(b.namespace).Create(b.ctx, pod, metav1.CreateOptions{})
	must(t, err)
	b.sees(other, "ADDED p")
	must(t, b.create(b.api, "a"))
	b.sees(b.watch(), "ADDED a")
}

func TestDuplicateEvents(t *testing.T) {
	b := newBench(t)
	w := b.watch()
	b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.DuplicateEvents, Resource: "configmaps", Times: 1})
	must(t, b.create(b.api, "a"))
	must(t, b.create(b.api, "b"))
	b.sees(w, "ADDED a", "ADDED a", "ADDED b")
}

// line is an event as the API server encodes it.
func line(kind, name string, version int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"n","name":%q,"resourceVersion":"%d"}}}`+"\n",
		kind, name, version)
}

// With an API server that sends a fixed response, the order does not depend on time: bookmarks end each collection of
// events.
func TestReorderEvents(t *testing.T) {
	sent := line("ADDED", "a", 11) + line("ADDED", "b", 12) + line("MODIFIED", "a", 13) + line("BOOKMARK", "", 14) +
		line("DELETED", "a", 15) + line("MODIFIED", "b", 16) + line("BOOKMARK", "", 17)
	reordered := []string{"ADDED b 12", "ADDED a 11", "MODIFIED a 13", "BOOKMARK  14", "MODIFIED b 16", "DELETED a 15", "BOOKMARK  17"}
	marked := []string{
		"ADDED b 12", "ADDED a 11", "MODIFIED a 13", "BOOKMARK  13", "BOOKMARK  14",
		"MODIFIED b 16", "DELETED a 15", "BOOKMARK  16", "BOOKMARK  17",
	}
	for _, c := range []struct {
		name    string
		options metav1.ListOptions
		want    []string
	}{
		{"without bookmarks", metav1.ListOptions{ResourceVersion: "10"}, reordered},
		{"with bookmarks", metav1.ListOptions{ResourceVersion: "10", AllowWatchBookmarks: true}, marked},
		{"initial events", metav1.ListOptions{AllowWatchBookmarks: true}, reordered},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, sent)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			proxy, err := apiproxy.Start(config)
			must(t, err)
			defer proxy.Close()
			proxy.Inject(apiproxy.Fault{Kind: apiproxy.ReorderEvents, For: time.Hour})
			w, err := clientOf(t, proxy.Config(config)).CoreV1().ConfigMaps("n").Watch(t.Context(), c.options)
			must(t, err)
			var got []string
			for e := range w.ResultChan() {
				object, ok := e.Object.(*corev1.ConfigMap)
				if !ok {
					t.Fatalf("got %v", e.Object)
				}
				got = append(got, fmt.Sprintf("%s %s %s", e.Type, object.Name, object.ResourceVersion))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever happens to its watches, an informer ends up with the state of the API server.
func TestInformersAreRightAfterAllFaults(t *testing.T) {
	b := newBench(t)
	factory := informers.NewSharedInformerFactoryWithOptions(b.api, 0, informers.WithNamespace(b.namespace))
	store := factory.Core().V1().ConfigMaps().Informer().GetStore()
	ctx, stop := context.WithCancel(b.ctx)
	t.Cleanup(func() {
		stop()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	events := []apiproxy.Kind{apiproxy.DuplicateEvents, apiproxy.ReorderEvents, apiproxy.Delay}
	for i, kind := range events {
		b.proxy.Inject(apiproxy.Fault{
			Kind: kind, Resource: "configmaps", Verbs: []apiproxy.Verb{apiproxy.Watch}, Probability: 0.3, Seed: uint64(i), For: 20 * time.Millisecond,
		})
	}
	nothing := func() {}
	for round, disturb := range []func() (remove func()){
		func() func() { return nothing },
		func() func() { return b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.CutWatch}) },
		func() func() { return b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch}) },
		func() func() {
			return b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch, Release: apiproxy.Resume})
		},
		func() func() { return b.proxy.Inject(apiproxy.Fault{Kind: apiproxy.Cut, Times: 2}) },
	} {
		b.change(round)
		remove := disturb()
		b.change(round)
		remove()
		b.isRight(store)
	}
	for _, kind := range events {
		if b.proxy.Struck(kind) == 0 {
			t.Errorf("%s never struck", kind)
		}
	}
}

// change writes some ConfigMaps and deletes one, bypassing the proxy.
func (b *bench) change(round int) {
	b.Helper()
	maps := direct.CoreV1().ConfigMaps(b.namespace)
	for i := range 12 {
		name := fmt.Sprintf("m%d", i%5)
		patch := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"i":"%d of %d"}}`, name, i, round)
		_, err := maps.Patch(b.ctx, name, types.ApplyYAMLPatchType, patch, metav1.PatchOptions{FieldManager: "test"})
		must(b.T, err)
		if i == 7 {
			must(b.T, maps.Delete(b.ctx, name, metav1.DeleteOptions{}))
		}
	}
}

// isRight waits until the informer's store has the same ConfigMaps as the API server.
func (b *bench) isRight(store cache.Store) {
	b.Helper()
	list, err := direct.CoreV1().ConfigMaps(b.namespace).List(b.ctx, metav1.ListOptions{})
	must(b.T, err)
	want := map[string]string{}
	for _, m := range list.Items {
		want[m.Name] = m.ResourceVersion
	}
	var diff string
	err = wait.PollUntilContextCancel(b.ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		got := map[string]string{}
		for _, o := range store.List() {
			m := o.(*corev1.ConfigMap)
			got[m.Name] = m.ResourceVersion
		}
		diff = cmp.Diff(want, got)
		return diff == "", nil
	})
	if err != nil {
		b.Fatalf("the informer has other versions (-want +got):\n%s", diff)
	}
}
