// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"testing"
	"time"
)

// Each pool has an hour of its own at which its limit changes, so no pool can stand for another.
const ownHours = `package corral.scaling

limit contains {"field": "max", "atMost": 2, "reason": "own hours"} if {
	time.clock(input.now)[0] >= to_number(input.pool.labels.hour)
}
`

// The costs of a pool whose rules read the clock depend neither on the other pools nor on the day of the review.
func TestEachPoolThatReadsTheClockIsSampledHourly(t *testing.T) {
	text := "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n"
	for i := range 24 {
		text += fmt.Sprintf("\tp%02d: {metadata: labels: hour: \"%d\", spec: {connectionRef: name: \"acme\", scale: max: 26, template: #T}}\n", i, i)
	}
	f := files{"p.cue": text + "}\n", "r.rego": ownHours, "prices.yaml": prices}
	for day := range 7 {
		at := sunday.Add(time.Duration(day)*24*time.Hour + 37*time.Minute)
		r, err := Compare(t.Context(), Input{Base: sideOf(t, "base", files{}), Head: sideOf(t, "head", f), Moment: Moment{At: at, Zone: "UTC"}})
		if err != nil || len(r.Pools) != 24 {
			t.Fatal(len(r.Pools), err)
		}
		for i, p := range r.Pools {
			// A runner costs 200 each month. There are 26 runners before the hour, and 2 from then on.
			if want := float64(200 * (2 + i)); *p.Cost.After.Max != want {
				t.Errorf("%s, reviewed %s: the highest amount is %v, want %v", p.Name, at.Weekday(), *p.Cost.After.Max, want)
			}
		}
	}
}
