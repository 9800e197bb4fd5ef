// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/review"
)

// editedReview returns a folder with both sides of a recorded pull request, after editing one file of the head.
func editedReview(t *testing.T, name, file string, edit func(string) string) string {
	t.Helper()
	folder := recordedReview(t, name)
	if file != "" {
		at := filepath.Join(folder, "head", file)
		writeFile(t, at, edit(readFile(t, at)))
	}
	return folder
}

func TestAReviewFailsOnWhatItIsAskedTo(t *testing.T) {
	broken := func(string) string { return "package pools\n\npools: {\n" }
	for name, tc := range map[string]struct {
		recorded, file string
		failOn         string
		code           int
		stderr         string
	}{
		"a deleted pool":                         {"10-deleted-pool", "", "deleted", exitFailOn, "Error: 1 pool deleted, or replaced together with its waiting jobs, so --fail-on fails the review\n"},
		"a deleted pool, which nobody minds":     {"10-deleted-pool", "", "newly-denied,cost>100", exitOK, ""},
		"a renamed pool that loses jobs":         {"11-renamed-pool", "", "deleted", exitFailOn, "Error: 1 pool deleted, or replaced together with its waiting jobs, so --fail-on fails the review\n"},
		"a replaced pool that loses jobs":        {"04-identity", "", "deleted", exitFailOn, "Error: 1 pool deleted, or replaced together with its waiting jobs, so --fail-on fails the review\n"},
		"a month that costs more":                {"02-template", "", "deleted,cost>100", exitFailOn, "Error: 797 EUR more per month, so --fail-on fails the review\n"},
		"a month that costs more, but no more":   {"02-template", "", "cost>800", exitOK, ""},
		"a new denial":                           {"06-blocking-policy", "", "newly-denied", exitDenied, "Error: 2 of 3 pools denied by policy\n"},
		"a denial, which nobody minds":           {"06-blocking-policy", "", "broken", exitOK, ""},
		"costs that nobody knows":                {"02-template", "prices.yaml", "cost>1", exitError, "Error: the prices of both sides are not known, so --fail-on cost>1 cannot be evaluated\n"},
		"a broken head, whatever else is minded": {"02-template", "pools.cue", "deleted", exitError, "Error: the head can't be applied: 1 problem\n"},
		"no number":                              {"02-template", "", "cost>a", exitError, "Error: --fail-on must be one of broken, denied, newly-denied, deleted, cost>N, where N is a number; found \"cost>a\"\n"},
		"an unknown word":                        {"02-template", "", "added", exitError, "Error: --fail-on must be one of broken, denied, newly-denied, deleted, cost>N, where N is a number; found \"added\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := editedReview(t, tc.recorded, tc.file, broken)
			if tc.file == pricesFile {
				for _, side := range []string{"base", "head"} {
					if err := os.Remove(filepath.Join(folder, side, pricesFile)); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "--fail-on", tc.failOn)
			if got.code != tc.code || got.stderr != tc.stderr {
				t.Errorf("it ended with %d, want %d: %s", got.code, tc.code, got.stderr)
			}
		})
	}
	folder := editedReview(t, "10-deleted-pool", "", nil)
	writeFile(t, filepath.Join(folder, "base/pools.cue"), broken(""))
	const unknown = "Error: the base cannot be compared, so --fail-on deleted cannot be evaluated\n"
	if got := corral(t, folder, "review", "base", "head", "--fail-on", "deleted"); got.code != exitError || got.stderr != unknown {
		t.Errorf("without a base: %+v", got)
	}
}

