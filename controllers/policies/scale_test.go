// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// large is the namespace of a tenant with many pools, and small the namespace of another tenant. They share a ceiling and a label.
const large, small = "large", "small"

func sharing(namespace, name string) policy.Pool {
	p := facts(namespace, name, "acme", map[string]string{"team": "a", "size": "l", namespace + "/" + name: "own"})
	p.Scale.Max = v1alpha1.UnboundedMax
	return p
}

// shared returns an engine with n pools of a large tenant, each with a runner, and a ceiling over all pools.
func shared(t testing.TB, n int, most int32, share v1alpha1.CeilingShare) *Engine {
	t.Helper()
	e := newEngine()
	putSource(t, e, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "c", Library: &v1alpha1.PolicyLibrary{
		Ceilings: []v1alpha1.Ceiling{{Name: "all", By: v1alpha1.CeilingAll, Max: most, Share: share}, {Name: "team", By: v1alpha1.CeilingLabel, LabelKey: "team", Max: most, Share: share}},
	}})
	for i := range n {
		p := sharing(large, fmt.Sprint("p", i))
		e.ledger.seed(policy.ScalingInput{Pool: p}, e.For(p).Needs(), Grant{Granted: 1, Wanted: 1})
	}
	return e
}

func putSource(t testing.TB, e *Engine, source policy.Source) {
	t.Helper()
	loaded, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	e.Put(loaded, source)
}

// allocated returns how many bytes f allocates, which includes any copies and lists of other pools.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The ledger entries that another tenant's decision visits, and what it copies, do not grow with the pools of the first
// tenant.
func TestADecisionCostsTheSameHoweverManyPoolsOthersHave(t *testing.T) {
	for _, share := range []v1alpha1.CeilingShare{v1alpha1.ShareFair, v1alpha1.ShareFirstCome} {
		var first uint64
		for _, n := range []int{10, 100, 1000, 5000} {
			e := shared(t, n, 20_000, share)
			visits, wanted := e.ledger.visits, int32(0)
			decide := func() {
				wanted++
				if granted, answer := ask(e, sharing(small, "s"), wanted, 0); granted != wanted {
					t.Fatalf("%d granted of %d: %+v", granted, wanted, answer)
				}
			}
			decide() // the first decision does one-time work
			bytes := allocated(func() {
				for range 20 {
					decide()
				}
			})
			if first == 0 {
				first = bytes
			}
			if seen := e.ledger.visits - visits; seen > 0 || bytes > first+first/4 {
				t.Errorf("%s: with %d pools it visits %d entries and allocates %d bytes, with 10 pools %d", share, n, seen, bytes, first)
			}
		}
	}
}

// The leader's first decisions on all pools, and the pass that follows, visit each entry a few times.
func TestTheLeadersStartVisitsEachEntryAFewTimes(t *testing.T) {
	for _, n := range []int{10, 100, 1000, 5000} {
		e := shared(t, n, int32(n), v1alpha1.ShareFirstCome)
		for i := range n {
			p := sharing(large, fmt.Sprint("p", i))
			a := e.Scaling(t.Context(), e.For(p), policy.ScalingInput{Pool: p, Now: e.Now().UnixNano(), Zone: "UTC"})
			if !e.Commit(a, Grant{Granted: 1, Wanted: 2}) { // each one waits for room
				t.Fatal("refused")
			}
		}
		e.Pass(t.Context())
		if most := n * bits.Len(uint(n)); e.ledger.visits > most {
			t.Errorf("with %d pools, %d entries are visited, more than %d", n, e.ledger.visits, most)
		}
	}
}

// Grants of a large tenant arrive between the evaluations and the commits of a small one. No commit that fits is refused.
func TestGrantsOfALargeTenantRefuseNoneThatFits(t *testing.T) {
	for _, share := range []v1alpha1.CeilingShare{v1alpha1.ShareFair, v1alpha1.ShareFirstCome} {
		e := shared(t, 500, 2000, share)
		for i := range 100 {
			p := sharing(small, "s")
			a := e.Scaling(t.Context(), e.For(p), policy.ScalingInput{Pool: p, Jobs: 1, Now: e.Now().UnixNano(), Zone: "UTC"})
			for j := range 3 {
				other := sharing(large, fmt.Sprint("p", 3*i+j))
				ask(e, other, int32(2+i%3), 0)
			}
			if granted := int32(i % 3); !e.Commit(a, Grant{Granted: granted, Wanted: granted}) {
				t.Fatalf("%s: commit %d is refused", share, i)
			}
		}
	}
}

