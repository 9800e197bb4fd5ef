// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// answers holds the decisions of policies on one pool. Decisions that were not requested are empty.
type answers struct {
	Template templateAnswer `json:"template,omitzero"`
	Scaling  scalingAnswer  `json:"scaling,omitzero"`
	Update   updateAnswer   `json:"update,omitzero"`
}

// answer holds the fields that all decisions have in common.
type answer struct {
	// ID of the decision, and the Digest of the evaluated policies. Both are empty if no policy binds the pool.
	ID     string `json:"id,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Failures of policies. If there are any, policies have not decided, and the other results are not used.
	Failures []policy.Failure `json:"failures,omitempty"`
	// Audit lists what policies in audit mode would change.
	Audit []policy.Audit `json:"audit,omitempty"`
}

// scalingAnswer is the decision on a pool's min, max and idle.
type scalingAnswer struct {
	answer
	Declared policy.Scale `json:"declared"`
	// Effective contains the limits after policies; absent if a policy failed.
	Effective    *policy.Scale         `json:"effective,omitempty"`
	AssignedJobs v1alpha1.AssignedJobs `json:"assignedJobs,omitempty"`
	Until        string                `json:"until,omitempty"`
	Bounds       []bound               `json:"bounds,omitempty"`
	Conflicts    []string              `json:"conflicts,omitempty"`
}

// templateAnswer is the decision whether a pool's pod may run.
type templateAnswer struct {
	answer
	Allowed  bool      `json:"allowed"`
	Denials  []verdict `json:"denials,omitempty"`
	Warnings []verdict `json:"warnings,omitempty"`
}

// updateAnswer is the decision on how an update rolls out.
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
	v1alpha1.LimitBound
	Rule rule `json:"rule"`
}

type verdict struct {
	v1alpha1.PolicyFinding
	Rule rule `json:"rule"`
}

type updateReason struct {
	Message string `json:"message"`
	Rule    rule   `json:"rule"`
}

// rule identifies a rule, with its position relative to the current folder.
type rule struct {
	Policy string `json:"policy"`
	Name   string `json:"name"`
	report.Place
	// Module is MODULE:LINE within the policy, if the position in a file is not known.
	Module string `json:"module,omitempty"`

	at annotated
}

// annotated is the position of a rule in its policy, and the key of the rule's title. For rules of the built-in library,
// policy is empty.
type annotated struct {
	policy, module string
	line           int
}

// String returns the rule's name and position.
func (r rule) String() string {
	text := strings.TrimSuffix(r.Name+", "+r.Place.String(), ", ")
	switch {
	case r.Module == "":
		return text
	case r.File == "":
		return text + ", " + r.Module + " of the built-in library"
	}
	return text + " (" + r.Module + ")"
}

// qualified is like String, but includes the rule's policy.
func (r rule) qualified() string {
	return r.Name + " of " + r.Policy + strings.TrimPrefix(r.String(), r.Name)
}

// translator converts the answers of the policy engine, and adds the positions of rules.
type translator struct{ policies []*declaredPolicy }

// deciding returns the policies that contain more than tests.
func (t translator) deciding() []*declaredPolicy {
	return slices.DeleteFunc(slices.Clone(t.policies), func(p *declaredPolicy) bool { return p.testsOnly })
}

// boundBy returns the names of the policies that bind a pool.
func (t translator) boundBy(pool policy.Pool) []string {
	names := []string{}
	for _, p := range t.deciding() {
		if p.loaded.Binds(pool) {
			names = append(names, p.source.Ref())
		}
	}
	return names
}

func (t translator) rule(r v1alpha1.RuleReference) rule {
	reference := rule{Policy: r.Policy, Name: r.Name, at: annotated{r.Policy, r.File, int(r.Line)}}
	i, exact := slices.IndexFunc(t.policies, func(p *declaredPolicy) bool { return p.source.Ref() == r.Policy }), false
	if i >= 0 {
		reference.Place, exact = t.policies[i].place(r.File, int(r.Line))
		reference.Column = 0
	}
	if !exact {
		reference.Module = report.Place{File: r.File, Line: int(r.Line)}.String()
	}
	return reference
}

func (t translator) scaling(in policy.Scale, s policy.Scaling) scalingAnswer {
	a := scalingAnswer{
		answer: answer{s.ID, s.Digest, s.Failures, s.Audit}, Declared: in, Effective: &s.Scale,
		AssignedJobs: s.AssignedJobs, Until: instant(s.Until), Conflicts: s.Conflicts,
		Bounds: converted(s.Bounds, func(b v1alpha1.LimitBound) bound { return bound{b, t.rule(b.Rule)} }),
	}
	if len(s.Failures) > 0 {
		a.Effective = nil
	}
	return a
}

func (t translator) template(s policy.Template) templateAnswer {
	verdictOf := func(f v1alpha1.PolicyFinding) verdict { return verdict{f, t.rule(f.Rule)} }
	return templateAnswer{
		answer:  answer{s.ID, s.Digest, s.Failures, s.Audit},
		Allowed: len(s.Denials) == 0 && len(s.Failures) == 0,
		Denials: converted(s.Denials, verdictOf), Warnings: converted(s.Warnings, verdictOf),
	}
}

func (t translator) update(s policy.Update) updateAnswer {
	return updateAnswer{
		answer: answer{s.ID, s.Digest, s.Failures, s.Audit},
		Hold:   s.Hold, Strategy: string(s.Strategy), Until: instant(s.Until),
		MaxSurge: s.MaxSurge, MaxUnavailable: s.MaxUnavailable, Canary: s.Canary,
		Reasons: converted(s.Reasons, func(r policy.UpdateReason) updateReason { return updateReason{r.Message, t.rule(r.Rule)} }),
	}
}

// converted applies convert to each value of list. It returns nil for an empty list.
func converted[T, U any](list []T, convert func(T) U) (all []U) {
	for _, one := range list {
		all = append(all, convert(one))
	}
	return all
}

// instant formats a time in UTC. It returns "" for the zero time.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// failures returns the failures of all decisions without duplicates.
func (a *answers) failures() (all []policy.Failure) {
	for _, f := range slices.Concat(a.Template.Failures, a.Scaling.Failures, a.Update.Failures) {
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}

// isRefused reports whether a policy denies the pool's pod, or failed.
func (a *answers) isRefused() bool { return len(a.Template.Denials) > 0 || len(a.failures()) > 0 }

// Reasons returns one line for each number that policies changed, with the rules that changed it.
func (a scalingAnswer) Reasons() (lines []string) {
	for _, name := range []string{"max", "min", "idle"} {
		if a.Effective == nil || *a.Declared.Number(name) == *a.Effective.Number(name) {
			continue
		}
		value := *a.Effective.Number(name)
		var rules []string
		for _, b := range a.Bounds {
			if b.Field == name && b.Value == value {
				rules = append(rules, strings.TrimSuffix("rule "+b.Rule.String()+": "+b.Reason, ": "))
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s → %s (%s)", name, wording.Max(*a.Declared.Number(name)), wording.Max(value),
			cmp.Or(strings.Join(rules, "; "), "never above max")))
	}
	return lines
}

// reasons returns one line for each denial and each warning.
func (a templateAnswer) reasons() []string {
	return slices.Concat(
		converted(a.Denials, func(v verdict) string { return "denied: " + v.String() }),
		converted(a.Warnings, func(v verdict) string { return "warning: " + v.String() }))
}

// String returns the rule's message and the rule.
func (r updateReason) String() string {
	return fmt.Sprintf("%s (rule %s)", cmp.Or(r.Message, "no reason given"), r.Rule)
}

// String returns the changed number, the reason and the rule.
func (b bound) String() string {
	return fmt.Sprintf("%s %s → %s: %s (rule %s)", b.Field, wording.Max(b.Declared), wording.Max(b.Value), b.Reason, b.Rule.qualified())
}

// String returns the message with its path, its code and its rule.
func (v verdict) String() string {
	text := strings.TrimPrefix(v.Path+": "+v.Message, ": ")
	if v.Code != "" {
		text += " [" + v.Code + "]"
	}
	return fmt.Sprintf("%s (rule %s)", text, v.Rule.qualified())
}
