// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package workflows

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// script runs a step's script as GitHub does, with the given programs first on the PATH. It returns the output and
// the exit code.
func script(t *testing.T, text string, programs map[string]string, env ...string) (string, int) {
	t.Helper()
	for _, needed := range []string{"bash", "jq", "iconv"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("%s is not installed; GitHub's runners have it", needed)
		}
	}
	bin := t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/usr/bin/env bash\n"+body), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text)
	c.Env = append(append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")), env...)
	out, err := c.CombinedOutput()
	if ended := new(exec.ExitError); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

func stepNamed(t *testing.T, steps []step, name string) string {
	t.Helper()
	for _, s := range steps {
		if s.Name == name {
			return s.Run
		}
	}
	t.Fatalf("no step %q", name)
	return ""
}

// gh simulates GitHub's CLI for one repository, and records changes.
const gh = `
case "$*" in
  *"repos/acme/pools/pulls"*"head=forker:patch-1"*) cat "$WORLD/pulls.json" ;;
  *"issues/7/comments?per_page=100"*) cat "$WORLD/comments.json" ;;
  *"--method P"*) echo "$3 $4" >> "$WORLD/changes"; cat "$6" > "$WORLD/body.json" ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
`

func TestTheReviewIsOneComment(t *testing.T) {
	w, _ := readWorkflow(t, "workflows/corral-review-comment.yaml")
	run := stepNamed(t, w.Jobs["comment"].Steps, "Comment")
	const (
		report = "<!-- corral-review -->\n## Corral review\n\"quoted\" $(touch pwned) `x`\n"
		open   = `[{"number": 6, "head": {"sha": "before"}}, {"number": 7, "head": {"sha": "abc"}}]`
	)
	for name, tc := range map[string]struct {
		report, pulls, comments string
		want                    string
	}{
		"created": {report, open, `[{"id": 1, "user": {"login": "someone"}, "body": "<!-- corral-review -->"}]`, "POST repos/acme/pools/issues/7/comments\n"},
		"updated, found on the second page": {report, open,
			`[{"id": 1, "user": {"login": "x"}, "body": "a"}] [{"id": 22, "user": {"login": "github-actions[bot]"}, "body": "<!-- corral-review -->\nold"}]`,
			"PATCH repos/acme/pools/issues/comments/22\n"},
		"pushed to meanwhile":       {report, `[{"number": 7, "head": {"sha": "newer"}}]`, `[]`, ""},
		"no report of corral":       {"something else\n", open, `[]`, ""},
		"the pull request is gone":  {report, `[]`, `[]`, ""},
		"a marker that begins late": {"x" + report, open, `[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			world := t.TempDir()
			for file, text := range map[string]string{"pulls.json": tc.pulls, "comments.json": tc.comments, "review.md": tc.report} {
				if err := os.WriteFile(filepath.Join(world, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, exit := script(t, run, map[string]string{"gh": gh}, "WORLD="+world, "REPOSITORY=acme/pools", "HEAD_OWNER=forker", "HEAD_BRANCH=patch-1",
				"HEAD_SHA=abc", "REPORT="+filepath.Join(world, "review.md"), "MARKER=<!-- corral-review -->")
			if exit != 0 {
				t.Fatalf("exit code %d: %s", exit, out)
			}
			changes, _ := os.ReadFile(filepath.Join(world, "changes"))
			if diff := cmp.Diff(tc.want, string(changes)); diff != "" {
				t.Errorf("%s\n%s", diff, out)
			}
			if body, _ := os.ReadFile(filepath.Join(world, "body.json")); tc.want != "" && !strings.Contains(string(body), `$(touch pwned)`) {
				t.Errorf("got the body %s", body)
			}
		})
	}
}

// curl simulates GitLab's API for the token of user 9, and records changes.
const curl = `
case "$*" in
  *"/user") echo '{"id": 9}' ;;
  *"/merge_requests/7/notes?per_page=100"*) cat "$WORLD/notes.json" ;;
  *"--request P"*) echo "${!#}" >> "$WORLD/changes" ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
`

// gitLabJob holds the fields of a GitLab job that the tests read.
type gitLabJob struct {
	Script       []string
	AllowFailure bool `yaml:"allow_failure"`
}

func gitLabJobs(t *testing.T) map[string]gitLabJob {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "examples/review/.gitlab-ci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]gitLabJob{}
	if err := yaml.Unmarshal(text, &jobs); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestAReportOfGitLabIsNeverOfTheMergeRequest(t *testing.T) {
	first := gitLabJobs(t)["corral-review"].Script[0]
	for name, prepare := range map[string]string{
		"a report of its own": "mkdir corral-review && echo forged > corral-review/review.md",
		"a link":              "mkdir ../elsewhere && ln -s ../elsewhere corral-review",
		"a file":              "echo forged > corral-review",
	} {
		world := t.TempDir()
		out, exit := script(t, "mkdir $WORLD/checkout && cd $WORLD/checkout && "+prepare+"\n"+first, nil, "WORLD="+world)
		made, err := os.Lstat(filepath.Join(world, "checkout/corral-review"))
		if exit != 0 || err != nil || !made.IsDir() {
			t.Errorf("%s: exit code %d, %v: %s", name, exit, err, out)
		}
		if left, _ := filepath.Glob(filepath.Join(world, "checkout/corral-review/*")); len(left) > 0 {
			t.Errorf("%s: there is %s", name, left)
		}
	}
}

func TestTheReviewIsOneNoteOfGitLab(t *testing.T) {
	job := gitLabJobs(t)["corral-review-comment"]
	if len(job.Script) != 2 || !job.AllowFailure {
		t.Fatalf("the job is %+v", job)
	}
	const report = "<!-- corral-review -->\nnew"
	for name, tc := range map[string]struct{ report, notes, want string }{
		"created":             {report, `[]`, "https://gitlab/projects/1/merge_requests/7/notes\n"},
		"no report of corral": {"new", `[]`, ""},
		"updated":             {report, `[{"id": 4, "author": {"id": 9}, "body": "x"}, {"id": 5, "author": {"id": 9}, "body": "<!-- corral-review -->\nold"}]`, "https://gitlab/projects/1/merge_requests/7/notes/5\n"},
		"not somebody else's": {report, `[{"id": 6, "author": {"id": 3}, "body": "<!-- corral-review -->"}]`, "https://gitlab/projects/1/merge_requests/7/notes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			world := t.TempDir()
			if err := os.MkdirAll(filepath.Join(world, "work", "corral-review"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"notes.json": tc.notes, "work/corral-review/review.md": tc.report} {
				if err := os.WriteFile(filepath.Join(world, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, exit := script(t, "cd \"$WORLD/work\"\n"+job.Script[1], map[string]string{"curl": curl}, "WORLD="+world, "CI_API_V4_URL=https://gitlab",
				"CI_MERGE_REQUEST_PROJECT_ID=1", "CI_MERGE_REQUEST_IID=7", "CORRAL_COMMENT_TOKEN=t", "MARKER=<!-- corral-review -->")
			changes, _ := os.ReadFile(filepath.Join(world, "changes"))
			if exit != 0 || tc.want != string(changes) {
				t.Errorf("exit code %d, changed %q, want %q: %s", exit, changes, tc.want, out)
			}
		})
	}
}

// corral simulates the binary: it records its arguments, one per line, and writes the requested report.
const corral = `
printf '%s\n' "$@" > "$WORLD/arguments"
echo "<!-- corral-review -->" > "$WORLD/out/review.md"
echo "::notice::said"
exit "$CODE"
`

func TestTheActionPassesOnWhatItIsGiven(t *testing.T) {
	w, _ := readWorkflow(t, "actions/corral-review/action.yml")
	run := stepNamed(t, w.Runs.Steps, "Review")
	for code, outcome := range map[string]string{"0": "allowed", "2": "denied", "1": "failed"} {
		world := t.TempDir()
		out, exit := script(t, run, map[string]string{"corral": corral}, "WORLD="+world, "CODE="+code, "BASE=HEAD^1", "HEAD=HEAD", "DIRECTORY=pools; echo",
			"POLICIES=guard rails\n\n../more", "PRICES=", "OUTPUT="+world+"/out", "MARKER=corral-review", "GITHUB_OUTPUT="+world+"/output",
			"GITHUB_STEP_SUMMARY="+world+"/summary")
		if want := map[string]int{"0": 0, "2": 2, "1": 1}[code]; exit != want || !strings.Contains(out, "::notice::said") {
			t.Errorf("code %s: ended with %d: %s", code, exit, out)
		}
		got := map[string]string{}
		for _, name := range []string{"arguments", "output", "summary"} {
			text, err := os.ReadFile(filepath.Join(world, name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = strings.ReplaceAll(string(text), world, "WORLD")
		}
		want := map[string]string{
			"arguments": strings.Join([]string{"review", "--base", "HEAD^1", "--marker", "corral-review", "--output", "github",
				"--write", "markdown=WORLD/out/review.md", "--write", "json=WORLD/out/review.json", "--write", "sarif=WORLD/out/review.sarif",
				"--head", "HEAD", "--policy", "guard rails", "--policy", "../more", "--", "pools; echo", ""}, "\n"),
			"output":  "outcome=" + outcome + "\n",
			"summary": "<!-- corral-review -->\n",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
