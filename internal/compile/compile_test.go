// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/memfs"
	"github.com/corral-dev/corral/schema"
)

const (
	moduleFile = "module: \"acme.test/pools@v0\"\nlanguage: version: \"v0.16.0\"\n"
	withDeps   = moduleFile + "deps: \"corral.dev/schema@v0\": v: \"v0.1.0\"\n"
	head       = "package pools\n\nimport \"corral.dev/schema@v0\"\n\n"
	template   = `template: spec: containers: [{name: "runner", image: "runner:1"}]`
	body       = "\tconnectionRef: name: \"acme\"\n\t" + template + "\n"
	onePool    = head + "pools: schema.#Pools\npools: linux: spec: {\n" + body + "}\n"
	rawPool    = `{apiVersion: "corral.dev/v1alpha1", kind: "RunnerPool", metadata: name: "raw", spec: {` + "\n" + body + "}}\n"
)

// pool returns the source of one RunnerPool. Its spec begins at line 8.
func pool(spec string) string {
	return head + "pools: schema.#Pools\npools: linux: spec: {\n\tconnectionRef: name: \"acme\"\n" + spec + "\n}\n"
}

// repository returns a tree with a module file and one file of pools.
func repository(cue string) Files {
	return Files{"cue.mod/module.cue": []byte(withDeps), "pools.cue": []byte(cue)}
}

func texts(r Result) []string {
	var out []string
	for _, d := range r.Diagnostics {
		out = append(out, Format(d))
	}
	return out
}

// declared lists objects as KIND/NAME FILE:LINE:COL PATH.
func declared(r Result) []string {
	var out []string
	for _, o := range r.Objects {
		out = append(out, fmt.Sprintf("%s/%s %s:%d:%d %s", o.Manifest.GetKind(), o.Manifest.GetName(), o.File, o.Line, o.Column, o.Path))
	}
	return out
}

