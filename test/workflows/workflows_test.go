// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package workflows tests the example workflows that users copy. They are valid, they give a pull request from a
// fork neither a write token nor a secret, and they comment only once.
package workflows

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const top = "../.."

func TestWorkflowsPassActionlint(t *testing.T) {
	// actionlint resolves local actions relative to the root of the repository, which it finds by the .git folder.
	project := t.TempDir()
	if err := os.CopyFS(project, os.DirFS(filepath.Join(top, "examples/review"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(project, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(project, ".github/workflows/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows, %v", err)
	}
	lint := exec.Command("go", append([]string{"tool", "-modfile=hack/tools/go.mod", "actionlint", "-no-color", "-shellcheck=", "-pyflakes="}, files...)...)
	lint.Dir = top
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// workflow holds the fields of a workflow or composite action that the tests read.
type workflow struct {
	On          yaml.Node
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Steps       []step
	}
	Runs struct{ Steps []step }
}

type step struct {
	Name, Uses, Run string
	With, Env       map[string]string
}

func readWorkflow(t *testing.T, path string) (workflow, string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "examples/review/.github", path))
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	return w, string(text)
}

func TestAReviewOfAForkHasNothingToTake(t *testing.T) {
	w, text := readWorkflow(t, "workflows/corral-review.yaml")
	if diff := cmp.Diff(map[string]string{"contents": "read"}, w.Permissions); diff != "" {
		t.Error(diff)
	}
	for _, forbidden := range []string{"secrets.", "pull_request_target", "github.token", "GITHUB_TOKEN"} {
		if strings.Contains(text, forbidden) {
			t.Errorf("it has %s", forbidden)
		}
	}
	if w.Jobs["review"].Permissions != nil {
		t.Errorf("the job has permissions of its own: %v", w.Jobs["review"].Permissions)
	}
	for _, s := range w.Jobs["review"].Steps {
		if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != "false" {
			t.Error("the checkout stores its token")
		}
	}
}

func TestAReportIsNeverOfThePullRequest(t *testing.T) {
	action, _ := readWorkflow(t, "actions/corral-review/action.yml")
	steps := action.Runs.Steps
	if got := steps[len(steps)-1].Env["OUTPUT"]; got != "${{ runner.temp }}/${{ inputs.output-directory }}" {
		t.Errorf("reports are written to %s", got)
	}
	w, _ := readWorkflow(t, "workflows/corral-review.yaml")
	steps = w.Jobs["review"].Steps
	if got := steps[len(steps)-1].With["path"]; got != "${{ runner.temp }}/corral-review/" {
		t.Errorf("the artifact is of %s", got)
	}
}

func TestTheCommentRunsNothingOfThePullRequest(t *testing.T) {
	w, text := readWorkflow(t, "workflows/corral-review-comment.yaml")
	if w.Permissions == nil || len(w.Permissions) > 0 {
		t.Errorf("permissions beyond the job's: %v", w.Permissions)
	}
	if diff := cmp.Diff(map[string]string{"actions": "read", "pull-requests": "write"}, w.Jobs["comment"].Permissions); diff != "" {
		t.Error(diff)
	}
	for _, forbidden := range []string{"actions/checkout", "secrets.", "uses: ./", "corral review --"} {
		if strings.Contains(text, forbidden) {
			t.Errorf("it has %s", forbidden)
		}
	}
}

func TestScriptsTakeNoTextOfEventsAsCode(t *testing.T) {
	for _, path := range []string{"workflows/corral-review.yaml", "workflows/corral-review-comment.yaml", "actions/corral-review/action.yml"} {
		w, _ := readWorkflow(t, path)
		steps := w.Runs.Steps
		for _, job := range w.Jobs {
			steps = append(steps, job.Steps...)
		}
		for _, s := range steps {
			if strings.Contains(s.Run, "${{") {
				t.Errorf("%s: the script of step %q contains an expression", path, s.Name)
			}
		}
	}
}
