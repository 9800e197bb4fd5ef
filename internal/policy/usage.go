// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// GroupOf returns a group of members with their sums.
func GroupOf(members []Member) Group {
	granted, claimed, g := int64(0), int64(0), Group{Members: members}
	for _, m := range members {
		claim := max(m.Granted, m.Wanted)
		granted, claimed, g.Largest = granted+int64(m.Granted), claimed+int64(claim), max(g.Largest, claim)
		if m.Wanted > 0 {
			g.Wanting++
		}
	}
	g.Granted, g.Claimed, g.Pools = clamp(granted), clamp(claimed), clamp(int64(len(members)))
	return g
}

// with returns the group of the given members, without the pool p. It keeps only Parts and Version of the previous
// group.
func (g Group) with(p Pool, members []Member) Group {
	all := GroupOf(slices.DeleteFunc(members, func(m Member) bool { return m.Namespace == p.Namespace && m.Name == p.Name }))
	all.Parts, all.Version = g.Parts, g.Version
	return all
}

func clamp(n int64) int32 { return int32(max(0, min(n, 1<<31-1))) } //nolint:gosec // the value is in range

// claim returns the number of runners that a pool claims if it claims at most part, or its grant if that is larger.
func (m *Member) claim(part int64) int64 { return max(int64(m.Granted), min(int64(m.Wanted), part)) }

// wanting returns 1 for a pool that wants runners, and otherwise 0.
func (m *Member) wanting() int64 { return int64(max(0, min(1, m.Wanted))) }

// GroupKey identifies a group by the property that its pools share.
type GroupKey struct{ by, label, value string }

// Names of the shared properties, as in input.usage.
const (
	byAll        = "all"
	byNamespace  = "namespace"
	byConnection = "connection"
	byLabel      = "labels"
)

// properties lists the shared properties in the order of GroupsOf.
var properties = []string{byAll, byNamespace, byConnection, byLabel}

// compareGroups orders groups as GroupsOf returns them.
func compareGroups(a, b GroupKey) int {
	return cmp.Or(cmp.Compare(slices.Index(properties, a.by), slices.Index(properties, b.by)), cmp.Compare(a.label, b.label), cmp.Compare(a.value, b.value))
}

// HasGroup reports whether a list of groups, in the order of GroupsOf, contains a group. It uses a binary search,
// because the number of groups depends on the labels that a tenant chooses.
func HasGroup(groups []GroupKey, g GroupKey) bool {
	_, found := slices.BinarySearchFunc(groups, g, compareGroups)
	return found
}

// maxLabels is the maximum number of a pool's labels that form groups, in the order of their names. It is limited
// because each change of the pool updates all of its groups.
const maxLabels = v1alpha1.MaxPoolLabels

// connectionGroup returns the group of the pools on a connection, including pools in other namespaces.
func connectionGroup(p Pool) GroupKey {
	if strings.Contains(p.Connection, "/") {
		return GroupKey{by: byConnection, value: p.Connection}
	}
	return GroupKey{by: byConnection, value: p.Namespace + "/" + p.Connection}
}

// GroupsOf returns the groups of a pool.
func GroupsOf(p Pool) []GroupKey {
	groups := []GroupKey{{by: byAll}, {by: byNamespace, value: p.Namespace}, connectionGroup(p)}
	labels := slices.Sorted(maps.Keys(p.Labels))
	for _, key := range labels[:min(len(labels), maxLabels)] {
		groups = append(groups, GroupKey{byLabel, key, p.Labels[key]})
	}
	return groups
}

// Groups returns the groups of a pool that its rules read, in the order of GroupsOf. It includes groups of labels that
// rules name, however many labels the pool has, so that a pool cannot escape a ceiling by adding labels.
func (n Needs) Groups(p Pool) []GroupKey {
	groups := slices.DeleteFunc(GroupsOf(p), func(g GroupKey) bool { return !n.readsGroup(g) })
	for _, c := range n.Ceilings {
		if g, _, ok := sharing(c, p); ok {
			groups = append(groups, g)
		}
	}
	for label, value := range p.Labels { // a pool has fewer labels than rules may name
		if n.names(readsLabel + label) {
			groups = append(groups, GroupKey{byLabel, label, value})
		}
	}
	slices.SortFunc(groups, compareGroups)
	return slices.Compact(groups)
}

// readsGroup reports whether user-written rules read the usage of a group.
func (n Needs) readsGroup(g GroupKey) bool {
	return n.reads(ReadsUsage+g.by) || g.by == byLabel && n.reads(readsLabel+g.label)
}

// UsageOf returns the usage that a pool's rules read, from the sums of its groups. It includes the members of a group
// if user-written rules read them.
func UsageOf(p Pool, needs Needs, sums map[GroupKey]Group, members func(GroupKey) []Member) Usage {
	u := Usage{Labels: map[string]Group{}}
	for g, sum := range sums {
		if needs.reads(ReadsMembers) && needs.readsGroup(g) {
			sum = sum.with(p, members(g))
		}
		switch g.by {
		case byAll:
			u.All = sum
		case byNamespace:
			u.Namespace = sum
		case byConnection:
			u.Connection = sum
		default:
			u.Labels[g.label] = sum
		}
	}
	return u
}

func (u Usage) filled() Usage {
	u.All, u.Namespace, u.Connection, u.Labels = u.All.filled(), u.Namespace.filled(), u.Connection.filled(), maps.Clone(notNil(u.Labels))
	for name, group := range u.Labels {
		u.Labels[name] = group.filled()
	}
	return u
}

func (g Group) filled() Group {
	if g.Members == nil {
		g.Members = []Member{}
	}
	return g
}
