// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/policy"
)

func facts(namespace, name, connection string, labels map[string]string) policy.Pool {
	return policy.Pool{Namespace: namespace, Name: name, Connection: connection, Labels: labels}
}

func TestALedgerSumsUpWhatOthersUse(t *testing.T) {
	l := newLedger()
	everything := policy.Needs{All: true, Namespace: true, Connection: true, AnyLabel: true, Members: true}
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
	if diff := cmp.Diff(want, l.usage(facts("ci", "a", "acme", gpu), everything)); diff != "" {
		t.Errorf("of one that is in it (-want +got):\n%s", diff)
	}
	l.drop(types.NamespacedName{Namespace: "ci", Name: "a"})
	got := l.usage(facts("ci", "new", "acme", nil), policy.Needs{All: true, Connection: true})
	if diff := cmp.Diff(policy.Usage{All: policy.Group{Granted: 12, Pools: 2}, Labels: map[string]policy.Group{}}, got); diff != "" {
		t.Errorf("of one that is not, no more than is read (-want +got):\n%s", diff)
	}
	for _, name := range []string{"b", "c"} {
		l.drop(types.NamespacedName{Namespace: "ci", Name: name})
		l.drop(types.NamespacedName{Namespace: "prod", Name: name})
	}
	if len(l.entries)+len(l.groups) != 0 {
		t.Errorf("%d entries and %d groups are left of no pools", len(l.entries), len(l.groups))
	}
}

func TestAChangedGrantConcernsThoseThatReadIt(t *testing.T) {
	l := newLedger()
	team := map[string]string{"team": "a"}
	pools := map[string]policy.Needs{
		"none": {}, "namespace": {Namespace: true}, "connection": {Connection: true}, "label": {Labels: []string{"team"}}, "other-label": {Labels: []string{"size"}},
	}
	for name, needs := range pools {
		l.enter(policy.ScalingInput{Pool: facts("ci", name, "acme", team)}, needs, Grant{})
	}
	l.enter(policy.ScalingInput{Pool: facts("far", "all", "acme", nil)}, policy.Needs{All: true}, Grant{})
	cases := map[string]struct {
		pool  policy.Pool
		grant Grant
		want  []string
	}{
		"all that share a group that they read": {facts("ci", "x", "acme", team), Grant{Granted: 1}, []string{"ci/connection", "ci/label", "ci/namespace", "far/all"}},
		"the same grant is no change":           {facts("ci", "x", "acme", team), Grant{Granted: 1}, nil},
		"also those of a group that it left":    {facts("ci", "x", "acme", nil), Grant{Granted: 1}, []string{"ci/connection", "ci/label", "ci/namespace", "far/all"}},
		"nor is its own namespace another's":    {facts("far", "y", "acme", team), Grant{Granted: 1}, []string{"ci/label", "far/all"}},
	}
	for _, name := range []string{"all that share a group that they read", "the same grant is no change", "also those of a group that it left", "nor is its own namespace another's"} {
		tc := cases[name]
		var got []string
		for _, key := range l.enter(policy.ScalingInput{Pool: tc.pool}, policy.Needs{}, tc.grant) {
			got = append(got, key.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
