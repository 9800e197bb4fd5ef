// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/test/golden"
)

// durations matches values that differ between runs: times, and digests that include values from the policy
// engine.
var durations = regexp.MustCompile(`\d\.\d+s\b|"seconds": \S+|time="[0-9.]+"|sha256:[0-9a-f]+|\b[0-9a-f]{16,64}\b`)

// checkGolden compares the output and exit code of a command with the golden file.
func checkGolden(t *testing.T, name string, args []string, got outcome) {
	t.Helper()
	text := fmt.Sprintf("$ corral %s\n%s--- stderr\n%s--- exit code %d\n", strings.Join(args, " "), got.stdout, got.stderr, got.code)
	text = durations.ReplaceAllString(text, "~")
	golden.CompareIn(t, goldens, name, text)
}

var goldens, judgedFolder, checkout = absolute("testdata/golden.txtar"), absolute("testdata/judged"), absolute(top)

func absolute(name string) string {
	path, err := filepath.Abs(name)
	if err != nil {
		panic(err)
	}
	return path
}

func TestAnswers(t *testing.T) {
	t.Setenv("GITHUB_WORKSPACE", judgedFolder)
	const noon = "2026-07-07T12:00:00Z"
	vet := func(more ...string) []string {
		return append([]string{"vet", "--at", noon, "--policy", "audited.yaml"}, more...)
	}
	for name, args := range map[string][]string{
		"vet.txt":              vet(),
		"vet-zone.txt":         {"vet", "--at", noon, "--zone", "Asia/Tokyo"},
		"vet-guard.txt":        vet("--policy", "guard", "--namespace", "ci"),
		"vet.json":             vet("--policy", "guard", "-o", "json"),
		"vet.yaml":             vet("-o", "yaml"),
		"vet.github":           vet("-o", "github"),
		"vet.sarif":            vet("-o", "sarif"),
		"vet.junit":            vet("-o", "junit"),
		"test.txt":             {"test"},
		"test-verbose.txt":     {"test", "-v", "--run", "capped"},
		"test-coverage.txt":    {"test", "--run", "capped", "--coverage", "--threshold", "95"},
		"test.json":            {"test", "-o", "json", "--coverage"},
		"test.github":          {"test", "-o", "github"},
		"test.junit":           {"test", "-o", "junit"},
		"eval-scaling.txt":     {"eval", "scaling", "-f", "web.scenario.yaml", "--case", "guarded"},
		"eval-scaling.json":    {"eval", "scaling", "-f", "web.scenario.yaml", "--case", "guarded", "-o", "json"},
		"eval-template.txt":    {"eval", "template", "-f", "web.scenario.yaml", "--case", "guarded"},
		"eval-update.yaml":     {"eval", "update", "-f", "web.scenario.yaml", "--case", "guarded", "-o", "yaml"},
		"eval-update.txt":      {"eval", "update", "-f", "web.scenario.yaml", "--case", "guarded"},
		"eval-which.txt":       {"eval", "update", "-f", "web.scenario.yaml"},
		"eval-no-decision.txt": {"eval", "scale", "-f", "web.scenario.yaml"},
	} {
		t.Run(name, func(t *testing.T) { checkGolden(t, name, args, corral(t, judgedFolder, args...)) })
	}
}

const module = `module: "example.com/pools@v0"
language: version: "v0.16.0"
deps: "corral.dev/schema@v0": v: "v0.1.0"
`

