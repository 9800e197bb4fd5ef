// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"strconv"
	"strings"
	"testing"
)

// The first line reports the most severe effects, with correct numbers.
func TestTheFirstLineIsTheWorstInTrueNumbers(t *testing.T) {
	pools := func(most int) string { return teams(t, `{team: "ads"}`, most, "a", "b", "c") }
	old := strings.ReplaceAll(denyOld, "input.pod.spec.containers[_].image == \"runner:1\"", `input.pool.name in {"a", "b"}; input.pod.spec.containers[_].image == "runner:1"`)
	for name, tt := range map[string]struct {
		base, head files
		want       string
	}{
		"a policy that goes": {
			files{"p.cue": pools(100), "c.rego": ceiling}, files{"p.cue": pools(100)},
			"3 of 3 pools freed of RunnerPolicy/ci/repository · 1 policy deleted · max in force 180 → 300 · 3 changed by policies alone"},
		"a policy that goes, and a pool": {
			files{"p.cue": pools(100), "c.rego": ceiling}, files{"p.cue": teams(t, `{team: "ads"}`, 100, "a", "b")},
			"1 of 3 pools deleted: its waiting jobs are lost · 2 freed of RunnerPolicy/ci/repository · 1 policy deleted · max in force 180 → 200 · 2 changed by policies alone"},
		"a label on which a limit hangs": {
			files{"p.cue": pools(100), "g.rego": rego(granting), "data.yaml": "grants: {ads: 30}\n"},
			files{"p.cue": teams(t, `{}`, 100, "a", "b", "c"), "g.rego": rego(granting), "data.yaml": "grants: {ads: 30}\n"},
			"3 of 3 pools freed of limits that depend on labels · max in force 90 → 300 · 3 with changed settings"},
		"denied pools have no max": {
			files{"p.cue": pools(100)}, files{"p.cue": pools(100), "d.rego": old},
			"2 of 3 pools newly denied · max in force 300 → 100 · 2 changed by policies alone · 1 policy added"},
		"nor have those that were denied": {
			files{"p.cue": pools(100), "d.rego": old}, files{"p.cue": pools(200), "d.rego": old},
			"2 of 3 pools denied as before · max in force 100 → 200"},
		"large numbers": {
			files{"p.cue": pools(10020)}, files{"p.cue": pools(999)}, "max in force 30,060 → 2,997"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range compareSides(t, tt.base, tt.head).Worst {
				got = append(got, c.Text)
			}
			if got := strings.Join(got, " · "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestNumbersAreInGroupsOfThree(t *testing.T) {
	for want, v := range map[string]float64{"0.50": 0.5, "-99.99": -99.99, "100": 100, "-100": -100, "1,000": 1000, "-123,456": -123456, "12,345,678": 12345678} {
		if got := Money(v); got != want {
			t.Errorf("%s is formatted as %s", strconv.FormatFloat(v, 'f', -1, 64), got)
		}
	}
}
