// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Fleet keeps sums of the grants and demands of pools, by group, so that neither a change of a pool nor an evaluation
// has to iterate over all pools.
type Fleet struct {
	pools  map[types.NamespacedName]*fleetPool
	groups map[GroupKey]*fleetGroup
	// changes counts the changes of all groups. The version of a group is the count at its last change.
	changes int64
}

type fleetPool struct {
	Member
	// groups are all groups that contain the pool, and reads are the groups among them that its rules read. Both are in
	// the order of GroupsOf.
	groups, reads []GroupKey
}

type fleetGroup struct {
	members          []*fleetPool   // sorted
	readers          map[string]int // the number of pools whose rules read the group, by namespace
	granted, wanting int64
	claims           *claimTree
	version          int64
}

// NewFleet returns a Fleet of pools without grants and demands.
func NewFleet(pools ...Pool) *Fleet {
	f := &Fleet{pools: map[types.NamespacedName]*fleetPool{}, groups: map[GroupKey]*fleetGroup{}}
	for _, p := range pools {
		f.Put(p, Needs{}, 0, 0)
	}
	return f
}

func nameOf(p Pool) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Put sets a pool's grant, its demand and the needs of its rules. It returns those changed groups that rules of any
// pool read.
func (f *Fleet) Put(p Pool, needs Needs, granted, wanted int32) []GroupKey {
	reads := needs.Groups(p)
	groups := append(GroupsOf(p), reads...)
	slices.SortFunc(groups, compareGroups)
	groups = slices.Clip(slices.Compact(groups))
	added := &fleetPool{Member{Namespace: p.Namespace, Name: p.Name, Granted: granted, Wanted: wanted}, groups, reads}
	before := f.pools[nameOf(p)]
	if before != nil && before.Member == added.Member && slices.Equal(before.groups, added.groups) && slices.Equal(before.reads, added.reads) {
		return nil
	}
	former := f.Remove(nameOf(p))
	f.pools[nameOf(p)] = added
	for _, key := range added.groups {
		g := f.groups[key]
		if g == nil {
			g = &fleetGroup{readers: map[string]int{}}
			f.groups[key] = g
		}
		g.members = slices.Insert(g.members, g.place(nameOf(p)), added)
		f.count(key, added, 1)
	}
	return f.read(slices.Concat(former, added.groups))
}

// Remove removes a pool. It returns those groups of the pool that rules of other pools read.
func (f *Fleet) Remove(pool types.NamespacedName) []GroupKey {
	removed := f.pools[pool]
	if removed == nil {
		return nil
	}
	delete(f.pools, pool)
	for _, key := range removed.groups {
		g := f.groups[key]
		i := g.place(pool)
		g.members = slices.Delete(g.members, i, i+1)
		if f.count(key, removed, -1); len(g.members) == 0 {
			delete(f.groups, key)
		}
	}
	return f.read(removed.groups)
}

// read returns the given groups that the rules of any pool read.
func (f *Fleet) read(groups []GroupKey) []GroupKey {
	return slices.DeleteFunc(groups, func(g GroupKey) bool { return len(f.Readers(g)) == 0 })
}

// Readers counts the pools whose rules read a group, by namespace.
func (f *Fleet) Readers(key GroupKey) map[string]int { return f.group(key).readers }

// group returns a group, which is empty if it has no pools.
func (f *Fleet) group(key GroupKey) *fleetGroup {
	if g := f.groups[key]; g != nil {
		return g
	}
	return &fleetGroup{}
}

// Granted returns a pool's grant.
func (f *Fleet) Granted(pool types.NamespacedName) int32 {
	if known := f.pools[pool]; known != nil {
		return known.Granted
	}
	return 0
}

// place returns the index of a pool among the members, or the index at which it would be inserted.
func (g *fleetGroup) place(pool types.NamespacedName) int {
	i, _ := slices.BinarySearchFunc(g.members, pool, func(m *fleetPool, pool types.NamespacedName) int {
		return cmp.Or(cmp.Compare(m.Namespace, pool.Namespace), cmp.Compare(m.Name, pool.Name))
	})
	return i
}

