// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
)

// These tests count comparisons instead of measuring time. One comparison compares an event, or a remembered job, with what
// one pool asks for. Its steps are counted in TestAComparisonIsLinear.

const greedy = "greedy" // the namespace of a tenant that uses all that it is allowed

// openAccess allows every namespace to use every connection.
type openAccess struct{}

func (openAccess) Check(context.Context, types.NamespacedName, string) error { return nil }

// crowd returns a tracker that leads, with a pool in the namespace ci, and a connection in each of the two namespaces.
func crowd(t *testing.T) *JobTracker {
	t.Helper()
	x := newPlace(t)
	k := NewJobTracker(Config{Client: x.api, Now: time.Now, GitHub: func(types.NamespacedName) (GitHub, bool) { return x.gh, true }, Access: openAccess{}})
	k.leading = true
	k.setConnection(connOf("acme", "acme"))
	conn := connOf("acme", "acme")
	conn.Namespace = greedy
	k.setConnection(conn)
	k.setPool(poolOf("gpu"))
	return k
}

// hostile returns a pool of the tenant with the most expensive patterns that a few bytes of CUE can declare.
func hostile(i int, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	p := poolOf(fmt.Sprint("hostile-", i))
	p.Namespace = greedy
	p.Spec.RunnerLabels = []string{"x"}
	p.Spec.Demand.Webhook.Repositories = []string{"*a*a*a*a*a*a*a*b", "acme/*" + strings.Repeat("a", 50) + "b"}
	p.Spec.Demand.Boosts = []v1alpha1.Boost{{Name: "s", Event: webhook.CheckRunEvent, Names: []string{strings.Repeat("*a", 100) + "*b", "*" + strings.Repeat("a", 200) + "b"}}}
	for _, f := range change {
		f(p)
	}
	return p
}

// by returns the event for the namespace's connection.
func by(namespace string, d webhook.Delivery) webhook.Delivery {
	d.Connection.Namespace = namespace
	d.Repository.FullName = "acme/" + strings.Repeat("a", 90)
	return d
}

// checkRun returns an event of 1.2 kB.
func checkRun() webhook.Delivery {
	return webhook.Delivery{
		GUID: "check", Connection: keyOf("acme"), Event: webhook.CheckRunEvent, Action: "created", At: time.Now(),
		Repository: webhook.Repository{OwnerType: "Organization"}, CheckRun: &webhook.CheckRun{Name: strings.Repeat("a", 1024)},
	}
}

// counted is the number of comparisons, and of those made while a lock was held.
type counted struct{ Comparisons, UnderLock int }

func (k *JobTracker) counted(do func()) (n counted) {
	onComparison = func() {
		n.Comparisons++
		if !k.isUnlocked() {
			n.UnderLock++
		}
	}
	defer func() { onComparison = func() {} }()
	do()
	return n
}

// isUnlocked reports whether no lock is held, except for the turn of a large comparison, for which only events of the
// namespace's own pools wait.
func (k *JobTracker) isUnlocked() bool {
	locks := []*sync.Mutex{&k.mu}
	k.placing.Range(func(_, lock any) bool {
		locks = append(locks, lock.(*sync.Mutex))
		return true
	})
	for _, byPools := range k.spaces {
		for _, s := range byPools {
			locks = append(locks, &s.mu)
		}
	}
	for _, conns := range k.conns {
		for _, c := range conns {
			locks = append(locks, &c.mu)
		}
	}
	for _, l := range locks {
		if !l.TryLock() {
			return false
		}
		l.Unlock()
	}
	return true
}

