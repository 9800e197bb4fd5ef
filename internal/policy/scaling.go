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
	// Floor is true for atLeast, else it is a ceiling.
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

// fields are those that limits are about. Max comes first: the others are cut to it.
var fields = []string{"max", "min", "idle"}

// Scaling asks what limits hold.
func (b *Bound) Scaling(ctx context.Context, in ScalingInput) Scaling {
	if len(b.policies) == 0 {
		return Scaling{Scale: compose(in.Pool.Scale, 0, nil).scale}
	}
	q := b.aboutScaling(in)
	replies := askEach(ctx, b, q, decodeLimit)
	answer := Scaling{ID: q.id(), Digest: b.digest, Failures: replies.failures, Audit: replies.audit}
	c := compose(in.Pool.Scale, in.Jobs, replies.enforced)
	answer.CountsJobs = slices.ContainsFunc(replies.enforced, func(l limit) bool { return l.AssignedJobs == v1alpha1.AssignedJobsWait })
	answer.Scale, answer.AssignedJobs = c.scale, c.assignedJobs
	answer.Bounds, answer.Conflicts = c.bounds, c.conflicts
	for _, l := range replies.enforced {
		answer.Until = earliest(in.Now, answer.Until, l.Until)
	}
	for _, a := range replies.audited {
		with := compose(in.Pool.Scale, in.Jobs, slices.Concat(replies.enforced, a.elements))
		answer.Audit = append(answer.Audit, c.changes(with, a.policy.Ref())...)
	}
	answer.Audit = sortAudit(answer.Audit)
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

// composition is what limits make of declared numbers.
type composition struct {
	scale        Scale
	assignedJobs v1alpha1.AssignedJobs
	bounds       []v1alpha1.LimitBound
	conflicts    []string
}

// compose lets limits narrow what is declared. Their order doesn't matter.
func compose(declared Scale, jobs int32, limits []limit) composition {
	c := composition{scale: declared}
	max := c.field("max", declared.Max, limits)
	c.scale.Max = max.value
	if jobsWait(max.value, jobs, limits) {
		c.assignedJobs = v1alpha1.AssignedJobsWait
	}
	c.bound("max", declared, max.value, max.binding)
	for _, name := range fields[1:] {
		f := c.field(name, *declared.Number(name), limits)
		c.cut(name, *declared.Number(name), &f, max)
		*c.scale.Number(name) = f.value
		c.bound(name, declared, f.value, f.binding)
	}
	slices.SortFunc(c.bounds, compareBounds)
	c.bounds = slices.Compact(c.bounds)
	c.conflicts = few(c.conflicts, maxConflicts, "and %d conflicts more")
	return c
}

// maxConflicts is how many conflicts are told of.
const maxConflicts = 64

// few sorts texts, and counts, in words, those that nobody would read.
func few(all []string, most int, format string) []string {
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Sprintf(format, more))
	}
	return all
}

// jobsWait reports whether jobs beyond max wait. They do if a rule with assignedJobs: Wait gives the max. They also do if there are more jobs than
// such a rule allows: a lower max of another rule must not let them through.
func jobsWait(max, jobs int32, limits []limit) bool {
	return slices.ContainsFunc(limits, func(l limit) bool {
		return l.AssignedJobs == v1alpha1.AssignedJobsWait && (l.N == max || l.N > max && jobs > l.N)
	})
}

// cut keeps min and idle within max. What bounds max then bounds them too.
func (c *composition) cut(name string, declared int32, f *fieldLimits, max fieldLimits) {
	if f.value <= max.value {
		return
	}
	for _, l := range f.binding {
		if l.Floor {
			c.conflicts = append(c.conflicts, fmt.Sprintf("%s: %s is more than max, so %s is %d", name, l, name, max.value))
		}
	}
	if max.value <= declared {
		f.binding = nil
	}
	f.value, f.binding = max.value, slices.Concat(f.binding, max.binding)
}

// fieldLimits is what limits make of one number, and those that give it its value.
type fieldLimits struct {
	value   int32
	binding []limit
	text    string // names those, once it was asked for
}

// winners names the limits that give the number its value.
func (f *fieldLimits) winners() string {
	if f.text == "" {
		f.text = describeLimits(f.binding)
	}
	return f.text
}

