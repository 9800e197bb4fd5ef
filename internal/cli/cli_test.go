// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/loader"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/test/inprocess"
)

func TestMain(m *testing.M) {
	if worker.IsChild() {
		worker.Main()
	}
	os.Exit(m.Run())
}

// outcome is the visible result of a command.
type outcome struct {
	stdout, stderr string
	code           int
}

// corral runs a command in folder. It compiles and evaluates policies in this process.
func corral(t *testing.T, folder string, args ...string) outcome {
	t.Helper()
	return runIn(WithEngines(t.Context(), inprocess.Compiler{}, &inprocess.Evaluator{}), t, folder, args...)
}

// withChildren runs a command in folder. It compiles and evaluates policies in child processes with resource
// limits, as in production.
func withChildren(t *testing.T, folder string, args ...string) outcome {
	t.Helper()
	return runIn(t.Context(), t, folder, args...)
}

func runIn(ctx context.Context, t *testing.T, folder string, args ...string) outcome {
	t.Helper()
	t.Chdir(folder)
	var stdout, stderr bytes.Buffer
	root := NewRoot("v1.2.3")
	root.SetContext(ctx)
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code := Run(root)
	return outcome{stdout.String(), stderr.String(), code}
}

// repositoryOf returns a folder that init created, without its policy and its PoolSource, and with changes to its files.
func repositoryOf(t *testing.T, changes map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	if got := corral(t, folder, "init", "--url", "https://github.com/acme"); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	for _, name := range []string{"policies/pods.rego", "policies/pods.scenario.yaml", "cluster/poolsource.yaml"} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range changes {
		writeFile(t, filepath.Join(folder, name), text)
	}
	return folder
}

const brokenPool = `package pools

pools: broken: spec: {
	connectionRef: name: "acme"
	scale: {max: 1, min: 2}
	template: spec: containers: [{name: "runner"}]
}
`

