// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/test/golden"
)

// mistake is an edit that breaks a fleet of 300 pools defined by a table.
type mistake struct {
	file string
	// becomes replaces was. If was is empty, becomes is appended to the file.
	was, becomes string
	tags         map[string]string
}

// costs is used by the mistake about a presence test.
const costs = "\n_prices: small: 1\n_costs: {for n, r in _rows {(n): _prices.smal}}\n"

var mistakes = map[string]mistake{
	"01-row-without-a-field":       {file: "rows.cue", was: `class: "large", max: 8`, becomes: `max: 8`},
	"02-misspelt-field-of-a-row":   {file: "rows.cue", was: `class: "large", max: 8`, becomes: `cls: "large", max: 8`},
	"03-class-that-is-not-there":   {file: "rows.cue", was: `class: "large", max: 8`, becomes: `class: "larg", max: 8`},
	"04-wrong-quantity":            {file: "rows.cue", was: `max: 8, memory: "8Gi"`, becomes: `max: 8, memory: "8GiB"`},
	"05-number-as-text":            {file: "rows.cue", was: `max: 8, `, becomes: `max: "8", `},
	"06-upper-case-name":           {file: "rows.cue", was: `"linux-007"`, becomes: `"Linux-007"`},
	"07-struct-for-a-text":         {file: "rows.cue", was: `team: "team-7"`, becomes: `team: {team: "team-7"}`},
	"08-misspelt-definition":       {file: "pools.cue", was: `schema.#Pools`, becomes: `schema.#Pool`},
	"09-misspelt-table":            {file: "pools.cue", was: `in _rows {`, becomes: `in _fleet.row {`},
	"10-misspelt-field-of-all":     {file: "pools.cue", was: `nodeSelector: pool`, becomes: `nodeSelectr: pool`},
	"11-wrong-type-in-a-class":     {file: "classes.cue", was: `cpu: "2"`, becomes: `cpu: true`},
	"12-nothing-required":          {file: "pools.cue", was: `connectionRef: name: "acme"`, becomes: ``},
	"13-override-of-no-pool":       {file: "pools.cue", becomes: "pools: \"linux-0007\": spec: scale: min: 1\n"},
	"14-override-that-conflicts":   {file: "pools.cue", becomes: "pools: \"linux-007\": spec: scale: max: 9\n"},
	"15-tag-outside-its-values":    {file: "pools.cue", becomes: "_env: \"prod\" | \"dev\" @tag(env)\nconnections: acme: metadata: labels: env: _env\n", tags: map[string]string{"env": "prd"}},
	"16-tag-that-is-not-set":       {file: "pools.cue", becomes: "_env: string @tag(env)\nif _env == \"prod\" {pools: [string]: spec: scale: min: 1}\n"},
	"17-unknown-tag":               {file: "pools.cue", becomes: "_env: *\"prod\" | \"dev\" @tag(env)\n", tags: map[string]string{"evn": "prod"}},
	"18-time-of-a-schedule":        {file: "pools.cue", becomes: "pools: [string]: spec: scale: schedules: [{name: \"day\", timeZone: \"UTC\", weekly: {days: [\"Monday\"], from: \"7:00\", to: \"19:00\"}, scale: min: 0}]\n"},
	"19-merge-markers":             {file: "classes.cue", was: "\tlarge:", becomes: "<<<<<<< HEAD\n\tlarge:"},
	"20-import-cycle":              {file: "pools.cue", was: "import \"corral.dev/schema@v0\"", becomes: "import (\n\t\"corral.dev/schema@v0\"\n\t_ \"acme.test/pools:pools\"\n)"},
	"21-another-package":           {file: "rows.cue", was: "package pools", becomes: "package pool"},
	"22-row-twice":                 {file: "rows.cue", becomes: "_rows: \"linux-007\": max: 9\n"},
	"23-building-block":            {file: "pools.cue", becomes: "base: {image: string, cpu: \"2\"}\n"},
	"24-misspelt-pools":            {file: "pools.cue", becomes: "poools: \"linux-big\": #Pool & {_row: {team: \"a\", class: \"large\", max: 9, memory: \"8Gi\"}}\n"},
	"25-presence-of-what-fails":    {file: "pools.cue", was: "for name, row in _rows {", becomes: "for name, row in _rows if _costs[name] != _|_ {"},
	"26-idle-above-max":            {file: "rows.cue", was: `max: 8, `, becomes: `max: 8, idle: 9, `},
	"27-definition-of-fewer-field": {file: "pools.cue", was: "#Pool: schema.#RunnerPool & {", becomes: "#Pool: {"},
	"28-unknown-import":            {file: "pools.cue", was: "import \"corral.dev/schema@v0\"", becomes: "import (\n\t\"corral.dev/schema@v0\"\n\t\"acme.test/pools/teams\"\n)\n_t: teams.a"},
	"29-several-alternatives":      {file: "classes.cue", was: `gpu: {`, becomes: `gpu: {image: "a"} | {`},
	"31-pool-outside-of-pools":     {file: "pools.cue", becomes: "extra: \"linux-huge\": spec: connectionRef: name: \"acme\"\n"},
	"32-mount-without-volume":      {file: "pools.cue", was: "command: [", becomes: "volumeMounts: [{name: \"work\", mountPath: \"/work\"}]\n\t\t\t\tcommand: ["},
	"33-label-of-a-row":            {file: "rows.cue", was: `team: "team-7"`, becomes: `team: "team 7"`},
	"34-schedule-twice":            {file: "pools.cue", becomes: "_day: {name: \"day\", timeZone: \"UTC\", weekly: {days: [\"Monday\"], from: \"07:00\", to: \"19:00\"}, scale: min: 0}\npools: \"linux-007\": spec: scale: schedules: [_day, _day]\n"},
	"35-restarts":                  {file: "pools.cue", was: "nodeSelector:", becomes: "restartPolicy: \"Always\"\n\t\t\tnodeSelector:"},
	"30-number-of-all":             {file: "pools.cue", was: "max: _row.max", becomes: "max: _row.max * 10000000"},
}