// One runner becomes free, and all pools of a large tenant wait for it. A pass evaluates only a limited number of them, and
// the next pass the others.
func TestAFreeRunnerHasFewOfManyAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 640
		e := shared(t, n, n, v1alpha1.ShareFirstCome)
		woken := queueOf(t, e)
		for i := range n {
			ask(e, sharing(large, fmt.Sprint("p", i)), 2, 1)
		}
		e.Pass(t.Context())
		most := leastAsked + n/askedOf
		ask(e, sharing(large, "p0"), 0, 0)
		if asked := e.Pass(t.Context()); asked != most || woken.Len() != most {
			t.Errorf("%d of %d pools are asked about, and %d woken, want %d", asked, n, woken.Len(), most)
		}
		again := e.Pass(t.Context()) // no pool took it
		if again != most || woken.Len() <= most {
			t.Errorf("%d of %d pools are asked about in the next pass, and %d are woken", again, n, woken.Len())
		}
		key, _ := woken.Get()
		if granted, _ := ask(e, sharing(large, key.Name), 2, 1); granted != 2 {
			t.Errorf("the first that was woken gets %d", granted)
		}
		told := 0
		for asked := e.Pass(t.Context()); asked > 0; asked = e.Pass(t.Context()) {
			told += asked
		}
		if told != 2*most { // minus the pool that took it, and the pool that released it
			t.Errorf("%d pools are asked about once nothing is left, want the %d that were asked about before", told, 2*most)
		}
	})
}

// Other pools' runners matter to a pool only if they double or halve its room, or leave hardly any.
func TestWhatLeavesRoomConcernsFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := shared(t, 0, 1000, v1alpha1.ShareFirstCome)
		ask(e, sharing(small, "s"), 1, 0)
		asked := 0
		for i := range int32(999) {
			ask(e, sharing(large, "p"), i+1, 0)
			asked += e.Pass(t.Context())
		}
		if asked < 9 || asked > 24 { // either pool, at each halving
			t.Errorf("it is asked about %d times while others take all of the ceiling", asked)
		}
		if _, answer := ask(e, sharing(small, "s"), 1, 0); answer.Scale.Max != 1 {
			t.Errorf("max %d", answer.Scale.Max)
		}
	})
}

// Pools whose commits failed twice ask alone. The many pools of a large tenant do not delay the one of a small tenant.
func TestNamespacesTakeTurnsToAskAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := shared(t, 0, 1000, v1alpha1.ShareFirstCome)
		var order []string
		alone := func(namespace, name string) {
			p := sharing(namespace, name)
			a := e.Alone(t.Context(), e.For(p), policy.ScalingInput{Pool: p, Zone: "UTC"})
			order = append(order, namespace) // one at a time
			e.Commit(a, Grant{})
		}
		end := e.ledger.reserve(t.Context(), types.NamespacedName{Namespace: large, Name: "first"}, e.For(sharing(large, "first")).Domains())
		for i := range 20 {
			go alone(large, fmt.Sprint("p", i))
		}
		synctest.Wait()
		go alone(small, "s")
		synctest.Wait()
		end()
		synctest.Wait()
		if at := slices.Index(order, small); len(order) != 21 || at > 1 {
			t.Errorf("the small tenant's turn is number %d of %d", at+1, len(order))
		}
	})
}

