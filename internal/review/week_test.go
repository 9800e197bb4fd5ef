// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// cron returns a schedule of CUE with a name, a cron expression, a duration in minutes or seconds, and numbers.
func cron(name, expression, lasts, scale string) string {
	return fmt.Sprintf(`{name: %q, cron: {schedule: %q, duration: %q}, scale: {%s}},`, name, expression, lasts, scale)
}

// withScale returns linux with other numbers and schedules.
func withScale(t *testing.T, numbers string, schedules ...string) string {
	t.Helper()
	return change(t, linux, "max: 50, idle: 2", numbers+", schedules: ["+strings.Join(schedules, "")+"]")
}

// costAt reviews the addition of pools at a time.
func costAt(t *testing.T, at time.Time, head files) *Result {
	t.Helper()
	head["prices.yaml"] = prices
	r, err := Compare(t.Context(), Input{Base: sideOf(t, "base", files{"prices.yaml": prices}), Head: sideOf(t, "head", head), Moment: Moment{At: at, Zone: "UTC"}})
	if err != nil || r.Verdict != Allowed {
		t.Fatal(err, r.Head.Diagnostics)
	}
	return r
}

// A runner of linux costs 200 per month, and the typical number of runners is in the middle between min and max. The cost
// must not depend on the minute of the review, whose author knows when it runs.
func TestCostsIncludeEachChangeOfAWeek(t *testing.T) {
	lows := withScale(t, "min: 1000, max: 1000", cron("low", "0 * * * *", "1m", "min: 0, max: 1"), cron("high", "20 * * * *", "20m", "min: 999, max: 999"))
	closed := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npolicies: schema.#Policies & {caps: spec: library: hours: {open: [\n"
	for hour := range 24 {
		closed += fmt.Sprintf("\t{days: %s, from: \"%02d:26\", to: \"%02d:25\"},\n", everyDay, hour, (hour+1)%24)
	}
	for name, tt := range map[string]struct {
		head                    files
		least, typical, highest float64
	}{
		"one low minute of each hour":                       {files{"p.cue": lows}, 200 * (20*999 + 39*1000) / 60.0, 200 * (0.5 + 20*999 + 39*1000) / 60, 200 * (1 + 20*999 + 39*1000) / 60.0},
		"each second minute":                                {files{"p.cue": withScale(t, "min: 0, max: 100", cron("odd", "*/2 * * * *", "1m", "max: 0"))}, 0, 200 * 25, 200 * 50},
		"a library that closes for one minute of each hour": {files{"p.cue": withScale(t, "min: 0, max: 60"), "q.cue": closed + "]}}\n"}, 0, 200 * 29.5, 200 * 59},
	} {
		t.Run(name, func(t *testing.T) {
			for _, minute := range []int{5, 25, 59} {
				r := costAt(t, sunday.Add(time.Duration(minute)*time.Minute), tt.head)
				want := &Amounts{Min: tt.least, Typical: tt.typical, Max: &tt.highest}
				if diff := cmp.Diff(want, r.Cost.After, cmpopts.EquateApprox(0, 0.01)); diff != "" || len(r.Cost.Frequent) > 0 {
					t.Errorf("reviewed at minute %d: %s, frequent %v", minute, diff, r.Cost.Frequent)
				}
			}
		})
	}
}

// If limits change too often, the cost is unknown rather than an estimate. The pool is left out on both sides.
func TestACostOfTooManyChangesIsUnknown(t *testing.T) {
	var schedules []string
	for i := range 32 {
		schedules = append(schedules, cron(fmt.Sprint("s", i), "*/2 * * * *", fmt.Sprintf("%ds", 61+i), fmt.Sprintf("max: %d", i)))
	}
	base, head := files{"p.cue": linux, "prices.yaml": prices}, files{"p.cue": withScale(t, "max: 5000", schedules...), "prices.yaml": prices}
	for name, r := range map[string]*Result{"at the head": compareSides(t, base, head), "at the base": compareSides(t, head, base)} {
		if diff := cmp.Diff([]string{"ci/linux"}, r.Cost.Frequent); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got := amounts(r.Cost.Before) + ", " + amounts(r.Cost.After); got != "0 0 0, 0 0 0" {
			t.Errorf("%s: %s", name, got)
		}
		isReported := slices.ContainsFunc(r.Worst, func(c Consequence) bool {
			return c.Class == "Cost" && strings.HasSuffix(c.Text, "not counting 1 pool whose limits change too often")
		})
		if !isReported {
			t.Errorf("%s: %v", name, r.Worst)
		}
	}
}

