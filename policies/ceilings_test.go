// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// sharer is a pool under a ceiling, with the state that GitHub and the controller keep for it.
type sharer struct {
	pool policy.Pool
	// demand is the constant number of jobs for it. GitHub assigns at most the announced number.
	demand, assigned, running int32
	granted, wanted           int32
}

// fleet contains pools that share a ceiling.
type fleet struct {
	t       *testing.T
	bound   *policy.Bound
	ceiling int32
	pools   []*sharer
}

func newFleet(t *testing.T, ceiling v1alpha1.Ceiling, demands ...int32) *fleet {
	t.Helper()
	loaded, diagnostics := policy.Load(policy.Source{
		Kind: policy.KindClusterRunnerPolicy, Name: "guard",
		Library: &v1alpha1.PolicyLibrary{Ceilings: []v1alpha1.Ceiling{ceiling}},
	})
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	f := &fleet{t: t, ceiling: ceiling.Max}
	for i, demand := range demands {
		p := policy.Pool{Namespace: "ci", Name: fmt.Sprintf("pool-%d", i), Labels: map[string]string{}, Scale: policy.Scale{Max: v1alpha1.UnboundedMax}}
		f.pools = append(f.pools, &sharer{pool: p, demand: demand})
	}
	f.bound = policy.NewSet(loaded).For(f.pools[0].pool)
	return f
}

// others returns the group of all pools except one.
func (f *fleet) others(self *sharer) policy.Group {
	var members []policy.Member
	for _, p := range f.pools {
		if p != self {
			members = append(members, policy.Member{Namespace: p.pool.Namespace, Name: p.pool.Name, Granted: p.granted, Wanted: p.wanted})
		}
	}
	return policy.GroupOf(members)
}

// decide evaluates the limit of a pool, assigns jobs up to the limit, and starts runners for them.
func (f *fleet) decide(p *sharer) {
	f.t.Helper()
	answer := f.bound.Scaling(f.t.Context(), policy.ScalingInput{
		Pool: p.pool, Usage: policy.Usage{Granted: p.granted, Namespace: f.others(p)}, Zone: "UTC",
	})
	if len(answer.Failures) > 0 {
		f.t.Fatal(answer.Failures)
	}
	limit := answer.Scale.Max
	p.assigned = max(p.assigned, min(p.demand, limit))
	desired := min(limit, p.assigned)
	p.granted, p.wanted = max(p.running, desired), p.assigned
	p.running = p.granted
	total := int32(0)
	for _, each := range f.pools {
		total += each.granted
	}
	if total > f.ceiling {
		f.t.Fatalf("a total of %d runners was granted under a ceiling of %d", total, f.ceiling)
	}
}

// run ends jobs and decides pools in a random order.
func (f *fleet) run(random *rand.Rand, steps int) {
	f.t.Helper()
	for range steps {
		p := f.pools[random.IntN(len(f.pools))]
		if p.running > 0 && random.IntN(2) == 0 {
			p.running--
			p.assigned--
		}
		f.decide(p)
	}
}

func TestGrantsNeverExceedACeiling(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		share := []v1alpha1.CeilingShare{v1alpha1.ShareFair, v1alpha1.ShareFirstCome}[seed%2]
		demands := make([]int32, 1+random.IntN(7))
		ceiling := v1alpha1.Ceiling{Name: "all", By: v1alpha1.CeilingNamespace, Max: random.Int32N(16), Share: share}
		f := newFleet(t, ceiling, demands...)
		for range 10 {
			for _, p := range f.pools {
				p.demand = max(0, random.Int32N(30)-8)
			}
			f.run(random, 30)
		}
	}
}

// The runners that pools get under a fair ceiling in the long run. At most one runner is kept in reserve.
func TestFairSharesAreReachedThoughOthersBorrowed(t *testing.T) {
	for name, tc := range map[string]struct {
		ceiling int32
		first   []int32 // initial demand
		then    []int32
		least   []int32 // minimum number of runners at the end
	}{
		"one comes late":              {10, []int32{99, 0}, []int32{99, 99}, []int32{5, 5}},
		"one with little comes late":  {10, []int32{99, 0}, []int32{99, 2}, []int32{7, 2}},
		"two come late":               {12, []int32{99, 0, 0}, []int32{99, 99, 99}, []int32{4, 4, 4}},
		"a third stays away":          {10, []int32{99, 0, 0}, []int32{99, 99, 0}, []int32{4, 4, 0}},
		"one has less to do":          {10, []int32{99, 99}, []int32{99, 1}, []int32{8, 1}},
		"all for one":                 {10, []int32{99, 99}, []int32{99, 0}, []int32{9, 0}},
		"a ceiling of one":            {1, []int32{0, 0}, []int32{0, 99}, []int32{0, 1}},
		"a ceiling of two":            {2, []int32{99, 0}, []int32{99, 99}, []int32{1, 1}},
		"enough for all":              {30, []int32{5, 0, 0}, []int32{5, 6, 7}, []int32{5, 6, 7}},
		"enough for all, to the last": {18, []int32{5, 0, 0}, []int32{5, 6, 7}, []int32{5, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, 7))
			f := newFleet(t, v1alpha1.Ceiling{Name: "all", By: v1alpha1.CeilingNamespace, Max: tc.ceiling}, tc.first...)
			f.run(random, 300)
			for i, p := range f.pools {
				p.demand = tc.then[i]
			}
			f.run(random, 1500)
			for range 3 { // no more jobs end, and the rest is granted
				for _, p := range f.pools {
					f.decide(p)
				}
			}
			for i, p := range f.pools {
				if p.running < tc.least[i] {
					t.Errorf("pool %d has %d runners, want at least %d", i, p.running, tc.least[i])
				}
			}
		})
	}
}
