// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"slices"

	"cuelang.org/go/cue/token"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// maxRows is the maximum number of table rows with the same mistake that are reported individually. If there are more,
// one diagnostic reports the position that they have in common.
const maxRows = 10

// maxHit is the maximum number of affected objects that a diagnostic names.
const maxHit = 3

// problem is a diagnostic with the data that grouped needs.
type problem struct {
	v1alpha1.Diagnostic
	// object is the name of the affected object, or "".
	object string
	// rule identifies the violated rule and the field, independently of the field's value; "" if unknown.
	rule string
	// shared is the position that several table rows have in common, if the diagnostic is about one of these rows.
	shared token.Position
	// brief is the message at the shared position, if it differs from Message.
	brief string
}

// grouped merges problems with the same cause into one diagnostic, which names the affected objects.
func grouped(problems []problem) []v1alpha1.Diagnostic {
	type cause struct {
		at   token.Position
		rule string
	}
	rows := map[cause]int{}
	for _, p := range problems {
		rows[cause{p.shared, cmp.Or(p.rule, p.Message)}]++
	}
	for i, p := range problems {
		if p.shared.Filename != "" && rows[cause{p.shared, cmp.Or(p.rule, p.Message)}] > maxRows {
			problems[i].File, problems[i].Message = p.shared.Filename, cmp.Or(p.brief, p.Message)
			problems[i].Line, problems[i].Column = v1alpha1.LineNumber(p.shared.Line), v1alpha1.LineNumber(p.shared.Column)
		}
	}
	slices.SortStableFunc(problems, compareProblems)
	var mistakes []v1alpha1.Diagnostic
	for len(problems) > 0 {
		n := 1
		for n < len(problems) && sameMistake(problems[0], problems[n]) {
			n++
		}
		mistakes = append(mistakes, withObjects(problems[:n]))
		problems = problems[n:]
	}
	return mistakes
}

func compareProblems(a, b problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
		cmp.Compare(a.rule, b.rule), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Path, b.Path))
}

// sameMistake reports whether two problems at the same position are the same mistake. Problems without a position are
// the same only if their paths are.
func sameMistake(a, b problem) bool {
	if a.File != b.File || a.Line != b.Line || a.Column != b.Column {
		return false
	}
	if a.Line > 0 {
		a.Path, b.Path = "", ""
	}
	return a.Diagnostic == b.Diagnostic || a.rule != "" && a.rule == b.rule && a.Line > 0
}

// withObjects returns one diagnostic for problems with the same cause. It names the affected objects if there are
// several.
func withObjects(problems []problem) v1alpha1.Diagnostic {
	d := problems[0].Diagnostic
	var hit []string
	for _, p := range problems {
		if p.object != "" && !slices.Contains(hit, p.object) {
			hit = append(hit, p.object)
		}
	}
	if len(hit) > 1 {
		d.Message += fmt.Sprintf(" (%d objects: %s)", len(hit), wording.List(hit, maxHit))
	}
	return d
}

// limited returns at most MaxDiagnostics, and one with the number of the others. It picks from the files in turn, so
// that a file with many mistakes does not hide those in other files.
func limited(all []v1alpha1.Diagnostic) []v1alpha1.Diagnostic {
	if len(all) <= MaxDiagnostics {
		return all
	}
	turn := make([]int, len(all))
	for i := range all {
		if i > 0 && all[i].File == all[i-1].File {
			turn[i] = turn[i-1] + 1
		}
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return turn[a] - turn[b] })
	kept := slices.Sorted(slices.Values(order[:MaxDiagnostics]))
	var some []v1alpha1.Diagnostic
	for _, i := range kept {
		some = append(some, all[i])
	}
	return append(some, v1alpha1.Diagnostic{Message: fmt.Sprintf("and %d more", len(all)-MaxDiagnostics)})
}
