// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// limit is one element of corral.scaling.limit.
type limit struct {
	Field string `json:"field"`
	N     int32  `json:"n"`
	// Floor is true for atLeast and false for atMost.
	Floor        bool                   `json:"floor,omitempty"`
	AssignedJobs v1alpha1.AssignedJobs  `json:"assignedJobs,omitempty"`
	Reason       string                 `json:"reason"`
	Until        time.Time              `json:"until,omitzero"`
	Rule         v1alpha1.RuleReference `json:"rule"`
	// Cluster is true for rules of cluster policies.
	Cluster bool `json:"cluster,omitempty"`
}

// assignedJobs are the values of a limit's assignedJobs.
var assignedJobs = []string{string(v1alpha1.AssignedJobsServe), string(v1alpha1.AssignedJobsWait)}

// fields are the numbers that limits can change. Max comes first, because the others are lowered to it.
var fields = []string{"max", "min", "idle"}

// Scaling evaluates the policies and returns the effective limits of a pool.
func (b *Bound) Scaling(ctx context.Context, in ScalingInput) Scaling {
	if len(b.policies) == 0 {
		return compose(in.Pool.Scale, 0, nil)
	}
	q := b.aboutScaling(in)
	replies := askEach(ctx, b, q, decodeLimit)
	answer := compose(in.Pool.Scale, in.Jobs, replies.enforced)
	answer.ID, answer.Digest, answer.Failures = q.id(), b.digest, replies.failures
	for _, l := range replies.enforced {
		answer.CountsJobs = answer.CountsJobs || l.AssignedJobs == v1alpha1.AssignedJobsWait
		answer.Until = earliest(in.Now, answer.Until, l.Until)
	}
	for _, a := range replies.audited {
		with := compose(in.Pool.Scale, in.Jobs, slices.Concat(replies.enforced, a.elements))
		replies.audit = append(replies.audit, answer.changes(&with, a.policy.Ref())...)
	}
	answer.Audit = sortAudit(replies.audit)
	return answer
}

func decodeLimit(p *Policy, e *element) limit {
	l := limit{
		Field: e.text("field"), Reason: e.reason(), Until: e.until(), Floor: e.has("atLeast"), Rule: e.rule, Cluster: p.isCluster(),
		AssignedJobs: v1alpha1.AssignedJobs(e.text("assignedJobs")),
	}
	e.require(slices.Contains(fields, l.Field), "field is max, min or idle, not %q", l.Field)
	e.require(e.has("atMost") != e.has("atLeast"), "it must have atMost or atLeast, and not both")
	e.require(!e.has("assignedJobs") || slices.Contains(assignedJobs, string(l.AssignedJobs)), "assignedJobs is Serve or Wait, not %q", l.AssignedJobs)
	e.require(!e.has("assignedJobs") || l.Field == "max" && !l.Floor, "assignedJobs goes with atMost of max only")
	l.N = e.number("atMost") + e.number("atLeast") // one of them is 0
	return l
}

// compose narrows the declared numbers by limits. The order of the limits does not matter.
func compose(declared Scale, jobs int32, limits []limit) Scaling {
	s := Scaling{Scale: declared}
	max := s.field("max", declared.Max, limits)
	s.Scale.Max = max.value
	if jobsWait(max.value, jobs, limits) {
		s.AssignedJobs = v1alpha1.AssignedJobsWait
	}
	s.bound("max", declared, max.value, max.binding)
	for _, name := range fields[1:] {
		f := s.field(name, *declared.Number(name), limits)
		s.cut(name, *declared.Number(name), &f, max)
		*s.Scale.Number(name) = f.value
		s.bound(name, declared, f.value, f.binding)
	}
	slices.SortFunc(s.Bounds, compareBounds)
	s.Bounds = slices.Compact(s.Bounds)
	s.Conflicts = firstFew(s.Conflicts, maxConflicts, "and %d conflicts more")
	return s
}

// maxConflicts is the maximum number of conflicts in an answer.
const maxConflicts = 64

// firstFew sorts texts and removes duplicates. If there are more than most, it replaces the others with their number.
func firstFew(all []string, most int, format string) []string {
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Sprintf(format, more))
	}
	return all
}

// jobsWait reports whether accepted jobs beyond max must wait. They wait if a rule with assignedJobs: Wait sets the
// max. They also wait if there are more jobs than such a rule allows: otherwise a lower max from another rule would let
// these jobs run.
func jobsWait(max, jobs int32, limits []limit) bool {
	return slices.ContainsFunc(limits, func(l limit) bool {
		return l.AssignedJobs == v1alpha1.AssignedJobsWait && (l.N == max || l.N > max && jobs > l.N)
	})
}

// cut lowers min or idle to max if it is larger. The rules that determine max then determine that number too.
func (s *Scaling) cut(name string, declared int32, f *fieldLimits, max fieldLimits) {
	if f.value <= max.value {
		return
	}
	for _, l := range f.binding {
		if l.Floor {
			s.Conflicts = append(s.Conflicts, fmt.Sprintf("%s: %s is more than max, so %s is %d", name, l, name, max.value))
		}
	}
	if max.value <= declared {
		f.binding = nil
	}
	f.value, f.binding = max.value, slices.Concat(f.binding, max.binding)
}