// User-written rules may read all pools of a group. The lock is released while they are listed, and a grant in between
// refuses the commit.
func TestPoolsAreListedInParts(t *testing.T) {
	e := newEngine()
	putCounted(t, e, "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": max([0, 100 - sum([m.granted | some m in input.usage.all.members])]), \"assignedJobs\": \"Wait\", \"reason\": \"r\"}\n")
	for i := range 2*maxListed + 3 {
		p := sharing(large, fmt.Sprint("p", i))
		e.ledger.seed(policy.ScalingInput{Pool: p}, policy.Needs{}, Grant{Granted: int32(i % 2)})
	}
	in := policy.ScalingInput{Pool: sharing(small, "s"), Zone: "UTC"}
	a := e.Scaling(t.Context(), e.For(in.Pool), in)
	if a.Answer.Scale.Max != 100-maxListed-1 || len(a.in.Usage.All.Members) != 2*maxListed+3 {
		t.Errorf("max %d of %d members; %v", a.Answer.Scale.Max, len(a.in.Usage.All.Members), a.Answer.Failures)
	}
	if granted, _ := ask(e, sharing(large, "p0"), 1, 0); granted != 1 || e.Commit(a, Grant{Granted: 1}) {
		t.Error("granted more although a member was granted more")
	}
}

// This benchmarks a start with 5,000 pools, beginning with their last decisions. It excludes the evaluation of policies.
func BenchmarkTheLedgerOfALeadersStart(b *testing.B) {
	const n = 5000
	pools := make([]policy.Pool, n)
	for i := range pools {
		pools[i] = sharing(large, fmt.Sprint("p", i))
	}
	needs := policy.Needs{Ceilings: []v1alpha1.Ceiling{{Name: "all", By: v1alpha1.CeilingAll, Max: n}, {Name: "team", By: v1alpha1.CeilingLabel, LabelKey: "team", Max: n}}}
	for b.Loop() {
		l := newLedger()
		for i, p := range pools {
			l.seed(policy.ScalingInput{Pool: p}, needs, Grant{Granted: int32(i % 7), Wanted: int32(i % 7)})
		}
		for i, p := range pools {
			a := &Asked{in: policy.ScalingInput{Pool: p}, needs: needs}
			l.look(a)
			if _, ok := l.commit(a, Grant{Granted: int32(i % 7), Wanted: int32(i % 11)}); !ok {
				b.Fatal("refused")
			}
		}
		for _, p := range pools {
			l.moved(keyOf(p))
		}
	}
}

// A policy of a namespace visits the pools of that namespace, and a cluster policy visits all.
func TestAPolicysChangeLooksAtItsOwnPools(t *testing.T) {
	e := newEngine()
	for i := range 40 {
		e.For(sharing(large, fmt.Sprint("p", i)))
	}
	e.For(sharing(small, "s"))
	for kind, want := range map[string]int{policy.KindRunnerPolicy: 1, policy.KindClusterRunnerPolicy: 41} {
		source := policy.Source{Kind: kind, Name: "p"}
		if kind == policy.KindRunnerPolicy {
			source.Namespace = small
		}
		seen := 0
		e.mu.Lock()
		for range e.reached(policy.Broken(source, nil)) {
			seen++
		}
		e.mu.Unlock()
		if bound := e.bound(policy.Broken(source, nil)); seen != want || bound != want {
			t.Errorf("%s: %d pools are looked at and %d bound, want %d", kind, seen, bound, want)
		}
	}
	e.Forget(types.NamespacedName{Namespace: small, Name: "s"}, 0)
	if len(e.pools) != 1 {
		t.Errorf("%d namespaces are left", len(e.pools))
	}
}

