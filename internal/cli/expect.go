// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// difference collects the differences between an answer and the expectation, as lines of a diff.
type difference struct {
	decision string
	lines    []string
}

func (d *difference) differ(field, want, got string) {
	name := d.decision + "." + field + ": "
	d.lines = append(d.lines, "- "+name+want)
	for line := range strings.SplitSeq(orNone(got), "\n") {
		d.lines = append(d.lines, "+ "+name+line)
	}
}

// value is a field with its expected and its actual value. An empty want accepts any value.
type value struct{ field, want, got string }

func (d *difference) compareValues(values ...value) {
	for _, v := range values {
		if v.want != "" && v.want != v.got {
			d.differ(v.field, v.want, v.got)
		}
	}
}

// formatOptional formats an expected value. It returns "" for nil, which accepts any value.
func formatOptional[T any](want *T, format func(T) string) string {
	if want == nil {
		return ""
	}
	return format(*want)
}

// inUTC converts an expected time to the format of the times in answers.
func inUTC(want string) string {
	if at, err := parseTime(want); err == nil {
		return instant(at)
	}
	return want
}

// excerpt is a text that another text is expected to contain.
type excerpt string

// String formats the expectation for a diff.
func (want excerpt) String() string { return "…" + string(want) + "…" }

func (want excerpt) fits(text string) bool { return strings.Contains(text, string(want)) }

// elementExpectation is an expectation about one element of a list.
type elementExpectation[G any] interface {
	fmt.Stringer
	fits(got G) bool
}

// compareEach reports the expectations that match no element of got. An empty want that is not nil expects got to be empty.
func compareEach[W elementExpectation[G], G any](d *difference, field string, want []W, got []G) {
	all := strings.Join(textsOf(got), "\n")
	if want != nil && len(want) == 0 && len(got) > 0 {
		d.differ(field, "none", all)
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, w.fits) {
			d.differ(field, w.String(), all)
		}
	}
}

// textsOf formats each element of a list.
func textsOf[T any](things []T) []string {
	return converted(things, func(t T) string { return fmt.Sprint(t) })
}

// compareCommon compares the fields that all decisions have in common. A failure of a policy is a difference unless failures
// are expected.
func (d *difference) compareCommon(want commonExpectation, got answer) {
	expected := want.Failures
	if expected == nil {
		expected = []excerpt{}
	}
	compareEach(d, "failures", expected, textsOf(got.Failures))
	compareEach(d, "audit", want.Audit, textsOf(got.Audit))
}

// compare evaluates each decision for which there is an expectation. It returns the differences, and the rules that led to
// the differing answers.
func (e *expectation) compare(ctx context.Context, a asker, q *questions) (lines, reasons []string) {
	var got answers
	for _, want := range []struct {
		isSet   bool
		compare func(*difference, *answers) []string
		difference
	}{
		{e.Scaling != nil, e.Scaling.compare, difference{decision: policy.DecisionScaling}},
		{e.Template != nil, e.Template.compare, difference{decision: policy.DecisionTemplate}},
		{e.Update != nil, e.Update.compare, difference{decision: policy.DecisionUpdate}},
	} {
		if !want.isSet {
			continue
		}
		if err := a.ask(ctx, want.decision, q, &got); err != nil {
			lines = append(lines, want.decision+": the pod can't be built: "+err.Error())
			continue
		}
		rules := want.compare(&want.difference, &got)
		if len(want.lines) > 0 {
			lines, reasons = append(lines, want.lines...), append(reasons, rules...)
		}
	}
	return lines, reasons
}

func (want *scalingExpectation) compare(d *difference, answers *answers) []string {
	got := &answers.Scaling
	d.compareCommon(want.commonExpectation, got.answer)
	e := got.Effective
	if e != nil {
		d.compareValues(
			value{"max", formatOptional(want.Max, wording.Max), wording.Max(e.Max)},
			value{"min", formatOptional(want.Min, wording.Max), wording.Max(e.Min)},
			value{"idle", formatOptional(want.Idle, wording.Max), wording.Max(e.Idle)},
			value{"assignedJobs", string(want.AssignedJobs), string(cmp.Or(got.AssignedJobs, v1alpha1.AssignedJobsServe))},
			value{"until", inUTC(want.Until), got.Until})
	}
	compareEach(d, "bounds", want.Bounds, got.Bounds)
	compareEach(d, "conflicts", want.Conflicts, got.Conflicts)
	return got.Reasons()
}

func (want *templateExpectation) compare(d *difference, answers *answers) []string {
	got := &answers.Template
	d.compareCommon(want.commonExpectation, got.answer)
	d.compareValues(value{"allowed", formatOptional(want.Allowed, strconv.FormatBool), strconv.FormatBool(got.Allowed)})
	compareEach(d, "denied", want.Denied, got.Denials)
	compareEach(d, "warnings", want.Warnings, got.Warnings)
	return got.reasons()
}

func (want *updateExpectation) compare(d *difference, answers *answers) []string {
	got := &answers.Update
	d.compareCommon(want.commonExpectation, got.answer)
	if len(got.Failures) == 0 {
		d.compareValues(
			value{"hold", formatOptional(want.Hold, strconv.FormatBool), strconv.FormatBool(got.Hold)},
			value{"strategy", want.Strategy, got.Strategy},
			value{"maxSurge", formatOptional(want.MaxSurge, wording.Max), wording.Max(got.MaxSurge)},
			value{"maxUnavailable", formatOptional(want.MaxUnavailable, wording.Max), wording.Max(got.MaxUnavailable)},
			value{"canary", formatOptional(want.Canary, wording.Max), wording.Max(got.Canary)},
			value{"until", inUTC(want.Until), got.Until})
	}
	reasons := textsOf(got.Reasons)
	compareEach(d, "reasons", want.Reasons, reasons)
	return reasons
}

func (want boundExpectation) fits(b bound) bool {
	return (want.Field == "" || want.Field == b.Field) && (want.Value == nil || *want.Value == b.Value) &&
		strings.Contains(b.Reason, want.Reason) && strings.Contains(b.Rule.Name, want.Rule) && (want.Policy == "" || want.Policy == b.Rule.Policy)
}

// String formats the expectation for a diff.
func (want boundExpectation) String() string {
	return formatPairs("field", want.Field, "value", formatOptional(want.Value, wording.Max), "reason", want.Reason, "rule", want.Rule, "policy", want.Policy)
}

func (want verdictExpectation) fits(v verdict) bool {
	return (want.Code == "" || want.Code == v.Code) && strings.Contains(v.Message, want.Message) && (want.Path == "" || want.Path == v.Path) &&
		strings.Contains(v.Rule.Name, want.Rule) && (want.Policy == "" || want.Policy == v.Rule.Policy)
}

// String formats the expectation for a diff.
func (want verdictExpectation) String() string {
	return formatPairs("code", want.Code, "message", want.Message, "path", want.Path, "rule", want.Rule, "policy", want.Policy)
}

// formatPairs formats pairs of names and values. It leaves out the pairs with an empty value.
func formatPairs(pairs ...string) string {
	var set []string
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			set = append(set, pair[0]+" "+strconv.Quote(pair[1]))
		}
	}
	return strings.Join(set, ", ")
}