// count adds a pool's numbers to the sums of a group if n is 1, and subtracts them if n is -1.
func (f *Fleet) count(key GroupKey, p *fleetPool, n int) {
	g := f.groups[key]
	f.changes++
	g.version = f.changes
	g.granted += int64(n) * int64(p.Granted)
	g.wanting += int64(n) * p.wanting()
	g.claims = g.claims.with(p.Member, int64(n))
	if HasGroup(p.reads, key) {
		g.readers[p.Namespace] += n
	}
	if g.readers[p.Namespace] == 0 {
		delete(g.readers, p.Namespace)
	}
}

// others describes the pools of a group without the given pool.
func (f *Fleet) others(key GroupKey, p Pool) claimants {
	g := f.group(key)
	var own Member
	in := int64(0)
	if self := f.pools[nameOf(p)]; self != nil && HasGroup(self.groups, key) {
		own, in = self.Member, 1
	}
	return claimants{
		granted: g.granted - int64(own.Granted), pools: int64(len(g.members)) - in,
		wanting: func() int64 { return g.wanting - own.wanting() },
		upTo: func(part int64) Part {
			sum := g.claims.below(part)
			if own.claim(math.MaxInt64) < part {
				sum.pools -= in
			}
			return Part{Part: clamp(part), Claimed: clamp(g.granted + sum.rising*part - sum.base - own.claim(part)), Below: clamp(sum.pools)}
		},
	}
}

// Group returns the sums of a group without the given pool. If the pool's rules read the members, it sets Version,
// which changes with each change of a member.
func (f *Fleet) Group(key GroupKey, p Pool, needs Needs) Group {
	others := f.others(key, p)
	sum := Group{Granted: clamp(others.granted), Pools: clamp(others.pools)}
	if needs.reads(ReadsMembers) {
		sum.Version = f.group(key).version
	}
	return sum
}

// Left returns how many runners each ceiling in needs leaves to a pool: math.MaxInt64 if the ceiling does not apply to
// the pool.
func (f *Fleet) Left(p Pool, needs Needs) []int64 {
	left := make([]int64, len(needs.Ceilings))
	for i, c := range needs.Ceilings {
		key, most, ok := sharing(c, p)
		if left[i] = math.MaxInt64; ok {
			left[i] = leftBy(c.Share, most, int64(p.Scale.Max), f.others(key, p))
		}
	}
	return left
}

// Members returns pools of a group, sorted, starting at the given one, up to a maximum number.
func (f *Fleet) Members(key GroupKey, from types.NamespacedName, most int) []Member {
	g := f.group(key)
	rest := g.members[g.place(from):]
	list := make([]Member, 0, min(len(rest), most))
	for _, m := range rest[:min(len(rest), most)] {
		list = append(list, m.Member)
	}
	return list
}

// Sums returns the sums of the groups that a pool's rules read, without the pool itself and without the members.
func (f *Fleet) Sums(p Pool, needs Needs) map[GroupKey]Group {
	sums := map[GroupKey]Group{}
	for _, key := range needs.Groups(p) {
		sums[key] = f.Group(key, p, needs)
	}
	for _, c := range needs.Ceilings {
		key, most, ok := sharing(c, p)
		sum, isRead := sums[key]
		if ok && isRead && c.Share != v1alpha1.ShareFirstCome {
			others := f.others(key, p)
			sum.Wanting = clamp(others.wanting())
			sum.Parts = append(sum.Parts, others.upTo(equalPart(most, others.pools, others.wanting())))
			sums[key] = sum
		}
	}
	return sums
}

// Usage returns the usage of other pools as a pool's rules see it.
func (f *Fleet) Usage(p Pool, needs Needs) Usage {
	return UsageOf(p, needs, f.Sums(p, needs), func(key GroupKey) []Member { return f.Members(key, types.NamespacedName{}, math.MaxInt) })
}
