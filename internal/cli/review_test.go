// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/test/golden"
)

// reviewedAt is the time of all reviews, a Tuesday.
const reviewedAt = "2026-07-07T10:00:00Z"

// recordedExits contains the exit codes of the recorded pull requests, if they differ from 0.
var recordedExits = map[string]int{
	"06-blocking-policy": exitDenied, "09-connection": exitError, "12-broken-cue": exitError, "14-half-a-fleet": exitDenied, "20-denied-template": exitDenied,
	"22-denied-as-before": exitDenied, "24-policy-fails": exitDenied, "25-connection-deleted": exitError,
}

func TestRecordedPullRequestsHaveTheirReportsInEachForm(t *testing.T) {
	sarif, err := jsonschema.NewCompiler().Compile(filepath.Join(top, "internal/report/testdata/sarif-schema-2.1.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	recordings, err := filepath.Abs(filepath.Join(top, "testdata/reviews"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(recordings, "[0-9]*"))
	if err != nil || len(names) != 30 {
		t.Fatalf("got %d recorded pull requests, %v", len(names), err)
	}
	forms := map[string]string{
		"text": "review.txt", "markdown": "review.md", "github": "annotations.txt", "sarif": "review.sarif", "json": "review.json", "yaml": "review.yaml",
	}
	var first strings.Builder
	for _, name := range names {
		name := filepath.Base(name)
		t.Run(name, func(t *testing.T) {
			folder, written := recordedReview(t, name), t.TempDir()
			t.Setenv("GITHUB_WORKSPACE", folder)
			args := []string{"review", "base", "head", "--at", reviewedAt}
			for form, file := range forms {
				args = append(args, "--write", form+"="+filepath.Join(written, file))
			}
			got := corral(t, folder, args...)
			if want := recordedExits[name]; got.code != want {
				t.Errorf("it ended with %d, want %d: %s", got.code, want, got.stderr)
			}
			for form, file := range forms {
				text := readFile(t, filepath.Join(written, file))
				golden.CompareIn(t, filepath.Join(recordings, name, "golden.txtar"), file, text)
				if form == "text" && got.stdout != text {
					t.Error("the printed report differs from the written one")
				}
			}
			lines := strings.SplitN(got.stdout, "\n", 4)
			fmt.Fprintf(&first, "%s\n  %s\n\n", name, strings.Join(lines[:min(3, len(lines))], "\n  "))
			checkMachineForms(t, written, sarif)
		})
	}
	golden.Compare(t, filepath.Join(recordings, "first-lines.txt"), first.String())
}

// checkMachineForms validates the reports for programs.
func checkMachineForms(t *testing.T, written string, sarif *jsonschema.Schema) {
	t.Helper()
	log, err := jsonschema.UnmarshalJSON(strings.NewReader(readFile(t, filepath.Join(written, "review.sarif"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := sarif.Validate(log); err != nil {
		t.Error(err)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(readFile(t, filepath.Join(written, "review.json")))))
	decoder.DisallowUnknownFields()
	var back review.Result
	if err := decoder.Decode(&back); err != nil || back.APIVersion != review.APIVersion || back.Kind != review.Kind {
		t.Errorf("the JSON is %s %s, %v", back.APIVersion, back.Kind, err)
	}
}

// recordedReview returns a folder with the sides base and head of a recorded pull request.
func recordedReview(t *testing.T, name string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, side := range []string{"base", "head"} {
		recordedSide(t, name, side, filepath.Join(folder, side))
	}
	return folder
}

// recordedSide writes one side of a recorded pull request to a folder. It copies the common files first, then the
// base's changes, and for the head also the head's. An empty file deletes the file of that name.
func recordedSide(t *testing.T, name, side, to string) {
	t.Helper()
	recordings := filepath.Join(top, "testdata/reviews")
	layers := []string{"common", name + "/base", name + "/head"}
	if side == "base" {
		layers = layers[:2]
	}
	for _, layer := range layers {
		if _, err := os.Stat(filepath.Join(recordings, layer)); err == nil {
			overwrite(t, filepath.Join(recordings, layer), to)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// history returns a Git repository with a recorded pull request. The first commit is the base and the second is
// the head. Any later change is only in the working tree.
func history(t *testing.T, recorded, below string) string {
	t.Helper()
	repository := t.TempDir()
	git := func(args ...string) { t.Helper(); gitIn(t, repository, args...) }
	git("init", "-q", "-b", "main")
	writeFile(t, filepath.Join(repository, "README.md"), "first")
	git("add", ".")
	git("commit", "-qm", "nothing yet")
	for _, side := range []string{"base", "head"} {
		recordedSide(t, recorded, side, filepath.Join(repository, below))
		git("add", ".")
		git("commit", "-qm", side)
	}
	return repository
}

func gitIn(t *testing.T, repository string, args ...string) {
	t.Helper()
	c := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// overwrite copies the files of one folder over another. An empty file deletes the file of that name.
func overwrite(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		text := readFile(t, name)
		if text == "" {
			return os.Remove(filepath.Join(to, rel))
		}
		return os.WriteFile(filepath.Join(to, rel), []byte(text), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatASparseCheckoutLeavesOutIsNoRemovedPool(t *testing.T) {
	whole, repository := history(t, "01-scale", "infra"), history(t, "01-scale", "infra")
	gitIn(t, repository, "sparse-checkout", "set", "--no-cone", "README.md", "infra/prices.yaml")
	const says = "a sparse checkout leaves out "
	if got := corral(t, filepath.Join(repository, "infra"), "review"); got.code != exitError || !strings.HasPrefix(got.stdout, "Broken: ") || !strings.Contains(got.stdout, says) {
		t.Errorf("review: %+v", got)
	}
	if got := corral(t, filepath.Join(repository, "infra"), "vet"); got.code != exitError || !strings.Contains(got.stderr, says) {
		t.Errorf("vet: %+v", got)
	}
	if got := corral(t, whole, "review", filepath.Join(whole, "infra"), filepath.Join(repository, "infra")); got.code != exitError || !strings.Contains(got.stdout, says) {
		t.Errorf("of two folders: %+v", got)
	}
	gitIn(t, whole, "update-index", "--skip-worktree", "infra/pools.cue")
	if got := corral(t, filepath.Join(whole, "infra"), "vet"); got.code != exitOK {
		t.Errorf("vet of existing files: %+v", got)
	}
	if got := corral(t, filepath.Join(repository, "infra"), "review", "--head", "HEAD", "--base", "HEAD"); got.code != exitOK || strings.Contains(got.stdout, "Nothing was compared") {
		t.Errorf("two commits: %+v", got)
	}
}

// Without a usable base, the report covers the head alone: it counts no pools as added and no cost as new.
func TestAnUnusableBaseIsReportedFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		base  func(repository string)
		args  []string
		first string
	}{
		"a broken base": {
			func(r string) { writeFile(t, filepath.Join(r, "infra/pools.cue"), "package pools\n\npools: {\n") }, nil,
			"The base can't be compared: pools.cue:3:8: ",
		},
		"a base without the folder": {func(r string) { gitIn(t, r, "rm", "-rq", "infra") }, nil, "The base can't be compared: there is no folder . at base"},
		"a base without the tag": {
			func(string) {}, []string{"--tag", "size=3"}, "The base can't be compared: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			repository := history(t, "01-scale", "infra")
			gitIn(t, repository, "checkout", "-qb", "base", "HEAD~1")
			tc.base(repository)
			gitIn(t, repository, "commit", "-qam", "base", "--allow-empty")
			gitIn(t, repository, "checkout", "-q", "main")
			if len(tc.args) > 0 {
				pools := filepath.Join(repository, "infra/pools.cue")
				writeFile(t, pools, readFile(t, pools)+"\n_size: int @tag(size,type=int)\n")
			}
			got := corral(t, filepath.Join(repository, "infra"), append([]string{"review", "--base", "base"}, tc.args...)...)
			first, rest, _ := strings.Cut(got.stdout, "\n")
			if got.code != exitOK || !strings.HasPrefix(first, tc.first) {
				t.Errorf("exit %d, first %s\n%s", got.code, first, got.stderr)
			}
			for _, claim := range []string{"added", "new: ", "as before", "→"} {
				if strings.Contains(rest, claim) {
					t.Errorf("found %q in\n%s", claim, rest)
				}
			}
			for _, line := range []string{"Allowed: no policy denies it", "not compared", "declared 80, in force 60", "Cost of all pools by month"} {
				if !strings.Contains(rest, line) {
					t.Errorf("%q is missing in\n%s", line, rest)
				}
			}
		})
	}
}

func TestAReviewThatFailsReplacesTheFormerOne(t *testing.T) {
	repository, written := history(t, "01-scale", "."), filepath.Join(t.TempDir(), "review.md")
	writeFile(t, written, "Allowed")
	for _, args := range [][]string{{"--base", "nosuch"}, {"--base", ""}, {"--recorded", "nosuch"}} {
		got := corral(t, repository, append([]string{"review", "--write", "markdown=" + written, "-o", "github"}, args...)...)
		text := readFile(t, written)
		if got.code != exitError || !strings.Contains(text, "### Broken: the review failed (1 problem)\n") || !strings.HasPrefix(got.stdout, "::error title=The review failed::") {
			t.Errorf("%v: %+v\n%s", args, got, text)
		}
		if _, why, _ := strings.Cut(got.stderr, "Error: "); why == "" {
			t.Errorf("%v: the reason is missing: %s", args, got.stderr)
		}
	}
}

// GitHub's runner interprets ##[error] anywhere in a line as a command.
func TestNoFormOfAReviewCommandsTheRunner(t *testing.T) {
	repository := history(t, "01-scale", ".")
	pools := filepath.Join(repository, "pools.cue")
	writeFile(t, pools, readFile(t, pools)+"\npools: web: metadata: annotations: \"example.com/note\": \"a ##[error]b\"\n")
	for _, form := range []string{"text", "markdown", "github", "sarif", "json"} {
		got := corral(t, repository, "review", "-o", form)
		if got.code != exitOK || strings.Contains(got.stdout, "##[") {
			t.Errorf("%s: %+v", form, got)
		}
		if form == "json" && !strings.Contains(got.stdout, `a #\u0023[error]b`) {
			t.Errorf("the JSON differs: %s", got.stdout)
		}
	}
}

func TestACleanCheckoutSaysThatNothingWasCompared(t *testing.T) {
	const says = "Nothing was compared: no definition here differs from HEAD."
	repository := history(t, "01-scale", ".")
	if got := corral(t, repository, "review"); got.code != exitOK || !strings.Contains(got.stdout, says) {
		t.Errorf("got %+v", got)
	}
	if got := corral(t, repository, "review", "--base", "HEAD~1"); got.code != exitOK || strings.Contains(got.stdout, says) {
		t.Errorf("with a base: %+v", got)
	}
}

func TestRevisionsOfARepositoryAreReviewed(t *testing.T) {
	t.Setenv("GITHUB_WORKSPACE", "")
	repository := history(t, "01-scale", ".")
	changed := filepath.Join(repository, "pools.cue")
	writeFile(t, changed, strings.Replace(readFile(t, changed), "max: 8\n", "max: 4\n", 1))
	const (
		web = "::notice file=pools.cue,line=12,col=27,title=Other limits::pool web: limits · idle 2 → 5 · max 50 → 80%0A"
		gpu = "::notice file=pools.cue,line=35,col=16,title=Other limits::pool gpu: limits · max 8 → 4%0AJobs that were accepted are served"
	)
	for name, tc := range map[string]struct {
		args []string
		code int
		// want and not are prefixes of lines that must and must not appear.
		want, not []string
	}{
		"what isn't committed":        {nil, exitOK, []string{gpu}, []string{web}},
		"what was committed last":     {[]string{"--base", "HEAD^1", "--head", "HEAD"}, exitOK, []string{web}, []string{gpu}},
		"both":                        {[]string{"--base", "HEAD~1"}, exitOK, []string{web, gpu}, nil},
		"for who asks for changes":    {[]string{"--exit-code"}, exitChanged, []string{gpu}, nil},
		"nothing":                     {[]string{"--base", "main", "--head", "HEAD", "--exit-code"}, exitOK, nil, []string{web, gpu}},
		"from before there were any":  {[]string{"--base", "HEAD~2"}, exitOK, nil, []string{web, gpu}},
		"a revision that isn't there": {[]string{"--base", "v9"}, exitError, nil, nil},
		"a folder that isn't there":   {[]string{"elsewhere"}, exitError, nil, nil},
		"a folder of no revision":     {[]string{"--base", "HEAD^1", "--head", "HEAD", "elsewhere"}, exitError, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, repository, append([]string{"review", "--at", reviewedAt, "-o", "github"}, tc.args...)...)
			if got.code != tc.code {
				t.Fatalf("it ended with %d, want %d: %s", got.code, tc.code, got.stderr)
			}
			for _, line := range tc.want {
				if !strings.Contains("\n"+got.stdout, "\n"+line) {
					t.Errorf("no line begins with %q:\n%s", line, got.stdout)
				}
			}
			for _, line := range tc.not {
				if strings.Contains("\n"+got.stdout, "\n"+line) {
					t.Errorf("a line begins with %q:\n%s", line, got.stdout)
				}
			}
		})
	}
}

func TestAHeadThatTheClusterWouldNotReadIsBroken(t *testing.T) {
	repository := history(t, "01-scale", ".")
	writeFile(t, filepath.Join(repository, "logo.bin"), strings.Repeat("\x00", 9<<20))
	gitIn(t, repository, "add", ".")
	gitIn(t, repository, "commit", "-qm", "too large")
	for form, want := range map[string]string{
		"text":     "Broken: the head can't be applied (1 problem)\nCompared: HEAD^1",
		"github":   "::error title=Definition refused::reading revision HEAD: too large: ",
		"markdown": "\n#### reading revision HEAD: too large: ",
	} {
		got := corral(t, repository, "review", "--base", "HEAD^1", "--head", "HEAD", "-o", form)
		if got.code != exitError || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: got %+v", form, got)
		}
	}
}

func TestAFolderOfARepositoryIsReviewed(t *testing.T) {
	repository := history(t, "05-policy-only", "runners/ci")
	t.Setenv("GITHUB_WORKSPACE", "")
	for name, tc := range map[string]struct{ folder, argument, place string }{
		"from the top":            {repository, "runners/ci", "file=runners/ci/policies/data.yaml,line=4,"},
		"from the folder":         {filepath.Join(repository, "runners/ci"), ".", "file=runners/ci/policies/data.yaml,line=4,"},
		"from elsewhere, by path": {t.TempDir(), filepath.Join(repository, "runners/ci"), "file=runners/ci/policies/data.yaml,line=4,"},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, tc.folder, "review", "--base", "HEAD^1", "--at", reviewedAt, "-o", "github", tc.argument)
			if got.code != exitOK || !strings.Contains(got.stdout, tc.place) || !strings.Contains(got.stdout, "moves 2 pools that are not declared otherwise: release, web") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestGuardRailsJudgeBothSides(t *testing.T) {
	guard := filepath.Join(t.TempDir(), "guard.rego")
	text := "package corral.template\n\ndeny contains {\"msg\": \"too much\"} if input.pool.labels.team == \"web\"\n"
	writeFile(t, guard, text)
	folder := recordedReview(t, "01-scale")
	got := corral(t, folder, "review", "base", "head", "--policy", guard, "--at", reviewedAt)
	if got.code != exitDenied || !strings.Contains(got.stdout, "denied as before: too much") || !strings.Contains(got.stderr, "1 of 3 pools denied by policy\n") {
		t.Errorf("got %+v", got)
	}
}

func TestRecordedDecisionsLeaveATrace(t *testing.T) {
	folder := recordedReview(t, "05-policy-only")
	const decision = `{"decision_id": "x", "path": "corral/scaling", "timestamp": "2026-07-07T09:00:00Z", ` +
		`"input": {"pool": {"namespace": "ci", "name": "web", "labels": {"team": "web"}, "scale": {"max": 50}}}}` + "\n"
	const noRecord = "Error: reading recorded decisions: the file has no readable line of a decision log\n"
	for name, tc := range map[string]struct {
		log  string
		args []string
		code int
		want string
	}{
		"with the namespace":      {decision, []string{"-n", "ci"}, exitOK, "1 decision judged again, 0 passed over, "},
		"of no namespace":         {decision, nil, exitOK, "0 decisions judged again, 1 passed over: 0 would have been decided otherwise than by the base's policies\n  1 decision passed over because no policy binds"},
		"with what can't be read": {`{"decision_id": 1}` + "\n" + decision, []string{"-n", "ci"}, exitOK, "1 decision judged again, 1 passed over, "},
		"what can't be read":      {`{"decision_id": 1}`, nil, exitError, noRecord},
		"something else":          {"INFO starting\n", nil, exitError, noRecord},
		"nothing":                 {"", nil, exitError, noRecord},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "decisions.jsonl")
			writeFile(t, log, tc.log)
			got := corral(t, folder, append([]string{"review", "base", "head", "--at", reviewedAt, "--recorded", log}, tc.args...)...)
			if got.code != tc.code || !strings.Contains(got.stdout+got.stderr, tc.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAReviewIsPrintedThoughAFileCantBeWritten(t *testing.T) {
	folder := recordedReview(t, "06-blocking-policy")
	absent, written := filepath.Join(t.TempDir(), "absent", "x"), filepath.Join(t.TempDir(), "review.json")
	got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "--write", "sarif="+absent, "--write", "json="+written)
	if got.code != exitError || !strings.Contains(got.stdout, "\nDenied: ") || !strings.Contains(got.stderr, "writing the review as sarif: ") {
		t.Errorf("got %+v", got)
	}
	if readFile(t, written) == "" {
		t.Error("the other file is empty")
	}
}

func TestABaseWhosePricesAreBrokenHasNoCosts(t *testing.T) {
	folder := recordedReview(t, "01-scale")
	writeFile(t, filepath.Join(folder, "base", pricesFile), "currency: [\n")
	got := corral(t, folder, "review", "base", "head", "--at", reviewedAt, "-o", "json")
	var result review.Result
	if err := json.Unmarshal([]byte(got.stdout), &result); err != nil || got.code != exitOK {
		t.Fatalf("%v, %+v", err, got)
	}
	if result.Cost == nil || result.Cost.Before != nil || result.Cost.After == nil || result.Prices != nil || result.Pools[0].Cost.Before != nil {
		t.Errorf("costs %+v, prices %+v, of a pool %+v", result.Cost, result.Prices, result.Pools[0].Cost)
	}
	if !strings.Contains(strings.Join(result.Notes, " "), "The base's costs aren't known: base/prices.yaml:") {
		t.Errorf("notes %q", result.Notes)
	}
}

func TestBrokenPricesOfTheHeadAreCalledThat(t *testing.T) {
	t.Setenv("GITHUB_WORKSPACE", "")
	folder := recordedReview(t, "01-scale")
	writeFile(t, filepath.Join(folder, "head", pricesFile), "currency: [\n")
	for form, want := range map[string]string{
		"text":   "Broken: the head's prices can't be read (1 problem)\n",
		"github": "::error file=head/prices.yaml,line=1,col=1,title=Prices can't be read::",
	} {
		got := corral(t, folder, "review", "base", "head", "-o", form)
		if got.code != exitError || !strings.Contains(got.stdout, want) || got.stderr != "Error: the head's prices can't be read: 1 problem\n" {
			t.Errorf("%s: got %+v", form, got)
		}
	}
}

func TestReviewRefusesWhatCannotBeMeant(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "prices.yaml"), strings.Repeat("#", review.MaxPriceBytes+1))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"revisions of folders":      {[]string{".", ".", "--base", "main"}, "two folders are compared as they are"},
		"an unknown form":           {[]string{"--write", "pdf=x"}, "--write must be FORM=FILE, with one of the forms text, markdown, github, sarif, json, yaml"},
		"no file":                   {[]string{"--write", "json="}, "--write must be FORM=FILE"},
		"a marker that ends itself": {[]string{"--marker", "a-->b"}, "--marker must be"},
		"a marker with two dashes":  {[]string{"--marker", "a--b"}, "--marker must be"},
		"no time":                   {[]string{"--timeout", "0s"}, "--timeout must be more than 0"},
		"no base, though named":     {[]string{"--base", ""}, "--base is empty: if git merge-base finds no commit, fetch more history"},
		"no head, though named":     {[]string{"--head="}, "--head is empty: "},
		"no repository":             {nil, "is in no Git repository"},
		"no recorded decisions":     {[]string{".", ".", "--recorded", "absent"}, "reading recorded decisions"},
		"too large a price file":    {[]string{".", "."}, "prices.yaml:1:1: larger than 1048576 bytes, the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, folder, append([]string{"review"}, tc.args...)...)
			if got.code != exitError || !strings.Contains(got.stderr+got.stdout, tc.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// counting counts the questions to policies.
type counting struct {
	policy.Asker
	n int
}

// Ask implements policy.Asker.
func (c *counting) Ask(ctx context.Context, p *policy.Policy, q policy.Question) ([]byte, error) {
	c.n++
	return c.Asker.Ask(ctx, p, q)
}

// `make bench` shows that 200 pools take less than 2 s. The time depends mostly on the number of policy
// evaluations.
func TestAReviewOfManyPoolsAsksPoliciesOnceEach(t *testing.T) {
	const pools = 200
	folder := recordedReview(t, "01-scale")
	for _, side := range []string{"base", "head"} {
		var b strings.Builder
		b.WriteString("package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools & {\n")
		for i := range pools - 3 {
			fmt.Fprintf(&b, "\t\"p%d\": {metadata: labels: team: \"web\", spec: {connectionRef: name: \"acme\", scale: max: %d, template: spec: containers: [#Runner & {#cpu: \"1\", #memory: \"%dGi\"}]}}\n",
				i, 50+len(side), map[string]int{"base": 1, "head": 2}[side])
		}
		b.WriteString("}\n")
		writeFile(t, filepath.Join(folder, side, "many.cue"), b.String())
	}
	t.Chdir(folder)
	o := &reviewOptions{definitions: &definitions{}, policies: newPolicyOptions()}
	at, err := parseTime(reviewedAt)
	if err != nil {
		t.Fatal(err)
	}
	in := review.Input{Moment: review.Moment{At: at, Zone: "UTC"}}
	if _, err := o.sides(t.Context(), []string{"base", "head"}, &in); err != nil {
		t.Fatal(err)
	}
	asked := &counting{Asker: o.policies.rules(t.Context())}
	for _, side := range []*review.Side{&in.Base, &in.Head} {
		for i, p := range side.Policies {
			side.Policies[i].Policy = policy.Elsewhere(p.Source(), p.Facts(), asked)
		}
	}
	result, err := review.Compare(t.Context(), in)
	if err != nil || len(result.Pools) != pools-2 {
		t.Fatalf("got %d pools, %v", len(result.Pools), err)
	}
	// Three questions per pool on each side: its limits, its pod, and how a change rolls out.
	if asked.n > 6*pools {
		t.Errorf("policies were evaluated %d times for %d pools", asked.n, pools)
	}
	var b bytes.Buffer
	if err := o.write(&b, "markdown", result); err != nil || b.Len() > report.MaxMarkdown {
		t.Errorf("the comment takes %d bytes, %v", b.Len(), err)
	}
}

func TestVetNamesPoolsThatAreGone(t *testing.T) {
	repository := history(t, "01-scale", ".")
	changed := filepath.Join(repository, "pools.cue")
	text := strings.Replace(readFile(t, changed), "\tweb: {", "\tsite: {", 1)
	writeFile(t, changed, text)
	if err := os.Remove(filepath.Join(repository, "policies/pods.rego")); err != nil { // vet warns about it
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		base, want string
		code       int
	}{
		"since the last commit": {"HEAD", "warning: 1 of 3 pools gone since HEAD (", exitOK},
		"since there were none": {"HEAD~2", "", exitOK},
		"since nothing":         {"", "Error: --base is empty: if git merge-base finds no commit, fetch more history\n", exitError},
	} {
		t.Run(name, func(t *testing.T) {
			got := corral(t, repository, "vet", "--base", tc.base)
			if got.code != tc.code || !strings.HasPrefix(got.stderr, tc.want) || (got.stderr == "") != (tc.want == "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// In a repository of many teams, the definitions of both revisions are in the namespaces of their sources.
func TestPoolsOfManySourcesThatAreGone(t *testing.T) {
	repository := filepath.Join(t.TempDir(), "runners")
	if got := corralAnywhere(t, "init", repository, "--teams=web,data", "--url", "https://github.com/acme"); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	gitIn(t, repository, "init", "-q", "-b", "main")
	gitIn(t, repository, "add", ".")
	gitIn(t, repository, "commit", "-qm", "two teams")
	if got := corral(t, repository, "vet", "--base", "HEAD"); got.code != exitOK || strings.Contains(got.stderr, "gone since") {
		t.Errorf("nothing changed: %+v", got)
	}
	file := filepath.Join(repository, "teams/web/pools.cue")
	writeFile(t, file, strings.Replace(readFile(t, file), "build:", "other:", 1))
	if got := corral(t, repository, "vet", "--base", "HEAD"); got.code != exitOK || !strings.Contains(got.stderr, "1 of 2 pools gone since HEAD (") || !strings.Contains(got.stderr, "ci-web/web-build") {
		t.Errorf("a renamed pool: %+v", got)
	}
}