func TestAPoolThatLosesItsMaxIsNoSaving(t *testing.T) {
	unbounded := editedReview(t, "01-scale", "", nil)
	if err := os.RemoveAll(filepath.Join(unbounded, "head/policies")); err != nil {
		t.Fatal(err)
	}
	pools := filepath.Join(unbounded, "head/pools.cue")
	writeFile(t, pools, strings.Replace(readFile(t, pools), "scale: max: 8", "scale: min: 0", 1))
	const uncounted = "Error: 1 pool without a price or without a max, so --fail-on cost>10000 cannot be evaluated\n"
	if got := corral(t, unbounded, "review", "base", "head", "--at", reviewedAt, "--fail-on", "cost>10000"); got.code != exitError || got.stderr != uncounted {
		t.Errorf("a pool loses its max: %+v", got)
	}
}

// The author of schedules can choose the minute of a review, and the number of changes. Neither hides what they cost.
func TestSchedulesHideNoCost(t *testing.T) {
	const hourly = `{name: "low", cron: {schedule: "0 * * * *", duration: "1m"}, scale: {min: 0, max: 1}}, {name: "high", cron: {schedule: "20 * * * *", duration: "20m"}, scale: {min: 999, max: 999}}`
	often := ""
	for i := range 32 {
		often += fmt.Sprintf(`{name: "s%d", cron: {schedule: "*/2 * * * *", duration: "%ds"}, scale: max: %d}, `, i, 61+i, i)
	}
	const frequent = "Error: the limits of 1 pool change too often, so --fail-on cost>50000 cannot be evaluated\n"
	for name, tc := range map[string]struct {
		at, schedules string
		code          int
		stderr        string
	}{
		"before the low minute": {"2026-07-07T10:05:00Z", hourly, exitFailOn, ""},
		"in the low period":     {"2026-07-07T10:25:00Z", hourly, exitFailOn, ""},
		"too often":             {"2026-07-07T10:05:00Z", often, exitError, frequent},
	} {
		t.Run(name, func(t *testing.T) {
			folder := editedReview(t, "01-scale", "pools.cue", func(text string) string {
				return strings.Replace(text, "scale: max: 8", "scale: {min: 1000, max: 1000, schedules: ["+tc.schedules+"]}", 1)
			})
			if err := os.RemoveAll(filepath.Join(folder, "head/policies")); err != nil {
				t.Fatal(err)
			}
			got := corral(t, folder, "review", "base", "head", "--at", tc.at, "--fail-on", "cost>50000")
			if got.code != tc.code || tc.stderr != "" && got.stderr != tc.stderr {
				t.Errorf("it ended with %d, want %d: %s", got.code, tc.code, got.stderr)
			}
		})
	}
}

func TestPricesTakenOutAreNoSaving(t *testing.T) {
	unpriced := editedReview(t, "02-template", pricesFile, func(string) string { return "currency: EUR\n" })
	if got := corral(t, unpriced, "review", "base", "head", "--at", reviewedAt, "--fail-on", "cost>10000"); got.code != exitError || !strings.Contains(got.stderr, "3 pools without a price or without a max") {
		t.Errorf("prices are taken out: %+v", got)
	}
}

// A review of the wrong folder must not look like a clean result.
func TestFoldersWithoutPoolsAreWarnedOf(t *testing.T) {
	got := corral(t, t.TempDir(), "review", t.TempDir(), t.TempDir(), "--at", reviewedAt)
	if got.code != exitOK || !strings.Contains(got.stdout, "warning: Neither side declares a pool, so nothing was judged") {
		t.Errorf("got %+v", got)
	}
}

