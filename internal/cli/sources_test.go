// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/review"
)

// sharedTree returns a folder with the given files in a CUE module.
func sharedTree(t *testing.T, files map[string]string) string {
	t.Helper()
	files["cue.mod/module.cue"] = "module: \"acme.example/runners@v0\"\nlanguage: version: \"v0.16.0\"\n"
	return folderWith(t, files)
}

// teamPool returns a CUE file with a pool of a team.
func teamPool(team, more string) string {
	return "package " + team + "\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\npools: \"" + team +
		"-build\": {\n\t" + more + "\n\tspec: {\n\t\tconnectionRef: {name: \"acme\", namespace: \"runners\"}\n\t\ttemplate: spec: containers: [{name: \"runner\", image: \"a:1\"}]\n\t}\n}\n"
}

func poolSource(namespace, path, more string) string {
	return "apiVersion: corral.dev/v1alpha1\nkind: PoolSource\nmetadata: {name: pools, namespace: " + namespace + "}\nspec: {interval: 1m, path: " + path + ", git: {url: https://github.com/acme/runners}" + more + "}\n"
}

// accountIn returns a manifest of the ServiceAccount corral.
func accountIn(namespace string) string {
	return "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: corral, namespace: " + namespace + "}\n---\n"
}

const (
	sharedConnection = "package connections\n\nimport \"corral.dev/schema@v0\"\n\nconnections: schema.#Connections\nconnections: acme: spec: {url: \"https://github.com/acme\", secretRef: name: \"github\", allowedNamespaces: [\"ci-web\"]}\n"
	denyAll          = "package corral.template\n\ndeny contains \"nothing may run\" if true\n"
)

// teamDefinition is a package with the pool of a team.
var teamDefinition = "package lib\n\nimport \"corral.dev/schema@v0\"\n\n#Team: {\n\t#name: string\n\tpools: schema.#Pools & {\"\\(#name)-build\": spec: {connectionRef: {name: \"acme\", namespace: \"runners\"}, " +
	"template: spec: containers: [{name: \"runner\", image: \"a:1\"}]}}\n}\n"

