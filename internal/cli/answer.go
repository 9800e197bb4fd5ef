// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// answer is what every decision has.
type answer struct {
	// ID of the decision, and the Digest of the policies that were asked; empty if none is bound.
	ID     string `json:"id,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Failures void the decision.
	Failures []policy.Failure `json:"failures,omitempty"`
	// Audit tells what audited policies would change.
	Audit []policy.Audit `json:"audit,omitempty"`
}

// scalingAnswer is a decision on a pool's numbers.
type scalingAnswer struct {
	answer
	Declared policy.Scale `json:"declared"`
	// Effective is absent when a policy failed.
	Effective    *policy.Scale         `json:"effective,omitempty"`
	AssignedJobs v1alpha1.AssignedJobs `json:"assignedJobs,omitempty"`
	Until        string                `json:"until,omitempty"`
	Bounds       []bound               `json:"bounds,omitempty"`
	Conflicts    []string              `json:"conflicts,omitempty"`
}

// templateAnswer is a verdict on a pool's pod.
type templateAnswer struct {
	answer
	Allowed  bool      `json:"allowed"`
	Denials  []verdict `json:"denials,omitempty"`
	Warnings []verdict `json:"warnings,omitempty"`
}

// updateAnswer bounds an update.
type updateAnswer struct {
	answer
	Hold           bool           `json:"hold"`
	Strategy       string         `json:"strategy"`
	MaxSurge       int32          `json:"maxSurge"`
	MaxUnavailable int32          `json:"maxUnavailable"`
	Canary         int32          `json:"canary"`
	Until          string         `json:"until,omitempty"`
	Reasons        []updateReason `json:"reasons,omitempty"`
}

type bound struct {
	Field    string `json:"field"`
	Declared int32  `json:"declared"`
	Value    int32  `json:"value"`
	Reason   string `json:"reason,omitempty"`
	Rule     rule   `json:"rule"`
}

type verdict struct {
	Message     string `json:"message"`
	Path        string `json:"path,omitempty"`
	Code        string `json:"code,omitempty"`
	Severity    string `json:"severity,omitempty"`
	Remediation string `json:"remediation,omitempty"`
	Rule        rule   `json:"rule"`
}

type updateReason struct {
	Message string `json:"message"`
	Rule    rule   `json:"rule"`
}

// rule says where a rule stands, seen from the current folder.
type rule struct {
	Policy string `json:"policy"`
	Name   string `json:"name"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Module and line in the policy, where that isn't the file.
	Module string `json:"module,omitempty"`

	at annotated
}

// annotated is the place of a rule that may have metadata; the library is of no policy.
type annotated struct {
	policy, module string
	line           int
}

// String writes the rule's name and place.
func (r rule) String() string {
	text := r.Name
	if r.File != "" {
		text += ", " + r.File
		if r.Line > 0 {
			text += ":" + strconv.Itoa(r.Line)
		}
	}
	switch {
	case r.Module != "" && r.File != "":
		text += " (" + r.Module + ")"
	case r.Module != "":
		text += ", " + r.Module + " of the built-in library"
	}
	return text
}

// full is String with the rule's policy.
func (r rule) full() string {
	return r.Name + " of " + r.Policy + strings.TrimPrefix(r.String(), r.Name)
}

// translator turns answers of policies into what is shown.
type translator struct{ policies []*declaredPolicy }

func (t translator) rule(r v1alpha1.RuleReference) rule {
	shown := rule{Policy: r.Policy, Name: r.Name, at: annotated{r.Policy, r.File, r.Line}}
	module := r.File
	if r.Line > 0 {
		module = fmt.Sprintf("%s:%d", r.File, r.Line)
	}
	i := slices.IndexFunc(t.policies, func(p *declaredPolicy) bool { return p.source.Ref() == r.Policy })
	if i < 0 {
		shown.Module = module
		return shown
	}
	p := t.policies[i]
	at := p.place(r.File, r.Line)
	shown.File, shown.Line = at.File, at.Line
	if _, inline := p.lines[r.File]; p.folder == "" && !inline || at.File == "" {
		shown.Module = module
	}
	return shown
}

func (t translator) scaling(in policy.Scale, s policy.Scaling) *scalingAnswer {
	a := &scalingAnswer{
		answer: answer{s.ID, s.Digest, s.Failures, s.Audit}, Declared: in,
		AssignedJobs: s.AssignedJobs, Until: instant(s.Until), Conflicts: s.Conflicts,
	}
	if len(s.Failures) == 0 {
		a.Effective = &s.Scale
	}
	for _, b := range s.Bounds {
		a.Bounds = append(a.Bounds, bound{b.Field, b.Declared, b.Value, b.Reason, t.rule(b.Rule)})
	}
	return a
}

func (t translator) template(s policy.Template) *templateAnswer {
	return &templateAnswer{
		answer:  answer{s.ID, s.Digest, s.Failures, s.Audit},
		Allowed: len(s.Denials) == 0 && len(s.Failures) == 0,
		Denials: t.verdicts(s.Denials), Warnings: t.verdicts(s.Warnings),
	}
}

