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

// maxRows is how many rows of a table are told of by themselves when they lack the same. Of more, the place that they have in common is.
const maxRows = 10

// maxHit is how many of the objects are named that one mistake hits.
const maxHit = 3

// problem is a diagnostic, and the object that it is about.
type problem struct {
	v1alpha1.Diagnostic
	// object is its name, "" if it is about none.
	object string
	// rule says what is wrong with which field, whatever its value; "" if nothing else can break it.
	rule string
	// shared is set if the diagnostic is at one row of several: the place that they have in common.
	shared token.Position
}

// grouped makes one diagnostic of each mistake, and says which objects it hits.
func grouped(problems []problem) []v1alpha1.Diagnostic {
	type cause struct {
		at      token.Position
		message string
	}
	rows := map[cause]int{}
	for _, p := range problems {
		rows[cause{p.shared, p.Message}]++
	}
	for i, p := range problems {
		if p.shared.Filename != "" && rows[cause{p.shared, p.Message}] > maxRows {
			problems[i].File, problems[i].Line, problems[i].Column = p.shared.Filename, p.shared.Line, p.shared.Column
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

// sameMistake says whether two problems tell the same of one place. Those without a place are the same only if their paths are.
func sameMistake(a, b problem) bool {
	if a.File != b.File || a.Line != b.Line || a.Column != b.Column {
		return false
	}
	if a.Line > 0 {
		a.Path, b.Path = "", ""
	}
	return a.Diagnostic == b.Diagnostic || a.rule != "" && a.rule == b.rule && a.Line > 0
}

// withObjects returns the first of problems that are one mistake, with the objects that it hits if they are several.
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

// limited returns at most MaxDiagnostics, and a count of the rest. Each file has its turn, so that one with many mistakes hides none of
// another's.
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
