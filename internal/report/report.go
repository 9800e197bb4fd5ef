// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes findings and test results in the formats that CI systems read:
// GitHub's workflow commands, SARIF and JUnit. It is pure: the same values give the same bytes.
package report

import (
	"cmp"
	"slices"
	"time"
)

// Level says how bad a finding is.
type Level string

// Levels, the worst first.
const (
	// Error fails the check.
	Error Level = "error"
	// Warning is shown and fails nothing.
	Warning Level = "warning"
	// Note is worth knowing.
	Note Level = "note"
)

// Place is a place in a file.
type Place struct {
	// File as seen from the current folder, with slashes; empty if unknown.
	File string
	// Line and Column count from 1; 0 if unknown.
	Line, Column int
}

// Finding is one thing to say about a place.
type Finding struct {
	Level Level
	// Rule identifies what found it: a Rego rule, or a check of Corral's own.
	Rule string
	// Title says what the rule is about, in a few words.
	Title string
	// Subject is what is judged, as "pool ci/linux".
	Subject string
	// Message in one or more lines.
	Message string
	// Help says what to change; empty if nobody knows.
	Help string
	// Place of what is judged.
	Place Place
	// Path of the field that is judged, if there is one.
	Path string
	// Source is where the rule stands; By says so in words, and names its policy.
	Source Place
	By     string
}

// Suite is a group of cases.
type Suite struct {
	Name  string
	Cases []Case
}

// Case is one test, or one question that was asked.
type Case struct {
	Name     string
	Place    Place
	Duration time.Duration
	Skipped  bool
	// Failure is empty if all is well; several lines say what isn't.
	Failure string
	// Output that it printed.
	Output string
}

// worstFirst sorts findings by level, and keeps their order otherwise.
func worstFirst(findings []Finding) []Finding {
	order := map[Level]int{Error: 0, Warning: 1, Note: 2}
	sorted := slices.Clone(findings)
	slices.SortStableFunc(sorted, func(a, b Finding) int { return cmp.Compare(order[a.Level], order[b.Level]) })
	return sorted
}