func TestAReviewShowsTheDiffOfObjects(t *testing.T) {
	folder := editedReview(t, "01-scale", "pools.cue", func(text string) string {
		return strings.Replace(text, `metadata: labels: team: "web"`, `metadata: {labels: team: "web", annotations: "example.com/note": "x\n::error::y"}`, 1)
	})
	got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "--diff")
	for _, line := range []string{"--- base/RunnerPool/web", "+++ head/RunnerPool/web", "-    idle: 2", "+    idle: 5", "+      ::error::y"} {
		if !strings.Contains(got.stdout, "\n    "+line+"\n") {
			t.Errorf("no line %q in\n%s", line, got.stdout)
		}
	}
	if without := corral(t, folder, "review", "base", "head", "--at", reviewedAt); strings.Contains(without.stdout, "--- base") {
		t.Error("the output contains a diff without --diff")
	}
	if got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "--diff", "-o", "markdown"); !strings.Contains(got.stdout, "<summary>diff</summary>\n\n```diff\n--- base/RunnerPool/web\n") {
		t.Errorf("no diff in\n%s", got.stdout)
	}
	// A diff shows unchanged lines as context. GitHub's runner would interpret a command there.
	writeFile(t, filepath.Join(folder, "base/pools.cue"), strings.Replace(readFile(t, filepath.Join(folder, "head/pools.cue")), "idle: 5", "idle: 2", 1))
	if got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "--diff"); strings.Contains(got.stdout, " ::error") {
		t.Errorf("a command in\n%s", got.stdout)
	}
}

// The changed line may be in a table, in data, or in a template that many pools share.
func TestAnnotationsStandAtTheLineThatChanged(t *testing.T) {
	t.Setenv("GITHUB_WORKSPACE", "")
	const table = `package pools

import "corral.dev/schema@v0"

_table: {
	"a": {max: 10}
	"b": {max: 20}
	"c": {max: 30}
}

pools: schema.#Pools & {for n, t in _table {(n): spec: {
	connectionRef: name: "acme", runnerLabels: [n], scale: max: t.max
	template: spec: containers: [#Runner & {#cpu: "1", #memory: "1Gi"}]
}}}
`
	folder := t.TempDir()
	for _, side := range []string{"base", "head"} {
		recordedSide(t, "01-scale", "base", filepath.Join(folder, side))
		writeFile(t, filepath.Join(folder, side, "pools.cue"), table)
	}
	for name, tc := range map[string]struct{ file, from, to, want string }{
		"a row of a table":       {"pools.cue", "{max: 20}", "{max: 21}", "::notice file=head/pools.cue,line=7,col=13,title=Other limits::pool b: limits · max 20 → 21\n"},
		"what pools share":       {"runner.cue", "2.329.0", "2.330.0", "::notice file=head/runner.cue,line=11,col=9,title=Another template::pools a, b, c: replaces runners · image 2.329.0 → 2.330.0%0A"},
		"a connection's Secret":  {"connections.cue", `"github"`, `"other"`, "::notice file=head/connections.cue,line=8,col=20,title=Connection changed::connection acme: settings · secretRef.name github → other%0A"},
		"a price":                {"prices.yaml", "perHour: 1.20", "perHour: 1.45", "::notice file=head/prices.yaml,line=11,col=12,title=Prices changed::prices · nodes[0].perHour 1.2 → 1.45\n"},
		"a route that all share": {"pools.cue", "runnerLabels: [n]", `runnerLabels: [n, "x"]`, "::warning file=head/pools.cue,line=12,col=31,title=Jobs go elsewhere::"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(folder, "head", tc.file)
			before := readFile(t, file)
			writeFile(t, file, strings.Replace(before, tc.from, tc.to, 1))
			defer writeFile(t, file, before)
			if got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "-o", "github"); !strings.Contains("\n"+got.stdout, "\n"+tc.want) {
				t.Errorf("no line begins with %q:\n%s%s", tc.want, got.stdout, got.stderr)
			}
		})
	}
}