// vet checks a folder in the same way as the PoolSource that applies it.
func TestVetChecksWhatPoolSourcesApply(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		args  string
		want  []string
		code  int
	}{
		"each folder is in its namespace": {args: "vet -v", want: []string{"pool ci-web/web-build: asked no policy\n", "ok: 1 pool, 1 connection\n"}},
		"a folder alone":                  {args: "vet -v teams/web", want: []string{"pool ci-web/web-build: asked no policy\n", "ok: 1 pool, 0 connections\n"}},
		"the rules of one team": {args: "vet -v", code: exitDenied, files: map[string]string{
			"teams/data/pools.cue": teamPool("data", ""), "cluster/data.yaml": poolSource("ci-data", "teams/data", ""), "teams/data/policies/deny.rego": denyAll,
			"connections/acme.cue": strings.Replace(sharedConnection, `"ci-web"`, `"ci-*"`, 1),
		}, want: []string{"pool ci-data/data-build: asked RunnerPolicy/ci-data/repository\n", "pool ci-web/web-build: asked no policy\n", "1 of 2 pools denied"}},
		"rules that no source applies": {args: "vet", files: map[string]string{"policies/deny.rego": denyAll}, want: []string{
			"policies/deny.rego:1: RunnerPolicy/repository: binds no pool: no pool is in its namespace", "ok: 1 pool, 1 connection, 1 policy\n"}},
		"another namespace": {args: "vet", code: exitError, files: map[string]string{"teams/web/pools.cue": teamPool("web", `metadata: namespace: "other"`)}, want: []string{
			"teams/web/pools.cue:6:8: pools.\"web-build\": PoolSource ci-web/pools refuses it: it names namespace other, and a PoolSource applies only into its own, ci-web; leave metadata.namespace out"}},
		"another namespace in a folder alone": {args: "vet teams/web", code: exitError, files: map[string]string{"teams/web/pools.cue": teamPool("web", `metadata: namespace: "other"`)}, want: []string{
			"PoolSource ci-web/pools refuses it: it names namespace other"}},
		"no consent of the connection": {args: "vet", code: exitError, files: map[string]string{"cluster/web.yaml": poolSource("ci-infra", "teams/web", "")}, want: []string{
			"connections.acme.spec.allowedNamespaces: does not allow ci-infra, so 1 pool there cannot use the connection"}},
		"tags": {args: "vet", code: exitError, files: map[string]string{
			"teams/web/pools.cue": teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\nif env == \"prod\" {pools: \"web-build\": spec: scale: max: \"many\"}\n",
			"cluster/web.yaml":    poolSource("ci-web", "teams/web", ", tags: {env: prod}"),
		}, want: []string{"spec.scale.max: ", "with the tags of PoolSource ci-web/pools"}},
		"pools that only the tags declare": {args: "vet -v", files: map[string]string{
			"teams/web/pools.cue": teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\nif env == \"prod\" {pools: \"web-build\": spec: scale: max: 50}\n",
			"cluster/web.yaml":    poolSource("ci-web", "teams/web", ", tags: {env: prod}"),
		}, want: []string{"pool ci-web/web-build: asked no policy\n", "ok: 1 pool, 1 connection\n"}},
		"a tagged folder before the folder above": {args: "vet -v", files: map[string]string{
			"teams/web/pools.cue": teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\nif env == \"prod\" {pools: \"web-build\": spec: scale: max: 50}\n",
			"cluster/a.yaml":      poolSource("ci-web-prod", "teams/web", ", tags: {env: prod}"), "cluster/web.yaml": poolSource("ci-web", "teams", ""),
			"connections/acme.cue": strings.Replace(sharedConnection, `"ci-web"`, `"ci-*"`, 1),
		}, want: []string{"pool ci-web-prod/web-build: asked no policy\n", "pool ci-web/web-build: asked no policy\n", "ok: 2 pools, 1 connection\n"}},
		"a tagged folder after the folder above": {args: "vet -v", files: map[string]string{
			"teams/web/pools.cue": teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\nif env == \"prod\" {pools: \"web-build\": spec: scale: max: 50}\n",
			"cluster/z.yaml":      poolSource("ci-web-prod", "teams/web", ", tags: {env: prod}"), "cluster/web.yaml": poolSource("ci-web", "teams", ""),
			"connections/acme.cue": strings.Replace(sharedConnection, `"ci-web"`, `"ci-*"`, 1),
		}, want: []string{"pool ci-web-prod/web-build: asked no policy\n", "pool ci-web/web-build: asked no policy\n", "ok: 2 pools, 1 connection\n"}},
		"two environments in one namespace": {args: "vet -v", files: map[string]string{
			"teams/web/pools.cue": teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\nif env != \"dev\" {pools: \"web-\\(env)\": spec: pools[\"web-build\"].spec}\n",
			"cluster/a.yaml":      poolSource("ci-web", "teams/web", ", tags: {env: prod}"), "cluster/web.yaml": poolSource("ci-web", "teams/web", ", tags: {env: test}"),
		}, want: []string{"pool ci-web/web-build: ", "pool ci-web/web-prod: ", "pool ci-web/web-test: ", "ok: 3 pools, 1 connection\n"}},
		"a source with tags and one without in one namespace": {args: "vet -v", files: map[string]string{
			"teams/web/pools.cue": teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\npools: \"web-\\(env)\": spec: pools[\"web-build\"].spec\n",
			"cluster/a.yaml":      poolSource("ci-web", "teams/web", ", tags: {env: prod}"),
		}, want: []string{"pool ci-web/web-build: ", "pool ci-web/web-dev: ", "pool ci-web/web-prod: ", "ok: 3 pools, 1 connection\n"}},
		"a folder that does not exist": {args: "vet", code: exitError, files: map[string]string{"cluster/data.yaml": poolSource("ci-data", "teams/dta", "")}, want: []string{
			"cluster/data.yaml:4:", ": spec.path: PoolSource ci-data/pools applies the folder teams/dta, which does not exist"}},
		"a ServiceAccount in another namespace": {args: "vet", code: exitError, files: map[string]string{"cluster/web.yaml": accountIn("ci-web") + poolSource("web", "teams/web", ", serviceAccountName: corral")}, want: []string{
			"cluster/web.yaml:7:25: metadata.namespace: there is no ServiceAccount corral in web; this file has it in ci-web\n"}},
		"ServiceAccounts of several namespaces": {args: "vet", files: map[string]string{"cluster/web.yaml": accountIn("other") + accountIn("ci-web") + poolSource("ci-web", "teams/web", ", serviceAccountName: corral")},
			want: []string{"ok: 1 pool, 1 connection\n"}},
		"a ServiceAccount of another tool": {args: "vet", files: map[string]string{"cluster/web.yaml": poolSource("ci-web", "teams/web", ", serviceAccountName: corral")},
			want: []string{"ok: 1 pool, 1 connection\n"}},
		"a source without a path": {args: "vet", code: exitError, files: map[string]string{"cluster/web.yaml": strings.Replace(poolSource("ci-web", "", ""), "path: ,", "", 1)},
			want: []string{"cluster/web.yaml:4:1: spec.path: must be set: without it the source applies the whole repository"}},
		"pools of a definition that a folder embeds": {args: "vet -v", files: map[string]string{
			"teams/web/pools.cue": "package web\n\nimport \"acme.example/runners/lib\"\n\nlib.#Team\n#name: \"web\"\n", "lib/lib.cue": teamDefinition,
		}, want: []string{"pool ci-web/web-build: asked no policy\n", "ok: 1 pool, 1 connection\n"}},
		"pools of a definition that a folder alone embeds": {args: "vet -v teams/web", files: map[string]string{
			"teams/web/pools.cue": "package web\n\nimport \"acme.example/runners/lib\"\n\nlib.#Team\n#name: \"web\"\n", "lib/lib.cue": teamDefinition,
		}, want: []string{"pool ci-web/web-build: asked no policy\n", "ok: 1 pool, 0 connections\n"}},
		"data for the package in a folder above": {args: "vet -v", files: map[string]string{
			"teams/all.cue":       strings.NewReplacer("package lib", "package teams", "#Team: {", "_names: {}\nfor name, _ in _names {", "\t#name: string\n", "", "#name", "name").Replace(teamDefinition),
			"teams/web/pools.cue": "package teams\n\n_names: web: {}\n", "teams/data/pools.cue": "package teams\n\n_names: data: {}\n",
			"cluster/data.yaml": poolSource("ci-data", "teams/data", ""), "connections/acme.cue": strings.Replace(sharedConnection, `"ci-web"`, `"ci-*"`, 1),
		}, want: []string{"pool ci-data/data-build: asked no policy\n", "pool ci-web/web-build: asked no policy\n", "ok: 2 pools, 1 connection\n"}},
		"a folder of another branch": {args: "vet", files: map[string]string{"cluster/data.yaml": strings.Replace(poolSource("ci-data", "teams/dta", ""), "git: {", "git: {ref: {branch: next}, ", 1)},
			want: []string{"ok: 1 pool, 1 connection\n"}},
		"rights of jobs": {args: "vet", code: exitError, files: map[string]string{
			"teams/web/pools.cue": strings.Replace(teamPool("web", ""), "template:", "containerMode: type: \"KubernetesNoVolume\"\n\t\ttemplate:", 1),
		}, want: []string{"PoolSource ci-web/pools refuses it: it gives permissions, so spec.serviceAccountName of the source must be set"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{
				"connections/acme.cue": sharedConnection, "cluster/connections.yaml": poolSource("runners", "connections", ""),
				"teams/web/pools.cue": teamPool("web", ""), "cluster/web.yaml": poolSource("ci-web", "teams/web", ""),
			}
			maps.Copy(files, tc.files)
			got := corral(t, sharedTree(t, files), strings.Fields(tc.args)...)
			for _, want := range tc.want {
				if got.code != tc.code || !strings.Contains(got.stdout+got.stderr, want) {
					t.Errorf("got code %d, want %d and %q\n%s%s", got.code, tc.code, want, got.stdout, got.stderr)
				}
			}
		})
	}
}