// The work of all pools together is bounded, too. Pools with few changes are not affected.
func TestManyPoolsWithManyChangesHaveNoCost(t *testing.T) {
	text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n\tz: spec: {connectionRef: name: \"acme\", scale: max: 1, template: #T}\n"
	for i := range 60 {
		text += fmt.Sprintf("\tp%02d: spec: {connectionRef: name: \"acme\", scale: {max: 2, schedules: [%s]}, template: #T}\n", i, cron("odd", "*/2 * * * *", "1m", "max: 0"))
	}
	c := costAt(t, sunday, files{"p.cue": text + "}\n"}).Cost
	known := 60 - len(c.Frequent)
	if want := float64(200 * (1 + known)); known < 40 || known == 60 || slices.Contains(c.Frequent, "ci/z") || *c.After.Max != want {
		t.Errorf("%d known, highest amount %v, want %v", known, *c.After.Max, want)
	}
}

// A rule must not be able to choose the limits at the times for which a review evaluates it.
func TestRulesCannotChooseTheirMomentsOfAnHour(t *testing.T) {
	const full = `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": 0, "reason": "full hours"} if time.clock(input.now)[1] == 0
`
	for _, at := range []time.Time{sunday, sunday.Add(17 * time.Minute)} {
		first, again := costAt(t, at, files{"p.cue": linux, "r.rego": full}), costAt(t, at, files{"p.cue": linux, "r.rego": full})
		if diff := cmp.Diff(first.Cost, again.Cost); diff != "" {
			t.Errorf("the result is not reproducible: %s", diff)
		}
		if got := *first.Cost.After.Max; got < 9000 {
			t.Errorf("reviewed at %s: the highest amount is %v, want about %v", at, got, 200*50*59/60)
		}
	}
}

// If shared ceilings are not evaluated for the whole week, the amounts of the head are not too low, and the typical amount of
// the base is not too high.
func TestCeilingsAreNotSampledAtLowTimes(t *testing.T) {
	text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n"
	for i := range 40 {
		text += fmt.Sprintf("\tp%02d: spec: {connectionRef: name: \"acme\", scale: {max: 10, schedules: [%s]}, template: #T}\n", i, cron("low", "0 * * * *", "20m", "max: 0"))
	}
	ceiling := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npolicies: schema.#Policies & {caps: spec: library: ceilings: [{name: \"shared\", by: \"Namespace\", max: 100, share: \"FirstCome\"}]}\n"
	in := Input{Base: sideOf(t, "base", files{}), Head: sideOf(t, "head", files{"p.cue": text + "}\n", "q.cue": ceiling, "prices.yaml": prices}), Moment: Moment{At: sunday, Zone: "UTC"}}
	base, err := open(&in.Base, &in)
	head, err2 := open(&in.Head, &in)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	c := &comparison{ctx: t.Context(), in: &in, base: base, head: head, result: &Result{}}
	c.run()
	// In 40 minutes of each hour, the pools ask for 400 runners, and the ceiling allows 100.
	const alone, together = 200 * 400 * 40.0 / 60, 200 * 100 * 40.0 / 60
	within := cmpopts.EquateApprox(0, 1)
	if diff := cmp.Diff(&Amounts{Typical: together, Max: new(together)}, c.result.Cost.After, within); diff != "" || head.isPartlyShared {
		t.Errorf("the whole week: %s", diff)
	}
	// The ceiling is evaluated in 122 of 168 hours.
	head.questions = 5000
	const most = (122*together + 46*alone) / 168
	for name, typical := range map[string]float64{"head": most, "base": most - alone*46/168} {
		amounts := &Amounts{Typical: alone, Max: new(alone)}
		if name == "base" {
			c.base = head
		}
		c.share(amounts, head, nil)
		if diff := cmp.Diff(&Amounts{Typical: typical, Max: new(most)}, amounts, within); diff != "" || !head.isPartlyShared {
			t.Errorf("a part of the week at the %s: %s", name, diff)
		}
		c.base = base
	}
}

// Recorded jobs meet the limits of the same time of the week, and there are at least as many runners as without jobs.
func TestRecordedJobsMeetTheLimitsOfTheirTime(t *testing.T) {
	// 10 jobs for half an hour, then 98, a week ago.
	in := Input{Base: sideOf(t, "base", files{})}
	in.Records, _ = recordsOf(t, logLine(t, -7*24*60, 10, as50), logLine(t, -7*24*60+30, 98, as50), logLine(t, -7*24*60+60, 0, as50))
	for name, tt := range map[string]struct {
		schedule string
		typical  float64
	}{
		"fewer at that time":  {cron("low", "15 18 * * 0", "1h", "max: 20"), 200 * (12 + 20) / 2},
		"more than jobs need": {cron("high", "0 20 * * *", "12h", "min: 80, max: 80"), 200 * (2 + 80) / 2},
	} {
		in.Head = sideOf(t, "head", files{"p.cue": withScale(t, "max: 50, idle: 2", tt.schedule), "prices.yaml": prices})
		if got := compareInput(t, in).Pools[0].Cost.After.Typical; got != tt.typical {
			t.Errorf("%s: %v, want %v", name, got, tt.typical)
		}
	}
}
