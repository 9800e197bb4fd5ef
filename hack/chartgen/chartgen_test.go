// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chartgen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const top = "../.."

func TestWhatIsGeneratedIsCurrent(t *testing.T) {
	base, err := kustomizeBase(t.Context(), os.DirFS(filepath.Join(top, "charts", "corral")))
	if err != nil {
		t.Fatal(err)
	}
	page, err := valuesPage([]byte(read(t, "charts/corral/values.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"charts/kustomize/corral.yaml": base, "docs/install/values.md": page} {
		if diff := cmp.Diff(want, read(t, file)); diff != "" {
			t.Errorf("%s is stale, `make generate` makes it again:\n%s", file, diff)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestValuesAreReadFromTheirComments(t *testing.T) {
	for name, tc := range map[string]struct {
		text, want, fails string
	}{
		"one":                   {text: "# -- How many.\nn: 1\n", want: "| `n` | `1` | How many. |"},
		"several lines":         {text: "# Of the file.\n\n# -- How\n# many.\nn: 1\n", want: "| `n` | `1` | How many. |"},
		"a comment before":      {text: "# For those who edit.\n# -- How many.\nn: 1\n", want: "| `n` | `1` | How many. |"},
		"an inner one":          {text: "a:\n  # -- How many.\n  n: []\n", want: "| `a.n` | `[]` | How many. |"},
		"a table that is one":   {text: "# -- Both.\na:\n  b: 1\n  c: {d: x}\n", want: "| `a` | `{b: 1, c: {d: x}}` | Both. |"},
		"what Markdown takes":   {text: "# -- a|b <c> [{d: e}]\nn: \"\"\n", want: "| `n` | `\"\"` | a\\|b &lt;c> \\[{d: e}] |"},
		"none":                  {text: "a:\n  n: 1\n", fails: "values.yaml:2: a.n has no comment"},
		"none that is marked":   {text: "# How many.\nn: 1\n", fails: "values.yaml:2: n has no comment"},
		"none of an empty list": {text: "n: []\n", fails: "n has no comment"},
		"no table":              {text: "[]", fails: "no table"},
		"no YAML":               {text: "a: b: c", fails: "reading the values"},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := valuesPage([]byte(tc.text))
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("got %v, want %q", err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if lines := strings.Split(strings.TrimSpace(page), "\n"); lines[len(lines)-1] != tc.want {
				t.Errorf("got\n%s\nwant\n%s", lines[len(lines)-1], tc.want)
			}
		})
	}
}