// field composes one number: namespaced ceilings lower it, floors of the cluster raise it, and
// ceilings of the cluster lower it last. What loses is a conflict.
func (c *composition) field(name string, declared int32, limits []limit) fieldLimits {
	f := fieldLimits{value: declared}
	of := func(cluster, floor bool) (chosen []limit) {
		for _, l := range limits {
			if l.Field == name && l.Cluster == cluster && l.Floor == floor {
				chosen = append(chosen, l)
			}
		}
		return chosen
	}
	ceilings, softFloors, floors, guards := of(false, false), of(false, true), of(true, true), of(true, false)
	f.lower(ceilings)
	f.raise(floors)
	f.lower(guards)
	for _, l := range slices.Concat(ceilings, floors) {
		c.overruled(l, &f)
	}
	for _, l := range softFloors {
		c.reportUnmetFloor(l, declared, &f)
	}
	return f
}

// lower applies ceilings.
func (f *fieldLimits) lower(ceilings []limit) {
	for _, l := range ceilings {
		switch {
		case l.N < f.value:
			f.value, f.binding = l.N, []limit{l}
		case l.N == f.value:
			f.binding = append(f.binding, l)
		}
	}
}

// raise applies floors.
func (f *fieldLimits) raise(floors []limit) {
	for _, l := range floors {
		switch {
		case l.N > f.value:
			f.value, f.binding = l.N, []limit{l}
		case l.N == f.value && len(f.binding) > 0 && f.binding[0].Floor:
			f.binding = append(f.binding, l)
		}
	}
}

// overruled tells of a rule that others beat.
func (c *composition) overruled(l limit, f *fieldLimits) {
	if l.Floor && l.N <= f.value || !l.Floor && l.N >= f.value {
		return
	}
	c.conflicts = append(c.conflicts, fmt.Sprintf("%s: %s is beaten by %s, so %s is %d", l.Field, l, f.winners(), l.Field, f.value))
}

// reportUnmetFloor tells of a namespaced floor that isn't met: it never raises a number.
func (c *composition) reportUnmetFloor(l limit, declared int32, f *fieldLimits) {
	switch {
	case l.N <= f.value:
	case l.N > declared:
		c.conflicts = append(c.conflicts, fmt.Sprintf("%s: %s has no say: only a ClusterRunnerPolicy may ask for more than the declared %d", l.Field, l, declared))
	default:
		c.overruled(l, f)
	}
}

// bound records the rules that made a number another than the declared.
func (c *composition) bound(name string, declared Scale, value int32, binding []limit) {
	if was := *declared.Number(name); was != value {
		for _, l := range binding {
			c.bounds = append(c.bounds, v1alpha1.LimitBound{Field: name, Declared: was, Value: value, Reason: l.Reason, Rule: l.Rule})
		}
	}
}

// changes tells what one more policy makes of the composition.
func (c *composition) changes(with composition, policy string) []Audit {
	var all []Audit
	tell := func(format string, args ...any) {
		all = append(all, Audit{Policy: policy, Message: fmt.Sprintf(format, args...)})
	}
	for _, name := range fields {
		if is, would := *c.scale.Number(name), *with.scale.Number(name); is != would {
			tell("%s would be %s, not %s%s", name, wording.Max(would), wording.Max(is), with.why(name, policy))
		}
	}
	if c.assignedJobs != with.assignedJobs {
		tell("jobs beyond max would %s", map[bool]string{true: "wait", false: "be served"}[with.assignedJobs == v1alpha1.AssignedJobsWait])
	}
	return all
}

// why gives the rules of a policy that bound a number.
func (c *composition) why(field, policy string) string {
	var rules []string
	for _, b := range c.bounds {
		if b.Field == field && b.Rule.Policy == policy {
			rules = append(rules, fmt.Sprintf("%s (%s)", b.Reason, rulePlace(b.Rule)))
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return ": " + strings.Join(rules, "; ")
}

// String tells of a limit in a message.
func (l limit) String() string {
	bound := "atMost"
	if l.Floor {
		bound = "atLeast"
	}
	return fmt.Sprintf("%s %d of %s, %s", bound, l.N, l.Rule.Policy, rulePlace(l.Rule))
}

// maxNamed is how many rules a message names.
const maxNamed = 3

func describeLimits(limits []limit) string {
	var texts []string
	for _, l := range limits {
		texts = append(texts, l.String())
	}
	return strings.Join(few(texts, maxNamed, "%d more"), " and ")
}

// rulePlace names a rule with its file and line.
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
