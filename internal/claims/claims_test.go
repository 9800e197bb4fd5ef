// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
)

var now = time.Unix(1_000_000, 0)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestChoose(t *testing.T) {
	free := func(number int, used time.Duration) claims.Claim {
		return claims.Claim{Name: string(rune('a' + number)), Number: number, Holder: "gone", Taken: ago(used)}
	}
	with := func(c claims.Claim, change func(c *claims.Claim)) claims.Claim {
		change(&c)
		return c
	}
	inUse := func(c *claims.Claim) { c.InUse = true }
	for name, tc := range map[string]struct {
		all  []claims.Claim
		want claims.Choice
	}{
		"none yet":                        {nil, claims.Choice{Make: 0}},
		"the one used last":               {[]claims.Claim{free(0, time.Hour), free(1, time.Minute), free(2, 2*time.Hour)}, claims.Choice{Use: "b", Make: -1}},
		"of two used at once, the first":  {[]claims.Claim{free(1, time.Hour), free(0, time.Hour)}, claims.Choice{Use: "a", Make: -1}},
		"its own before any":              {[]claims.Claim{free(0, 0), {Name: "b", Number: 1, Holder: "me", InUse: true}}, claims.Choice{Use: "b", Own: true, Make: -1}},
		"not its own that is being ended": {[]claims.Claim{{Name: "a", Number: 0, Holder: "me", Ending: true}}, claims.Choice{Make: 1}},
		"the first number that is free":   {[]claims.Claim{with(free(0, 0), inUse), with(free(2, 0), inUse)}, claims.Choice{Make: 1}},
		"not one in use":                  {[]claims.Claim{with(free(0, 0), inUse)}, claims.Choice{Make: 1}},
		"not one that is deleted":         {[]claims.Claim{with(free(0, 0), func(c *claims.Claim) { c.Ending = true })}, claims.Choice{Make: 1}},
		"not one without a volume":        {[]claims.Claim{with(free(0, 0), func(c *claims.Claim) { c.Lost = true })}, claims.Choice{Make: 1}},
		"not one of another size":         {[]claims.Claim{with(free(0, 0), func(c *claims.Claim) { c.Unlike = true })}, claims.Choice{Make: 1}},
		"not one that no pool owns":       {[]claims.Claim{with(free(0, 0), func(c *claims.Claim) { c.Orphan = true })}, claims.Choice{Make: 1}},
		"not one above the bound":         {[]claims.Claim{free(3, 0)}, claims.Choice{Make: 0}},
		"not one that kept a runner from starting": {
			[]claims.Claim{with(free(0, 0), func(c *claims.Claim) { c.Taken, c.FailedAt = ago(time.Hour), ago(claims.BlameFor-time.Second) })}, claims.Choice{Make: 1},
		},
		"that one again, later": {[]claims.Claim{with(free(0, 0), func(c *claims.Claim) { c.Taken, c.FailedAt = ago(time.Hour), ago(claims.BlameFor) })}, claims.Choice{Use: "a", Make: -1}},
		"none at the bound": {
			[]claims.Claim{with(free(0, 0), inUse), with(free(1, 0), func(c *claims.Claim) { c.Ending = true }), with(free(2, 0), func(c *claims.Claim) { c.FailedAt = ago(0) })},
			claims.Choice{Make: -1, Missing: "none of at most 3 claims is free: 1 in use, 1 kept a runner from starting lately, 1 being deleted", Soon: true},
		},
		"none, until a runner is gone that ends": {
			[]claims.Claim{with(free(0, 0), inUse), with(free(1, 0), inUse), with(free(2, 0), func(c *claims.Claim) { c.InUse, c.Leaving = true, true })},
			claims.Choice{Make: -1, Missing: "none of at most 3 claims is free: 3 in use, 0 kept a runner from starting lately, 0 being deleted", Soon: true},
		},
		"none, and nobody ends": {
			[]claims.Claim{with(free(0, 0), inUse), with(free(1, 0), inUse), with(free(2, 0), inUse)},
			claims.Choice{Make: -1, Missing: "none of at most 3 claims is free: 3 in use, 0 kept a runner from starting lately, 0 being deleted"},
		},
		"none, but one leaves": {
			[]claims.Claim{with(free(0, 0), inUse), with(free(1, 0), inUse), with(with(free(2, 0), inUse), func(c *claims.Claim) { c.LeavesBy = now.Add(1) })},
			claims.Choice{Make: -1, Missing: "none of at most 3 claims is free: 3 in use, 0 kept a runner from starting lately, 0 being deleted", Ended: true},
		},
		"one should have left": {
			[]claims.Claim{with(free(0, 0), inUse), with(free(1, 0), inUse), with(with(free(2, 0), inUse), func(c *claims.Claim) { c.LeavesBy = now })},
			claims.Choice{Make: -1, Missing: "none of at most 3 claims is free: 3 in use, 0 kept a runner from starting lately, 0 being deleted"},
		},
		"one leaves that is unlike": {
			[]claims.Claim{with(free(0, 0), inUse), with(free(1, 0), inUse), with(with(free(2, 0), inUse), func(c *claims.Claim) { c.LeavesBy, c.Unlike = now.Add(1), true })},
			claims.Choice{Make: -1, Missing: "none of at most 3 claims is free: 3 in use, 0 kept a runner from starting lately, 0 being deleted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := claims.Choose(&v1alpha1.CacheSpec{MaxClaims: 3}, tc.all, "me", now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// In a zone that is gone, claim after claim would prevent the runners of a job from starting.
func TestChooseAfterManyFailures(t *testing.T) {
	spec, avoided := &v1alpha1.CacheSpec{MaxClaims: 6}, func(n int) (all []claims.Claim) {
		for i := range n {
			all = append(all, claims.Claim{Name: string(rune('a' + i)), Number: i, Holder: "gone", Taken: ago(time.Hour), FailedAt: ago(time.Minute), Proved: true})
		}
		return all
	}
	free := func(number int, taken time.Duration) claims.Claim {
		return claims.Claim{Name: string(rune('a' + number)), Number: number, Holder: "gone", Taken: ago(taken)}
	}
	for name, tc := range map[string]struct {
		all  []claims.Claim
		want claims.Choice
	}{
		"two kept runners from starting": {append(avoided(2), free(2, time.Hour)), claims.Choice{Use: "c", Make: -1}},
		"three did":                      {append(avoided(3), free(3, time.Hour)), claims.Choice{Make: 4}},
		"and one was taken since":        {append(avoided(3), free(3, 30*time.Second)), claims.Choice{Use: "d", Make: -1}},
		"and no other can be made": {append(avoided(4), free(4, time.Hour), free(5, time.Hour)), claims.Choice{
			Make: -1, Missing: "none of at most 6 claims is free: 0 in use, 4 kept a runner from starting lately, 0 being deleted; 2 are not tried, for the same reason",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, claims.Choose(spec, tc.all, "me", now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If a class has no volumes, new claims would prevent one runner after another from starting, up to the maximum number
// of claims.
func TestChooseWhereNewClaimsGetNoVolume(t *testing.T) {
	claim := func(number int, change func(c *claims.Claim)) claims.Claim {
		c := claims.Claim{Name: string(rune('a' + number)), Number: number, Holder: "gone", Taken: ago(time.Hour), Unbound: true}
		change(&c)
		return c
	}
	failed := func(c *claims.Claim) { c.FailedAt = ago(claims.BlameFor - time.Minute) }
	again := func(c *claims.Claim) { c.FailedAt = ago(claims.BlameFor) }
	tried := func(c *claims.Claim) { c.FailedAt, c.InUse = ago(claims.BlameFor), true }
	unused := func(*claims.Claim) {}
	bound := func(c *claims.Claim) { c.Unbound = false }
	missing := func(counts string) claims.Choice {
		return claims.Choice{Make: -1, Missing: "none of at most 1000 claims is free: " + counts + " being deleted; new ones get no volume"}
	}
	for name, tc := range map[string]struct {
		all  []claims.Claim
		want claims.Choice
	}{
		"a new one isn't made":                  {[]claims.Claim{claim(0, failed)}, missing("0 in use, 1 kept a runner from starting lately, 0")},
		"nor is another without volume taken":   {[]claims.Claim{claim(0, failed), claim(1, unused)}, missing("0 in use, 1 kept a runner from starting lately, 0")},
		"one with a volume is":                  {[]claims.Claim{claim(0, failed), claim(1, bound)}, claims.Choice{Use: "b", Make: -1}},
		"later, that one is tried again":        {[]claims.Claim{claim(0, again), claim(1, unused)}, claims.Choice{Use: "a", Make: -1}},
		"by one runner":                         {[]claims.Claim{claim(0, tried), claim(1, again)}, missing("1 in use, 0 kept a runner from starting lately, 0")},
		"it has a volume by now":                {[]claims.Claim{claim(0, func(c *claims.Claim) { tried(c); bound(c) }), claim(1, again)}, claims.Choice{Use: "b", Make: -1}},
		"it failed, but not for want of volume": {[]claims.Claim{claim(0, func(c *claims.Claim) { failed(c); bound(c) })}, claims.Choice{Make: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, claims.Choose(&v1alpha1.CacheSpec{MaxClaims: 1000}, tc.all, "me", now)); diff != "" {
				t.Error(diff)
			}
		})
	}
	waits := &v1alpha1.CacheSpec{MaxClaims: 1000, OnMissing: v1alpha1.WaitForClaim}
	if got := claims.Choose(waits, []claims.Claim{claim(0, failed)}, "me", now); got.Make != 1 {
		t.Errorf("who can't start without: %+v", got)
	}
}

// Where runners must not start without a claim, blame delays them but never leaves the pool without runners.
func TestChooseTriesBlamedClaimsLast(t *testing.T) {
	spec := &v1alpha1.CacheSpec{MaxClaims: 3, OnMissing: v1alpha1.WaitForClaim}
	failed := func(number int, before time.Duration, proved bool) claims.Claim {
		return claims.Claim{Name: string(rune('a' + number)), Number: number, Holder: "gone", Taken: ago(before + 10*time.Second), FailedAt: ago(before), Proved: proved}
	}
	proved := func(number int, before time.Duration) claims.Claim { return failed(number, before, true) }
	suspect := func(number int, before time.Duration) claims.Claim { return failed(number, before, false) }
	inUse := func(number int, taken time.Duration) claims.Claim {
		return claims.Claim{Name: string(rune('a' + number)), Number: number, Holder: "other", Taken: ago(taken), InUse: true}
	}
	probing := func(number int, taken time.Duration) claims.Claim {
		c := inUse(number, taken)
		c.FailedAt = ago(taken + time.Minute)
		return c
	}
	without := *spec
	without.OnMissing = v1alpha1.StartWithout
	min := time.Minute
	for name, tc := range map[string]struct {
		spec *v1alpha1.CacheSpec
		all  []claims.Claim
		want string
	}{
		"proved, too soon":                     {spec, []claims.Claim{proved(0, 2*min), proved(1, min-1), proved(2, 2*min)}, ""},
		"proved, the one that failed first":    {spec, []claims.Claim{proved(0, 2*min), proved(1, min), proved(2, 3*min)}, "c"},
		"proved, another is being tried":       {spec, []claims.Claim{proved(0, 2*min), proved(1, 2*min), probing(2, min-1)}, ""},
		"proved, another was tried and serves": {spec, []claims.Claim{proved(0, 2*min), proved(1, 2*min), probing(2, min)}, "a"},
		"proved, an idle runner keeps one":     {spec, []claims.Claim{proved(0, 2*min), proved(1, 2*min), inUse(2, time.Hour)}, "a"},
		"proved, short jobs use the others":    {spec, []claims.Claim{proved(0, 2*min), proved(1, 2*min), inUse(2, time.Second)}, "a"},
		"suspects, at once":                    {spec, []claims.Claim{suspect(0, 0), suspect(1, 2*time.Second), inUse(2, time.Hour)}, "b"},
		"a suspect before a proved one":        {spec, []claims.Claim{proved(0, 9*min), suspect(1, 0), proved(2, 9*min)}, "b"},
		"another claim before a suspect":       {spec, []claims.Claim{suspect(0, 0), suspect(1, 0)}, "new"},
		"runners start without one":            {&without, []claims.Claim{proved(0, 2*min), suspect(1, min), proved(2, 3*min)}, ""},
		"all are in use":                       {spec, []claims.Claim{inUse(0, time.Hour), inUse(1, time.Hour), inUse(2, min)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := claims.Choose(tc.spec, tc.all, "me", now)
			if got.Make >= 0 {
				got.Use = "new"
			}
			if got.Use != tc.want || (got.Missing == "") != (tc.want != "") {
				t.Errorf("%+v, want %q", got, tc.want)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	day := 24 * time.Hour
	all := []claims.Claim{
		{Name: "used", Number: 0, Taken: ago(7*day - 1)},
		{Name: "unused", Number: 1, Taken: ago(7 * day)},
		{Name: "busy", Number: 1, Taken: ago(70 * day), InUse: true},
		{Name: "going", Number: 1, Taken: ago(70 * day), Ending: true},
		{Name: "lost", Number: 1, Taken: now, Lost: true},
		{Name: "other", Number: 1, Taken: now, Unlike: true},
		{Name: "beyond", Number: 2, Taken: now},
		{Name: "orphan", Number: 1, Taken: now, Orphan: true},
		{Name: "strange", Number: -1, Taken: now},
	}
	got := claims.Remove(&v1alpha1.CacheSpec{MaxClaims: 2}, all, now)
	want := []claims.Removal{
		{Name: "beyond", Reason: "the pool has at most 2 claims"},
		{Name: "lost", Reason: "its volume is gone"},
		{Name: "orphan", Reason: "no pool owns it"},
		{Name: "other", Reason: "the pool declares another class, size or access mode"},
		{Name: "strange", Reason: "the pool has at most 2 claims"},
		{Name: "unused", Reason: "no runner took it for 168h0m0s"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, r := range claims.Remove(nil, all, now) {
		if r.Reason != "the pool has no cache any more" || r.Name == "busy" || r.Name == "going" {
			t.Errorf("without a cache: %+v", r)
		}
	}
}

func TestFateOf(t *testing.T) {
	for name, tc := range map[string]struct {
		ending claims.Ending
		want   claims.Fate
	}{
		"nobody knows":                        {claims.Ending{}, claims.Delete},
		"never started":                       {claims.Ending{Known: true}, claims.Keep},
		"a bad image":                         {claims.Ending{Known: true, Cause: v1alpha1.CauseImagePull}, claims.Keep},
		"a volume of another zone":            {claims.Ending{Known: true, Cause: v1alpha1.CauseCache}, claims.Condemn},
		"a volume that isn't attached":        {claims.Ending{Known: true, Cause: v1alpha1.CauseSlow}, claims.Suspect},
		"a zone without room":                 {claims.Ending{Known: true, Cause: v1alpha1.CauseUnschedulable}, claims.Suspect},
		"has a job, its node tells nothing":   {claims.Ending{Known: true, HasJob: true}, claims.Delete},
		"had a job, its node tells nothing":   {claims.Ending{Known: true, HasJob: true, JobOver: true, LetGo: true}, claims.Delete},
		"its job is over, nothing else known": {claims.Ending{Known: true, JobOver: true, LetGo: true}, claims.Delete},
		"done with its job":                   {claims.Ending{Known: true, Started: true, Ended: true, Clean: true, HasJob: true, JobOver: true}, claims.Keep},
		"ended before its job":                {claims.Ending{Known: true, Started: true, Ended: true, Clean: true, HasJob: true}, claims.Delete},
		"killed in its job":                   {claims.Ending{Known: true, Started: true, Ended: true, HasJob: true}, claims.Delete},
		"killed after its job":                {claims.Ending{Known: true, Started: true, Ended: true, HasJob: true, JobOver: true}, claims.Delete},
		"still running when its job was over": {claims.Ending{Known: true, Started: true, HasJob: true, JobOver: true, LetGo: true}, claims.Delete},
		"ended by hand in its job":            {claims.Ending{Known: true, Started: true, HasJob: true}, claims.Delete},
		"idle and not wanted any more":        {claims.Ending{Known: true, Started: true, LetGo: true}, claims.Keep},
		"idle, and GitHub can't be asked":     {claims.Ending{Known: true, Started: true}, claims.Delete},
		"ended without a job":                 {claims.Ending{Known: true, Started: true, Ended: true, Clean: true, LetGo: true}, claims.Delete},
		"crashed, and is to run again":        {claims.Ending{Known: true, Started: true, Crashed: true, LetGo: true}, claims.Delete},
		"crashed":                             {claims.Ending{Known: true, Started: true, Ended: true, LetGo: true, Cause: v1alpha1.CauseCrash}, claims.Delete},
	} {
		if got, why := claims.FateOf(tc.ending); got != tc.want || why == "" {
			t.Errorf("%s: %s, %q", name, got, why)
		}
	}
}