// A change of a policy, and a count of the pools that it binds, release the engine's lock after every 64 pools. The tenant
// chooses the number of its pools and the cost of its selectors.
func TestPoolsThatAPolicyBindsAreLookedAtInParts(t *testing.T) {
	const n = 5*maxReached + 1
	e := newEngine()
	for i := range n {
		e.For(sharing(large, fmt.Sprint("p", i)))
	}
	others := 0
	var neighbour func()
	neighbour = func() {
		betweenParts = func() {}
		others++
		e.For(sharing(small, "s"))
		e.For(sharing(large, "new"))
		betweenParts = neighbour
	}
	defer func() { betweenParts = func() {} }()
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: large, Name: "p", Modules: map[string]string{"p.rego": "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 1, \"reason\": \"r\"}\n"}}
	for name, do := range map[string]func(){
		"a change": func() { putSource(t, e, source) },
		"a count":  func() { e.bound(policy.Broken(source, nil)) },
		"findings": func() { e.findings(policy.Broken(source, nil), nil) },
	} {
		others, betweenParts = 0, neighbour
		if do(); others < n/maxReached {
			t.Errorf("%s: others had the lock %d times", name, others)
		}
	}
	betweenParts = func() {}
	for _, name := range []string{"p0", "new"} {
		if bound := e.For(sharing(large, name)).Policies(); len(bound) != 1 {
			t.Errorf("pool %s is bound by %d policies", name, len(bound))
		}
	}
}

// The pools of a tenant may be in any number of groups. Other users of the engine do not wait until all that
// changed are handed to the next pass, nor until those are put back that a pass had no time for.
func TestChangedGroupsAreHandedOverInParts(t *testing.T) {
	const n = 5*maxReached + 1
	e, needs := newEngine(), policy.Needs{Reads: []string{"usage.labels"}}
	for i := range n {
		p := facts(large, fmt.Sprint("p", i), "acme", map[string]string{fmt.Sprint("l", i): "x"})
		e.reconsider(e.ledger.enter(policy.ScalingInput{Pool: p}, needs, Grant{Granted: 1}))
	}
	e.ledger.mu.Lock()
	for _, known := range e.ledger.entries { // all of them moved, and more than a pass asks about
		known.answer = &policy.Scaling{}
	}
	e.ledger.mu.Unlock()
	others := 0
	betweenParts = func() {
		if e.mu.TryLock() {
			others++
			e.mu.Unlock()
		}
	}
	defer func() { betweenParts = func() {} }()
	if asked := e.Pass(t.Context()); asked != leastAsked+n/askedOf || others < 2*(n/maxReached) {
		t.Errorf("%d pools are asked about; others had the lock %d times", asked, others)
	}
	if left := len(e.passes.pending[large]); left < n {
		t.Errorf("%d of %d groups are left for the next pass", left, n)
	}
}

// A namespace may have any number of policies, and Corral loads 32 of them. Corral does not hold the lock while it
// handles a change of one of them or determines the policies of a pool bound by all of them. Another namespace's
// policies are compared only with loaded policies.
func TestPoliciesThatAreListedKeepNoOtherWaiting(t *testing.T) {
	e := newEngine()
	var all []policy.Source
	for i := range 500 {
		all = append(all, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: large, Name: fmt.Sprint("p", i)})
	}
	others := 0
	betweenParts = func() {
		if e.mu.TryLock() {
			others++
			e.mu.Unlock()
		}
	}
	defer func() { betweenParts = func() {} }()
	if left := e.unknown(all); len(left) != len(all) || others < len(all)/maxReached {
		t.Errorf("%d of %d policies are not loaded, and others had the lock %d times", len(left), len(all), others)
	}
}

func TestPoliciesBeyondTheirNumberKeepNoOtherWaiting(t *testing.T) {
	const n = 500
	e := newEngine()
	for i := range n {
		s := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: large, Name: fmt.Sprint("p", i)}
		e.Put(policy.Broken(s, []v1alpha1.Diagnostic{{Message: "there are 32 already"}}), s)
	}
	others := 0
	betweenParts = func() {
		betweenParts = func() {}
		others++
		putSource(t, e, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: small, Name: "own"})
	}
	defer func() { betweenParts = func() {} }()
	bound := e.For(sharing(large, "p0"))
	if len(bound.Policies()) != n || others != 1 || len(e.sound) != 1 || len(e.states) != n+1 {
		t.Errorf("%d policies bind a pool, others had the lock %d times, %d of %d policies are compared", len(bound.Policies()), others, len(e.sound), len(e.states))
	}
	e.Remove(policy.KindRunnerPolicy + "/" + small + "/own")
	if len(e.sound) != 0 || len(e.states) != n {
		t.Errorf("%d of %d policies are left", len(e.sound), len(e.states))
	}
}