const onePool = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {
	a: spec: {connectionRef: name: "c", scale: max: 9, template: spec: containers: [{name: "runner", image: "i"}]}
}
`

// treeOf writes files to a new folder, together with a module and a pool.
func treeOf(t *testing.T, files map[string]string) string {
	t.Helper()
	all := map[string]string{"cue.mod/module.cue": module, "pools.cue": onePool}
	maps.Copy(all, files)
	return folderWith(t, all)
}

const cap3 = "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"three\"}\n"

// Invalid input is reported with its file and line, and with a fix.
func TestComplaints(t *testing.T) {
	one := func(text string) map[string]string { return map[string]string{"a.scenario.yaml": text} }
	manifest := func(text string) map[string]string { return map[string]string{"guard.yaml": text} }
	for name, tc := range map[string]struct {
		files map[string]string
		args  string
		want  string
		code  int
	}{
		"a field that scenarios don't have": {one("pool: a\nat: 2026-07-07T12:00:00Z\ncases:\n- name: x\n  expect:\n    scaling: {maxx: 3}\n"), "test",
			"a.scenario.yaml:6:15: cases[0].expect.scaling.maxx: unknown field \"cases[0].expect.scaling.maxx\"\n", 1},
		"a number that is none": {one("pool: a\nat: 2026-07-07T12:00:00Z\nexpect: {scaling: {max: many}}\n"), "test",
			"a.scenario.yaml:3:20: expect.scaling.max: must be a whole number, found a JSON string\n", 1},
		"a scenario without time": {one("pool: a\nexpect: {scaling: {max: 3}}\n"), "test", "a.scenario.yaml:1:1: at: at is required", 1},
		"a time without zone":     {one("pool: a\nat: 2026-07-07T12:00:00\nexpect: {scaling: {max: 3}}\n"), "test", "a.scenario.yaml:2:1: at: must be a time such as", 1},
		"an unknown zone":         {one("pool: a\nzone: Mars/Base\nat: 2026-07-07T12:00:00Z\nexpect: {scaling: {max: 3}}\n"), "test", "a.scenario.yaml:2:1: zone: must be a time zone such as Europe/Berlin", 1},
		"a pool that is not there": {one("cases:\n- name: x\n  pool: b\n  expect: {template: {allowed: true}}\n"), "test",
			"a.scenario.yaml:3:3: cases[0].pool: there is no pool \"b\"; existing: a\n", 1},
		"a pool with a typo":       {one("pool: {metadata: {name: p}, spec: {scael: {}}}\nexpect: {template: {allowed: true}}\n"), "test", "pool: unknown field \"spec.scael\"", 1},
		"no pool":                  {one("expect: {template: {allowed: true}}\n"), "test", "pool is required", 1},
		"nothing expected":         {one("pool: a\n"), "test", "expect is required: scaling, template or update", 1},
		"expect beside cases":      {one("pool: a\nexpect: {template: {}}\ncases: [{name: x, expect: {template: {}}}]\n"), "test", "a.scenario.yaml:2:1: expect: each case has an expect of its own", 1},
		"a case without name":      {one("pool: a\ncases:\n- expect: {template: {}}\n"), "test", "a.scenario.yaml:3:3: cases[0]: name is required", 1},
		"no YAML":                  {one("pool: a\n  at: [\n"), "test", "a.scenario.yaml:2:1: ", 1},
		"an empty file":            {one("# nothing\n"), "test", "a.scenario.yaml:1:1: the file is empty", 1},
		"a path that is not there": {one("pool: a\npolicies: [nowhere]\nexpect: {template: {}}\n"), "test", "a.scenario.yaml:2:12: policies[0]: finding policies: stat", 1},
		"a path of this machine":   {one("pool: a\npolicies: [/etc]\nexpect: {template: {}}\n"), "test", "must be a path relative to this file", 1},
		"members that come to another number": {one("pool: a\nat: 2026-07-07T12:00:00Z\nstate: {usage: {all: {granted: 5, members: [{name: b, granted: 3}]}}}\nexpect: {scaling: {max: 3}}\n"), "test",
			"state.usage.all: granted is 5 and pools is 0, but the members have 3 and 1: leave both out, because Corral counts the members\n", 1},
		"usage by a label that the pool lacks": {one("pool: a\nat: 2026-07-07T12:00:00Z\nstate: {usage: {labels: {team: {pools: 1}}}}\nexpect: {scaling: {max: 3}}\n"), "test",
			"state.usage.labels.team: the pool has no label team\n", 1},
		"a scenario that can't be read": {map[string]string{"x.rego": cap3, "b.scenario.yaml": "pool: [a\n", "a.scenario.yaml": "pool: a\nname: y\nexpect: {template: {allowed: true}}\n"}, "test -v",
			"--- PASS: y (~)\nok    a.scenario.yaml  1 test  ~\nb.scenario.yaml:1:1: did not find", 1},
		"a test that can't be read": {map[string]string{"x.rego": cap3, "x_test.rego": "package x_test\n\ntest_x if {\n"}, "test", "x_test.rego:3:", 1},
		"a test of what is never asked": {map[string]string{"x.rego": cap3, "x_test.rego": "package x_test\n\ntest_x if count(data.corral.scaling.limit) == 1 with input as {\"jbos\": 1}\n"}, "test",
			"    x_test.rego:3\n    rules never get what the test gives them: input has no jbos; did you mean jobs?\n", 1},
		"a pattern of no test":     {nil, "test --run nothing", "Error: no test matches --run nothing\n", 1},
		"a pattern that is none":   {nil, "test --run (", "--run must be a regular expression", 1},
		"a threshold beyond all":   {nil, "test --threshold 101", "--threshold must be from 0 to 100, found 101", 1},
		"no tests":                 {nil, "test", "no tests found: name Rego tests", 0},
		"no tests for a threshold": {map[string]string{"a.rego": cap3}, "test --threshold 1", "coverage is 0.0 %, below the threshold of 1 %", 1},
		"policies that are none":   {map[string]string{"guard/README.md": ""}, "vet --policy guard", "guard: found no policy: neither *.rego files nor manifests", 1},
		"a path without anything":  {nil, "vet --policy nowhere", "finding policies: stat ", 1},
		"a time-out of nothing":    {nil, "vet --timeout 0s", "--timeout must be more than 0", 1},
		"a time that is none":      {nil, "vet --at noon", "must be a time such as 2026-07-05T18:00:00Z", 1},
		"Rego that doesn't parse":  {map[string]string{"policies/x.rego": "package corral.scaling\n\nlimit contains {"}, "vet", "policies/x.rego:3:", 1},
		"Rego of others that doesn't parse": {map[string]string{".guard/x.rego": "package corral.scaling\n\nlimit contains {"}, "vet --policy .guard",
			".guard/x.rego:3:", 1},
		"the same policy twice": {map[string]string{"guard.rego": cap3}, "vet --policy guard.rego --policy ./guard.rego",
			"guard.rego:1:1: ClusterRunnerPolicy/guard is declared twice, here and in guard.rego:1\n", 1},
		"a manifest with a typo": {manifest("---\napiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\nspec:\n  modes: Audit\n"), "vet --policy guard.yaml",
			"guard.yaml:6:3: spec.modes: the field is not known; did you mean mode?\n", 1},
		"a mode that is none": {manifest("apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\nspec: {mode: audit}\n"), "vet --policy guard.yaml",
			"guard.yaml:4:8: spec.mode: invalid value \"audit\": supported values: \"Enforce\", \"Audit\"\n", 1},
		"a kind that is none": {manifest("apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolcy\nmetadata: {name: x}\n"), "vet --policy guard.yaml",
			"guard.yaml:2:1: kind: there is no kind ClusterRunnerPolcy in corral.dev; did you mean ClusterRunnerPolicy?", 1},
		"a version that is none": {manifest("apiVersion: corral.dev/v1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\n"), "vet --policy guard.yaml",
			"guard.yaml:1:1: apiVersion: invalid value \"corral.dev/v1\": supported values: \"corral.dev/v1alpha1\"", 1},
		"something that is no object": {manifest("hello: world\n"), "vet --policy guard.yaml", "guard.yaml:1:1: must be an object with apiVersion and kind", 1},
		"rules of the library that can't be": {
			manifest("apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\nspec:\n  library:\n    images: {allowed: []}\n    resources: {}\n    ceilings: [{name: a, by: All, max: -1}]\n"),
			"vet --policy guard.yaml", "guard.yaml:8:35: spec.library.ceilings[0].max: invalid value -1: should be greater than or equal to 0\nguard.yaml:6:14: spec.library.images.allowed: should have at least 1 items\nguard.yaml:7:5: spec.library.resources: should have at least 1 properties\n", 1},
		"rules of the library that exclude each other": {
			manifest("apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\nspec:\n  library:\n    hours:\n      freezes: [{name: x, from: \"2026-12-24T00:00:00Z\", to: \"2026-12-20T00:00:00Z\"}]\n    ceilings: [{name: a, by: Label, max: 1}]\n"),
			"vet --policy guard.yaml", "guard.yaml:8:16: spec.library.ceilings[0]: labelKey must be set when by is Label, and only then\nguard.yaml:7:17: spec.library.hours.freezes[0]: from must be before to\n", 1},
		"rules in a manifest that are none": {
			manifest("apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\nspec:\n  modules:\n    a.rego: |\n      package corral.scaling\n\n      limit contains input.pool.xname\n"),
			"vet --policy guard.yaml", "guard.yaml:9:", 1},
		"a ConfigMap that is not there": {
			manifest("apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\nspec:\n  modulesFrom:\n  - configMapRef: {name: r, namespace: ns}\n"),
			"vet --policy guard.yaml", "guard.yaml:6:5: spec.modulesFrom[0]: ConfigMap ns/r is not among the files given\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, treeOf(t, tc.files), strings.Fields(tc.args)...)
			if text := durations.ReplaceAllString(got.stdout+got.stderr, "~"); got.code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("got %+v\nwant %q and code %d", got, tc.want, tc.code)
			}
		})
	}
}

// Policies bind the pools that they are meant for, wherever they are declared.
func TestWhichPoolsPoliciesBind(t *testing.T) {
	rego := map[string]string{"guard/x.rego": cap3, "guard/x_test.rego": "package x\n"}
	manifest := func(kind, meta, spec string) map[string]string {
		return map[string]string{"guard.json": fmt.Sprintf(
			`{"apiVersion": "corral.dev/v1alpha1", "kind": %q, "metadata": {"name": "x"%s}, "spec": {"modules": {"a.rego": %q}%s}}`, kind, meta, cap3, spec)}
	}
	const bound = "max 9 → 3"
	for name, tc := range map[string]struct {
		files map[string]string
		args  string
		binds bool
		want  string
	}{
		"Rego beside the pools":              {map[string]string{"p/x.rego": cap3}, "vet", true, "p/x.rego:3: three)"},
		"a folder of Rego":                   {rego, "vet --policy guard", true, "guard/x.rego:3"},
		"a file of Rego":                     {rego, "vet --policy guard/x.rego", true, "guard/x.rego:3"},
		"a cluster policy":                   {manifest("ClusterRunnerPolicy", "", ""), "vet --policy guard.json", true, "guard.json:1 (a.rego:3)"},
		"a policy without namespace":         {manifest("RunnerPolicy", "", ""), "vet --policy guard.json", true, ""},
		"a policy in the pools' namespace":   {manifest("RunnerPolicy", `, "namespace": "ci"`, ""), "vet --policy guard.json -n ci", true, "pool ci/a: max"},
		"a policy in another namespace":      {manifest("RunnerPolicy", `, "namespace": "ci"`, ""), "vet --policy guard.json", false, "it is in namespace ci"},
		"a cluster policy for a namespace":   {manifest("ClusterRunnerPolicy", "", `, "namespaces": ["c*"]`), "vet --policy guard.json -n ci", true, ""},
		"a cluster policy for another":       {manifest("ClusterRunnerPolicy", "", `, "namespaces": ["c*"]`), "vet --policy guard.json -n other", false, "ok: "},
		"a cluster policy, no namespace":     {manifest("ClusterRunnerPolicy", "", `, "namespaces": ["c*"]`), "vet --policy guard.json", false, "it is for the namespaces c*, and the pools have none"},
		"a policy for pools of another team": {manifest("ClusterRunnerPolicy", "", `, "selector": {"matchLabels": {"team": "x"}}`), "vet --policy guard.json", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(tc.files)
			if _, isSeparate := files["guard/x.rego"]; isSeparate {
				// The policies' folder is next to the definitions, not inside them.
				files["here/cue.mod/module.cue"], files["here/pools.cue"] = module, onePool
				tc.args += " here"
			}
			got := corral(t, treeOf(t, files), strings.Fields(tc.args)...)
			if got.code != exitOK || strings.Contains(got.stdout, bound) != tc.binds || !strings.Contains(got.stdout+got.stderr, tc.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestOneDenialOfManyPoolsIsOneRow(t *testing.T) {
	pools := strings.Replace(onePool, "\ta:", "\t[=~\"^p\"]:", 1) + "pools: {\n\tp1: _\n\tp2: _\n\tp3: _\n\tp4: _\n\tp5: _\n}\n"
	folder := treeOf(t, map[string]string{"pools.cue": pools, "x.rego": "package corral.template\n\ndeny contains \"no\" if input.pod\n\nwarn contains \"hm\" if input.pod\n"})
	for format, rows := range map[string][]string{
		"text":   {"denied: no (5 pools: p1, p2, p3, and 2 more)\n", "warning: hm (5 pools: p1, "},
		"json":   {`"message": "denied: no (5 pools: `, `"message": "warning: hm (5 pools: `},
		"github": {"::error ", "::warning "},
		"sarif":  {`"level": "error"`, `"level": "warning"`},
		"junit":  {"<failure ", `failures="1" skipped="0"`},
	} {
		got := corral(t, folder, "vet", "-o", format)
		for _, row := range rows {
			if n := strings.Count(got.stdout+got.stderr, row); got.code != exitDenied || n != 1 {
				t.Errorf("%s: %d rows %q in %+v", format, n, row, got)
			}
		}
	}
}

// Policies judge the pod that the cluster would create, including the settings that it inherits from a connection
// in the same folder.
func TestPodsAreJudgedOverTheirConnection(t *testing.T) {
	const rule = "package corral.template\n\ndeny contains \"a proxy\" if input.pod.spec.containers[_].env[_].name == \"HTTPS_PROXY\"\n"
	scenario := "cases:\n- {name: a, pool: a, expect: {template: {allowed: %t}}}\n"
	for scope, code := range map[string]int{"Controller": exitOK, "ControllerAndRunners": exitDenied} {
		folder := treeOf(t, map[string]string{
			"pools.cue": onePool + fmt.Sprintf("connections: schema.#Connections & {c: spec: {url: \"https://github.com/acme\", secretRef: name: \"s\", proxy: {https: url: \"http://proxy\", scope: %q}}}\n", scope),
			"x.rego":    rule, "x.scenario.yaml": fmt.Sprintf(scenario, code == exitOK),
		})
		for _, command := range []string{"vet", "test"} {
			want := code
			if command == "test" {
				want = exitOK
			}
			if got := corral(t, folder, command); got.code != want {
				t.Errorf("scope %s: %s: %+v", scope, command, got)
			}
		}
	}
}

func TestContainersWithoutTheCertificatesOfTheirConnectionAreTold(t *testing.T) {
	connection := `connections: schema.#Connections & {c: spec: {url: "https://ghes.example.com/acme", secretRef: name: "s"%s}}` + "\n"
	mounting := strings.Replace(onePool, `containers: [{name: "runner", image: "i"}]`,
		`{containers: [{name: "runner", image: "i", volumeMounts: [{name: "certs", mountPath: "/usr/local/share"}]}], volumes: [{name: "certs", emptyDir: {}}]}`, 1)
	for _, tc := range []struct {
		pools, ca string
		warned    bool
	}{
		{mounting, `, ca: configMapRef: name: "ca"`, true},
		{mounting, "", false},
		{onePool, `, ca: configMapRef: name: "ca"`, false},
	} {
		folder := treeOf(t, map[string]string{"pools.cue": tc.pools + fmt.Sprintf(connection, tc.ca)})
		got := corral(t, folder, "vet")
		if warned := strings.Contains(got.stdout+got.stderr, "runner: not given the connection's certificates"); got.code != exitOK || warned != tc.warned {
			t.Errorf("with the CA %q: reported: %t, got %+v", tc.ca, warned, got)
		}
	}
}

