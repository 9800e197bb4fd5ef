// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestNeedsAreWhatScalingRulesRead(t *testing.T) {
	type want = []string
	cases := map[string]struct {
		body string
		want []string
	}{
		"nothing":           {`input.pool.name == "a"`, nil},
		"the clock":         {`input.now > 3`, want{"now"}},
		"jobs and runners":  {`input.jobs > input.runners.busy`, want{"jobs", "runners"}},
		"its own":           {`input.usage.granted > 3`, want{"usage.granted"}},
		"all":               {`input.usage.all.granted > 3`, want{"usage.all"}},
		"namespace":         {`input.usage.namespace.pools > 3`, want{"usage.namespace"}},
		"connection":        {`input.usage["connection"].granted > 3`, want{"usage.connection"}},
		"members":           {`input.usage.namespace.members[_].wanted > 3`, want{"usage.members", "usage.namespace"}},
		"claims":            {`input.usage.namespace.claimed > 3`, want{"usage.members", "usage.namespace"}},
		"labels":            {`input.usage.labels.team.granted + input.usage.labels["a/b"].granted > 3`, want{"usage.labels.a/b", "usage.labels.team"}},
		"any label":         {`input.usage.labels[input.pool.trust].granted > 3`, want{"usage.labels"}},
		"labels at all":     {`count(input.usage.labels) > 3`, want{"usage.labels", "usage.members"}},
		"a group elsewhere": {`some g in [input.usage.all]; g.granted > 3`, want{"usage.all", "usage.members"}},
		"usage elsewhere":   {`u := input.usage; u.all.granted > 3`, want{ReadsAnything}},
		"any group":         {`input.usage[input.pool.trust].granted > 3`, want{ReadsAnything}},
		"the input":         {`count(input) > 3`, want{ReadsAnything}},
		"by a function":     {`f(1)`, want{"usage.all"}},
		"by a helper":       {`data.helpers.busy`, want{"usage.namespace"}},
		"by with":           {`data.helpers.busy with input.usage as {}`, want{ReadsAnything}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := team(mute)
			s.Modules["p.rego"] += "limit contains {\"field\": \"max\", \"atMost\": 1, \"reason\": \"r\"} if {\n" + c.body + "\n}\nf(x) if input.usage.all.granted > x\nunasked := input.usage.connection.granted\ntest_it if { f(1); unasked }\n"
			s.Modules["helpers.rego"] = "package helpers\nbusy if input.usage.namespace.granted > 3\n"
			got := boundBy(t, s).Needs()
			if diff := cmp.Diff(Needs{Reads: c.want}, got); diff != "" {
				t.Errorf("needs differ (-want +got):\n%s", diff)
			}
			if all := strings.Join(c.want, " "); got.Usage() != strings.ContainsAny(all, ".*") {
				t.Errorf("Usage() is %v of %+v", got.Usage(), got)
			}
		})
	}
}