// The PoolSource that init writes puts the pools of the whole repository into its namespace.
func TestVetOfANewRepositoryKnowsItsNamespace(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", "--url", "https://github.com/acme")
	for _, args := range [][]string{{"vet", "-v"}, {"vet", "-v", "pools"}} {
		got := corral(t, folder, args...)
		if want := "pool runners/linux-small: asked RunnerPolicy/runners/repository\nok: 1 pool, 1 connection, 1 policy\n"; got.stdout+got.stderr != want {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	got := corral(t, folder, "vet", "-o", "json")
	if want := `"asked": [` + "\n" + `        "RunnerPolicy/runners/repository"`; !strings.Contains(got.stdout, want) {
		t.Errorf("got %s", got.stdout)
	}
}

// Without a PoolSource, vet evaluates the same policies as a review, and warns about objects that a PoolSource would refuse.
func TestVetWithoutPoolSources(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		args  string
		want  []string
		code  int
	}{
		"policies above a folder": {args: "vet teams/web", code: exitDenied, files: map[string]string{"policies/deny.rego": denyAll}, want: []string{"rule: corral.template.deny of RunnerPolicy/repository, policies/deny.rego:3"}},
		"pools of one namespace": {args: "vet -v", code: exitDenied, files: map[string]string{
			"policies/deny.rego": denyAll, "teams/web/pools.cue": teamPool("web", `metadata: namespace: "ci"`)}, want: []string{"pool ci/web-build: asked RunnerPolicy/ci/repository"}},
		"pools of two namespaces": {args: "vet", files: map[string]string{
			"policies/deny.rego": denyAll, "teams/web/pools.cue": teamPool("web", `metadata: namespace: "ci"`), "teams/data/pools.cue": teamPool("data", `metadata: namespace: "cd"`)}, want: []string{
			"RunnerPolicy/repository: binds no pool: ", "warning: a PoolSource would refuse it: it names namespace ci, and a PoolSource applies only into its own, cd; leave metadata.namespace out"}},
		"build warns too": {args: "build", files: map[string]string{
			"teams/web/pools.cue": teamPool("web", `metadata: namespace: "ci"`), "teams/data/pools.cue": teamPool("data", `metadata: namespace: "cd"`)}, want: []string{
			"teams/web/pools.cue:6:8: pools.\"web-build\": warning: a PoolSource would refuse it: it names namespace ci", "kind: RunnerPool"}},
		"a selector of no pool": {args: "vet", files: map[string]string{
			"policy.cue": "package p\n\nimport \"corral.dev/schema@v0\"\n\npolicies: schema.#Policies\npolicies: gpu: spec: {selector: matchLabels: kind: \"gpu\", library: pause: reason: \"a\"}\n"}, want: []string{
			"policy.cue:6: RunnerPolicy/gpu: binds no pool: its selector matches none of the pools in its namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"teams/web/pools.cue": teamPool("web", "")}
			maps.Copy(files, tc.files)
			got := corral(t, sharedTree(t, files), strings.Fields(tc.args)...)
			for _, want := range tc.want {
				if got.code != tc.code || !strings.Contains(got.stdout+got.stderr, want) {
					t.Errorf("got code %d, want %d and %q\n%s%s", got.code, tc.code, want, got.stdout, got.stderr)
				}
			}
		})
	}
}

// vet reports files that look like definitions but that no command reads.
func TestVetReportsFilesThatNothingReads(t *testing.T) {
	const (
		pool   = "apiVersion: corral.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: NAME}\nspec: {connectionRef: {name: acme}, template: {spec: {containers: [{name: runner, image: a}]}}}\n"
		unread = " is not read: a source reads definitions in CUE; declare it there, or check it with corral vet -f "
	)
	named := func(name string) string { return strings.ReplaceAll(pool, "NAME", name) }
	for name, tc := range map[string]struct{ file, text, want string }{
		"a manifest":                  {"pools/more.yaml", "# pools\n---\n" + named("more"), "pools/more.yaml:3:1: warning: RunnerPool more" + unread + "pools/more.yaml and apply it with another tool"},
		"JSON":                        {"more.json", `{"apiVersion": "corral.dev/v1alpha1", "kind": "GitHubConnection", "metadata": {"name": "b"}}`, "more.json:1:1: warning: GitHubConnection b" + unread},
		"a list":                      {"more.yml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: corral.dev/v1alpha1, kind: RunnerPolicy, metadata: {name: b}}\n", "more.yml:4:3: warning: RunnerPolicy b" + unread},
		"a test of CUE":               {"more_test.cue", teamPool("more", ""), "more_test.cue:1:1: warning: CUE ignores files with this name"},
		"a name with _":               {"_more.cue", teamPool("more", ""), "_more.cue:1:1: warning: CUE ignores files with this name"},
		"a folder with _":             {"_more/a.cue", teamPool("more", ""), "_more/a.cue:1:1: warning: CUE ignores files with this name"},
		"CUE that is to be ignored":   {"_more.cue", "@ignore()\n\n" + teamPool("more", ""), ""},
		"what a definition declares":  {"rendered.yaml", named("web-build"), ""},
		"a PoolSource":                {"cluster/other.yaml", poolSource("a", "elsewhere", ""), ""},
		"a guard rail":                {"guard.yaml", "apiVersion: corral.dev/v1alpha1\nkind: ClusterRunnerPolicy\nmetadata: {name: a}\nspec: {library: {podSecurity: {level: baseline}}}\n", ""},
		"objects of others":           {"app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {annotations: {corral.dev/x: a}}\n", ""},
		"a template of Helm":          {"chart/pool.yaml", named("{{ .Values.name }}"), ""},
		"data of tests":               {"testdata/pool.yaml", named("more"), ""},
		"a hidden folder":             {".archive/pool.yaml", named("more"), ""},
		"CUE without Corral's schema": {"tools_test.cue", "package p\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, sharedTree(t, map[string]string{"teams/web/pools.cue": teamPool("web", ""), tc.file: tc.text}), "vet")
			if got.code != exitOK || !strings.Contains(got.stderr, tc.want) || (tc.want == "") != (got.stderr == "") {
				t.Errorf("got %+v", got)
			}
			got = corral(t, sharedTree(t, map[string]string{"teams/web/pools.cue": teamPool("web", ""), tc.file: tc.text}), "build")
			if got.code != exitOK || !strings.Contains(got.stderr, tc.want) {
				t.Errorf("build: got %+v", got)
			}
		})
	}
}

