// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"strings"
	"testing"
)

// A runner of cheap costs 200 per month of 100 hours, and one of dear 1000.
func TestTheHighestCostRespectsCeilingsThatPoolsShare(t *testing.T) {
	pools := func(cheap, dear string) string {
		return "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n" +
			"\tcheap: spec: {connectionRef: name: \"acme\", scale: {" + cheap + "}, template: #T}\n" +
			"\tdear: spec: {connectionRef: name: \"acme\", runnerLabels: [\"gpu\"], scale: {" + dear + "}, template: #T}\n}\n"
	}
	library := func(ceiling string) string {
		return "package pools\n\nimport \"corral.dev/schema@v0\"\n\npolicies: schema.#Policies & {caps: spec: library: ceilings: [{name: \"shared\", " + ceiling + "}]}\n"
	}
	const own = `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": max([0, 40 - input.usage.namespace.granted]), "reason": "the namespace's quota"}
`
	night := `max: 30, schedules: [{name: "night", weekly: {days: ` + everyDay + `, from: "18:00", to: "06:00"}, scale: max: 0}]`
	for name, tt := range map[string]struct {
		files files
		want  float64
	}{
		"none":                         {files{"p.cue": pools("max: 50", "max: 30")}, 50*200 + 30*1000},
		"of the namespace":             {files{"p.cue": pools("max: 50", "max: 30"), "q.cue": library(`by: "Namespace", max: 40, share: "FirstCome"`)}, 10*200 + 30*1000},
		"in fair shares":               {files{"p.cue": pools("max: 50", "max: 30"), "q.cue": library(`by: "Namespace", max: 40`)}, 10*200 + 30*1000},
		"of rules of one's own":        {files{"p.cue": pools("max: 50", "max: 30"), "r.rego": own}, 10*200 + 30*1000},
		"wide enough":                  {files{"p.cue": pools("max: 50", "max: 30"), "q.cue": library(`by: "All", max: 80, share: "FirstCome"`)}, 50*200 + 30*1000},
		"of pools without a max":       {files{"p.cue": pools("idle: 0", "max: 30"), "q.cue": library(`by: "Connection", max: 40, share: "FirstCome"`)}, 10*200 + 30*1000},
		"that binds none":              {files{"p.cue": pools("max: 50", "max: 30"), "q.cue": strings.Replace(library(`by: "All", max: 40, share: "FirstCome"`), "spec: library", "spec: selector: matchExpressions: [{key: \"x\", operator: \"Exists\"}]\n\tcaps: spec: library", 1)}, 50*200 + 30*1000},
		"half of the time by schedule": {files{"p.cue": pools("max: 50", night), "q.cue": library(`by: "Namespace", max: 40, share: "FirstCome"`)}, (10*200+30*1000)/2 + 40*200/2},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["prices.yaml"] = prices
			r := compareSides(t, files{"prices.yaml": prices}, tt.files)
			if r.Verdict != Allowed || r.Cost == nil {
				t.Fatal(r.Verdict, r.Head.Diagnostics)
			}
			if got := *r.Cost.After.Max; got != tt.want || r.Cost.After.Typical > got {
				t.Errorf("max %v, typical %v, want %v", got, r.Cost.After.Typical, tt.want)
			}
			const assumption = "The max of all pools together respects the ceilings that they share."
			if has := strings.Contains(fmt.Sprint(r.Cost.Assumptions), assumption); has != (tt.want < 50*200+30*1000) {
				t.Error(r.Cost.Assumptions)
			}
		})
	}
}
