// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// fleetPoolOf returns one of many pools in two namespaces, on two connections, of two teams.
func fleetPoolOf(i int) Pool {
	return Pool{
		Namespace: fmt.Sprint("ns", i%2), Name: fmt.Sprint("p", i), Connection: fmt.Sprint("c", i%3/2),
		Labels: map[string]string{"team": fmt.Sprint("t", i%5/3)}, Scale: Scale{Max: int32(1 + i%40)},
	}
}

// fairCeilings returns ceilings of each kind.
func fairCeilings(random *rand.Rand) []v1alpha1.Ceiling {
	var all []v1alpha1.Ceiling
	for _, by := range []v1alpha1.CeilingGroup{v1alpha1.CeilingAll, v1alpha1.CeilingNamespace, v1alpha1.CeilingConnection, v1alpha1.CeilingLabel} {
		for _, share := range []v1alpha1.CeilingShare{v1alpha1.ShareFair, v1alpha1.ShareFirstCome} {
			c := v1alpha1.Ceiling{Name: fmt.Sprint(by, share), By: by, Share: share, Max: random.Int32N(60)}
			if by == v1alpha1.CeilingLabel {
				c.LabelKey, c.Overrides = "team", map[string]v1alpha1.CeilingMax{"t1": 7}
			}
			all = append(all, c)
		}
	}
	return all
}

// The sums of a fleet equal the sums over its members, and a ceiling leaves the same amount by either, in Go and in
// rules.
func TestAFleetsSumsAreThoseOfItsMembers(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 3))
		needs := Needs{Ceilings: fairCeilings(random)}
		policy := load(t, Source{Kind: KindClusterRunnerPolicy, Name: "guard", Library: &v1alpha1.PolicyLibrary{Ceilings: needs.Ceilings}})
		listed := Needs{Ceilings: needs.Ceilings, Reads: []string{ReadsAnything}}
		f := NewFleet()
		for step := range 120 {
			i := random.IntN(30)
			if random.IntN(4) == 0 {
				f.Remove(nameOf(fleetPoolOf(i)))
			} else {
				f.Put(fleetPoolOf(i), Needs{}, random.Int32N(9), random.Int32N(20))
			}
			asked := fleetPoolOf(random.IntN(31))
			sums, lists := f.Usage(asked, needs), f.Usage(asked, listed)
			left := f.Left(asked, needs)
			for i, g := range []*Group{&lists.All, &lists.Namespace, &lists.Connection} {
				g.Parts = nil
				s := []Group{sums.All, sums.Namespace, sums.Connection}[i]
				if s.Granted != g.Granted || s.Pools != g.Pools || s.Wanting != g.Wanting || len(s.Members) > 0 {
					t.Fatalf("seed %d, step %d: sums %+v of members %+v", seed, step, s, g)
				}
			}
			for label, g := range lists.Labels {
				g.Parts = nil
				lists.Labels[label] = g
			}
			bySums, byMembers := limitsOf(t, policy, asked, sums), limitsOf(t, policy, asked, lists)
			if diff := cmp.Diff(byMembers, bySums); diff != "" {
				t.Fatalf("seed %d, step %d: by sums instead of members:\n%s", seed, step, diff)
			}
			for i, want := range bySums {
				if int64(want) != max(0, left[i]) {
					t.Fatalf("seed %d, step %d: %s leaves %d by the fleet, and %d by rules", seed, step, needs.Ceilings[i].Name, left[i], want)
				}
			}
		}
		for i := range 30 {
			f.Remove(nameOf(fleetPoolOf(i)))
		}
		if len(f.pools)+len(f.groups) != 0 {
			t.Errorf("%d pools and %d groups are left of none", len(f.pools), len(f.groups))
		}
	}
}

// limitsOf returns what each ceiling leaves to a pool according to the library's rules, in their order.
func limitsOf(t *testing.T, p *Policy, pool Pool, usage Usage) []int32 {
	t.Helper()
	b := NewSet(p).For(pool)
	replies := askEach(t.Context(), b, b.aboutScaling(ScalingInput{Pool: pool, Usage: usage}), decodeLimit)
	if len(replies.failures) > 0 {
		t.Fatal(replies.failures)
	}
	limits := make([]int32, len(p.facts.Needs.Ceilings))
	for i, c := range p.facts.Needs.Ceilings {
		at := slices.IndexFunc(replies.enforced, func(l limit) bool { return strings.HasPrefix(l.Reason+":", "ceiling "+c.Name+":") })
		if at < 0 {
			t.Fatalf("%s says nothing", c.Name)
		}
		limits[i] = replies.enforced[at].N
	}
	return limits
}

