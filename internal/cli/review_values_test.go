// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/review"
)

// GitHub's runner interprets ##[error] anywhere in a line as a command. The YAML output escapes it without
// changing the decoded text.
func TestYAMLCommandsNoRunnerAndMeansTheSame(t *testing.T) {
	const note = "first ##[error]b\nsecond '##[group]'"
	repository, written := history(t, "01-scale", "."), filepath.Join(t.TempDir(), "review.yaml")
	pools := filepath.Join(repository, "pools.cue")
	writeFile(t, pools, readFile(t, pools)+"\npools: web: metadata: annotations: \"example.com/note\": \"first ##[error]b\\nsecond '##[group]'\"\n")
	printed := corral(t, repository, "review", "-o", "yaml", "--write", "yaml="+written)
	if text := readFile(t, written); text != printed.stdout || strings.Contains(text, "##[") {
		t.Errorf("printed %s\nwritten %s", printed.stdout, text)
	}
	var r review.Result
	if err := yaml.UnmarshalStrict([]byte(printed.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if got := string(r.Pools[0].Fields[0].After); got != `"first ##[error]b\nsecond '##[group]'"` {
		t.Error(got)
	}
	built := corral(t, repository, "build")
	if built.code != exitOK || strings.Contains(built.stdout, "##[") {
		t.Errorf("%+v", built)
	}
	for _, document := range strings.Split(built.stdout, "---\n") {
		var object struct {
			Metadata struct {
				Name        string            `json:"name"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if got := object.Metadata.Annotations["example.com/note"]; object.Metadata.Name == "web" && got != note {
			t.Errorf("built is %q", got)
		}
	}
}

func TestValuesAreShownAsTheyWereWritten(t *testing.T) {
	repository := history(t, "01-scale", ".")
	pools := filepath.Join(repository, "pools.cue")
	writeFile(t, pools, readFile(t, pools)+"\npools: web: {metadata: annotations: \"example.com/note\": \"a && <b>\", spec: template: spec: containers: [{args: [\"x && y\", \"z\"]}]}\n")
	for form, want := range map[string][]string{
		"text": {`a && <b>`, `["x && y","z"]`}, "json": {`"after": "a && <b>"`, `"x && y",`}, "github": {`a && <b>`, `["x && y","z"]`}, "sarif": {`a && <b>`, `x && y`},
	} {
		got := corral(t, repository, "review", "-o", form)
		for _, text := range want {
			if !strings.Contains(got.stdout, text) {
				t.Errorf("%s has no %s:\n%s", form, text, got.stdout)
			}
		}
	}
}

func TestPriceFilesThatAreNotReadAreToldOf(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(folder string) error
		want   string
	}{
		"a link": {func(folder string) error {
			if err := os.Rename(filepath.Join(folder, "prices.yaml"), filepath.Join(folder, "dear.yml")); err != nil {
				return err
			}
			return os.Symlink("dear.yml", filepath.Join(folder, "prices.yaml"))
		}, "prices.yaml: a link, which is not followed; commit the file itself"},
		"a link out of the folder": {func(folder string) error {
			if err := os.Remove(filepath.Join(folder, "prices.yaml")); err != nil {
				return err
			}
			return os.Symlink("/etc/hostname", filepath.Join(folder, "prices.yaml"))
		}, "prices.yaml: a link, which is not followed; commit the file itself"},
		"another beside it": {func(folder string) error { return os.WriteFile(filepath.Join(folder, "prices.yml"), nil, 0o600) },
			"prices.yml: only prices.yaml is read; rename it, or remove it"},
		"another in its place": {func(folder string) error {
			return os.Rename(filepath.Join(folder, "prices.yaml"), filepath.Join(folder, "prices.json"))
		},
			"prices.json: only prices.yaml is read; rename it, or remove it"},
		"a merge left unresolved": {func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "prices.yaml"), []byte("currency: EUR\n<<<<<<< HEAD\nperVCPUHour: 1\n=======\nperVCPUHour: 2\n>>>>>>> other\n"), 0o600)
		}, "prices.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			repository := history(t, "01-scale", ".")
			if err := tc.change(repository); err != nil {
				t.Fatal(err)
			}
			look := func(when string, args ...string) {
				got := corral(t, repository, append([]string{"review"}, args...)...)
				if got.code != exitError || !strings.Contains(got.stdout, "the head's prices can't be read (1 problem)") || !strings.Contains(got.stdout, tc.want) {
					t.Errorf("%s: %+v", when, got)
				}
			}
			look("work tree")
			gitIn(t, repository, "add", ".")
			gitIn(t, repository, "commit", "-qm", "prices")
			look("revision", "--base", "HEAD^1", "--head", "HEAD")
		})
	}
}

func TestTheClosestPriceFileHolds(t *testing.T) {
	repository := history(t, "01-scale", "runners")
	writeFile(t, filepath.Join(repository, "prices.yaml"), "currency: USD\nperVCPUHour: 1\n")
	if got := corral(t, repository, "review", "runners"); !strings.Contains(got.stdout, "EUR") || strings.Contains(got.stdout, "USD") {
		t.Errorf("%+v", got)
	}
	if got := corral(t, repository, "review", "runners", "--prices", "prices.yaml"); !strings.Contains(got.stdout, "USD") || strings.Contains(got.stdout, "EUR") {
		t.Errorf("%+v", got)
	}
}

func TestNoFormIsWrittenToADash(t *testing.T) {
	repository := history(t, "01-scale", ".")
	got := corral(t, repository, "review", "--write", "markdown=-")
	if _, err := os.Stat(filepath.Join(repository, "-")); err == nil || got.code != exitError || !strings.Contains(got.stderr, "and the name of a file; found \"markdown=-\"") {
		t.Errorf("%v, %+v", err, got)
	}
}

// GitHub's runner also interprets :: as a command if only white space precedes it in a line. This can happen in a
// multi-line text and in a folded one.
func TestNoFormBeginsALineWithACommand(t *testing.T) {
	begins := regexp.MustCompile(`(?m)^[ \t\v\f\r\x{85}\p{Z}]*::`)
	for _, note := range []string{"a\\n::error::b", "a\\n\\u00a0::error::b", "a\\n\\u2003::error::b", strings.Repeat("a", 90) + " ::error::b"} {
		t.Run(note, func(t *testing.T) {
			repository := history(t, "01-scale", ".")
			pools := filepath.Join(repository, "pools.cue")
			writeFile(t, pools, readFile(t, pools)+"\npools: web: metadata: annotations: \"example.com/note\": \""+strings.ReplaceAll(note, `\\`, `\`)+"\"\n")
			for _, form := range []string{"text", "markdown", "json", "yaml", "sarif"} {
				got := corral(t, repository, "review", "--diff", "-o", form)
				if line := begins.FindString(got.stdout); got.code != exitOK || line != "" {
					t.Errorf("%s of %q has %q: %s", form, note, line, got.stderr)
				}
			}
		})
	}
}