func (k *JobTracker) take(t *testing.T, d webhook.Delivery) {
	t.Helper()
	if err := k.Accept(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// spaceOf returns the space of a namespace's pools on its own connections.
func (k *JobTracker) spaceOf(namespace string) *space { return k.spaces[namespace][namespace] }

// place assigns waiting jobs to pools that changed, as a worker does.
func (k *JobTracker) place(t *testing.T, s *space) {
	t.Helper()
	if _, err := k.reconcileUnmatched(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// Whatever the number of a tenant's pools and remembered jobs, an event of another namespace is only compared with that
// namespace's pool, and a change there with nothing. A change of the tenant is compared with the jobs that request its
// labels. No comparison holds a lock.
func TestWorkDoesNotGrowWithOthersPools(t *testing.T) {
	for _, n := range []int{10, 100, 1000, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			k := crowd(t)
			for i := range int64(maxUnmatched) {
				k.take(t, by(greedy, job(10+i, "queued", []string{"x", "y"}[i%2])))
			}
			for i := range n {
				k.setPool(hostile(i))
			}
			if n := len(k.spaceOf(greedy).unmatched); n != maxUnmatched {
				t.Errorf("%d jobs are remembered", n)
			}
			k.spaceOf(greedy).toPlace(time.Now()) // the worker's next round covers only later changes
			change := func(p *v1alpha1.RunnerPool) func() {
				return func() {
					k.setPool(p)
					k.place(t, k.spaceOf(p.Namespace))
				}
			}
			got := map[string]counted{
				"a neighbour's event":         k.counted(func() { k.take(t, job(1, "queued", "gpu")) }),
				"a neighbour's change":        k.counted(change(poolOf("gpu"))),
				"a neighbour's new pool":      k.counted(change(poolOf("cpu"))),
				"the tenant's check run":      k.counted(func() { k.take(t, by(greedy, checkRun())) }),
				"the tenant's job":            k.counted(func() { k.take(t, by(greedy, job(2, "queued", "x"))) }),
				"a job that no pool asks for": k.counted(func() { k.take(t, by(greedy, job(3, "queued", "z"))) }),
				"the tenant's change":         k.counted(change(hostile(n))),
			}
			want := map[string]counted{
				"a neighbour's event": {Comparisons: 1}, "a neighbour's change": {}, "a neighbour's new pool": {}, "a job that no pool asks for": {},
				"the tenant's check run": {Comparisons: n}, "the tenant's job": {Comparisons: n}, "the tenant's change": {Comparisons: maxUnmatched / 2},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("comparisons (-want +got):\n%s", diff)
			}
		})
	}
}

// While a tenant's event or change is compared, another namespace's event is accepted, its pool changes, and its demand is
// read.
func TestANeighbourWaitsForNoComparison(t *testing.T) {
	k := crowd(t)
	for i := range 100 {
		k.setPool(hostile(i))
	}
	k.take(t, by(greedy, job(1, "queued", "y")))
	neighbour := int64(100)
	meanwhile := func() {
		during := onComparison
		onComparison = func() {}
		defer func() { onComparison = during }()
		neighbour++
		k.take(t, job(neighbour, "queued", "gpu"))
		k.setPool(poolOf("gpu"))
		k.Reading(keyOf("gpu"))
		k.AtMax(keyOf("gpu"), true)
	}
	for name, do := range map[string]func(){
		"an event": func() { k.take(t, by(greedy, checkRun())) },
		"a job":    func() { k.take(t, by(greedy, job(2, "queued", "x"))) },
		"a changed pool": func() {
			k.setPool(hostile(1, func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"y"} }))
			k.place(t, k.spaceOf(greedy))
		},
	} {
		before, compared := neighbour, 0
		onComparison = func() {
			if compared++; compared == 1 {
				meanwhile()
			}
		}
		do()
		onComparison = func() {}
		if neighbour != before+1 {
			t.Errorf("%s: there was no comparison", name)
		}
	}
	if got := k.spaceOf(ns).members["gpu"].ledger.Counts().Queued; got != 3 {
		t.Errorf("the neighbour has %d jobs", got)
	}
}

// On a shared connection, the pools of the namespace with fewer pools get an event first, before any comparison for the
// other namespace.
func TestFewPoolsAreToldBeforeMany(t *testing.T) {
	k := crowd(t)
	shared := func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Namespace = "platform" }
	conn := connOf("acme", "acme")
	conn.Namespace = "platform"
	k.setConnection(conn)
	small := poolOf("small", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"x"} }, shared)
	k.setPool(small)
	for i := range 5 {
		k.setPool(hostile(i, shared))
	}
	jobsAt := []int{}
	onComparison = func() {
		jobsAt = append(jobsAt, k.homes[client.ObjectKeyFromObject(small)].members["small"].ledger.Counts().Queued)
	}
	defer func() { onComparison = func() {} }()
	k.take(t, by("platform", job(1, "queued", "x")))
	if diff := cmp.Diff([]int{0, 1, 1, 1, 1, 1}, jobsAt); diff != "" {
		t.Errorf("jobs of the small tenant when each pool is compared (-want +got):\n%s", diff)
	}
}

// A namespace runs one large comparison at a time, so that it uses one CPU at most. If many events wait for it, the next
// one is left to GitHub's list of jobs, and delays neither the sender nor others.
func TestANamespaceComparesOneEventAtATime(t *testing.T) {
	k := crowd(t)
	for i := range 100 {
		k.setPool(hostile(i))
	}
	s := k.spaceOf(greedy)
	s.turn.Lock() // as if a comparison was in progress
	var done sync.WaitGroup
	for i := range int64(maxWaiting) {
		done.Go(func() { k.take(t, by(greedy, job(i, "queued", "x"))) })
	}
	for deadline := time.Now().Add(2 * time.Minute); s.waiting.Load() < maxWaiting; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d events wait", s.waiting.Load())
		}
	}
	before := testutil.ToFloat64(events.WithLabelValues(webhook.WorkflowJobEvent, outcomes[overloaded]))
	k.take(t, by(greedy, job(100, "queued", "x")))
	k.take(t, by(greedy, checkRun()))
	if got := testutil.ToFloat64(events.WithLabelValues(webhook.WorkflowJobEvent, outcomes[overloaded])) - before; got != 1 {
		t.Errorf("%v events were left to a list", got)
	}
	k.take(t, job(1, "queued", "gpu"))
	s.turn.Unlock()
	done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unmatched) != maxWaiting || len(s.suspects) != 1 || s.waiting.Load() != 0 {
		t.Errorf("%d events were compared, %d repositories are to be listed, %d events wait", len(s.unmatched), len(s.suspects), s.waiting.Load())
	}
}

