// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// poolsWith returns the CUE of a pool with the given schedules.
func poolsWith(schedules string) map[string]string {
	return map[string]string{"pools.cue": fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {
	a: spec: {
		connectionRef: name: "c"
		scale: max: 9
		scale: schedules: [%s]
		template: spec: containers: [{name: "runner", image: "i"}]
	}
}
`, schedules)}
}

// closedAtNoon allows no runners from 12:00 to 13:00, and sets until to the end of that period.
const closedAtNoon = `package corral.scaling

noon := corral.windows(input.now, "Europe/Berlin", [{"from": "12:00", "to": "13:00"}])

limit contains {"field": "max", "atMost": 0, "reason": "lunch", "until": noon.until} if noon.open

# The calendar evaluates the rules again when the period begins.
limit contains {"field": "max", "atMost": 100, "reason": "fleet", "until": noon.until} if not noon.open
`

const officeAndNight = `
	{name: "office", timeZone: "Europe/Berlin", weekly: {from: "08:00", to: "18:00"}, scale: {min: 2, max: 20}},
	{name: "night", timeZone: "Europe/Berlin", cron: {schedule: "30 2 * * *", duration: "1h"}, scale: max: 1},
`

func TestCalendar(t *testing.T) {
	scheduled := poolsWith(officeAndNight)
	ruled := poolsWith(officeAndNight)
	ruled["policies/noon.rego"] = closedAtNoon
	failing := poolsWith("")
	failing["policies/bad.rego"] = "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": -1, \"reason\": \"r\"}\n"
	for name, tc := range map[string]struct {
		files map[string]string
		args  []string
	}{
		// A period that includes the end of daylight saving time.
		"calendar.txt":           {scheduled, []string{"--from", "2026-10-24T10:00:00Z", "--days", "2"}},
		"calendar-forward.txt":   {scheduled, []string{"--from", "2026-03-28T22:00:00Z", "--days", "1", "--zone", "UTC", "--pool", "a"}},
		"calendar-policies.txt":  {ruled, []string{"--from", "2026-07-06T00:00:00Z", "--days", "1"}},
		"calendar-policies.yaml": {ruled, []string{"--from", "2026-07-06T09:00:00Z", "--days", "1", "--most", "2", "-o", "yaml"}},
		"calendar-fails.txt":     {failing, []string{"--from", "2026-07-06T09:00:00Z"}},
		"calendar-pool.txt":      {scheduled, []string{"--pool", "b"}},
		"calendar-days.txt":      {scheduled, []string{"--days", "4000"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"calendar"}, tc.args...)
			checkGolden(t, name, args, corral(t, treeOf(t, tc.files), args...))
		})
	}
}

// Every command that evaluates pools reports invalid schedules.
func TestSchedulesAreChecked(t *testing.T) {
	const twice = `{name: "x", weekly: {from: "08:00", to: "18:00"}, scale: min: 1}, {name: "y", weekly: {from: "09:00", to: "10:00"}, scale: min: 2}`
	for name, tc := range map[string]struct {
		schedules string
		args      []string
		want      outcome
	}{
		"a zone that does not exist": {
			`{name: "x", timeZone: "Mars/Olympus", weekly: {from: "08:00", to: "18:00"}, scale: min: 1}`, []string{"vet"},
			outcome{code: exitError, stderr: "pools.cue:9:44: pools.a.spec.scale.schedules[0].timeZone: there is no time zone \"Mars/Olympus\": use a name of the IANA database, such as Europe/Berlin\nError: 1 problem\n"}},
		"in the calendar": {
			`{name: "x", cron: {schedule: "0 0 30 2 *", duration: "1h"}, scale: min: 1}`, []string{"calendar"},
			outcome{code: exitError, stderr: "pools.cue:9:51: pools.a.spec.scale.schedules[0].cron.schedule: \"0 0 30 2 *\" never comes: no month has such a day, or a field is empty\nError: 1 problem\n"}},
		"one that has no effect": {
			twice, []string{"vet"},
			outcome{stdout: "ok: 1 pool, 0 connections\n", stderr: "pools.cue:9:88: pools.a.spec.scale.schedules[1]: warning: schedule y has no effect: " +
				"whenever it holds, x sets the same numbers and is before it in the list. Put it first, or remove it\n"}},
		"one that is over": {
			`{name: "x", once: {from: "2025-01-01T00:00:00Z", to: "2025-01-02T00:00:00Z"}, scale: min: 1}`, []string{"vet", "--at", "2026-01-01T00:00:00Z"},
			outcome{stdout: "ok: 1 pool, 0 connections\n", stderr: "pools.cue:9:22: pools.a.spec.scale.schedules[0]: warning: schedule x is over since 2025-01-02T00:00:00Z: remove it\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, treeOf(t, poolsWith(tc.schedules)), tc.args...)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An invalid demand is reported at its position in the pool.
func TestDemandIsChecked(t *testing.T) {
	files := poolsWith(`{name: "x", weekly: {from: "08:00", to: "18:00"}, scale: min: 1}`)
	files["more.cue"] = "package pools\n\npools: a: spec: demand: metrics: [{name: \"busy\", busy: {scaleUpThresholdPercent: 20, scaleDownThresholdPercent: 30}}]\n"
	want := outcome{code: exitError, stderr: "more.cue:3:50: pools.a.spec.demand.metrics[0].busy: scaleDownThresholdPercent (30 by default) must be below scaleUpThresholdPercent (80 by default)\nError: 1 problem\n"}
	if diff := cmp.Diff(want, corral(t, treeOf(t, files), "vet"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

// Policies receive the numbers after schedules have been applied.
func TestPoliciesAreAskedAfterSchedules(t *testing.T) {
	files := poolsWith(officeAndNight)
	files["policies/cap.rego"] = "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": input.pool.scale.max - 1, \"reason\": \"one less\"}\n"
	files["a.scenario.yaml"] = "pool: a\nat: 2026-07-06T07:00:00Z\nexpect: {scaling: {max: 19, min: 2}}\n"
	folder := treeOf(t, files)
	if got := corral(t, folder, "test"); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	if got := corral(t, folder, "vet", "--at", "2026-07-06T01:00:00Z"); !strings.Contains(got.stdout, "pool a: max 1 → 0") {
		t.Errorf("%+v", got)
	}
	if got := corral(t, folder, "eval", "scaling", "-f", "a.scenario.yaml"); !strings.Contains(got.stdout, "max 20 → 19") {
		t.Errorf("%+v", got)
	}
}

// The recipe for ARC's startTime and untilTime in the docs applies to four weekends, and to no time before or after them.
func TestTheRecipeForPeriodsOfARCHoldsTheLastOne(t *testing.T) {
	_, recipe, found := strings.Cut(readFile(t, filepath.Join(top, "docs", "demand", "schedules.md")), "```yaml\nschedules:\n")
	recipe, _, _ = strings.Cut(recipe, "```")
	schedules, err := yaml.YAMLToJSON([]byte(recipe))
	if err != nil || !found {
		t.Fatal(err)
	}
	files := poolsWith(strings.Trim(strings.TrimSpace(string(schedules)), "[]"))
	files["min.cue"] = "package pools\n\npools: a: spec: scale: min: 5\n"
	got := corral(t, repositoryOf(t, files), "calendar", "--from", "2026-04-20T00:00:00Z", "--days", "60", "--zone", "Europe/Berlin", "--pool", "a")
	var changes []string
	for _, line := range strings.Split(got.stdout, "\n") {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[1], "2026-") && (len(changes) == 0 || !strings.HasSuffix(changes[len(changes)-1], " "+fields[4])) {
			changes = append(changes, strings.Join(fields[1:5], " "))
		}
	}
	want := []string{
		"2026-04-20 02:00 CEST 5", "2026-05-01 00:00 CEST 0", "2026-05-03 00:00 CEST 5", "2026-05-08 00:00 CEST 0", "2026-05-10 00:00 CEST 5",
		"2026-05-15 00:00 CEST 0", "2026-05-17 00:00 CEST 5", "2026-05-22 00:00 CEST 0", "2026-05-24 00:00 CEST 5",
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("%s\n%s\n%s", diff, got.stdout, got.stderr)
	}
}
