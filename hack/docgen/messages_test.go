// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMessagesAreReadFromTheCode(t *testing.T) {
	code := map[string]string{
		"apis/v1alpha1/conditions.go": "package v1alpha1\nconst (\n// GoneReason is true when it is gone.\nGoneReason = \"Gone\"\n)",
		"controllers/pools/pool.go": `package pools
const made = "Made"
func f() {
	x.Event(pool, corev1.EventTypeNormal, made, fmt.Sprintf("made %d", n))
	x.Event(pool, corev1.EventTypeNormal, string(v1alpha1.GoneReason), words(n))
}`,
		"internal/scaling/plan.go":     "package scaling\nvar reason, key = \"nothing to do\", \"max\"",
		"internal/cli/root.go":         "package cli\nvar err = fmt.Errorf(\"--x: %w\", err)",
		"internal/cli/root_test.go":    "package cli\nvar err = errors.New(\"of a test\")",
		"internal/kube/not_listed.go":  "package kube\nvar err = errors.New(\"inside\")",
		"internal/cli/testdata/readme": "no code",
	}
	files := fstest.MapFS{}
	for name, text := range code {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	page, err := messagesPage(files)
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(page, "## Reasons\n")
	before, rest, _ := strings.Cut(got, "\n## Causes\n")
	row := "| `SessionOpening` | Progressing | warning | `opening a session` | Wait. If this persists, check the controller's log. |\n"
	if !strings.Contains(rest, row) {
		t.Errorf("no line begins with %s", row)
	}
	_, after, _ := strings.Cut(rest, "\n## Events\n")
	got = before + "\n## Events\n" + after
	want := "\n| reason | is |\n|---|---|\n| `Gone` | is true when it is gone. |\n" + `
## Events

| message | reason | file |
|---|---|---|
` + "| `…` | Gone | controllers/pools/pool.go |\n| `made %d` | Made | controllers/pools/pool.go |\n" + `
## Reasons of numbers and states

| message | reason | file |
|---|---|---|
` + "| `nothing to do` |  | internal/scaling/plan.go |\n" + `
## Errors of the command line

| message | reason | file |
|---|---|---|
` + "| `--x: %w` |  | internal/cli/root.go |\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
