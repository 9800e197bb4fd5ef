// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// key creates a key from GROUP/FLOW/NAME, which byName classifies. A group is a NAME or an OWNER.NAME.
func key(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func byName(r reconcile.Request) (group, flow string) {
	parts := strings.SplitN(r.Name, "/", 3)
	return strings.ReplaceAll(parts[0], ".", "/"), parts[1]
}

func testQueue(perGroup int) *queue {
	return newQueue(QueueOptions{
		Name: "test", Classify: byName, PerGroup: perGroup,
		Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
	})
}

// next returns up to n keys that may be processed now, without waiting for more.
func next(q *queue, n int) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var names []string
	for range n {
		e := q.pop()
		if e == nil {
			break
		}
		names = append(names, e.key.Name)
	}
	return names
}

func TestKeysAreHandedOutInTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		perGroup, perOwner int
		add                []string
		want               []string
	}{
		"first in, first out within a flow": {
			add:  []string{"a/p/1", "a/p/3", "a/p/2"},
			want: []string{"a/p/1", "a/p/3", "a/p/2"},
		},
		"a key that waits already keeps its place": {
			add:  []string{"a/p/1", "a/p/2", "a/p/1"},
			want: []string{"a/p/1", "a/p/2"},
		},
		"groups take turns": {
			add:  []string{"a/p/1", "a/p/2", "a/p/3", "b/p/1", "b/p/2", "c/p/1"},
			want: []string{"a/p/1", "b/p/1", "c/p/1", "a/p/2", "b/p/2", "a/p/3"},
		},
		"flows take turns within their group": {
			add:  []string{"a/p/1", "a/p/2", "a/q/1", "a/q/2", "b/p/1", "b/p/2"},
			want: []string{"a/p/1", "b/p/1", "a/q/1", "b/p/2", "a/p/2", "a/q/2"},
		},
		"a group holds no more workers than it may": {
			perGroup: 2,
			add:      []string{"a/p/1", "a/p/2", "a/q/3", "b/p/1", "b/p/2", "b/p/3", "c/p/1"},
			want:     []string{"a/p/1", "b/p/1", "c/p/1", "a/q/3", "b/p/2"},
		},
		"owners take turns, then their groups": {
			add:  []string{"a.1/p/1", "a.1/p/2", "a.2/p/1", "a.3/p/1", "b/p/1", "b/p/2"},
			want: []string{"a.1/p/1", "b/p/1", "a.2/p/1", "b/p/2", "a.3/p/1", "a.1/p/2"},
		},
		"nor do the groups of one owner together, and one leaves places to the others": {
			perGroup: 2, perOwner: 3,
			add:  []string{"a.1/p/1", "a.1/p/2", "a.1/p/3", "a.2/p/1", "a.3/p/1", "a.4/p/1", "b.1/p/1"},
			want: []string{"a.1/p/1", "b.1/p/1", "a.2/p/1", "a.3/p/1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := testQueue(tc.perGroup)
			q.PerOwner = tc.perOwner
			for _, name := range tc.add {
				q.Add(key(name))
			}
			if diff := cmp.Diff(tc.want, next(q, 100)); diff != "" {
				t.Errorf("handed out (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAGroupThatHangsDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(2)
		hang := make(chan struct{})
		release := sync.OnceFunc(func() { close(hang) })
		defer release()
		var mu sync.Mutex
		var served []string
		for range 3 {
			go func() {
				for {
					k, shutdown := q.Get()
					if shutdown {
						return
					}
					if group, _ := byName(k); group == "dead" {
						<-hang
					}
					mu.Lock()
					served = append(served, k.Name)
					mu.Unlock()
					q.Done(k)
				}
			}()
		}
		for _, name := range []string{"dead/p/1", "dead/p/2", "dead/q/3", "dead/r/4", "ok/p/1", "ok/p/2"} {
			q.Add(key(name))
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"ok/p/1", "ok/p/2"}, served); diff != "" {
			t.Errorf("served while a group hangs (-want +got):\n%s", diff)
		}
		if got := q.Len(); got != 2 {
			t.Errorf("%d keys wait, want the 2 of the group that hangs", got)
		}
		release()
		q.ShutDownWithDrain()
		if len(served) != 6 {
			t.Errorf("served in the end: %v, want all 6", served)
		}
	})
}

// Namespaces may share a group, such as a connection that all of them use.
func TestATenantLeavesAQuarterOfAGroupToOthers(t *testing.T) {
	q := newQueue(QueueOptions{
		Name: "test", PerGroup: 12, Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
		Classify: func(r reconcile.Request) (group, flow string) { return "platform/shared", r.Namespace + "/pool" },
	})
	defer q.ShutDown()
	add := func(namespace string, n int) {
		for i := range n {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(namespace, i)}})
		}
	}
	add("slow", 20)
	if got := next(q, 20); len(got) != 9 {
		t.Errorf("one tenant has %d places of 12, want 9", len(got))
	}
	add("quick", 5)
	if diff := cmp.Diff([]string{"quick0", "quick1", "quick2"}, next(q, 20)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAFreedPlaceWakesAWaitingWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(1)
		depth := testutil.ToFloat64(q.metrics.depth)
		q.Add(key("a/p/1"))
		q.Add(key("a/p/2"))
		first, _ := q.Get()
		second := make(chan reconcile.Request)
		go func() {
			k, _ := q.Get()
			second <- k
		}()
		synctest.Wait()
		if got := testutil.ToFloat64(q.metrics.depth) - depth; got != 1 {
			t.Errorf("the metric says that %v keys wait, want 1", got)
		}
		q.Done(first)
		if got := <-second; got != key("a/p/2") {
			t.Errorf("woken for %v, want a/p/2", got)
		}
		if got := testutil.ToFloat64(q.metrics.depth) - depth; got != 0 {
			t.Errorf("the metric says that %v keys wait, want none", got)
		}
	})
}

