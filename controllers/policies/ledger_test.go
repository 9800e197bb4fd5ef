// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/policy"
)

func facts(namespace, name, connection string, labels map[string]string) policy.Pool {
	return policy.Pool{Namespace: namespace, Name: name, Connection: connection, Labels: labels}
}

func TestALedgerSumsUpWhatOthersUse(t *testing.T) {
	l := newLedger()
	everything := policy.Needs{Reads: []string{policy.ReadsAnything}}
	gpu := map[string]string{"team": "a", "gpu": "yes"}
	for _, p := range []struct {
		facts   policy.Pool
		granted int32
	}{
		{facts("ci", "a", "acme", gpu), 3},
		{facts("ci", "b", "other", map[string]string{"team": "a"}), 5},
		{facts("prod", "c", "acme", gpu), 7},
	} {
		l.enter(policy.ScalingInput{Pool: p.facts}, everything, Grant{Granted: p.granted, Wanted: 2 * p.granted})
	}
	b := policy.Member{Namespace: "ci", Name: "b", Granted: 5, Wanted: 10}
	c := policy.Member{Namespace: "prod", Name: "c", Granted: 7, Wanted: 14}
	want := policy.Usage{
		Granted:   3,
		All:       policy.Group{Granted: 12, Pools: 2, Claimed: 24, Wanting: 2, Largest: 14, Members: []policy.Member{b, c}},
		Namespace: policy.Group{Granted: 5, Pools: 1, Claimed: 10, Wanting: 1, Largest: 10, Members: []policy.Member{b}},
		Labels: map[string]policy.Group{
			"team": {Granted: 12, Pools: 2, Claimed: 24, Wanting: 2, Largest: 14, Members: []policy.Member{b, c}},
			"gpu":  {Granted: 7, Pools: 1, Claimed: 14, Wanting: 1, Largest: 14, Members: []policy.Member{c}},
		},
	}
	if diff := cmp.Diff(want, usageOf(&l, facts("ci", "a", "acme", gpu), everything), cmpopts.IgnoreFields(policy.Group{}, "Version"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("of one that is in it (-want +got):\n%s", diff)
	}
	l.drop(types.NamespacedName{Namespace: "ci", Name: "a"}, 0)
	got := usageOf(&l, facts("ci", "new", "acme", nil), policy.Needs{Reads: []string{"usage.all", "usage.connection"}})
	if diff := cmp.Diff(policy.Usage{All: policy.Group{Granted: 12, Pools: 2}, Labels: map[string]policy.Group{}}, got); diff != "" {
		t.Errorf("of one that is not, no more than is read (-want +got):\n%s", diff)
	}
	for _, name := range []string{"b", "c"} {
		l.drop(types.NamespacedName{Namespace: "ci", Name: name}, 0)
		l.drop(types.NamespacedName{Namespace: "prod", Name: name}, 0)
	}
	if len(l.entries) != 0 {
		t.Errorf("%d entries are left of no pools", len(l.entries))
	}
}

func TestAChangedGrantConcernsThoseThatReadIt(t *testing.T) {
	l := newLedger()
	team := map[string]string{"team": "a"}
	pools := map[string]string{
		"none": "", "namespace": "usage.namespace", "connection": "usage.connection", "label": "usage.labels.team", "other-label": "usage.labels.size",
	}
	for name, part := range pools {
		l.enter(policy.ScalingInput{Pool: facts("ci", name, "acme", team)}, policy.Needs{Reads: []string{part}}, Grant{})
	}
	l.enter(policy.ScalingInput{Pool: facts("far", "all", "acme", nil)}, policy.Needs{Reads: []string{"usage.all"}}, Grant{})
	cases := []struct {
		name  string
		pool  policy.Pool
		grant Grant
		want  []string // affected pools
	}{
		{"all that share a group that they read", facts("ci", "x", "acme", team), Grant{Granted: 1}, []string{"all", "connection", "label", "namespace"}},
		{"the same grant is no change", facts("ci", "x", "acme", team), Grant{Granted: 1}, nil},
		{"also those of a group that it left", facts("ci", "x", "acme", nil), Grant{Granted: 1}, []string{"all", "connection", "label", "namespace"}},
		{"nor is its own namespace another's", facts("far", "y", "acme", team), Grant{Granted: 1}, []string{"all", "label"}},
	}
	for _, tc := range cases {
		concerned := map[string]bool{}
		for _, g := range l.enter(policy.ScalingInput{Pool: tc.pool}, policy.Needs{}, tc.grant) {
			for _, namespace := range l.namespaces(g) {
				for _, m := range l.list(g, namespace) {
					if e := l.entries[types.NamespacedName{Namespace: namespace, Name: m.Name}]; slices.Contains(e.needs.Groups(e.in.Pool), g) {
						concerned[m.Name] = true
					}
				}
			}
		}
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(concerned))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