// The size of a comparison depends on the characters of patterns and names, not on the number of pools. A few pools with
// long lists take turns and yield in between, for an event as well as for a change. Many pools with a few patterns do not
// wait.
func TestFewPoolsWithLongListsTakeTurns(t *testing.T) {
	long := func(p *v1alpha1.RunnerPool) {
		p.Spec.Demand.Webhook.Repositories = slices.Repeat([]string{"acme/*" + strings.Repeat("a", 130)}, 100)
		p.Spec.Demand.Boosts = slices.Repeat([]v1alpha1.Boost{{Name: "s", Event: webhook.CheckRunEvent, Names: slices.Repeat([]string{strings.Repeat("*a", 127)}, 32)}}, 8)
	}
	light := func(p *v1alpha1.RunnerPool) {
		p.Spec.Demand.Webhook.Repositories = []string{"acme/*"}
		p.Spec.Demand.Boosts = []v1alpha1.Boost{{Name: "s", Event: webhook.CheckRunEvent, Names: []string{"lint*"}}}
	}
	type seen struct{ Compared, InTurn, Parts int }
	for name, tc := range map[string]struct {
		pools                int
		change               func(*v1alpha1.RunnerPool)
		job, checkRun, place seen
	}{
		"few with long lists":   {4, long, seen{4, 4, 1}, seen{4, 4, 4}, seen{4, 4, 1}},
		"many with short lists": {40, light, seen{Compared: 40}, seen{Compared: 40}, seen{Compared: 40}},
	} {
		t.Run(name, func(t *testing.T) {
			k := crowd(t)
			k.take(t, by(greedy, job(1, "queued", "x")))
			for i := range tc.pools {
				k.setPool(hostile(i, tc.change))
			}
			var got seen
			onComparison = func() {
				if got.Compared++; !k.spaceOf(greedy).turn.TryLock() {
					got.InTurn++
				} else {
					k.spaceOf(greedy).turn.Unlock()
				}
			}
			yield = func() { got.Parts++ }
			defer func() { onComparison, yield = func() {}, runtime.Gosched }()
			for _, step := range []struct { // in this order: a change compares the jobs that came before it
				what string
				want seen
				do   func()
			}{
				{"a change", tc.place, func() { k.place(t, k.spaceOf(greedy)) }},
				{"a job", tc.job, func() { k.take(t, by(greedy, job(2, "queued", "x"))) }},
				{"a check run", tc.checkRun, func() { k.take(t, by(greedy, checkRun())) }},
			} {
				got = seen{}
				if step.do(); got != step.want {
					t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
				}
			}
		})
	}
}

// accessOf calls a function for each check.
type accessOf func()

func (f accessOf) Check(context.Context, types.NamespacedName, string) error {
	f()
	return nil
}

// While a namespace's lock is held and one of its pools waits for it, a pool of another namespace is added, moved and
// removed.
func TestANeighboursPoolIsPlacedWhileAnotherNamespacesWaits(t *testing.T) {
	k := crowd(t)
	var wait sync.Once
	neighbour := func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.setPool(poolOf("new"))
			k.setPool(poolOf("new", func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Namespace = "platform" }))
			k.removePool(keyOf("new"))
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the neighbour's pool waits")
		}
	}
	k.Access = accessOf(func() { wait.Do(neighbour) }) // during this call the pool's space is locked
	k.setPool(hostile(1, func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Namespace = ns }))
}

// A pool that changes while an event is compared with its previous version gets the event according to its new version.
func TestAPoolThatChangesDuringAComparison(t *testing.T) {
	k := crowd(t)
	onComparison = func() {
		onComparison = func() {}
		k.setPool(poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"cpu"} }))
		k.setPool(poolOf("new", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "new"} }))
	}
	defer func() { onComparison = func() {} }()
	k.take(t, job(1, "queued", "gpu"))
	s := k.spaceOf(ns)
	if before, after := s.members["gpu"].ledger.Counts().Queued, s.members["new"].ledger.Counts().Queued; before != 0 || after != 1 {
		t.Errorf("the pool that no longer asks for it has %d jobs, the new one %d", before, after)
	}
}