func TestAKeyAddedWhileItIsProcessedIsProcessedOnceMore(t *testing.T) {
	q := testQueue(1)
	q.Add(key("a/p/1"))
	first, _ := q.Get()
	q.Add(first)
	q.Add(first)
	if got := next(q, 1); got != nil {
		t.Fatalf("handed out twice at once: %v", got)
	}
	q.Done(first)
	if diff := cmp.Diff([]string{"a/p/1"}, next(q, 10)); diff != "" {
		t.Errorf("handed out after Done (-want +got):\n%s", diff)
	}
	q.Done(first)
	if len(q.entries) != 0 || len(q.line.branches) != 0 {
		t.Errorf("remembers %d keys and %d owners, want nothing", len(q.entries), len(q.line.branches))
	}
}

func TestAKeyFollowsItsGroup(t *testing.T) {
	group := "dead"
	q := testQueue(1)
	q.Classify = func(r reconcile.Request) (string, string) {
		if r.Name == "moves" {
			return group, ""
		}
		return "dead", ""
	}
	q.Add(key("hangs"))
	q.Get()
	q.Add(key("moves"))
	if got := next(q, 1); got != nil {
		t.Fatalf("handed out %v beyond what its group may hold", got)
	}
	group = "ok"
	q.Add(key("moves"))
	if diff := cmp.Diff([]string{"moves"}, next(q, 10)); diff != "" {
		t.Errorf("handed out after it moved (-want +got):\n%s", diff)
	}
	if q.Len() != 0 {
		t.Errorf("%d keys wait, want none", q.Len())
	}
}

// asked is a request for the key a/p/1 at a time after the start.
type asked struct{ at, after time.Duration }

func TestTheEarliestRequestForAKeyWins(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		ask  []asked
		want []time.Duration
	}{
		"after its delay":                       {ask: []asked{{0, 10 * s}}, want: []time.Duration{10 * s}},
		"no delay is now":                       {ask: []asked{{0, 0}}, want: []time.Duration{0}},
		"a later delay changes nothing":         {ask: []asked{{0, 10 * s}, {s, 20 * s}}, want: []time.Duration{10 * s}},
		"an earlier delay takes its place":      {ask: []asked{{0, 10 * s}, {s, 2 * s}}, want: []time.Duration{3 * s}},
		"an addition takes the place of it":     {ask: []asked{{0, 10 * s}, {s, 0}}, want: []time.Duration{s}},
		"a new delay counts after it was added": {ask: []asked{{0, 10 * s}, {s, 0}, {2 * s, 10 * s}}, want: []time.Duration{s, 12 * s}},
		"one delay after the other":             {ask: []asked{{0, s}, {2 * s, s}}, want: []time.Duration{s, 3 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { theEarliestWins(t, tc.ask, tc.want) })
		})
	}
}

