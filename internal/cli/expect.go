// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/internal/report"
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
		d.differ(field, report.Limit(*want), report.Limit(got))
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
		d.differ(field, want, cmp.Or(got, "none"))
	}
}

func (d *difference) word(field, want, got string) {
	if want != "" && want != got {
		d.differ(field, want, got)
	}
}

// texts expects each wanted text within one of those there are; an empty list expects none.
func (d *difference) texts(field string, want, got []string) {
	if want != nil && len(want) == 0 && len(got) > 0 {
		d.differ(field, "none", strings.Join(got, "\n"))
	}
	for _, w := range want {
		if !containsText(got, w) {
			d.differ(field, "…"+w+"…", cmp.Or(strings.Join(got, "\n"), "none"))
		}
	}
}

func containsText(texts []string, wanted string) bool {
	for _, text := range texts {
		if strings.Contains(text, wanted) {
			return true
		}
	}
	return false
}

// common compares what every decision has. A failure that is not expected is a difference.
func (d *difference) common(want commonExpectation, got answer) {
	var failures, audits []string
	for _, f := range got.Failures {
		failures = append(failures, f.String())
	}
	for _, x := range got.Audit {
		audits = append(audits, x.Policy+": "+x.Message)
	}
	expected := want.Failures
	if expected == nil {
		expected = []string{}
	}
	d.texts("failures", expected, failures)
	d.texts("audit", want.Audit, audits)
}

// compare returns where an answer on numbers is another than expected.
func (want *scalingExpectation) compare(got *scalingAnswer) []string {
	d := &difference{decision: "scaling"}
	d.common(want.commonExpectation, got.answer)
	if got.Effective != nil {
		d.number("max", want.Max, got.Effective.Max)
		d.number("min", want.Min, got.Effective.Min)
		d.number("idle", want.Idle, got.Effective.Idle)
		d.truth("hard", want.Hard, got.Hard)
		d.instant("until", want.Until, got.Until)
	}
	var bounds []string
	for _, b := range got.Bounds {
		bounds = append(bounds, b.String())
	}
	if want.Bounds != nil && len(want.Bounds) == 0 && len(bounds) > 0 {
		d.differ("bounds", "none", strings.Join(bounds, "\n"))
	}
	for _, b := range want.Bounds {
		if !b.among(got.Bounds) {
			d.differ("bounds", b.String(), cmp.Or(strings.Join(bounds, "\n"), "none"))
		}
	}
	d.texts("conflicts", want.Conflicts, got.Conflicts)
	return d.lines
}

// compare returns where a verdict is another than expected.
func (want *templateExpectation) compare(got *templateAnswer) []string {
	d := &difference{decision: "template"}
	d.common(want.commonExpectation, got.answer)
	d.truth("allowed", want.Allowed, got.Allowed)
	d.verdicts("denied", want.Denied, got.Denials)
	d.verdicts("warnings", want.Warnings, got.Warnings)
	return d.lines
}

func (d *difference) verdicts(field string, want []verdictExpectation, got []verdict) {
	var texts []string
	for _, v := range got {
		texts = append(texts, v.String())
	}
	if want != nil && len(want) == 0 && len(got) > 0 {
		d.differ(field, "none", strings.Join(texts, "\n"))
	}
	for _, w := range want {
		if !w.among(got) {
			d.differ(field, w.String(), cmp.Or(strings.Join(texts, "\n"), "none"))
		}
	}
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
	d.texts("reasons", want.Reasons, got.reasons())
	return d.lines
}

// among says whether one of the bounds is as expected.
func (want boundExpectation) among(bounds []bound) bool {
	for _, b := range bounds {
		if (want.Field == "" || want.Field == b.Field) && (want.Value == nil || *want.Value == b.Value) &&
			strings.Contains(b.Reason, want.Reason) && strings.Contains(b.Rule.Name, want.Rule) && (want.Policy == "" || want.Policy == b.Rule.Policy) {
			return true
		}
	}
	return false
}

// String tells what is expected of a bound.
func (want boundExpectation) String() string {
	value := ""
	if want.Value != nil {
		value = report.Limit(*want.Value)
	}
	return parts("field", want.Field, "value", value, "reason", want.Reason, "rule", want.Rule, "policy", want.Policy)
}

// String tells what a rule bounds, to what, and why.
func (b bound) String() string {
	return fmt.Sprintf("%s %s → %s: %s (rule %s)", b.Field, report.Limit(b.Declared), report.Limit(b.Value), b.Reason, b.Rule.full())
}

// among says whether one of the verdicts is as expected.
func (want verdictExpectation) among(verdicts []verdict) bool {
	for _, v := range verdicts {
		if (want.Code == "" || want.Code == v.Code) && strings.Contains(v.Message, want.Message) && (want.Path == "" || want.Path == v.Path) &&
			strings.Contains(v.Rule.Name, want.Rule) && (want.Policy == "" || want.Policy == v.Rule.Policy) {
			return true
		}
	}
	return false
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