// Labels belong to tenants, so the number of groups per pool is limited.
func TestALabelTooManyMakesNoGroup(t *testing.T) {
	p := Pool{Namespace: "ci", Name: "p", Labels: map[string]string{}}
	for i := range 100 {
		p.Labels[fmt.Sprintf("l%02d", i)] = "x"
	}
	f := NewFleet()
	if f.Put(p, Needs{}, 3, 3); len(f.groups) != 3+maxLabels {
		t.Errorf("%d groups", len(f.groups))
	}
	other := Pool{Namespace: "ci", Name: "o", Labels: p.Labels}
	u := f.Usage(other, Needs{Reads: []string{"usage.labels"}})
	if u.Labels["l63"].Granted != 3 || u.Labels["l64"].Granted != 0 {
		t.Errorf("%+v, %+v", u.Labels["l63"], u.Labels["l64"])
	}
}

// Rules may name thousands of labels, of which a pool has few. The groups are sorted, so that a search takes few steps, and
// each group occurs once, whatever names it.
func TestGroupsOfAPoolAreSorted(t *testing.T) {
	p := Pool{Namespace: "ci", Name: "p", Connection: "acme", Labels: map[string]string{"team": "a", "size": "l", "a": "b"}}
	needs := Needs{Reads: []string{"usage.all"}, Ceilings: []v1alpha1.Ceiling{
		{By: v1alpha1.CeilingLabel, LabelKey: "team"}, {By: v1alpha1.CeilingLabel, LabelKey: "none"}, {By: v1alpha1.CeilingNamespace}, {By: v1alpha1.CeilingAll},
	}}
	for i := range 5000 {
		needs.Reads = append(needs.Reads, fmt.Sprint("usage.labels.l", i))
	}
	needs.Reads = sortedSet(append(needs.Reads, "usage.labels.size", "usage.labels.team"))
	want := []GroupKey{{by: byAll}, {by: byNamespace, value: "ci"}, {byLabel, "size", "l"}, {byLabel, "team", "a"}}
	got := needs.Groups(p)
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, groups := range [][]GroupKey{got, GroupsOf(p)} {
		for _, g := range groups {
			if !HasGroup(groups, g) {
				t.Errorf("%v is not found in %v", g, groups)
			}
		}
	}
	if HasGroup(got, GroupKey{byLabel, "a", "b"}) {
		t.Error("a group is found that is not there")
	}
}

func TestMembersAreListedInParts(t *testing.T) {
	f := NewFleet()
	for i := range 10 {
		f.Put(Pool{Namespace: "ci", Name: fmt.Sprint("p", i)}, Needs{}, 1, 1)
	}
	list := f.Members(GroupKey{by: byAll}, types.NamespacedName{Namespace: "ci", Name: "p3x"}, 3)
	var names []string
	for _, m := range list {
		names = append(names, m.Name)
	}
	if diff := cmp.Diff([]string{"p4", "p5", "p6"}, names); diff != "" {
		t.Error(diff)
	}
	if all := f.Members(GroupKey{by: byAll}, types.NamespacedName{}, math.MaxInt); len(all) != 10 {
		t.Errorf("%d members", len(all))
	}
}

// depth returns the number of levels of a tree.
func (t *claimTree) depth() int {
	if t == nil {
		return 0
	}
	return 1 + max(t.left.depth(), t.right.depth())
}

// A change and a query visit one node per level of the tree, and no other pool.
func TestTheTreeOfClaimsStaysFlat(t *testing.T) {
	for _, n := range []int{10, 100, 1000, 5000} {
		f := NewFleet()
		for i := range n { // ascending order is the worst case for an unbalanced tree
			f.Put(Pool{Namespace: "ci", Name: fmt.Sprint("p", i)}, Needs{}, int32(i), int32(2*i+1))
		}
		depth := f.groups[GroupKey{by: byAll}].claims.depth()
		if most := 4 * (1 + bits.Len(uint(n))); depth > most {
			t.Errorf("with %d pools it has %d levels, more than %d", n, depth, most)
		}
	}
}
