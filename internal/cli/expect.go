// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// difference collects where an answer is another than expected, as lines of a diff.
type difference struct {
	decision string
	lines    []string
}

func (d *difference) differ(field, want, got string) {
	name := d.decision + "." + field + ": "
	d.lines = append(d.lines, "- "+name+want)
	for line := range strings.SplitSeq(got, "\n") {
		d.lines = append(d.lines, "+ "+name+line)
	}
}

func (d *difference) number(field string, want *int32, got int32) {
	if want != nil && *want != got {
		d.differ(field, wording.Max(*want), wording.Max(got))
	}
}

func (d *difference) truth(field string, want *bool, got bool) {
	if want != nil && *want != got {
		d.differ(field, strconv.FormatBool(*want), strconv.FormatBool(got))
	}
}

// instant compares times in whatever zone they are written.
func (d *difference) instant(field, want, got string) {
	if want == "" {
		return
	}
	at, err := parseTime(want)
	if err != nil || instant(at) != got {
		d.differ(field, want, orNone(got))
	}
}

func (d *difference) word(field, want, got string) {
	if want != "" && want != got {
		d.differ(field, want, got)
	}
}

// excerpt is a part of a text that is expected.
type excerpt string

// String tells what is expected of a text.
func (want excerpt) String() string { return "…" + string(want) + "…" }

func (want excerpt) fits(text string) bool { return strings.Contains(text, string(want)) }

// wanted is what is expected of one of several.
type wanted[G any] interface {
	fmt.Stringer
	fits(got G) bool
}

// each expects that each of the wanted fits one of those there are; an empty list expects none.
func each[W wanted[G], G any](d *difference, field string, want []W, got []G) {
	all := textsOf(got)
	if want != nil && len(want) == 0 && len(got) > 0 {
		d.differ(field, "none", strings.Join(all, "\n"))
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, w.fits) {
			d.differ(field, w.String(), orNone(strings.Join(all, "\n")))
		}
	}
}

// textsOf are those of several things.
func textsOf[T any](things []T) []string {
	var all []string
	for _, t := range things {
		all = append(all, fmt.Sprint(t))
	}
	return all
}

func orNone(text string) string { return cmp.Or(text, "none") }

// common compares what every decision has. A failure that is not expected is a difference.
func (d *difference) common(want commonExpectation, got answer) {
	expected := want.Failures
	if expected == nil {
		expected = []excerpt{}
	}
	each(d, "failures", expected, textsOf(got.Failures))
	each(d, "audit", want.Audit, textsOf(got.Audit))
}

// compare returns where an answer on numbers is another than expected.
func (want *scalingExpectation) compare(got *scalingAnswer) []string {
	d := &difference{decision: "scaling"}
	d.common(want.commonExpectation, got.answer)
	if got.Effective != nil {
		d.number("max", want.Max, got.Effective.Max)
		d.number("min", want.Min, got.Effective.Min)
		d.number("idle", want.Idle, got.Effective.Idle)
		d.word("assignedJobs", string(want.AssignedJobs), string(cmp.Or(got.AssignedJobs, v1alpha1.AssignedJobsServe)))
		d.instant("until", want.Until, got.Until)
	}
	each(d, "bounds", want.Bounds, got.Bounds)
	each(d, "conflicts", want.Conflicts, got.Conflicts)
	return d.lines
}

// compare returns where a verdict is another than expected.
func (want *templateExpectation) compare(got *templateAnswer) []string {
	d := &difference{decision: "template"}
	d.common(want.commonExpectation, got.answer)
	d.truth("allowed", want.Allowed, got.Allowed)
	each(d, "denied", want.Denied, got.Denials)
	each(d, "warnings", want.Warnings, got.Warnings)
	return d.lines
}

// compare returns where the bounds of an update are others than expected.
func (want *updateExpectation) compare(got *updateAnswer) []string {
	d := &difference{decision: "update"}
	d.common(want.commonExpectation, got.answer)
	if len(got.Failures) == 0 {
		d.truth("hold", want.Hold, got.Hold)
		d.word("strategy", want.Strategy, got.Strategy)
		d.number("maxSurge", want.MaxSurge, got.MaxSurge)
		d.number("maxUnavailable", want.MaxUnavailable, got.MaxUnavailable)
		d.number("canary", want.Canary, got.Canary)
		d.instant("until", want.Until, got.Until)
	}
	each(d, "reasons", want.Reasons, textsOf(got.Reasons))
	return d.lines
}

func (want boundExpectation) fits(b bound) bool {
	return (want.Field == "" || want.Field == b.Field) && (want.Value == nil || *want.Value == b.Value) &&
		strings.Contains(b.Reason, want.Reason) && strings.Contains(b.Rule.Name, want.Rule) && (want.Policy == "" || want.Policy == b.Rule.Policy)
}

// String tells what is expected of a bound.
func (want boundExpectation) String() string {
	value := ""
	if want.Value != nil {
		value = wording.Max(*want.Value)
	}
	return parts("field", want.Field, "value", value, "reason", want.Reason, "rule", want.Rule, "policy", want.Policy)
}

// String tells what a rule bounds, to what, and why.
func (b bound) String() string {
	return fmt.Sprintf("%s %s → %s: %s (rule %s)", b.Field, wording.Max(b.Declared), wording.Max(b.Value), b.Reason, b.Rule.full())
}

func (want verdictExpectation) fits(v verdict) bool {
	return (want.Code == "" || want.Code == v.Code) && strings.Contains(v.Message, want.Message) && (want.Path == "" || want.Path == v.Path) &&
		strings.Contains(v.Rule.Name, want.Rule) && (want.Policy == "" || want.Policy == v.Rule.Policy)
}

// String tells what is expected of a verdict.
func (want verdictExpectation) String() string {
	return parts("code", want.Code, "message", want.Message, "path", want.Path, "rule", want.Rule, "policy", want.Policy)
}

// String tells what a rule says of a pod.
func (v verdict) String() string {
	text := v.Message
	if v.Path != "" {
		text = v.Path + ": " + text
	}
	if v.Code != "" {
		text += " [" + v.Code + "]"
	}
	return fmt.Sprintf("%s (rule %s)", text, v.Rule.full())
}

// parts writes the fields that are set.
func parts(pairs ...string) string {
	var set []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			set = append(set, pairs[i]+" "+strconv.Quote(pairs[i+1]))
		}
	}
	return strings.Join(set, ", ")
}