func TestVet(t *testing.T) {
	broken := map[string]string{"pools/broken.cue": brokenPool}
	for name, tc := range map[string]struct {
		changes map[string]string
		args    []string
		want    outcome
	}{
		"a new repository is clean": {nil, []string{"vet"}, outcome{stdout: "ok: 1 pool, 1 connection\n"}},
		"a folder inside":           {nil, []string{"vet", "pools"}, outcome{stdout: "ok: 1 pool, 1 connection\n"}},
		"as JSON": {nil, []string{"vet", "-o", "json"}, outcome{
			stdout: "{\n  \"objects\": {\n    \"GitHubConnection\": 1,\n    \"RunnerPool\": 1\n  },\n  \"diagnostics\": []\n}\n"}},
		"a problem": {broken, []string{"vet"}, outcome{
			stderr: "pools/broken.cue:5:18: pools.broken.spec.scale.min: min 2 is above max 1\nError: 1 problem\n", code: exitError}},
		"a problem as YAML": {broken, []string{"vet", "pools", "--output", "yaml"}, outcome{
			stdout: "diagnostics:\n- column: 18\n  file: pools/broken.cue\n  line: 5\n  message: min 2 is above max 1\n" +
				"  path: pools.broken.spec.scale.min\nobjects: {}\n",
			stderr: "Error: 1 problem\n", code: exitError}},
		"an unused tag": {nil, []string{"vet", "--tag", "env=prod"}, outcome{
			stderr: "tag \"env\" is set, but no field is marked @tag(env)\nError: 1 problem\n", code: exitError}},
		"a name that no namespace has": {nil, []string{"vet", "--namespace", "Bad NS"}, outcome{
			stderr: "Error: invalid argument \"Bad NS\" for \"-n, --namespace\" flag: \"Bad NS\" is not a valid namespace: it must have at most 63 lowercase letters, digits and dashes, and begin and end with a letter or digit\n", code: exitError}},
		"an unknown format": {nil, []string{"vet", "-o", "xml"}, outcome{
			stderr: "Error: invalid argument \"xml\" for \"-o, --output\" flag: must be one of text, json, yaml, github, sarif, junit\n", code: exitError}},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, repositoryOf(t, tc.changes), tc.args...)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The author of a pull request chooses file names and the messages of policies. Control characters in them must
// not reach the terminal, and a CI log must not interpret them as commands.
func TestWhatIsPrintedActsOnNoTerminalAndNoLog(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, want string }{
		"a name": {"pools/a\x1b[31mred\n::error::x.cue", "package pools\n",
			"pools/a\\u001b[31mred\\u000a::error::x.cue: control characters in the name; rename the file or its folder\nError: 1 problem\n"},
		"a policy's words": {"policies/deny.rego", "package corral.template\n\ndeny contains \"a\\u001b[31mred\\n::error::x ##[error]y\" if true\n",
			"pools/linux.cue:7:8: pools.\"linux-small\".spec.template: denied: a\\u001b[31mred\n\\u003a:error::x #\\u0023[error]y\n" +
				"  rule: corral.template.deny of RunnerPolicy/repository, policies/deny.rego:3\nError: 1 of 1 pool denied by policy\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, corral(t, repositoryOf(t, map[string]string{tc.file: tc.text}), "vet").stderr); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The output of build is applied, so its texts must not be escaped as in messages.
func TestBuildPrintsTextsAsTheyAreWritten(t *testing.T) {
	folder := repositoryOf(t, map[string]string{"pools/note.cue": "package pools\n\npools: \"linux-small\": metadata: annotations: note: \"x\\u200fy\"\n"})
	if got := corral(t, folder, "build"); !strings.Contains(got.stdout, "note: x\u200fy\n") {
		t.Errorf("%q\n%s", got.stdout, got.stderr)
	}
	got := corral(t, repositoryOf(t, map[string]string{"pools/note.cue": "package pools\n\npools: \"linux-small\": metadata: annotations: note: \"\\u001b[31m\"\n"}), "build")
	if !strings.Contains(got.stdout, `note: "\e[31m"`) {
		t.Errorf("%q\n%s", got.stdout, got.stderr)
	}
}

func TestBuildPrintsTheSameBytesEachTime(t *testing.T) {
	folder := repositoryOf(t, nil)
	first := corral(t, folder, "build")
	if first.code != exitOK || strings.Count(first.stdout, "---\n") != 2 {
		t.Errorf("got %+v", first)
	}
	if diff := cmp.Diff(first, corral(t, folder, "build"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

func TestBuildFillsInTheNamespace(t *testing.T) {
	var list struct {
		Items []struct {
			Metadata struct{ Namespace string }
		}
	}
	got := corral(t, repositoryOf(t, nil), "build", "-o", "json", "--namespace", "runners")
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil {
		t.Fatal(err, got.stderr)
	}
	for _, item := range list.Items {
		if item.Metadata.Namespace != "runners" {
			t.Errorf("got namespace %q", item.Metadata.Namespace)
		}
	}
}

func TestBuildPrintsNothingWhenItFails(t *testing.T) {
	empty := t.TempDir()
	for name, tc := range map[string]struct {
		folder string
		want   string
	}{
		"a problem": {repositoryOf(t, map[string]string{"pools/broken.cue": brokenPool}), "min 2 is above max 1"},
		"no pools":  {empty, "there are no definitions"},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, tc.folder, "build")
			if got.code != exitError || got.stdout != "" || !strings.Contains(got.stderr, tc.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestInitNeverOverwrites(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "pools", "linux.cue"), "mine")
	got := corral(t, folder, "init")
	want := outcome{stderr: "Error: pools/linux.cue already exists, so nothing was written\n", code: exitError}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %d entries, %v", len(entries), err)
	}
}

func TestInitRefusesWhatCannotBe(t *testing.T) {
	for flag, want := range map[string]string{
		"--module=Bad Module": "Error: --module must be the path of a CUE module such as github.com/acme/runners@v0: ",
		"--url=github.com/a":  "Error: --url must be the URL of an enterprise, an organization or a repository: ",
	} {
		folder := t.TempDir()
		got := corral(t, folder, "init", flag)
		if left, _ := os.ReadDir(folder); got.code != exitError || !strings.HasPrefix(got.stderr, want) || len(left) > 0 {
			t.Errorf("%s: got %+v, %d files", flag, got, len(left))
		}
	}
}

func TestInitWritesModuleURLAndVersion(t *testing.T) {
	folder := t.TempDir()
	got := corral(t, folder, "init", "new/runners", "--module", "github.com/acme/runners@v0", "--url", "https://github.example/web")
	if got.code != exitOK || !strings.HasSuffix(got.stdout, "\nnext: run corral vet\n") {
		t.Fatalf("got %+v", got)
	}
	for name, want := range map[string]string{
		"pools/connections.cue":                       `url: "https://github.example/web"`,
		"cue.mod/module.cue":                          `module: "github.com/acme/runners@v0"`,
		".github/workflows/corral.yaml":               "CORRAL_VERSION: v1.2.3\n",
		".github/CODEOWNERS":                          "/policies/ @web/platform\n",
		"cluster/poolsource.yaml":                     "url: https://github.com/acme/runners #",
		"pools/linux.cue":                             `image: "ghcr.io/actions/actions-runner:latest"`,
		"cue.mod/pkg/corral.dev/schema/schema.cue":    "#RunnerPool:",
		"cue.mod/pkg/corral.dev/schema/specs_gen.cue": "#RunnerPoolSpec:",
		"policies/README.md":                          "corral.scaling",
		"schemas/template.json":                       "Input of corral.template",
	} {
		data, err := os.ReadFile(filepath.Join(folder, "new/runners", name))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, want %q in it", name, err, want)
		}
	}
}

// A new repository is valid. The pools and guard repositories that init creates pass the commands of their own
// workflows, except for a warning about the placeholder URL.
func TestWhatInitWritesPassesItsWorkflow(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct{ folder, args, want string }{
		{".", "init pools", "\nnext: replace YOUR_ORG in all these files, also in hidden folders, then run corral vet\n"},
		{".", "init guard --guard", "\nnext: run corral vet and corral test there\n"},
		{"pools", "vet --policy ../guard/policies", "pools/connections.cue:10:8: connections.acme.spec.url: warning: https://github.com/YOUR_ORG is a placeholder: put "},
		{"pools", "test --policy ../guard/policies", "policies/pods.scenario.yaml  3 tests"},
		{"guard", "test --policy policies", "ok    policies/guard.scenario.yaml  2 tests"},
		{"guard", "test", "ok    policies/guard.scenario.yaml  2 tests"},
		{"guard", "vet", "ok: 0 pools, 0 connections, 1 policy\n"},
		{".", "init teams --teams=web,data,web --url https://github.com/acme", "/teams-guard\nnext: run corral vet\n"},
		{"teams", "init team payments", "\nnext: change the rows in teams/payments/pools.cue, then run corral vet\n"},
		{"teams", "vet --policy ../teams-guard/policies", "ok: 3 pools, 1 connection, 1 policy\n"},
		{"teams", "test --policy ../teams-guard/policies", "ok "},
		{"teams-guard", "test", "ok    policies/guard.scenario.yaml  2 tests"},
		{"teams-guard", "vet", "ok: 0 pools, 0 connections, 1 policy\n"},
	} {
		got := corral(t, filepath.Join(folder, tc.folder), strings.Fields(tc.args)...)
		if got.code != exitOK || !strings.Contains(got.stdout+got.stderr, tc.want) {
			t.Errorf("%s: got %+v", tc.args, got)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, ".git"), 0o700); err != nil {
		t.Fatal(err) // actionlint requires it
	}
	lint := exec.Command("go", "tool", "-modfile=hack/tools/go.mod", "actionlint", "-no-color", "-shellcheck=", "-pyflakes=",
		filepath.Join(folder, "pools/.github/workflows/corral.yaml"), filepath.Join(folder, "guard/.github/workflows/corral.yaml"),
		filepath.Join(folder, "teams/.github/workflows/corral.yaml"))
	lint.Dir = checkout
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The policy of a new repository names its schema, so that opa check --schema schemas finds misspelt fields.
func TestOPAChecksThePolicyOfInit(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", ".", "--url", "https://github.com/acme")
	schemas, err := loader.Schemas(filepath.Join(folder, "schemas"))
	if err != nil {
		t.Fatal(err)
	}
	text := readFile(t, filepath.Join(folder, "policies/pods.rego"))
	const misspelt = "\ndeny contains \"x\" if input.pool.nmae\n"
	for rules, want := range map[string]string{text: "", text + misspelt: "input.pool.nmae"} {
		module, err := ast.ParseModuleWithOpts("pods.rego", rules, ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			t.Fatal(err)
		}
		c := ast.NewCompiler().WithStrict(true).WithSchemas(schemas).WithUseTypeCheckAnnotations(true)
		if c.Compile(map[string]*ast.Module{"pods.rego": module}); c.Failed() != (want != "") || !strings.Contains(c.Errors.Error(), want) {
			t.Errorf("got %v, want %q", c.Errors, want)
		}
	}
}

func TestAStaleCopyOfTheSchemaIsToldOfAndRenewed(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", ".", "--url", "https://github.com/acme")
	copied := filepath.Join(folder, "cue.mod/pkg/corral.dev/schema/specs_gen.cue")
	writeFile(t, copied, "package schema\n")
	for _, tc := range []struct {
		args  string
		stale bool
	}{{"vet", true}, {"init --schema-only", false}, {"vet", false}} {
		got := corral(t, folder, strings.Fields(tc.args)...)
		if got.code != exitOK || strings.Contains(got.stderr, "cue.mod/pkg/corral.dev/schema/specs_gen.cue:1:1: ") != tc.stale {
			t.Errorf("%s: got %+v", tc.args, got)
		}
	}
}

func TestTheSourceOfANewRepositoryIsOnItsServer(t *testing.T) {
	for given, want := range map[string]string{
		"https://github.example/web":             "https://github.example/web/runners",
		"https://github.com/acme/app":            "https://github.com/acme/runners",
		"https://github.example/enterprises/big": "https://github.example/YOUR_ORG/runners",
	} {
		files, err := newRepository{module: "corral.local/pools@v0", url: given}.files()
		if err != nil || !strings.Contains(string(files["cluster/poolsource.yaml"]), "url: "+want+" #") {
			t.Errorf("%s: %v\n%s", given, err, files["cluster/poolsource.yaml"])
		}
	}
}

func TestInstallableVersions(t *testing.T) {
	for version, want := range map[string]string{
		"": "latest", "dev": "latest", "v1.2.3": "v1.2.3", "v1.2.3-4-gabc1234": "abc1234", "abc1234-dirty": "abc1234", "v1.2.3-rc.1": "v1.2.3-rc.1",
	} {
		if got := installableVersion(version); got != want {
			t.Errorf("installable(%q) = %q, want %q", version, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	var got map[string]string
	if err := json.Unmarshal([]byte(corral(t, t.TempDir(), "version", "-o", "json").stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got["version"] != "v1.2.3" || got["apiVersion"] != "corral.dev/v1alpha1" || got["schema"] != "corral.dev/schema@v0 v0.1.0" {
		t.Errorf("got %v", got)
	}
}

func TestExitCodes(t *testing.T) {
	for want, err := range map[int]error{
		exitOK:      nil,
		exitError:   os.ErrNotExist,
		exitDenied:  fmt.Errorf("pool linux: %w", errDenied),
		exitChanged: errChanged,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("exitCode(%v) = %d, want %d", err, got, want)
		}
	}
}

// Workflows that init creates download a released corral. They build corral only if no release exists, and then
// cache the build.
func TestWorkflowsBuildOnlyWhatIsNotReleased(t *testing.T) {
	type step struct {
		ID, If, Uses, Run string
		ContinueOnError   bool `json:"continue-on-error"`
		With              map[string]any
	}
	for _, guard := range []bool{false, true} {
		files, err := newRepository{module: "corral.local/pools@v0", url: exampleURL, version: "v1.2.3", guard: guard}.files()
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Jobs map[string]struct{ Steps []step }
		}
		if err := yaml.Unmarshal(files[".github/workflows/corral.yaml"], &workflow); err != nil {
			t.Fatal(err)
		}
		steps := workflow.Jobs["check"].Steps
		at := func(what string) step {
			i := slices.IndexFunc(steps, func(s step) bool { return strings.HasPrefix(s.Uses, what) || strings.Contains(s.Run, what) })
			if i < 0 {
				t.Errorf("guard %t: no step has %q", guard, what)
				return step{}
			}
			return steps[i]
		}
		if release := at("gh release download"); release.ID != "release" || !release.ContinueOnError || release.If != "" {
			t.Errorf("guard %t: got %+v", guard, release)
		}
		for _, what := range []string{"actions/setup-go", "actions/cache", "go install"} {
			if built := at(what); built.If != "${{ steps.release.outcome == 'failure' }}" {
				t.Errorf("guard %t: got %+v", guard, built)
			}
		}
		cache := at("actions/cache").With
		if paths := fmt.Sprint(cache["path"]); !strings.Contains(paths, "~/.cache/go-build") || !strings.Contains(paths, "~/go/pkg/mod") ||
			!strings.Contains(fmt.Sprint(cache["key"]), "env.CORRAL_VERSION") {
			t.Errorf("guard %t: got %v", guard, cache)
		}
	}
}