func (t translator) update(s policy.Update) *updateAnswer {
	a := &updateAnswer{
		answer: answer{s.ID, s.Digest, s.Failures, s.Audit},
		Hold:   s.Hold, Strategy: string(s.Strategy), Until: instant(s.Until),
		MaxSurge: s.MaxSurge, MaxUnavailable: s.MaxUnavailable, Canary: s.Canary,
	}
	for _, r := range s.Reasons {
		a.Reasons = append(a.Reasons, updateReason{r.Message, t.rule(r.Rule)})
	}
	return a
}

func (t translator) verdicts(findings []v1alpha1.PolicyFinding) []verdict {
	var verdicts []verdict
	for _, f := range findings {
		verdicts = append(verdicts, verdict{f.Message, f.Path, f.Code, f.Severity, f.Remediation, t.rule(f.Rule)})
	}
	return verdicts
}

// instant writes a time in UTC; the zero time is empty.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// changes says which numbers policies changed, one line each, and by which rule.
func (a *scalingAnswer) changes() []string {
	if a.Effective == nil {
		return nil
	}
	var lines []string
	for _, name := range []string{"max", "min", "idle"} {
		if was, is := *a.Declared.Number(name), *a.Effective.Number(name); was != is {
			lines = append(lines, fmt.Sprintf("%s %s → %s%s", name, wording.Max(was), wording.Max(is), a.because(name, is)))
		}
	}
	return lines
}

// because names the rules that gave a field its value.
func (a *scalingAnswer) because(field string, value int32) string {
	var rules []string
	for _, b := range a.Bounds {
		if b.Field != field || b.Value != value {
			continue
		}
		text := "rule " + b.Rule.String()
		if b.Reason != "" {
			text += ": " + b.Reason
		}
		rules = append(rules, text)
	}
	if len(rules) == 0 {
		return " (never above max)"
	}
	return " (" + strings.Join(rules, "; ") + ")"
}

// write tells a decision on numbers in words.
func (a *scalingAnswer) write(w io.Writer) {
	if a.Effective != nil {
		e := a.Effective
		fmt.Fprintf(w, "max %s, min %s, idle %s", wording.Max(e.Max), wording.Max(e.Min), wording.Max(e.Idle))
		if a.AssignedJobs == v1alpha1.AssignedJobsWait {
			fmt.Fprint(w, ", and jobs accepted beyond max wait")
		}
		fmt.Fprintln(w)
	}
	for _, line := range a.changes() {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, c := range a.Conflicts {
		fmt.Fprintf(w, "  conflict: %s\n", c)
	}
	if a.Until != "" {
		fmt.Fprintf(w, "  until %s\n", a.Until)
	}
	a.answer.write(w)
}

// reasons names the rules of a verdict, one line each.
func (a *templateAnswer) reasons() []string {
	var lines []string
	for _, v := range a.Denials {
		lines = append(lines, "denied: "+v.String())
	}
	for _, v := range a.Warnings {
		lines = append(lines, "warning: "+v.String())
	}
	return lines
}

// reasons names the rules that bound an update, one line each.
func (a *updateAnswer) reasons() []string {
	return textsOf(a.Reasons)
}

// String tells what a rule says of an update.
func (r updateReason) String() string {
	return fmt.Sprintf("%s (rule %s)", cmp.Or(r.Message, "no reason given"), r.Rule)
}

// write tells a verdict in words.
func (a *templateAnswer) write(w io.Writer) {
	switch {
	case a.Allowed:
		fmt.Fprintln(w, "allowed")
	case len(a.Denials) > 0:
		fmt.Fprintln(w, "denied")
	}
	for _, d := range a.Denials {
		d.write(w, "denied: ")
	}
	for _, d := range a.Warnings {
		d.write(w, "warning: ")
	}
	a.answer.write(w)
}

// write tells what bounds an update in words.
func (a *updateAnswer) write(w io.Writer) {
	if len(a.Failures) == 0 {
		if a.Hold {
			fmt.Fprint(w, "hold, ")
		}
		fmt.Fprintf(w, "%s, maxSurge %d, maxUnavailable %d, canary %d\n", a.Strategy, a.MaxSurge, a.MaxUnavailable, a.Canary)
	}
	for _, r := range a.Reasons {
		fmt.Fprintf(w, "  %s\n", r)
	}
	if a.Until != "" {
		fmt.Fprintf(w, "  until %s\n", a.Until)
	}
	a.answer.write(w)
}

func (v verdict) write(w io.Writer, kind string) {
	head := kind
	if v.Path != "" {
		head += v.Path + ": "
	}
	fmt.Fprintf(w, "  %s%s\n    rule: %s\n", head, v.Message, v.Rule)
	if v.Remediation != "" {
		fmt.Fprintf(w, "    fix: %s\n", v.Remediation)
	}
}

func (a answer) write(w io.Writer) {
	for _, f := range a.Failures {
		fmt.Fprintf(w, "  failed: %s\n", f)
	}
	for _, x := range a.Audit {
		fmt.Fprintf(w, "  audit: %s\n", x)
	}
	if a.Digest != "" {
		fmt.Fprintf(w, "  id %s, digest %s\n", a.ID, a.Digest)
	}
}