// A PoolSource in a file that cannot be parsed is neither checked nor applied. build warns, because another tool applies the file.
func TestVetRefusesManifestsThatItCannotParse(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: corral.dev/v1alpha1\nkind: {\n":           "more.yaml:2:1: ",
		"{% if a %}\napiVersion: corral.dev/v1alpha1\n":        "",
		"apiVersion: corral.dev/v1alpha1\nkind: {{ .Kind }}\n": "",
	} {
		folder := sharedTree(t, map[string]string{"teams/web/pools.cue": teamPool("web", ""), "more.yaml": text})
		got, built := corral(t, folder, "vet"), corral(t, folder, "build")
		if (got.code == exitError) != (want != "") || !strings.HasPrefix(got.stderr, want) || built.code != exitOK || !strings.HasPrefix(built.stderr, want) {
			t.Errorf("%q: vet %+v, build %+v", text, got, built.stderr)
		}
	}
}

// test and eval print the output of rules, for debugging.
func TestTheOutputOfPrint(t *testing.T) {
	folder := repositoryOf(t, map[string]string{
		"policies/a.rego":          "package corral.template\n\ndeny contains \"no\" if {\n\tprint(\"the pool is\", input.pool.name)\n\tinput.pool.name == \"other\"\n}\n",
		"policies/a.scenario.yaml": "pool: linux-small\ncases:\n- name: allowed\n  expect: {template: {allowed: true}}\n",
	})
	for _, args := range [][]string{{"test", "-v"}, {"eval", "template", "-f", "policies/a.scenario.yaml"}, {"eval", "template", "-f", "policies/a.scenario.yaml", "-o", "json"}} {
		got := corral(t, folder, args...)
		if got.code != exitOK || strings.Count(got.stdout, "the pool is linux-small") != 1 {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	if got := corral(t, folder, "vet"); strings.Contains(got.stdout+got.stderr, "the pool is") {
		t.Errorf("vet prints: %+v", got)
	}
}

// A review compiles the folder of each source with the tags of the source, as the controller does.
func TestReviewsCompileWithTheTagsOfSources(t *testing.T) {
	pools := func(prod string) string {
		return teamPool("web", "") + "\nenv: *\"dev\" | string @tag(env)\nif env == \"dev\" {pools: \"web-build\": spec: scale: max: 5}\n" +
			"if env == \"prod\" {pools: \"web-build\": spec: scale: max: " + prod + "}\n"
	}
	tagged := func(namespace, env string) string { return poolSource(namespace, "teams/web", ", tags: {"+env+"}") }
	for name, tc := range map[string]struct {
		base, head map[string]string
		folder     string // below the repository
		args       []string
		want       []string
		notes      []string
	}{
		"the folder of a source alone": {
			base:   map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			head:   map[string]string{"teams/web/pools.cue": pools("60"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			folder: "teams/web",
			want:   []string{"Allowed", "Changed /web-build 50 60"},
		},
		"one folder in two environments": {
			base: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/dev.yaml": tagged("ci-dev", "env: dev"), "cluster/prod.yaml": tagged("ci-prod", "env: prod")},
			head: map[string]string{"teams/web/pools.cue": pools("60"), "cluster/dev.yaml": tagged("ci-dev", "env: dev"), "cluster/prod.yaml": tagged("ci-prod", "env: prod")},
			want: []string{"Allowed", "Changed ci-prod/web-build 50 60"},
		},
		"another tag": {
			base:  map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: dev")},
			head:  map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			want:  []string{"Allowed", "Changed ci-web/web-build 5 50"},
			notes: []string{"The head changes tags of PoolSource ci-web/pools: env=prod. Definitions that need other tags are not reviewed."},
		},
		"a source that only the head has hides a pool": {
			base: map[string]string{"teams/web/pools.cue": pools("50") + "\nseen: *\"no\" | string @tag(seen)\n"},
			head: map[string]string{
				"teams/web/pools.cue": pools("50") + "\nseen: *\"no\" | string @tag(seen)\nif seen == \"no\" {pools: \"web-other\": pools[\"web-build\"]}\n",
				"cluster/web.yaml":    tagged("ci-web", "seen: done, env: dev"),
			},
			folder: "teams/web",
			want:   []string{"Allowed"},
			notes:  []string{"The head changes tags of PoolSource ci-web/pools: env=dev, seen=done. Definitions that need other tags are not reviewed."},
		},
		"a tag less": {
			base:  map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			head:  map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": poolSource("ci-web", "teams/web", "")},
			want:  []string{"Allowed", "Changed ci-web/web-build 50 5"},
			notes: []string{"The head changes tags of PoolSource ci-web/pools: env is not set. Definitions that need other tags are not reviewed."},
		},
		"a tag of the flags": {
			base: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: dev")},
			head: map[string]string{"teams/web/pools.cue": pools("60"), "cluster/web.yaml": tagged("ci-web", "env: dev")},
			args: []string{"--tag", "env=prod"},
			want: []string{"Allowed", "Changed ci-web/web-build 50 60"},
		},
		"a new source": {
			base: map[string]string{"teams/web/pools.cue": pools("50")},
			head: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			want: []string{"Allowed"},
		},
		"a tag that the base does not know": {
			base: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "region: eu")},
			head: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			want: []string{"Allowed", "Uncompared ci-web/web-build 50"},
		},
		"a tag that the head does not know": {
			base: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "env: prod")},
			head: map[string]string{"teams/web/pools.cue": pools("50"), "cluster/web.yaml": tagged("ci-web", "region: eu")},
			want: []string{"Broken"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := func(files map[string]string) string {
				all := map[string]string{"connections/acme.cue": strings.Replace(sharedConnection, `"ci-web"`, `"ci-*"`, 1), "cluster/connections.yaml": poolSource("runners", "connections", "")}
				maps.Copy(all, files)
				return sharedTree(t, all)
			}
			base, head := folder(tc.base), folder(tc.head)
			out := corral(t, head, append([]string{"review", filepath.Join(base, tc.folder), filepath.Join(head, tc.folder), "-o", "json"}, tc.args...)...)
			var r review.Result
			if err := json.Unmarshal([]byte(out.stdout), &r); err != nil {
				t.Fatalf("%v: %+v", err, out)
			}
			got := []string{string(r.Verdict)}
			for _, p := range r.Pools {
				line := fmt.Sprintf("%s %s/%s", p.Change, p.Namespace, p.Name)
				for _, l := range []*review.Limits{p.Before, p.After} {
					if l != nil {
						line += fmt.Sprintf(" %d", l.Declared.Max)
					}
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%s%s", diff, out.stdout, out.stderr)
			}
			if diff := cmp.Diff(tc.notes, r.Notes); tc.notes != nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}
