// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strings"
)

// GroupOf sums up members.
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

func clamp(n int64) int32 { return int32(max(0, min(n, 1<<31-1))) } //nolint:gosec // it was just made to fit

// GroupKey names a group: what its pools have in common.
type GroupKey struct{ by, value string }

// Names of what pools have in common, beside their labels.
const (
	byAll        = "all"
	byNamespace  = "namespace"
	byConnection = "connection"
)

func labelGroup(key, value string) GroupKey { return GroupKey{"label " + key, value} }

// connectionGroup is the pools on a connection, those of other namespaces included.
func connectionGroup(p Pool) GroupKey {
	if strings.Contains(p.Connection, "/") {
		return GroupKey{byConnection, p.Connection}
	}
	return GroupKey{byConnection, p.Namespace + "/" + p.Connection}
}

// GroupsOf lists the groups that a pool is in.
func GroupsOf(p Pool) []GroupKey {
	groups := []GroupKey{{by: byAll}, {byNamespace, p.Namespace}, connectionGroup(p)}
	for key, value := range p.Labels {
		groups = append(groups, labelGroup(key, value))
	}
	return groups
}

// Reads says whether rules read what a group uses.
func (n Needs) Reads(g GroupKey) bool {
	switch g.by {
	case byAll:
		return n.All
	case byNamespace:
		return n.Namespace
	case byConnection:
		return n.Connection
	}
	return n.AnyLabel || slices.ContainsFunc(n.Labels, func(name string) bool { return labelGroup(name, g.value) == g })
}

// UsageOf is the usage that a pool's rules are told of: others sums up a group without the pool.
func UsageOf(p Pool, needs Needs, others func(GroupKey) Group) Usage {
	read := func(g GroupKey) Group {
		if !needs.Reads(g) {
			return Group{}
		}
		return others(g)
	}
	u := Usage{All: read(GroupKey{by: byAll}), Namespace: read(GroupKey{byNamespace, p.Namespace}), Connection: read(connectionGroup(p)), Labels: map[string]Group{}}
	for key, value := range p.Labels {
		if g := labelGroup(key, value); needs.Reads(g) {
			u.Labels[key] = others(g)
		}
	}
	return u
}

// IdleFleet is pools none of which has a runner, or wants one, but those that are granted some.
type IdleFleet map[GroupKey][]Member

// NewIdleFleet groups pools.
func NewIdleFleet(pools []Pool) IdleFleet {
	f := IdleFleet{}
	for _, p := range pools {
		for _, g := range GroupsOf(p) {
			f[g] = append(f[g], Member{Namespace: p.Namespace, Name: p.Name})
		}
	}
	return f
}

// Grant gives one of the pools so many runners.
func (f IdleFleet) Grant(p Pool, runners int32) {
	for _, g := range GroupsOf(p) {
		for i, m := range f[g] {
			if m.Namespace == p.Namespace && m.Name == p.Name {
				f[g][i].Granted, f[g][i].Wanted = runners, runners
			}
		}
	}
}

// Usage is what a pool's rules are told of it.
func (f IdleFleet) Usage(p Pool, needs Needs) Usage {
	return UsageOf(p, needs, func(g GroupKey) Group {
		return GroupOf(slices.DeleteFunc(slices.Clone(f[g]), func(m Member) bool { return m.Namespace == p.Namespace && m.Name == p.Name }))
	})
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