func theEarliestWins(t *testing.T, ask []asked, want []time.Duration) {
	q, start := testQueue(1), time.Now()
	defer q.ShutDown()
	var got []time.Duration
	go func() {
		for k, shutdown := q.Get(); !shutdown; k, shutdown = q.Get() {
			got = append(got, time.Since(start))
			q.Done(k)
		}
	}()
	for _, a := range ask {
		<-time.After(time.Until(start.Add(a.at)))
		q.AddAfter(key("a/p/1"), a.after)
		synctest.Wait()
	}
	<-time.After(time.Minute)
	synctest.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processed at (-want +got):\n%s", diff)
	}
	if len(q.entries) != 0 {
		t.Errorf("remembers %d keys, want none", len(q.entries))
	}
}

func TestADelayThatEndsWhileTheKeyIsProcessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(1)
		q.Add(key("a/p/1"))
		k, _ := q.Get()
		q.AddAfter(k, time.Second)
		<-time.After(2 * time.Second)
		synctest.Wait()
		if got := next(q, 1); got != nil {
			t.Fatalf("handed out twice at once: %v", got)
		}
		q.Done(k)
		if diff := cmp.Diff([]string{"a/p/1"}, next(q, 10)); diff != "" {
			t.Errorf("handed out after Done (-want +got):\n%s", diff)
		}
	})
}

func TestAFailedKeyComesBackWithGrowingDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start, k := testQueue(1), time.Now(), key("a/p/1")
		before := testutil.ToFloat64(q.metrics.retries)
		for _, want := range []time.Duration{time.Second, 3 * time.Second, 7 * time.Second} {
			q.AddRateLimited(k)
			q.Get()
			if got := time.Since(start); got != want {
				t.Errorf("came back after %v, want %v", got, want)
			}
			q.Done(k)
		}
		if got := q.NumRequeues(k); got != 3 {
			t.Errorf("failed %d times, want 3", got)
		}
		if got := testutil.ToFloat64(q.metrics.retries) - before; got != 3 {
			t.Errorf("%v retries counted, want 3", got)
		}
		q.Forget(k)
		if got := q.NumRequeues(k); got != 0 {
			t.Errorf("failed %d times after Forget, want 0", got)
		}
	})
}

func TestAShutDownHandsOutWhatWaitsAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(1)
		q.Add(key("a/p/1"))
		q.Add(key("a/p/2"))
		q.AddAfter(key("a/p/3"), time.Second)
		first, _ := q.Get()
		q.Add(first)
		q.ShutDown()
		q.Add(key("a/p/4"))
		q.AddAfter(key("a/p/5"), time.Second)
		if !q.ShuttingDown() {
			t.Error("says that it isn't shutting down")
		}

		ended := make(chan struct{})
		go func() { // waits for the place of the first one
			defer close(ended)
			for k, shutdown := q.Get(); !shutdown; k, shutdown = q.Get() {
				q.Done(k)
			}
		}()
		synctest.Wait()
		q.Done(first)
		<-ended
		if _, shutdown := q.Get(); !shutdown {
			t.Error("hands out a key after it was drained")
		}
		if len(q.entries) != 0 {
			t.Errorf("remembers %d keys, want none", len(q.entries))
		}
	})
}

func TestAShutDownWithDrainWaits(t *testing.T) {
	for name, end := range map[string]func(*queue, reconcile.Request){
		"for what is processed":   func(q *queue, k reconcile.Request) { q.Done(k) },
		"until it is told not to": func(q *queue, _ reconcile.Request) { q.ShutDown() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := testQueue(1)
				q.Add(key("a/p/1"))
				k, _ := q.Get()
				drained := make(chan struct{})
				go func() {
					defer close(drained)
					q.ShutDownWithDrain()
				}()
				synctest.Wait()
				select {
				case <-drained:
					t.Fatal("did not wait")
				default:
				}
				end(q, k)
				<-drained
			})
		})
	}
}

func BenchmarkAddGetDone(b *testing.B) {
	q := testQueue(8)
	keys := []reconcile.Request{key("a/p/1"), key("a/q/2"), key("b/p/3"), key("b/p/4")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Add(keys[i%len(keys)])
		k, _ := q.Get()
		q.Done(k)
	}
}
