// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes findings and test results in the formats that CI systems read: GitHub's workflow commands, SARIF and
// JUnit. It is pure: equal inputs give equal output.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// Level is the severity of a finding.
type Level string

// Levels, the most severe first.
const (
	// Error makes the check fail.
	Error Level = "error"
	// Warning does not make the check fail.
	Warning Level = "warning"
	// Note is information.
	Note Level = "note"
)

// Place is a place in a file.
type Place = review.Place

// Finding is a message about a place in a file, such as a denial by a policy.
type Finding struct {
	Level Level `json:"level"`
	// Rule identifies the Rego rule, or Corral's own check, that produced the finding.
	Rule string `json:"rule"`
	// Title describes the rule in a few words.
	Title string `json:"title"`
	// Subject is the evaluated object, for example "pool ci/linux".
	Subject string `json:"subject,omitempty"`
	// Message has one or more lines.
	Message string `json:"message"`
	// Help is the suggested fix; empty if there is none.
	Help string `json:"help,omitempty"`
	// Place is where the evaluated object or field is declared.
	Place Place `json:"place,omitzero"`
	// Path is the path of the evaluated field; empty if there is none.
	Path string `json:"path,omitempty"`
	// Source is the place of the rule. By describes the rule and its policy.
	Source Place  `json:"source,omitzero"`
	By     string `json:"by,omitempty"`
	// Known, together with the rule, identifies a finding in code scanning, so that its fingerprint stays the same when a
	// subject is added or moves. If it is empty, the subject, the file, the path and the message identify the finding.
	Known string `json:"-"`
}

// write writes a text. form names its format in the error.
func write(w io.Writer, form, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("writing %s: %w", form, err)
	}
	return nil
}

// Result of a test.
type Result string

// Results.
const (
	Pass Result = "pass"
	Fail Result = "fail"
	Skip Result = "skip"
)

// Suite is a group of cases.
type Suite struct {
	Name string `json:"name"`
	// Kind of the cases, for example rego or scenario.
	Kind  string `json:"kind"`
	Cases []Case `json:"tests"`
}

// Case is one test or one scenario.
type Case struct {
	Name string `json:"name"`
	Place
	Result Result `json:"result"`
	// Failure describes what is wrong, in one or more lines. It is empty unless the test failed.
	Failure string `json:"failure,omitempty"`
	// Because lists the rules that determined the answer of a failed scenario.
	Because []string `json:"because,omitempty"`
	// Output is the text that the test printed.
	Output  string  `json:"output,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Details returns the failure, followed by the rules in Because.
func (c Case) Details() string {
	return strings.Join(append([]string{c.Failure}, c.Because...), "\n  ")
}

// Count returns the number of cases with a result.
func (s Suite) Count(result Result) (n int) {
	for _, c := range s.Cases {
		if c.Result == result {
			n++
		}
	}
	return n
}

// Seconds returns the total duration of the cases.
func (s Suite) Seconds() (total float64) {
	for _, c := range s.Cases {
		total += c.Seconds
	}
	return total
}

// worstFirst sorts findings by level, and keeps their order within a level.
func worstFirst(findings []Finding) []Finding {
	order := map[Level]int{Error: 0, Warning: 1, Note: 2}
	return slices.SortedStableFunc(slices.Values(findings), func(a, b Finding) int { return order[a.Level] - order[b.Level] })
}

// maxAlone is the number of subjects up to which Grouped keeps equal findings separate, each at its place. A merged finding
// names at most maxAlone subjects.
const maxAlone = 3

// Grouped merges findings that differ only in their subjects and places, if all of them are at one place or if there are
// more than maxAlone. The merged finding has the position of the first one. Findings without a subject are not merged.
func Grouped(findings []Finding) (grouped []Finding) {
	for _, alike := range groups(findings, Finding.key) {
		onePlace := !slices.ContainsFunc(alike, func(other Finding) bool { return other.Place != alike[0].Place })
		if alike[0].Subject == "" || len(alike) == 1 || !onePlace && len(alike) <= maxAlone {
			grouped = append(grouped, alike...)
		} else {
			grouped = append(grouped, together(alike))
		}
	}
	return grouped
}

func (f Finding) key() string {
	_, f.Path, _ = strings.Cut(f.Path, ".spec.")
	f.Subject, f.Place = "", Place{}
	return keyOf(f)
}

// together returns the first finding of a group, with the subjects of all findings in its message.
func together(group []Finding) Finding {
	f := group[0]
	kind, _, _ := strings.Cut(f.Subject, " ")
	var names []string
	for _, other := range group {
		names = append(names, strings.TrimPrefix(other.Subject, kind+" "))
	}
	slices.Sort(names)
	f.Known = f.Message + "\x00" + afterSpec(f.Path)
	f.Message += fmt.Sprintf(" (%s: %s)", wording.Count(len(names), kind), wording.List(names, maxAlone))
	return f
}