func TestNeedsOfTheLibraryAreThoseOfItsCeilings(t *testing.T) {
	ceilings := func(list ...v1alpha1.Ceiling) Source {
		return Source{Kind: KindClusterRunnerPolicy, Name: "guard", Library: &v1alpha1.PolicyLibrary{Ceilings: list}}
	}
	first := v1alpha1.Ceiling{Name: "a", By: v1alpha1.CeilingAll, Share: v1alpha1.ShareFirstCome}
	fair := v1alpha1.Ceiling{Name: "b", By: v1alpha1.CeilingLabel, LabelKey: "team"}
	later := ceilings(fair)
	later.Name = "later"
	rule := guard(`{"field": "max", "atMost": 1, "reason": "r"} if input.usage.namespace.granted > 3`)
	both := rule
	both.Library = &v1alpha1.PolicyLibrary{Ceilings: []v1alpha1.Ceiling{fair}}
	cases := map[string]struct {
		sources []Source
		want    Needs
	}{
		"the whole library":   {[]Source{wholeLibrary()}, Needs{Ceilings: wholeLibrary().Library.Ceilings}},
		"two":                 {[]Source{ceilings(first, fair)}, Needs{Ceilings: []v1alpha1.Ceiling{first, fair}}},
		"of two policies":     {[]Source{ceilings(first), later}, Needs{Ceilings: []v1alpha1.Ceiling{first, fair}}},
		"beside a rule":       {[]Source{both}, Needs{Ceilings: []v1alpha1.Ceiling{fair}, Reads: []string{"usage.namespace"}}},
		"of another policy":   {[]Source{ceilings(fair), rule}, Needs{Ceilings: []v1alpha1.Ceiling{fair}, Reads: []string{"usage.namespace"}}},
		"a rule without them": {[]Source{rule}, Needs{Reads: []string{"usage.namespace"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, boundBy(t, c.sources...).Needs()); diff != "" {
				t.Errorf("needs differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDigestsOfABoundTellItsPoliciesApart(t *testing.T) {
	digest := func(sources ...Source) string { return boundBy(t, sources...).Digest() }
	same := digest(team(mute), guard(mute))
	if again := digest(guard(mute), team(mute)); again != same {
		t.Error("the digest depends on the order")
	}
	other := team(mute)
	other.Name = "q"
	for name, d := range map[string]string{
		"fewer": digest(team(mute)), "another name": digest(other, guard(mute)), "another mode": digest(team(mute), audited(guard(mute))),
	} {
		if d == same {
			t.Errorf("the digest with %s is the same", name)
		}
	}
}

// TestABoundMayBeAskedBySeveral is for the race detector, because some data is computed at first use.
func TestABoundMayBeAskedBySeveral(t *testing.T) {
	b := boundBy(t, wholeLibrary())
	in := fleetInput()
	in.Pool = pool()
	want := b.Scaling(t.Context(), in)
	fresh := boundBy(t, wholeLibrary())
	var group sync.WaitGroup
	answers := make([]Scaling, 8)
	for i := range answers {
		group.Go(func() { answers[i] = fresh.Scaling(t.Context(), in) })
	}
	group.Wait()
	for _, got := range answers {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("decisions differ (-want +got):\n%s", diff)
		}
	}
}

func TestAPoolThatWasChangedIsToldAsItIs(t *testing.T) {
	b := boundBy(t, guard(`{"field": "max", "atMost": 3, "reason": "r"} if input.pool.trust == "none"`))
	p := pool()
	if got := b.Scaling(t.Context(), ScalingInput{Pool: p}).Scale.Max; got != 100 {
		t.Errorf("max is %d, want 100", got)
	}
	p.Trust = "none"
	if got := b.Scaling(t.Context(), ScalingInput{Pool: p}).Scale.Max; got != 3 {
		t.Errorf("max is %d, want 3", got)
	}
}

func TestASetHasAPolicyInPlaceOfAnother(t *testing.T) {
	refs := func(s *Set) (all []string) {
		for _, p := range s.For(pool()).Policies() {
			all = append(all, p.Ref()+" "+string(p.Mode()))
		}
		return all
	}
	a, b, cluster := load(t, team(mute)), load(t, team(mute)), load(t, guard(mute))
	a.ref, b.source.Mode = a.ref+"/a", v1alpha1.PolicyAudit
	first := NewSet(cluster, a)
	for name, tc := range map[string]struct {
		set  *Set
		want []string
	}{
		"as it was":    {first, []string{cluster.Ref() + " Enforce", a.Ref() + " Enforce"}},
		"another":      {first.Replace(a, b), []string{cluster.Ref() + " Enforce", b.Ref() + " Audit"}},
		"one more":     {first.Replace(nil, b), []string{cluster.Ref() + " Enforce", b.Ref() + " Audit", a.Ref() + " Enforce"}},
		"one less":     {first.Replace(a, nil), []string{cluster.Ref() + " Enforce"}},
		"not one left": {first.Replace(a, nil).Replace(cluster, nil), nil},
	} {
		if diff := cmp.Diff(tc.want, refs(tc.set)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
