// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parityRows is how many rows each section of docs/arc-parity.md has: A1.1 to A1.15, and so on, up to C1 to C10.
var parityRows = []struct {
	section string
	rows    int
}{
	{"A1.", 15}, {"A2.", 3}, {"A3.", 6}, {"A4.", 6}, {"A5.", 6}, {"A6.", 10}, {"A7.", 16}, {"A8.", 9}, {"A9.", 5},
	{"B1.", 16}, {"B2.", 4}, {"B3.", 8}, {"B4.", 15}, {"B5.", 13},
	{"C", 10}, {"D", 6}, {"E", 5}, {"F", 6}, {"G", 6},
}

// Answers in docs/arc-parity.md. A row with several parts may have two of them.
const (
	works       = "works"
	anotherName = "another name"
	notNeeded   = "not needed"
	notYet      = "later"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	// parityRow matches the beginning of a row, parityBullet an entry of the list of missing features.
	parityRow    = regexp.MustCompile(`^\| [A-Z]\d+(\.\d+)? \|`)
	parityBullet = regexp.MustCompile(`(?m)^\* ([A-Z]\d+(?:\.\d+)?): `)
	testName     = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
)

// testsOf returns the names of all tests of the repository.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range files(t, ".go", ".") {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			names[m[1]] = true
		}
	}
	return names
}

func TestTestsThatPagesNameAreThere(t *testing.T) {
	there := testsOf(t)
	for _, page := range files(t, ".md", "docs") {
		for _, m := range testName.FindAllStringSubmatch(read(t, page), -1) {
			if !there[m[1]] {
				t.Errorf("%s names %s, and there is no such test", page, m[1])
			}
		}
	}
}

func TestEachRowOfParityHasItsAnswer(t *testing.T) {
	var want, got, missing []string
	for _, s := range parityRows {
		for i := range s.rows {
			want = append(want, fmt.Sprintf("%s%d", s.section, i+1))
		}
	}
	page := read(t, filepath.Join(top, "docs/arc-parity.md"))
	for line := range strings.Lines(page) {
		if !parityRow.MatchString(line) {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		got = append(got, id)
		if len(cells) != 5 {
			t.Errorf("%s has %d cells, not 5: row, what it is, answer, in Corral, tests", id, len(cells))
			continue
		}
		for _, problem := range parityProblems(cells[2], cells[3], cells[4]) {
			t.Errorf("%s: %s", id, problem)
		}
		if strings.Contains(cells[2], notYet) {
			missing = append(missing, id)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	var listed []string
	for _, m := range parityBullet.FindAllStringSubmatch(page, -1) {
		listed = append(listed, m[1])
	}
	if diff := cmp.Diff(missing, listed); diff != "" {
		t.Errorf("what is listed as missing, against the rows that say later (-rows +list):\n%s", diff)
	}
}

// parityProblems returns the errors in a row.
func parityProblems(answer, how, tests string) []string {
	var problems []string
	answers := strings.Split(strings.TrimSpace(answer), ", ")
	for _, a := range answers {
		if !slices.Contains([]string{works, anotherName, notNeeded, notYet}, a) {
			problems = append(problems, fmt.Sprintf("%q is none of the answers", a))
		}
	}
	if strings.TrimSpace(how) == "" {
		problems = append(problems, "it doesn't say how, why or what is missing")
	}
	shown := slices.Contains(answers, works) || slices.Contains(answers, anotherName)
	if shown && !testName.MatchString(tests) {
		problems = append(problems, "no test shows it")
	}
	if slices.Contains(answers, notYet) && !strings.Contains(how, "Missing: ") {
		problems = append(problems, "it doesn't say what is Missing: …")
	}
	return problems
}

func TestParityAsksForTests(t *testing.T) {
	for name, tc := range map[string]struct {
		answer, how, tests string
		want               int
	}{
		"works":                   {works, "so", "`TestX`", 0},
		"works, and nobody knows": {works, "so", "", 1},
		"under another name":      {anotherName, "so", "by hand", 1},
		"not needed":              {notNeeded, "why", "", 0},
		"later":                   {notYet, "Missing: all", "", 0},
		"later, not what":         {notYet, "soon", "", 1},
		"in part":                 {works + ", " + notYet, "so. Missing: that", "`TestX`", 0},
		"another word":            {"partly", "so", "", 1},
		"nothing":                 {"", "", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parityProblems(tc.answer, tc.how, tc.tests); len(got) != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
