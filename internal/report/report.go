// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes findings and test results in the formats that CI systems read:
// GitHub's workflow commands, SARIF and JUnit. It is pure: the same values give the same bytes.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
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
type Place = review.Place

// Finding is one thing to say about a place.
type Finding struct {
	Level Level `json:"level"`
	// Rule identifies what found it: a Rego rule, or a check of Corral's own.
	Rule string `json:"rule"`
	// Title says what the rule is about, in a few words.
	Title string `json:"title"`
	// Subject is what is judged, as "pool ci/linux".
	Subject string `json:"subject,omitempty"`
	// Message in one or more lines.
	Message string `json:"message"`
	// Help says what to change; empty if nobody knows.
	Help string `json:"help,omitempty"`
	// Place of what is judged.
	Place Place `json:"place,omitzero"`
	// Path of the field that is judged, if there is one.
	Path string `json:"path,omitempty"`
	// Source is where the rule stands; By says so in words, and names its policy.
	Source Place  `json:"source,omitzero"`
	By     string `json:"by,omitempty"`
	// Known is what a finding of several subjects is known again by, beside its rule, whoever joins them; empty of others.
	Known string `json:"-"`
}

// write writes a whole form.
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
	// Kind of its cases.
	Kind  string `json:"kind"`
	Cases []Case `json:"tests"`
}

// Case is one test, or one question that was asked.
type Case struct {
	Name string `json:"name"`
	Place
	Result Result `json:"result"`
	// Failure says in one or more lines what is wrong. It is empty unless the test failed.
	Failure string `json:"failure,omitempty"`
	// Because names the rules that made the answer of a scenario that failed.
	Because []string `json:"because,omitempty"`
	// Output that it printed.
	Output  string  `json:"output,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Details are what is wrong, and the rules that made it.
func (c Case) Details() string {
	return strings.Join(append([]string{c.Failure}, c.Because...), "\n  ")
}

// Count returns how many cases have a result.
func (s Suite) Count(result Result) (n int) {
	for _, c := range s.Cases {
		if c.Result == result {
			n++
		}
	}
	return n
}

// Seconds is how long the cases took.
func (s Suite) Seconds() (total float64) {
	for _, c := range s.Cases {
		total += c.Seconds
	}
	return total
}

// worstFirst sorts findings by level, and keeps their order otherwise.
func worstFirst(findings []Finding) []Finding {
	order := map[Level]int{Error: 0, Warning: 1, Note: 2}
	return slices.SortedStableFunc(slices.Values(findings), func(a, b Finding) int { return order[a.Level] - order[b.Level] })
}

// maxAlone is how many subjects are told by themselves, each at its place, of which the same is found. Of more, the first is, with the names
// of maxAlone.
const maxAlone = 3

// Grouped makes one finding of those that say the same of several subjects in one place, or of many subjects. It stands where the first did.
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

// together is the first of findings, with the subjects of all.
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