func TestAFolderHasThePoliciesAboveIt(t *testing.T) {
	repository := history(t, "05-policy-only", "infra")
	for _, args := range [][]string{{"mv", "infra/pools.cue", "infra/web/pools.cue"}, {"mv", "infra/runner.cue", "infra/web/runner.cue"}, {"mv", "infra/connections.cue", "infra/web/connections.cue"}} {
		if err := os.MkdirAll(filepath.Join(repository, "infra/web"), 0o700); err != nil {
			t.Fatal(err)
		}
		gitIn(t, repository, args...)
	}
	writeFile(t, filepath.Join(repository, "infra/cue.mod/module.cue"), "module: \"example.com/infra@v0\"\nlanguage: version: \"v0.14.0\"\n")
	gitIn(t, repository, "add", ".")
	gitIn(t, repository, "commit", "-qm", "folders")
	data := filepath.Join(repository, "infra/policies/data.yaml")
	writeFile(t, data, strings.Replace(readFile(t, data), "max: 40", "max: 30", 1))
	got := corral(t, repository, "review", "--at", reviewedAt, "infra/web")
	for _, want := range []string{"max in force 53 → 43", "Policies: 1 policy asked, not those of the base", "(corral.scaling.limit, infra/policies/limits.rego:9)"} {
		if got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("there is no %q in %+v", want, got)
		}
	}
}

// A PoolSource applies policies to the namespace of the pools next to them. Without that namespace, the rules
// would bind no pools, and the review would wrongly report no denials.
func TestPoliciesBesidePoolsAreOfTheNamespaceThatAllPoolsName(t *testing.T) {
	folder := recordedReview(t, "06-blocking-policy")
	for _, side := range []string{"base", "head"} {
		file := filepath.Join(folder, side, "pools.cue")
		writeFile(t, file, strings.ReplaceAll(readFile(t, file), "metadata: labels: team:", "metadata: namespace: \"ci\", metadata: labels: team:"))
	}
	if got := corral(t, folder, "review", "base", "head", "--at", reviewedAt); got.code != exitDenied || !strings.HasPrefix(got.stdout, "2 of 3 pools newly denied") {
		t.Errorf("got %+v", got)
	}
}

func TestTheClusterIsAskedAboutWhatChanges(t *testing.T) {
	folder := editedReview(t, "02-template", "", nil)
	kubeconfig := kubeconfigOf(t, func(path string) (int, any) {
		switch name := filepath.Base(path); {
		case strings.HasSuffix(path, "/v1alpha1"):
			return http.StatusOK, metav1.APIResourceList{GroupVersion: "corral.dev/v1alpha1", APIResources: []metav1.APIResource{
				{Name: "runnerpools", SingularName: "runnerpool", Namespaced: true, Kind: "RunnerPool", Verbs: metav1.Verbs{"list", "patch"}}}}
		case strings.HasSuffix(path, "/apis"):
			version := metav1.GroupVersionForDiscovery{GroupVersion: "corral.dev/v1alpha1", Version: "v1alpha1"}
			return http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "corral.dev", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}}
		case name == "runnerpools":
			return http.StatusOK, v1alpha1.RunnerPoolList{}
		case name == "gpu":
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "runnerpools \"gpu\" is forbidden: you may not")
		case name == "release":
			return refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "admission webhook \"w\" denied the request: no images of the Internet")
		default:
			return http.StatusOK, map[string]any{"apiVersion": "corral.dev/v1alpha1", "kind": "RunnerPool", "metadata": map[string]any{"namespace": "mine", "name": name}}
		}
	})
	got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "--live", "--kubeconfig", kubeconfig, "-o", "json")
	var result review.Result
	if err := json.Unmarshal([]byte(got.stdout), &result); err != nil || got.code != exitError || len(result.Head.Diagnostics) != 1 {
		t.Fatalf("%v, %+v", err, got)
	}
	d := result.Head.Diagnostics[0]
	if d.Path != "pools.release" || d.File != "head/pools.cue" || d.Message != "the cluster refuses it: admission webhook \"w\" denied the request: no images of the Internet" {
		t.Errorf("got %+v", d)
	}
	if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes, "The cluster did not check RunnerPool/gpu: runnerpools \"gpu\" is forbidden: you may not.") || strings.Contains(notes, "RunnerPool/web") {
		t.Errorf("notes %s", notes)
	}
}
