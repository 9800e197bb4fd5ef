// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/policy"
)

const everyDay = `["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]`

// scheduled returns linux with a daily schedule between two times.
func scheduled(t *testing.T, name, from, to, scale string) string {
	t.Helper()
	return change(t, linux, "scale:", fmt.Sprintf("scale: schedules: [{name: %q, weekly: {days: %s, from: %q, to: %q}, scale: {%s}}]\n\t\tscale:", name, everyDay, from, to, scale))
}

// lunch allows two runners between 12:00 and 14:00, and does not set until.
const lunch = `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": 2, "reason": "lunch"} if {
	hour := time.clock(input.now)[0]
	hour >= 12
	hour < 14
}
`

func TestNumbersOfSchedulesAreNotDeclared(t *testing.T) {
	evening := scheduled(t, "evening", "17:00", "19:00", "max: 80, idle: 7")
	l := compareSides(t, files{"p.cue": linux}, files{"p.cue": evening}).Pools[0].After
	if l.Declared != (policy.Scale{Max: 50, Idle: 2}) || l.Effective.Max != 80 {
		t.Errorf("declared %+v, in force %+v", l.Declared, l.Effective)
	}
	if s := l.Scheduled; s == nil || s.Scale != (policy.Scale{Max: 80, Idle: 7}) || s.Active[0] != "evening" {
		t.Errorf("scheduled %+v", s)
	}
	morning := scheduled(t, "morning", "07:00", "09:00", "max: 80")
	if l := compareSides(t, files{"p.cue": linux}, files{"p.cue": morning}).Pools[0].After; l.Scheduled != nil {
		t.Errorf("the schedule applies outside of its window: %+v", l.Scheduled)
	}
}

// If a change has no effect now, the review reports when it takes effect.
func TestWhatMattersLaterSaysWhen(t *testing.T) {
	const is = "From %s on, its limits are max %d, min 0, idle 2 instead of max %d, min 0, idle 2."
	later := func(at string, max, former int) []string { return []string{fmt.Sprintf(is, at, max, former)} }
	evening := scheduled(t, "evening", "17:00", "19:00", "max: 80")
	once := func(max int) string {
		return change(t, linux, "scale:", fmt.Sprintf(`scale: schedules: [{name: "rush", once: {from: "2026-12-24T08:00:00Z", to: "2026-12-26T08:00:00Z"}, scale: max: %d}]
		scale:`, max))
	}
	december := `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": 1, "reason": "freeze", "until": "2027-01-02T00:00:00Z"} if input.now >= time.parse_rfc3339_ns("2026-12-20T00:00:00Z")

limit contains {"field": "max", "atMost": 5000, "reason": "none", "until": "2026-12-20T00:00:00Z"} if input.now < time.parse_rfc3339_ns("2026-12-20T00:00:00Z")
`
	for name, tt := range map[string]struct {
		base, head files
		want       []string
	}{
		"a max beside a schedule":    {files{"p.cue": evening}, files{"p.cue": change(t, evening, "max: 50", "max: 60")}, later("2026-07-05T19:00:00Z", 60, 50)},
		"a max below a ceiling":      {files{"p.cue": linux, "r.rego": change(t, ceiling, "60", "9")}, files{"p.cue": change(t, linux, "max: 50", "max: 60"), "r.rego": change(t, ceiling, "60", "9")}, nil},
		"a new schedule in December": {files{"p.cue": linux}, files{"p.cue": once(80)}, later("2026-12-24T08:00:00Z", 80, 50)},
		"another one in December":    {files{"p.cue": once(60)}, files{"p.cue": once(80)}, later("2026-12-24T08:00:00Z", 80, 60)},
		"one in December beside one of each day": {files{"p.cue": evening}, files{"p.cue": change(t, evening, "schedules: [", `schedules: [{name: "rush", once: {from: "2026-12-24T08:00:00Z", to: "2026-12-26T08:00:00Z"}, scale: max: 9}, `)},
			[]string{"From 2026-12-24T08:00:00Z on, its limits are max 9, min 0, idle 2 instead of max 50, min 0, idle 2."}},
		"one in December that a ceiling bounds": {files{"p.cue": once(60), "r.rego": ceiling}, files{"p.cue": once(80), "r.rego": ceiling}, nil},
		"rules for December":                    {files{"p.cue": linux, "r.rego": change(t, ceiling, "60", "6000")}, files{"p.cue": linux, "r.rego": december}, later("2026-12-20T00:00:00Z", 1, 50)},
		"rules that say no until":               {files{"p.cue": linux}, files{"p.cue": linux, "r.rego": lunch}, later("2026-07-06T12:00:00Z", 2, 50)},
		"a schedule within an hour of such rules": {
			files{"p.cue": scheduled(t, "noon", "12:20", "12:40", "max: 1"), "r.rego": lunch}, files{"p.cue": scheduled(t, "noon", "12:20", "12:45", "max: 1"), "r.rego": lunch},
			later("2026-07-06T12:40:00Z", 1, 2),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := compareSides(t, tt.base, tt.head)
			if len(r.Pools) == 0 {
				t.Fatal("no pool changed")
			}
			got := r.Pools[0].Effects
			for i := range got {
				got[i] = strings.ReplaceAll(got[i], "idle 1", "idle 2") // reduced to max
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If schedules change too often to find a later difference, the review does not claim that there is none.
func TestFrequentSchedulesHideNoLaterDifference(t *testing.T) {
	odd := cron("odd", "*/2 * * * *", "1m", "max: 9")
	december := `{name: "rush", once: {from: "2026-12-24T08:00:00Z", to: "2026-12-26T08:00:00Z"}, scale: max: 5000},`
	r := compareSides(t, files{"p.cue": withScale(t, "max: 50", odd)}, files{"p.cue": withScale(t, "max: 50", december, odd)})
	want := []string{"For 1 pool, schedules change too often to find all times of the year at which limits will differ."}
	if diff := cmp.Diff(want, r.Notes); diff != "" || len(r.Pools) != 1 || len(r.Pools[0].Effects) > 0 {
		t.Error(diff, r.Pools)
	}
}

// Rules that read the clock are evaluated for each pool and each hour of the week, and once per hour only. Other rules are
// evaluated once.
func TestTheClockIsSampledInBounds(t *testing.T) {
	many := func(most int) string {
		text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n"
		for i := range 40 {
			text += fmt.Sprintf("\tp%d: {metadata: labels: team: \"t%d\", spec: {connectionRef: name: \"acme\", scale: max: %d, template: #T}}\n", i, i%8, most+i)
		}
		return text + "}\n"
	}
	for name, tt := range map[string]struct {
		rules string
		most  int
	}{"the clock": {lunch, 2 * 40 * 7 * 24}, "no clock": {change(t, ceiling, "60", "9000"), 160}} {
		side := func(name string, most int) Side {
			return sideOf(t, name, files{"p.cue": many(most), "r.rego": tt.rules, "prices.yaml": prices})
		}
		in, questions := Input{Base: side("base", 100), Head: side("head", 101)}, 0
		for _, side := range []*Side{&in.Base, &in.Head} {
			of := side.Policies[0].Policy
			side.Policies[0].Policy = policy.Elsewhere(of.Source(), of.Facts(), asker(func(ctx context.Context, q policy.Question) ([]byte, error) {
				questions++
				return of.Answer(ctx, q)
			}))
		}
		if r := compareInput(t, in); r.Summary.Changed != 40 || questions > tt.most {
			t.Errorf("%s: %d pools changed, %d questions", name, r.Summary.Changed, questions)
		}
	}
}