// Each mistake is reported once, at the place that has to change, with a fix.
func TestMistakesInALargeTableAreOneRowEach(t *testing.T) {
	fleet := filepath.Join(top, "testdata/mistakes/fleet")
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			files := compile.Files{}
			for _, file := range []string{"cue.mod/module.cue", "classes.cue", "connections.cue", "pools.cue", "rows.cue"} {
				files[file] = []byte(readFile(t, filepath.Join(fleet, file)))
			}
			text := string(files[m.file])
			if m.was == "" {
				text += m.becomes
			} else {
				text = strings.Replace(text, m.was, m.becomes, 1)
			}
			if !strings.Contains(text, m.becomes) || text == string(files[m.file]) {
				t.Fatalf("%s has no %q", m.file, m.was)
			}
			files[m.file] = []byte(text)
			files["classes.cue"] = append(files["classes.cue"], costs...)
			r := &vetReport{Diagnostics: compile.Compile(files, compile.Options{Tags: m.tags, Check: worker.Check}).Diagnostics, version: "v1.2.3"}
			var stdout, stderr, sarif bytes.Buffer
			r.writeText(&stdout, &stderr)
			if err := writeJSON(&sarif, report.SARIF(r.version, r.findings())); err != nil {
				t.Fatal(err)
			}
			if n := len(r.findings()); n != 1 {
				t.Errorf("%d rows", n)
			}
			golden.CompareIn(t, filepath.Join(top, "testdata/mistakes/golden.txtar"), name+".txt", stderr.String())
			golden.CompareIn(t, filepath.Join(top, "testdata/mistakes/golden.txtar"), name+".sarif", sarif.String())
		})
	}
}