// fieldLimits is the value of one number after limits, and the limits that determine it.
type fieldLimits struct {
	value   int32
	binding []limit
	text    string // describes the limits; computed on demand
}

// winners describes the limits that determine the number.
func (f *fieldLimits) winners() string {
	if f.text == "" {
		f.text = describeLimits(f.binding)
	}
	return f.text
}

// field composes one number. Ceilings of namespaced policies lower it, floors of cluster policies raise it, and
// ceilings of cluster policies lower it last. Limits that lose are reported as conflicts.
func (s *Scaling) field(name string, declared int32, limits []limit) fieldLimits {
	f := fieldLimits{value: declared}
	of := func(cluster, floor bool) []limit {
		return slices.DeleteFunc(slices.Clone(limits), func(l limit) bool { return l.Field != name || l.Cluster != cluster || l.Floor != floor })
	}
	ceilings, softFloors, floors, guards := of(false, false), of(false, true), of(true, true), of(true, false)
	for _, chosen := range [][]limit{ceilings, floors, guards} {
		f.narrow(chosen)
	}
	for _, l := range slices.Concat(ceilings, floors) {
		s.overruled(l, &f)
	}
	for _, l := range softFloors {
		s.reportUnmetFloor(l, declared, &f)
	}
	return f
}

// narrow applies ceilings or floors.
func (f *fieldLimits) narrow(limits []limit) {
	for _, l := range limits {
		switch {
		case l.Floor && l.N > f.value, !l.Floor && l.N < f.value:
			f.value, f.binding = l.N, []limit{l}
		case l.N == f.value && (!l.Floor || len(f.binding) > 0 && f.binding[0].Floor):
			f.binding = append(f.binding, l)
		}
	}
}

// overruled reports a limit that the number does not respect, because other limits take precedence.
func (s *Scaling) overruled(l limit, f *fieldLimits) {
	if l.Floor && l.N <= f.value || !l.Floor && l.N >= f.value {
		return
	}
	s.Conflicts = append(s.Conflicts, fmt.Sprintf("%s: %s is beaten by %s, so %s is %d", l.Field, l, f.winners(), l.Field, f.value))
}

// reportUnmetFloor reports a floor of a RunnerPolicy that is above the number. Such a floor never raises a number.
func (s *Scaling) reportUnmetFloor(l limit, declared int32, f *fieldLimits) {
	switch {
	case l.N <= f.value:
	case l.N > declared:
		s.Conflicts = append(s.Conflicts, fmt.Sprintf("%s: %s has no say: only a ClusterRunnerPolicy may ask for more than the declared %d", l.Field, l, declared))
	default:
		s.overruled(l, f)
	}
}

// bound records the rules that changed a declared number.
func (s *Scaling) bound(name string, declared Scale, value int32, binding []limit) {
	if was := *declared.Number(name); was != value {
		for _, l := range binding {
			s.Bounds = append(s.Bounds, v1alpha1.LimitBound{Field: name, Declared: was, Value: value, Reason: l.Reason, Rule: l.Rule})
		}
	}
}

// changes describes how the answer with one more policy differs from this one.
func (s *Scaling) changes(with *Scaling, policy string) []Audit {
	var all []Audit
	report := func(format string, args ...any) {
		all = append(all, Audit{Policy: policy, Message: fmt.Sprintf(format, args...)})
	}
	for _, name := range fields {
		if is, would := *s.Scale.Number(name), *with.Scale.Number(name); is != would {
			report("%s would be %s, not %s%s", name, wording.Max(would), wording.Max(is), with.why(name, policy))
		}
	}
	if s.AssignedJobs != with.AssignedJobs {
		report("jobs beyond max would %s", map[bool]string{true: "wait", false: "be served"}[with.AssignedJobs == v1alpha1.AssignedJobsWait])
	}
	return all
}

// why returns the rules of a policy that bound a number.
func (s *Scaling) why(field, policy string) string {
	var rules []string
	for _, b := range s.Bounds {
		if b.Field == field && b.Rule.Policy == policy {
			rules = append(rules, fmt.Sprintf("%s (%s)", b.Reason, rulePlace(b.Rule)))
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return ": " + strings.Join(rules, "; ")
}

// String returns the limit for messages.
func (l limit) String() string {
	bound := "atMost"
	if l.Floor {
		bound = "atLeast"
	}
	return fmt.Sprintf("%s %d of %s, %s", bound, l.N, l.Rule.Policy, rulePlace(l.Rule))
}

// maxNamed is the maximum number of rules that a message names.
const maxNamed = 3

func describeLimits(limits []limit) string {
	var texts []string
	for _, l := range limits {
		texts = append(texts, l.String())
	}
	return strings.Join(firstFew(texts, maxNamed, "%d more"), " and ")
}

// rulePlace returns a rule's name, file and line.
func rulePlace(r v1alpha1.RuleReference) string {
	return fmt.Sprintf("%s, %s:%d", r.Name, r.File, r.Line)
}

func compareBounds(a, b v1alpha1.LimitBound) int {
	return cmp.Or(
		cmp.Compare(slices.Index(fields, a.Field), slices.Index(fields, b.Field)),
		compareRules(a.Rule, b.Rule), cmp.Compare(a.Reason, b.Reason),
	)
}

func compareRules(a, b v1alpha1.RuleReference) int {
	return cmp.Or(
		cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name),
	)
}