func TestDiagnosticsSayWhereAndWhat(t *testing.T) {
	for name, tc := range map[string]struct {
		cue  string
		want []string
	}{
		"unknown field": {pool("scale: idel: 3\n" + template), []string{
			"pools.cue:8:8: pools.linux.spec.scale.idel: field not allowed; did you mean idle?"}},
		"several typos at once, also in the pod": {
			pool("scal: max: 3\ntemplate: spec: {servceAccountName: \"x\", containers: [{name: \"runner\", imge: \"x\"}]}"), []string{
				"pools.cue:8:1: pools.linux.spec.scal: field not allowed; did you mean scale?",
				"pools.cue:9:18: pools.linux.spec.template.spec.servceAccountName: field not allowed; did you mean serviceAccountName?",
				"pools.cue:9:72: pools.linux.spec.template.spec.containers[0].imge: field not allowed; did you mean image?"}},
		"a field that resembles none": {pool("scale: threshold: 3\n" + template), []string{
			"pools.cue:8:8: pools.linux.spec.scale.threshold: field not allowed; allowed here: behavior, idle, idlePercentOfBusy, idleTimeout, max, min, schedules"}},
		"min and idle above max": {pool("scale: {max: 2, min: 3, idle: 4}\n" + template), []string{
			"pools.cue:8:17: pools.linux.spec.scale.min: min 3 is above max 2",
			"pools.cue:8:25: pools.linux.spec.scale.idle: idle 4 is above max 2"}},
		"a schedule without a time": {pool("scale: schedules: [{name: \"a\", scale: max: 1}]\n" + template), []string{
			"pools.cue:8:20: pools.linux.spec.scale.schedules[0]: exactly one of weekly, cron and once must be set"}},
		"a schedule that holds once, in a zone": {
			pool("scale: schedules: [{name: \"b\", timeZone: \"Asia/Tokyo\", once: {from: \"2026-01-01T00:00:00Z\", to: \"2026-01-02T00:00:00Z\"}, scale: max: 1}]\n" + template), []string{
				"pools.cue:8:20: pools.linux.spec.scale.schedules[0]: timeZone may not be set with once, whose times have an offset"}},
		"a schedule with min above max": {pool("scale: schedules: [{name: \"c\", cron: {schedule: \"0 7 * * *\", duration: \"1h\"}, scale: {max: 1, min: 2}}]\n" + template), []string{
			"pools.cue:8:79: pools.linux.spec.scale.schedules[0].scale: min 2 is above max 1"}},
		"a metric that is two": {pool("demand: metrics: [{name: \"b\", busy: {}, jobs: repositories: [\"x\"]}]\n" + template), []string{
			"pools.cue:8:19: pools.linux.spec.demand.metrics[0]: exactly one of jobs, busy, prometheus and external must be set"}},
		"a scale set's name without a scale set": {pool("registration: \"REST\"\nscaleSetName: \"x\"\n" + template), []string{
			"pools.cue:6:15: pools.linux.spec: scaleSetName may not be set with registration REST: such runners have no scale set"}},
		"labels of the controller's on GitHub": {pool("runnerLabels: [\"gpu\", \"Corral-Owner-0011aabb\"]\nscaleSetName: \"corral-owner-x\"\n" + template), []string{
			`pools.cue:8:23: pools.linux.spec.runnerLabels[1]: invalid value "Corral-Owner-0011aabb" (out of bound !~"(?i)^corral-owner-")`,
			`pools.cue:9:15: pools.linux.spec.scaleSetName: invalid value "corral-owner-x" (out of bound !~"(?i)^corral-owner-")`}},
		"below the bound": {pool("scale: {max: -2}\n" + template), []string{
			"pools.cue:8:14: pools.linux.spec.scale.max: invalid value -2 (out of bound >=0)"}},
		"of another type": {pool("scale: {max: \"2\"}\n" + template), []string{
			`pools.cue:8:14: pools.linux.spec.scale.max: invalid value "2": must be int, not string`}},
		"not a duration": {pool("deadlines: startup: \"10\"\n" + template), []string{
			`pools.cue:8:21: pools.linux.spec.deadlines.startup: invalid value "10": must be a duration such as 90s, 10m or 168h`}},
		"what takes no decoder": {pool("scale: idleTimeout: \"banana\"\nupdate: {maxSurge: 5000000000, canary: runners: \"99999999%\"}\nscale: behavior: scaleUp: tolerance: \"1e1.5\"\n" + template), []string{
			`pools.cue:8:21: pools.linux.spec.scale.idleTimeout: invalid value "banana": must be a duration such as 90s, 10m or 168h`,
			`pools.cue:9:20: pools.linux.spec.update.maxSurge: invalid value 5000000000: must be 0 to 999999, or a percentage such as 25%`,
			`pools.cue:9:49: pools.linux.spec.update.canary.runners: invalid value "99999999%": must be 0 to 999999, or a percentage such as 25%`,
			`pools.cue:10:38: pools.linux.spec.scale.behavior.scaleUp.tolerance: invalid value "1e1.5": must be a quantity such as 500m or 8Gi`}},
		"not a quantity, not one of an enumeration": {
			pool(`template: spec: containers: [{name: "runner", imagePullPolicy: "always", resources: limits: cpu: "8GiB"}]`), []string{
				`pools.cue:8:64: pools.linux.spec.template.spec.containers[0].imagePullPolicy: invalid value "always": must be "Always" or "IfNotPresent" or "Never"`,
				"pools.cue:8:98: pools.linux.spec.template.spec.containers[0].resources.limits.cpu: invalid value \"8GiB\": must be a quantity such as 500m or 8Gi"}},
		"a label of the controller's": {pool(`template: {metadata: {labels: team: "a", labels: "corral.dev/pool": "b", annotations: "x.corral.dev/y": "z"}, spec: containers: [{name: "runner"}]}`), []string{
			`pools.cue:8:50: pools.linux.spec.template.metadata.labels."corral.dev/pool": keys of corral.dev are reserved for Corral`,
			`pools.cue:8:87: pools.linux.spec.template.metadata.annotations."x.corral.dev/y": keys of corral.dev are reserved for Corral`}},
		"no container runs the runner": {pool(`template: spec: containers: [{name: "runer"}]`), []string{
			"pools.cue:8:11: pools.linux.spec.template.spec: no container is named runner"}},
		"a required field is missing": {pool(""), []string{
			"pools.cue:6:15: pools.linux.spec.template.spec: template.spec must be set"}},
		"two values for one field": {pool("scale: max: 3\nscale: max: 4\n" + template), []string{
			"pools.cue:8:13: pools.linux.spec.scale.max: conflicting values 4 and 3: CUE overrides no value, so remove one (the other is at pools.cue:9:13)"}},
		"a field without a value": {pool("scale: max: int\n" + template), []string{
			"pools.cue:8:8: pools.linux.spec.scale.max: has no value, only >=0 & <=100000 & int: set it, or give it a default"}},
		"an unknown reference": {pool("scale: max: most\n" + template), []string{
			`pools.cue:8:13: pools.linux.spec.scale.max: reference "most" not found; put strings in double quotes`}},
		"the same wrong value in two rows": {onePool + "_rows: [string]: max: <=5\n_rows: a: max: 9\n_rows: b: max: 9\n", []string{
			"pools.cue:11:16: _rows.a.max: invalid value 9 (out of bound <=5)",
			"pools.cue:12:16: _rows.b.max: invalid value 9 (out of bound <=5)"}},
		"a required field of a value that is referred to": {pool("scale: max: _t.x\n"+template) + "_t: {x!: int}\n", []string{
			"pools.cue:8:16: pools.linux.spec.scale.max: x must be set"}},
		"in a comprehension": {
			head + "for s in [\"a\"] {\n\tpools: \"linux-\\(s)\": schema.#RunnerPool & {\n\t\tmetadata: name: \"linux-\\(s)\"\n\t\tspec: {connectionRef: name: \"acme\", scale: max: -3, " + template + "}\n\t}\n}\n", []string{
				`pools.cue:8:51: pools."linux-a".spec.scale.max: invalid value -3 (out of bound >=0)`}},
		"missing in a comprehension": {
			head + "pools: schema.#Pools & {\n\tfor s in [\"a\"] {\n\t\t\"linux-\\(s)\": spec: " + template + "\n\t}\n}\n", []string{
				`pools.cue:7:17: pools."linux-a".spec.connectionRef: connectionRef must be set`}},
		"without the schema the same rules hold": {
			"package pools\n" + strings.Replace("p: "+rawPool, "connectionRef", "conectionRef", 1), []string{
				"pools.cue:3:2: p.spec.conectionRef: field not allowed; did you mean connectionRef?"}},
		"credentials of a connection": {
			onePool + "c: schema.#Connections & {\n\ta: spec: url: \"https://github.com/a\"\n\tb: spec: {url: \"github.com/a\", secretRef: name: \"x\"}\n\tB_: spec: {url: \"https://github.com/a\", secretRef: name: \"x\"}\n}\n", []string{
				"pools.cue:11:5: c.a.spec: exactly one of secretRef and mount must be set",
				`pools.cue:12:17: c.b.spec.url: invalid value "github.com/a": must match ^https?://[^/?#\s]+/[^?#\s]+$`,
				"pools.cue:13:2: c.B_.metadata.name: must be lower-case letters, digits, - and ."}},
		"a reference that is wrong is not a missing one": {
			onePool + "c: schema.#Connections & {\n\ta: spec: {url: \"https://github.com/a\", secretRef: name: \"\"}\n\tb: spec: {url: \"https://github.com/a\", secretRef: nam: \"x\"}\n}\n", []string{
				"pools.cue:11:58: c.a.spec.secretRef.name: must not be empty",
				"pools.cue:12:52: c.b.spec.secretRef.nam: field not allowed; did you mean name?"}},
		"of another type than a struct or a list": {pool("deadlines: \"10m\"\nrunnerLabels: \"x\"\n" + template), []string{
			`pools.cue:8:12: pools.linux.spec.deadlines: invalid value "10m": must be fields in braces, as {} or {NAME: VALUE}, not string`,
			`pools.cue:9:15: pools.linux.spec.runnerLabels: invalid value "x": must be a list, as ["x"], not string`}},
		"a struct or a list where there is none": {pool("runnerGroup: [\"a\"]\nscale: max: {a: 1}\n" + template), []string{
			`pools.cue:8:14: pools.linux.spec.runnerGroup: invalid value ["a"]: must be string, not list`,
			"pools.cue:9:8: pools.linux.spec.scale.max: invalid value {a:1}: must be int, not struct"}},
		"too long": {pool("runnerGroup: \"" + strings.Repeat("ab", 200) + "\"\n" + template), []string{
			"pools.cue:8:14: pools.linux.spec.runnerGroup: must have at most 128 characters"}},
		"syntax": {"package pools\n\npools: {\n", []string{"pools.cue:3:8: the { here is never closed"}},
		"unknown import": {"package pools\n\nimport \"example.com/x@v0\"\n\na: x.y\n", []string{
			`pools.cue:3:8: unknown import "example.com/x@v0": this module, acme.test/pools, does not contain it; add its module with cue mod get and run corral mod vendor, or copy the package to cue.mod/pkg; only "corral.dev/schema@v0" is built in`}},
		"unused import": {"package pools\n\nimport \"strings\"\n\na: 1\n", []string{`pools.cue:3:8: imported and not used: "strings"; remove the import, or use it`}},
		"an empty file": {"\n", []string{"pools.cue:1:1: the file is empty: remove it, or begin it with `package pools`"}},
		"no package":    {"a: 1\n", []string{"pools.cue:1:1: the file is in no package, so it would be passed over: begin it with `package pools`"}},
		"no pools": {"package pools\na: 1\n", []string{
			"no pools found in .: declare at least one RunnerPool, as `pools: schema.#Pools & {NAME: spec: …}`; if other folders import this one, choose one of them"}},
		"a Secret": {onePool + "s: {apiVersion: \"v1\", kind: \"Secret\", metadata: name: \"x\"}\n", []string{
			"pools.cue:10:1: s: v1 Secret is not applied from here: secrets don't belong in Git: create the Secret in the cluster and name it in spec.secretRef"}},
		"a kind of somebody else": {onePool + "s: [{apiVersion: \"v1\", kind: \"ConfigMap\", metadata: name: \"x\"}]\n", []string{
			"pools.cue:10:5: s[0]: v1 ConfigMap is not applied from here: only GitHubConnection, RunnerPolicy and RunnerPool are declared here; begin the name of a building block with _ or #"}},
		"another version": {onePool + "s: {apiVersion: \"corral.dev/v2\", kind: \"RunnerPool\"}\n", []string{
			"pools.cue:10:1: s: RunnerPool corral.dev/v2 is not known, corral.dev/v1alpha1 is"}},
		"a duplicate": {onePool + "more: again: pools.linux\n", []string{
			"pools.cue:6:8: pools.linux: RunnerPool linux is declared twice, here and at pools.cue:10 (more.again)",
			"pools.cue:10:7: more.again: RunnerPool linux is declared twice, here and at pools.cue:6 (pools.linux)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(Compile(repository(tc.cue), Options{}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A file with @if is compiled if the tags satisfy its condition.
func TestConditionsOfFiles(t *testing.T) {
	files := repository(onePool)
	files["prod.cue"] = []byte("@if(prod && !dev)\n\n" + strings.Replace(onePool, "linux:", "prod:", 1))
	for tags, want := range map[string]int{"": 1, "prod=true": 2, "prod=false": 1, "prod=true dev=true": 1} {
		options := Options{Tags: map[string]string{}}
		for _, tag := range strings.Fields(tags) {
			name, value, _ := strings.Cut(tag, "=")
			options.Tags[name] = value
		}
		if result := Compile(files, options); len(result.Objects) != want || len(result.Diagnostics) > 0 {
			t.Errorf("%s: %d objects, want %d; %v", tags, len(result.Objects), want, texts(result))
		}
	}
}

func TestTreesThatCompile(t *testing.T) {
	vendoredSchema, err := schema.FS.ReadFile("schema.cue")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		files   map[string]string
		options Options
		want    []string
	}{
		"the schema in deps": {
			map[string]string{"cue.mod/module.cue": withDeps, "pools/a.cue": onePool}, Options{},
			[]string{"RunnerPool/linux pools/a.cue:6:8 pools.linux"}},
		"a probe of gRPC that names no service": {
			map[string]string{"cue.mod/module.cue": withDeps, "a.cue": strings.Replace(onePool, `image: "runner:1"`, `image: "runner:1", livenessProbe: grpc: port: 80`, 1)}, Options{},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux"}},
		"the schema vendored, imported without its major version": {
			map[string]string{"cue.mod/module.cue": moduleFile, "a.cue": strings.Replace(onePool, "@v0", "", 1),
				"cue.mod/pkg/corral.dev/schema/schema.cue": string(vendoredSchema)}, Options{},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux"}},
		"the embedded schema wins over a vendored one": {
			map[string]string{"cue.mod/module.cue": withDeps, "a.cue": onePool,
				"cue.mod/pkg/corral.dev/schema/schema.cue": "package schema\n\n#Pools: 3\n"}, Options{},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux"}},
		"an older version of the schema": {
			map[string]string{"cue.mod/module.cue": strings.Replace(withDeps, "v0.1.0", "v0.0.1", 1), "a.cue": onePool}, Options{},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux"}},
		"a copy wins over deps, whatever its major version": {
			map[string]string{"cue.mod/module.cue": withDeps + "deps: \"acme.test/lib@v1\": v: \"v1.4.0\"\n", "a.cue": "package pools\n\nimport \"acme.test/lib/base@v1\"\n\np: base.#Raw\n",
				"cue.mod/pkg/acme.test/lib/base/base.cue": "package base\n\n#Raw: " + rawPool}, Options{},
			[]string{"RunnerPool/raw a.cue:5:1 p"}},
		"no module file, no schema": {
			map[string]string{"a.cue": "package pools\n\np: " + rawPool}, Options{},
			[]string{"RunnerPool/raw a.cue:3:1 p"}},
		"other packages vendored": {
			map[string]string{"cue.mod/module.cue": moduleFile, "a.cue": "package pools\n\nimport \"acme.test/lib/base\"\n\np: base.#Raw\n",
				"cue.mod/pkg/acme.test/lib/base/base.cue": "package base\n\n#Raw: " + rawPool}, Options{},
			[]string{"RunnerPool/raw a.cue:5:1 p"}},
		"generated packages, and a replacement for one machine": {
			map[string]string{"cue.mod/module.cue": withDeps, "a.cue": "package pools\n\nimport \"acme.test/lib\"\n\np: lib.#Raw\n",
				"cue.mod/gen/acme.test/lib/lib.cue": "package lib\n\n#Raw: " + rawPool,
				"cue.mod/local-module.cue":          "deps: \"corral.dev/schema@v0\": replaceWith: \"./x\"\n"}, Options{},
			[]string{"RunnerPool/raw a.cue:5:1 p"}},
		"a path below the module, with an import from beside it": {
			map[string]string{"cue.mod/module.cue": withDeps, "lib/lib.cue": "package lib\n\nmax: 7\n", "other/b.cue": onePool,
				"clusters/prod/a.cue": "package pools\n\nimport (\n\t\"acme.test/pools/lib\"\n)\n\np: " + strings.Replace(rawPool, "\tconn", "\tscale: max: lib.max\n\tconn", 1)},
			Options{Path: "clusters/prod"},
			[]string{"RunnerPool/raw clusters/prod/a.cue:7:1 p"}},
		"a module below the path": {
			map[string]string{"team/cue.mod/module.cue": withDeps, "team/a.cue": onePool}, Options{},
			[]string{"RunnerPool/linux team/a.cue:6:8 pools.linux"}},
		"a folder with a dot in its name": {
			map[string]string{"cue.mod/module.cue": withDeps, "acme.example/a.cue": onePool}, Options{},
			[]string{"RunnerPool/linux acme.example/a.cue:6:8 pools.linux"}},
		"another package in a folder below, and one that unifies with the folder above": {
			map[string]string{"cue.mod/module.cue": withDeps, "a.cue": onePool, "raw/raw.cue": "package raw\n\np: " + rawPool,
				"sub/b.cue": "package pools\n\nx: 1\n"}, Options{},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux", "RunnerPool/raw raw/raw.cue:3:1 p"}},
		"tests, tools, hidden and ignored files are passed over": {
			map[string]string{"cue.mod/module.cue": withDeps, "a.cue": onePool, "a_test.cue": "bad", "a_tool.cue": "bad", ".git/x.cue": "bad", "_x.cue": "bad",
				"off.cue": "@ignore()\npackage pools\n\nx: 1 & 2\n"}, Options{},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux"}},
		"tags": {
			map[string]string{"cue.mod/module.cue": withDeps, "a.cue": pool("scale: max: int @tag(max,type=int)\n" + template)}, Options{Tags: map[string]string{"max": "9"}},
			[]string{"RunnerPool/linux a.cue:6:8 pools.linux"}},
		"a condition on a field of embedded data that is not set": {
			map[string]string{"cue.mod/module.cue": withDeps, "data.json": `{"region": "eu"}`,
				"a.cue": "@extern(embed)\n\n" + pool("if _data.regions != _|_ {scale: max: 3}\n"+template) + "\n_data: _ @embed(file=data.json)\n_region: _data.region\n"}, Options{},
			[]string{"RunnerPool/linux a.cue:8:8 pools.linux"}},
		"a condition on a field that an imported package may have": {
			map[string]string{"cue.mod/module.cue": withDeps, "shared/b.cue": "package shared\n\n_x: 1\n",
				"a.cue": strings.Replace(pool("if shared.most != _|_ {scale: max: 3}\n"+template), "import ", "import \"acme.test/pools/shared\"\nimport ", 1)}, Options{},
			[]string{"RunnerPool/linux a.cue:7:8 pools.linux"}},
		"an embedded file": {
			map[string]string{"cue.mod/module.cue": withDeps, "scale.json": `{"max": 3}`,
				"a.cue": "@extern(embed)\n\n" + pool("scale: _ @embed(file=scale.json)\n"+template)}, Options{},
			[]string{"RunnerPool/linux a.cue:8:8 pools.linux"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := Files{}
			for path, text := range tc.files {
				files[path] = []byte(text)
			}
			r := Compile(files, tc.options)
			if diff := cmp.Diff([]string(nil), texts(r)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.want, declared(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFilesOfOthersAreNotCounted(t *testing.T) {
	files := repository(onePool)
	for i := range MaxFiles {
		files[fmt.Sprintf("cue.mod/pkg/example.com/x/f%d.cue", i)] = []byte("package x\n")
	}
	if got := texts(Compile(files, Options{})); got != nil {
		t.Error(got)
	}
}

func TestTreesThatAreRefused(t *testing.T) {
	big := bytes.Repeat([]byte("// filler\n"), MaxFileBytes/10+1)
	many := Files{}
	for i := range MaxFiles + 1 {
		many[fmt.Sprintf("f%04d.cue", i)] = []byte("package pools\n")
	}
	total := Files{}
	for i := range MaxTotalBytes/MaxFileBytes + 1 {
		total[fmt.Sprintf("f%d.cue", i)] = big[:MaxFileBytes]
	}
	for name, tc := range map[string]struct {
		files   Files
		options Options
		want    []string
	}{
		"no such folder":   {repository(onePool), Options{Path: "nowhere"}, []string{"there is no folder \"nowhere\" to compile"}},
		"an escaping path": {repository(onePool), Options{Path: "../x"}, []string{"there is no folder \"../x\" to compile"}},
		"a condition that is no boolean": {Files{"cue.mod/module.cue": []byte(withDeps), "pools.cue": []byte(onePool), "prod.cue": []byte("@if(prod)\n\npackage pools\n")},
			Options{Tags: map[string]string{"prod": "yes"}}, []string{`prod.cue:1:1: tag "prod" is the condition of a file, so its value must be true or false, not "yes"`}},
		"an unused tag": {repository(onePool), Options{Tags: map[string]string{"env": "prod"}}, []string{`tag "env" is set, but no field is marked @tag(env)`}},
		"a misspelt tag": {repository("package pools\n\n_env: string @tag(env,short=prod)\n"), Options{Tags: map[string]string{"evn": "prod"}, AllowEmpty: true},
			[]string{`pools.cue:3:14: tag "evn" is set, but no field is marked @tag(evn); did you mean env?`}},
		"a misspelt tag of a module in a folder": {
			Files{"infra/cue.mod/module.cue": []byte("module: \"acme.test/infra@v0\"\nlanguage: version: \"v0.16.0\"\n"), "infra/pools.cue": []byte("package pools\n\n_env: string @tag(env)\n")},
			Options{Path: "infra", Tags: map[string]string{"evn": "prod"}, AllowEmpty: true},
			[]string{`infra/pools.cue:3:14: tag "evn" is set, but no field is marked @tag(evn); did you mean env?`},
		},
		"a tag of another name": {repository("package pools\n\n_env: string @tag(env)\n"), Options{Tags: map[string]string{"cluster": "x"}, AllowEmpty: true},
			[]string{`tag "cluster" is set, but no field is marked @tag(cluster); allowed here: env`}},
		"a tag's value": {
			repository("package pools\n\nimport \"corral.dev/schema@v0\"\n\nconnections: schema.#Connections\nconnections: acme: spec: {secretRef: name: \"x\", url: *\"https://github.com/acme\" | string @tag(url)}\n"),
			Options{Tags: map[string]string{"url": "not a url"}},
			[]string{`pools.cue:6:54: connections.acme.spec.url: invalid value "not a url": must match ^https?://[^/?#\s]+/[^?#\s]+$, and comes from the tag url`}},
		"an unknown version of the schema": {
			Files{"cue.mod/module.cue": []byte(strings.Replace(withDeps, "v0.1.0", "v0.9.0", 1)), "a.cue": []byte(onePool)}, Options{},
			[]string{"cue.mod/module.cue: the repository needs v0.9.0 of corral.dev/schema@v0, and this version of Corral has v0.1.0: upgrade Corral"}},
		"a newer language": {
			Files{"cue.mod/module.cue": []byte("module: \"a.test/b@v0\"\nlanguage: version: \"v0.99.0\"\n"), "a.cue": []byte(onePool)}, Options{},
			[]string{`cue.mod/module.cue: language version "v0.99.0" declared in module.cue is too new for current language version "v0.17.1"`}},
		"a module file with a typo": {
			Files{"cue.mod/module.cue": []byte(moduleFile + "dep: 1\n"), "a.cue": []byte(onePool)}, Options{},
			[]string{"cue.mod/module.cue:3:1: dep: field not allowed"}},
		"an unknown module in deps": {
			Files{"cue.mod/module.cue": []byte(withDeps + "deps: \"example.com/x@v0\": v: \"v0.1.0\"\n"), "a.cue": []byte("package pools\n\nimport \"example.com/x@v0\"\n\na: x.b\n")}, Options{},
			[]string{`cue.mod/module.cue:4:7: module example.com/x@v0 v0.1.0 is not in the repository, and Corral downloads nothing: run corral mod vendor, or copy its packages to cue.mod/pkg`}},
		"a folder that nothing can be imported from": {
			Files{"cue.mod/module.cue": []byte(withDeps), "po öls/a.cue": []byte(onePool)}, Options{},
			[]string{"po öls/a.cue:3:8: CUE can't import from a folder of this name; rename it: ASCII letters and digits, and - _ + . between them"}},
		"a folder that looks like something else": {
			Files{"cue.mod/module.cue": []byte(withDeps), "a@b/a.cue": []byte(onePool)}, Options{},
			[]string{"a@b/a.cue: CUE can't import from a folder of this name; rename it: ASCII letters and digits, and - _ + . between them"}},
		"a large file": {Files{"a.cue": big}, Options{}, []string{"a.cue: the file is larger than 1048576 bytes, the limit"}},
		"many files": {many, Options{}, []string{
			"f0500.cue: more than 500 files, the limit: compile a smaller folder with a cue.mod of its own"}},
		"many bytes": {total, Options{}, []string{"f8.cue: more than 8388608 bytes in total, the limit"}},
		"many objects": {
			repository("package pools\n\nimport \"list\"\n\nx: [for i in list.Range(0, 5001, 1) {apiVersion: \"corral.dev/v1alpha1\", kind: \"GitHubConnection\", metadata: name: \"c\\(i)\", spec: {url: \"https://github.com/a\", mount: name: \"m\"}}]\n"), Options{},
			[]string{"more than 5000 objects, the most that a tree may declare"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(Compile(tc.files, tc.options))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFewDiagnosticsOfMany(t *testing.T) {
	src := "package pools\n"
	for i := range MaxDiagnostics + 20 {
		src += fmt.Sprintf("x%03d: 1 & 2\n", i)
	}
	got := texts(Compile(repository(src), Options{}))
	if len(got) != MaxDiagnostics+1 || got[MaxDiagnostics] != "and 20 more" {
		t.Errorf("got %d diagnostics ending with %q", len(got), got[len(got)-1])
	}
}

// Links on a disk could be followed, but a source follows none.
func TestLinksAreFollowedNowhere(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.cue")
	write(t, outside, "package pools\n")
	for _, target := range []string{outside, "real.cue"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "real.cue"), onePool)
		if err := os.Symlink(target, filepath.Join(dir, "link.cue")); err != nil {
			t.Fatal(err)
		}
		got, want := texts(Compile(os.DirFS(dir), Options{})), []string{"link.cue: a link, which is not followed; commit the file itself"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("to %s: %s", target, diff)
		}
	}
}

func TestASubmoduleIsRefusedWhereDefinitionsWouldBe(t *testing.T) {
	for name, refused := range map[string]bool{
		"team/pools/policies/guard": true, "team/pools/guard.cue": true, "team/pools/_docs": false, "team/pools/.github": false, "team/lib": false, "lib": false,
	} {
		files := memfs.FS{}
		for name, file := range map[string]*fstest.MapFile{
			"team/cue.mod/module.cue": {Data: []byte(withDeps)}, "team/pools/a.cue": {Data: []byte("package pools\n")}, name: memfs.Submodule,
		} {
			if _, err := files.Add(name, file); err != nil {
				t.Fatal(err)
			}
		}
		_, diagnostics := Gather(files, "team/pools")
		var want []v1alpha1.Diagnostic
		if refused {
			want = []v1alpha1.Diagnostic{{File: name, Message: Submodule}}
		}
		if diff := cmp.Diff(want, diagnostics); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A source lists links and follows none. A link that nothing reads is no error.
func TestLinksThatAreNotFollowedAreRefusedWhereTheyWouldBeRead(t *testing.T) {
	for name, tc := range map[string]struct {
		link, embeds string
		refused      bool
	}{
		"a definition":                           {"team/pools/link.cue", "", true},
		"a definition above":                     {"team/link.cue", "", true},
		"the module's file":                      {"team/cue.mod/module.cue", "", true},
		"a policy":                               {"team/pools/policies/link.rego", "", true},
		"data of policies":                       {"team/pools/policies/data.yaml", "", true},
		"a test of definitions":                  {"team/pools/link_test.cue", "", false},
		"a definition elsewhere":                 {"other/link.cue", "", false},
		"a policy elsewhere":                     {"team/link.rego", "", false},
		"data elsewhere":                         {"data.json", "", false},
		"a document":                             {"team/pools/README.md", "", false},
		"a document, beside a file embedded":     {"team/pools/README.md", "@embed(file=scale.json)", false},
		"one of the files embedded by a pattern": {"team/pools/more.json", "@embed(type=json,glob=*.json)", true},
	} {
		t.Run(name, func(t *testing.T) {
			files := memfs.FS{}
			for name, file := range map[string]*fstest.MapFile{
				"team/cue.mod/module.cue": {Data: []byte(withDeps)}, "team/pools/a.cue": {Data: []byte("package pools\nx: _ " + tc.embeds)}, "team/pools/scale.json": {Data: []byte("{}")}, tc.link: memfs.Link("/elsewhere"),
			} {
				if _, err := files.Add(name, file); err != nil {
					t.Fatal(err)
				}
			}
			_, diagnostics := Gather(files, "team/pools")
			got, want := texts(Result{Diagnostics: diagnostics}), []string(nil)
			if tc.refused {
				want = []string{tc.link + ": a link, which is not followed; commit the file itself"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesIsAFileSystem(t *testing.T) {
	files := Files{"a": []byte("1"), "b/c": []byte("2"), "b/d/e": nil}
	if err := fstest.TestFS(files, "a", "b/c", "b/d/e"); err != nil {
		t.Error(err)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	src := head + "pools: schema.#Pools & {for i in [3, 1, 2] {\"p\\(i)\": spec: {\n" + body + "}}}\n" +
		"connections: schema.#Connections & {acme: spec: {url: \"https://github.com/acme\", secretRef: name: \"github\"}}\n"
	first := Compile(repository(src), Options{})
	if diff := cmp.Diff(first, Compile(repository(src), Options{})); diff != "" {
		t.Error(diff)
	}
	want := []string{"GitHubConnection/acme", "RunnerPool/p1", "RunnerPool/p2", "RunnerPool/p3"}
	var got []string
	for _, o := range first.Objects {
		got = append(got, o.Manifest.GetKind()+"/"+o.Manifest.GetName())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff, texts(first))
	}
}

func TestLongTextsOfADiagnosticAreShortened(t *testing.T) {
	long := strings.Repeat("ab", MaxFileBytes/8)
	files := repository(pool("scale: max: \"" + long + "\"\n\"" + long + "\": 1\n" + template))
	files[strings.Repeat("long/", 300)+"a.cue"] = []byte("x")
	for _, d := range Compile(files, Options{}).Diagnostics {
		if n := len(Format(d)); n > 3100 {
			t.Errorf("a diagnostic has %d bytes", n)
		}
	}
}

// An error that prevents the compilation of one package does not hide errors in other packages.
func TestAnErrorInOnePackageHidesNoneOfAnothers(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, want string }{
		"a value":                {"a/a.cue", "package a\n\nx: 3 & 4\n", "a/a.cue:3:"},
		"no CUE":                 {"a/a.cue", "package a\n\nx: {\n", "a/a.cue:"},
		"an unknown import":      {"a/a.cue", "package a\n\nimport \"nowhere.test/x\"\n\ny: x\n", "a/a.cue:3:8: unknown import "},
		"no package":             {"a/a.cue", "x: 1\n", "a/a.cue:1:1: the file is in no package"},
		"a merge":                {"a/a.cue", "package a\n<<<<<<< HEAD\n", "a/a.cue:2:1: a merge that is not resolved"},
		"an object":              {"a/a.cue", "package a\n\np: " + strings.Replace(rawPool, "connectionRef", "conectionRef", 1), "a/a.cue:4:"},
		"in a module of its own": {"a/cue.mod/module.cue", "module: \"a.test/a@v0\"\nlanguage: version: \"v0.99.0\"\n", "a/cue.mod/module.cue: language version "},
	} {
		t.Run(name, func(t *testing.T) {
			files := repository(onePool)
			files["a/x.cue"], files["b/b.cue"] = []byte("package a\n"), []byte("package b\n\nx: 1 & 2\n")
			files[tc.file] = []byte(tc.text)
			got := strings.Join(texts(Compile(files, Options{})), "\n")
			for _, want := range []string{tc.want, "b/b.cue:3:"} {
				if !strings.Contains("\n"+got, "\n"+want) {
					t.Errorf("nothing begins with %q:\n%s", want, got)
				}
			}
		})
	}
}

// If there are too many mistakes to report, each file gets its share.
func TestManyMistakesOfOneFileHideNoneOfAnothers(t *testing.T) {
	files := repository(onePool)
	text := "package a\n"
	for i := range MaxDiagnostics + 20 {
		text += fmt.Sprintf("x%03d: 1 & 2\n", i)
	}
	files["a/a.cue"], files["b/b.cue"] = []byte(text), []byte("package b\n\nx: 1 & 2\n")
	got := texts(Compile(files, Options{}))
	if len(got) != MaxDiagnostics+1 || !strings.HasPrefix(got[MaxDiagnostics-1], "b/b.cue:3:") {
		t.Errorf("got %d diagnostics, the last but one %q", len(got), got[len(got)-2])
	}
}

// entries is a folder that appears to contain many files.
type entries struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (e entries) ReadDir(folder string) ([]fs.DirEntry, error) {
	found, err := fs.ReadDir(e.FS, folder)
	if err != nil || folder != "." {
		return found, err
	}
	return slices.Repeat(found, maxEntries), nil
}

func TestAFolderOfTooMuchIsToldWhatHelps(t *testing.T) {
	got := texts(Compile(entries{Files{"README": nil}}, Options{}))
	want := []string{"more than 100000 files and folders: compile a smaller folder with a cue.mod of its own"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