// A pool that moves to a connection in another namespace takes its jobs along, and leaves nothing behind.
func TestAPoolThatMovesKeepsItsJobs(t *testing.T) {
	k := crowd(t)
	k.take(t, job(1, "queued", "gpu"))
	p := k.spaceOf(ns).members["gpu"]
	p.saved.loaded = true
	for i, at := range []string{greedy, "nowhere", greedy, ns, greedy} {
		k.setPool(poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Namespace = at }))
		if r := k.Reading(keyOf("gpu")); !r.Known || *r.Signals[0].Jobs != 1 {
			t.Fatalf("after %d moves: %+v", i+1, r)
		}
	}
	if n := p.ledger.Counts().Jobs(); n != 0 || len(k.spaces) != 2 || len(k.spaceOf(ns).members)+len(k.spaceOf(ns).held)+len(k.spaceOf(ns).index) > 0 {
		t.Errorf("%d jobs are left at the former place, of %d", n, len(k.spaces))
	}
	k.take(t, by(greedy, job(2, "queued", "gpu")))
	k.take(t, by(greedy, job(1, "completed", "gpu")))
	if r := k.Reading(keyOf("gpu")); *r.Signals[0].Jobs != 1 {
		t.Errorf("one of two jobs has ended: %+v", r)
	}
	k.removePool(keyOf("gpu"))
	if k.Reading(keyOf("gpu")).Known || len(k.homes) != 0 || len(k.spaces[greedy]) != 1 {
		t.Errorf("of a pool that is gone there is left %v", k.spaces[greedy])
	}
}

// Lookups of one namespace's pools on a shared connection leave room for the lookups of another namespace.
func TestLookupsAreOneNamespaces(t *testing.T) {
	k := crowd(t)
	in := func(p *v1alpha1.RunnerPool) {
		p.Spec.ConnectionRef.Namespace, p.Spec.RunnerGroup, p.Spec.Demand.Webhook.Repositories = ns, "builders", nil
	}
	k.setPool(hostile(1, in))
	k.setPool(poolOf("gpu", in))
	for i := range int64(2 * maxLookups) {
		d := job(i, "queued", "x")
		d.Repository.FullName = fmt.Sprint("acme/r", i)
		k.take(t, d)
	}
	k.take(t, job(10_000, "queued", "gpu"))
	if n := len(k.homes[types.NamespacedName{Namespace: greedy, Name: "hostile-1"}].lookups); n != maxLookups {
		t.Errorf("%d lookups of a namespace wait", n)
	}
	if n := len(k.spaceOf(ns).lookups); n != 1 {
		t.Errorf("%d lookups of its neighbour wait", n)
	}
}

// A namespace whose keys all hang in a worker uses a quarter of its places, and a key of another namespace is processed in
// the meantime.
func TestNoNamespaceHoldsTheJobTrackersWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		reached := map[string]int{}
		w := newWorker("demand-test", writers, func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
			mu.Lock()
			reached[key.Namespace]++
			mu.Unlock()
			if key.Namespace == greedy {
				<-ctx.Done()
			}
			return reconcile.Result{}, nil
		})
		for i := range 1000 {
			w.add(types.NamespacedName{Namespace: greedy, Name: fmt.Sprint(i)})
		}
		w.add(keyOf("gpu"))
		done := make(chan error, 1)
		go func() { done <- w.run(ctx) }()
		synctest.Wait()
		mu.Lock()
		if diff := cmp.Diff(map[string]int{greedy: writers / 4, ns: 1}, reached); diff != "" {
			t.Errorf("reached (-want +got):\n%s", diff)
		}
		mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// On a shared connection, a namespace with any number of repositories to compare with GitHub leaves others their turn.
func TestEachNamespacesRepositoriesAreCompared(t *testing.T) {
	k := crowd(t)
	k.setPool(hostile(1, func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Namespace = ns }))
	k.setPool(poolOf("cpu"))
	c, _ := k.connection(keyOf("acme"))
	many, few := k.homes[types.NamespacedName{Namespace: greedy, Name: "hostile-1"}], k.spaceOf(ns)
	for i := range 2 * maxSuspects {
		many.suspect(suspect{c.key, fmt.Sprint("acme/r", i)}, time.Now().Add(-time.Hour))
	}
	few.suspect(suspect{c.key, "acme/web"}, time.Now().Add(-time.Hour))
	if len(many.suspects) != maxSuspects || len(few.suspects) != 1 {
		t.Errorf("%d and %d repositories wait", len(many.suspects), len(few.suspects))
	}
	for range 200 {
		due := k.toCompare(c)
		if due["acme/web"] == few {
			return
		}
		for repository := range due {
			many.suspect(suspect{c.key, repository}, time.Now().Add(-time.Hour))
		}
	}
	t.Error("the repository of another namespace never had its turn")
}