func TestLinksToFoldersOfPoliciesAreTold(t *testing.T) {
	folder := treeOf(t, map[string]string{"guard/x.rego": cap3, "here/cue.mod/module.cue": module, "here/pools.cue": onePool})
	if err := os.Symlink(filepath.Join(folder, "here"), filepath.Join(folder, "guard", "more")); err != nil {
		t.Fatal(err)
	}
	if got := corral(t, folder, "vet", "--policy", "guard", "here"); got.code != exitError || !strings.Contains(got.stderr, "more is a link to a folder, or a broken link") {
		t.Errorf("got %+v", got)
	}
}

func TestAPolicyThatFailsIsNoYes(t *testing.T) {
	for name, tc := range map[string]struct{ rego, want string }{
		"an error": {"package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": to_number(input.pool.name)}\n", "RunnerPolicy/repository (EvaluationError): "},
		"a loop": {"package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": n} if {\n\tn := count([1 | some i in numbers.range(1, 10000); some j in numbers.range(1, 10000)])\n}\n",
			"RunnerPolicy/repository (TimedOut): "},
		"no answer": {"package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": count(input.pool.name) - 2}\n", "RunnerPolicy/repository (InvalidAnswer): "},
	} {
		t.Run(name, func(t *testing.T) {
			folder := treeOf(t, map[string]string{"x.rego": tc.rego, "a.scenario.yaml": "pool: a\nat: 2026-07-07T12:00:00Z\ncases:\n" +
				"- {name: not expected, expect: {scaling: {max: 9}}}\n- {name: expected, expect: {scaling: {failures: [RunnerPolicy/repository]}}}\n"})
			got := withChildren(t, folder, "vet", "--timeout", "50ms")
			if got.code != exitDenied || !strings.Contains(got.stderr, tc.want) {
				t.Errorf("got %+v", got)
			}
			got = withChildren(t, folder, "test", "--timeout", "50ms", "-v")
			if got.code != exitError || !strings.Contains(got.stdout, "FAIL: not expected") || !strings.Contains(got.stdout, "PASS: expected") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestVetTriesRulesOfUpdates(t *testing.T) {
	folder := treeOf(t, map[string]string{"x.rego": "package corral.update\n\nrollout contains {\"hold\": true, \"reason\": \"not yet\"} if input.change.maxSurge > 0\n"})
	got := corral(t, folder, "vet")
	if got.code != exitOK || !strings.Contains(got.stdout, "pool a: update: not yet (rule corral.update.rollout") {
		t.Errorf("got %+v", got)
	}
	folder = treeOf(t, map[string]string{"x.rego": "package corral.update\n\nrollout contains {\"hold\": to_number(input.pool.name) > 1}\n"})
	if got = corral(t, folder, "vet"); got.code != exitDenied || !strings.Contains(got.stderr, "a policy failed, so nothing is decided: RunnerPolicy/repository (EvaluationError)") {
		t.Errorf("got %+v", got)
	}
}

// In the cluster, rules get the usage of other pools from the ledger. The commands compute it with the same
// function.
func TestFairCeilingsAreDecidedAsInTheCluster(t *testing.T) {
	const pool = "pool: {metadata: {name: p}, spec: {connectionRef: {name: acme}, scale: {max: 200}, template: {spec: {containers: [{name: runner, image: r}]}}}}\nat: 2026-07-07T12:00:00Z\n"
	const guard = "apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: guard}\nspec: {library: {ceilings: [{name: all, by: All, max: 60}]}}\n"
	folder := treeOf(t, map[string]string{
		"guard.yaml": guard,
		"pools.cue":  strings.Replace(onePool, "\ta:", "\t[\"a\" | \"b\"]:", 1) + "pools: {a: _, b: _}\n",
		"a.scenario.yaml": pool + `cases:
- name: members
  state: {usage: {all: {members: [` + strings.Repeat("{name: o, granted: 10, wanted: 50}, ", 5) + `]}}}
  expect: {scaling: {max: 10}}
- name: no members
  state: {usage: {all: {granted: 50, pools: 5}}}
  expect: {scaling: {failures: ["all pools of the group: a fair ceiling takes what each was granted and wants"]}}
`,
	})
	if got := corral(t, folder, "test", "--policy", "guard.yaml"); got.code != exitOK {
		t.Errorf("got %+v", got)
	}
	if got := corral(t, folder, "eval", "scaling", "-f", "a.scenario.yaml", "--case", "members", "--policy", "guard.yaml"); !strings.Contains(got.stdout, "max 200 → 10 ") && !strings.Contains(got.stdout, "max 10,") {
		t.Errorf("eval: %+v", got)
	}
	writeFile(t, filepath.Join(folder, "guard.yaml"), strings.Replace(guard, "60", "6", 1))
	for _, args := range []string{"vet --policy guard.yaml", "calendar --policy guard.yaml"} { // the ceiling leaves one runner to the other pool
		if got := corral(t, folder, strings.Fields(args)...); got.code != exitOK || !strings.Contains(got.stdout, "max 9 → 5 ") {
			t.Errorf("%s: %+v", args, got)
		}
	}
	pools := map[string]string{"pools.cue": readFile(t, filepath.Join(folder, "pools.cue"))}
	base := treeOf(t, pools)
	pools["policy.cue"] = "package pools\n\npolicies: all: {apiVersion: \"corral.dev/v1alpha1\", kind: \"RunnerPolicy\", metadata: name: \"all\", spec: library: ceilings: [{name: \"all\", by: \"All\", max: 6}]}\n"
	if got := corral(t, folder, "review", base, treeOf(t, pools)); got.code != exitOK || !strings.Contains(got.stdout, "in force 9 → 5; ceiling all") {
		t.Errorf("review: %+v", got)
	}
}

func TestAnInputIsAskedAsItIs(t *testing.T) {
	folder := treeOf(t, map[string]string{
		"x.rego":        cap3 + "\nlimit contains {\"field\": \"idle\", \"atMost\": input.usage.all.granted, \"reason\": \"used\"}\n",
		"input.json":    `{"pool": {"name": "p", "scale": {"min": 0, "max": 7, "idle": 5}}, "usage": {"all": {"granted": 2}}, "now": 1783425600000000000, "zone": "UTC"}`,
		"template.yaml": "pool: {name: p}\npod: {spec: {containers: [{name: runner}]}}\n",
		"typo.yaml":     "pool: {xname: p}\npod: {}\n",
	})
	for args, want := range map[string]outcome{
		"eval scaling -f input.json":     {stdout: "pool p, scaling, at 2026-07-07T12:00:00Z (UTC)\npolicies: RunnerPolicy/repository\nmax 3, min 0, idle 2\n"},
		"eval template -f template.yaml": {stdout: "pool p, template\npolicies: RunnerPolicy/repository\nallowed\n"},
		"eval template -f typo.yaml":     {stderr: "typo.yaml:1:8: pool.xname: unknown field \"pool.xname\"\nError: 1 problem\n", code: exitError},
	} {
		t.Run(args, func(t *testing.T) {
			got := corral(t, folder, strings.Fields(args)...)
			if got.code != want.code || !strings.HasPrefix(got.stdout, want.stdout) || got.stderr != want.stderr {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Annotations refer to files by their path from the root of the repository, even if the command runs in a
// subfolder.
func TestAnnotationsAreSeenFromTheTopOfTheRepository(t *testing.T) {
	workspace := t.TempDir()
	runners := filepath.Join(workspace, "pools", "runners")
	if err := os.CopyFS(runners, os.DirFS(judgedFolder)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ folder, workspace, repository, argument, want string }{
		"in no repository":             {runners, "", "", ".", "pools.cue"},
		"what GitHub checked out":      {runners, workspace, "", ".", "pools/runners/pools.cue"},
		"a repository":                 {runners, "", "pools", ".", "runners/pools.cue"},
		"by the name of the folder":    {workspace, "", "pools", "pools/runners", "runners/pools.cue"},
		"in a folder of the workspace": {runners, workspace, "pools", ".", "runners/pools.cue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GITHUB_WORKSPACE", tc.workspace)
			if tc.repository != "" {
				git := filepath.Join(workspace, tc.repository, ".git")
				if err := os.Mkdir(git, 0o700); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(git)
			}
			got := corral(t, tc.folder, "vet", "--at", "2026-07-07T12:00:00Z", "-o", "github", tc.argument)
			if !strings.Contains(got.stdout, "::error file="+tc.want+",line=") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Any file is either accepted or rejected with a message.
func FuzzScenarios(f *testing.F) {
	for _, seed := range []string{
		"", "a", "- a", "{", "a: &a [*a]", "cases: [{name: x}]", "---\n--- \nb: 1\n---", "cases: {}", "pool: {metadata: {name: 1}}",
		"<<: &x {pool: a}\ncases: [*x]", "state: {jobs: 1e99}", "at: 2026-07-07", "\x00", "? [a]\n: b", "cases: [[[[]]]]", "expect: {scaling: {bounds: [1]}}",
	} {
		f.Add([]byte(seed))
	}
	web, err := os.ReadFile("testdata/judged/web.scenario.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(web)
	w := &workspace{}
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, diagnostics := parseScenarios("a.scenario.yaml", data)
		if len(cases) == 0 && len(diagnostics) == 0 && len(data) == 0 {
			t.Error("an empty file was not reported")
		}
		for _, c := range cases {
			_, _ = c.questions(w, time.Time{}, "UTC")
		}
	})
}

// If a folder given by --policy has too many files, the error says how to fix it.
func TestTooManyFilesOfPoliciesAreToldWhatHelps(t *testing.T) {
	for want, files := range map[string]int{
		"more than 500 files, the limit: name a smaller folder":               501,
		"more than 10000 files and folders, the limit: name a smaller folder": 10_000,
	} {
		all := fstest.MapFS{}
		for i := range files {
			all[fmt.Sprintf("f%05d.rego", i)] = &fstest.MapFile{}
		}
		r := &policyFiles{fsys: all, files: compile.Files{}, wanted: func(string) bool { return files <= 501 }}
		if err := fs.WalkDir(all, ".", r.visit); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Each line expands to nine copies of the previous one. Decoded, the file would take gigabytes.
func TestAnAliasBombIsRefusedAtEachDoor(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("l0: &l0 [" + strings.Repeat("x, ", 15000) + "x]\n")
	for i := 1; i <= 200; i++ {
		fmt.Fprintf(&bomb, "l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d, ", i-1), 9), ", "))
	}
	files := poolsWith(`{name: "x", weekly: {from: "08:00", to: "18:00"}, scale: min: 1}`)
	files["a.scenario.yaml"] = bomb.String()
	files["guard.yaml"] = "apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: x}\n" + bomb.String()
	files["prices.yaml"] = bomb.String()
	folder := treeOf(t, files)
	for command, place := range map[string]string{
		"test": "a.scenario.yaml:2:1: ", "eval scaling -f a.scenario.yaml": "a.scenario.yaml:2:1: ", "vet --policy guard.yaml": "guard.yaml:5:1: ",
		"review . . --prices prices.yaml": "prices.yaml:2:1: ",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := corral(t, folder, strings.Fields(command)...)
		runtime.ReadMemStats(&after)
		if got.code != exitError || !strings.Contains(got.stdout+got.stderr, place+"it has an alias (*NAME)") {
			t.Errorf("%s: %+v", command, got)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 500 {
			t.Errorf("%s took %d MiB", command, took)
		}
	}
}
