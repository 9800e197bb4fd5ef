// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// poolSection tells all of one pool.
func poolSection(p *review.Pool) section {
	heading := join(plainly("pool "), code(wording.Qualified(p.Namespace, p.Name)), plainly(": %s", changeWord(p)))
	if p.Former != "" {
		heading = join(heading, plainly(", was "), code(p.Former))
	}
	if at := cmp.Or(where(p.HeadAt), where(p.BaseAt)); at != "" {
		heading = join(heading, plainly(" – "), code(at))
	}
	s := section{heading: heading, fields: fieldTable(p.Fields), folded: scheduleLines(p.Schedule)}
	s.lines = slices.Concat(each(p.Effects), findingLines(p.Findings), limitLines(p), rolloutLines(p.Rollout))
	if line := costLine(p.Cost); line != nil {
		line = join(plainly("cost by month: "), line)
		if p.Cost.Basis != "" {
			line = join(line, plainly(" (%s)", p.Cost.Basis))
		}
		s.lines = append(s.lines, line)
	}
	s.lines = append(s.lines, liveLines(p.Live)...)
	return s
}

// findingLines tell what policies say of the pod.
func findingLines(findings []review.Finding) []phrase {
	var lines []phrase
	for _, f := range findings {
		line := plainly("%s: %s", stateWord(f), f.Message)
		if f.Path != "" {
			line = join(line, plainly(", at "), code(f.Path))
		}
		if by := byRule(f.Rule); by != nil {
			line = join(line, plainly(" "), by)
		}
		if f.Remediation != "" && f.State != review.Fixed {
			line = join(line, plainly("; fix: %s", f.Remediation))
		}
		lines = append(lines, line)
	}
	return lines
}

// stateWord begins a finding.
func stateWord(f review.Finding) string {
	word := map[review.Level]string{
		review.Failure: "undecided, a policy fails", review.Deny: "denied", review.Warn: "warning", review.Audit: "audit",
	}[f.Level]
	switch f.State {
	case review.New:
		return "new: " + word
	case review.Fixed:
		return "no longer: " + word
	case review.Still:
		return "as before: " + word
	}
	return word
}

// byRule names a rule in brackets.
func byRule(r v1alpha1.RuleReference) phrase {
	at := Place{File: r.File, Line: r.Line}.String()
	switch {
	case r.Name == "" && r.Policy == "":
		return nil
	case r.Name == "":
		return join(plainly("("), code(r.Policy), plainly(")"))
	case at == "":
		return join(plainly("("), code(r.Name), plainly(" of "), code(r.Policy), plainly(")"))
	}
	return join(plainly("("), code(r.Name), plainly(", "), code(at), plainly(")"))
}

// limitLines tell the numbers that change, or that policies make others.
func limitLines(p *review.Pool) []phrase {
	var lines []phrase
	for _, field := range []string{"max", "min", "idle"} {
		if line := limitLine(p, field); line != nil {
			lines = append(lines, line)
		}
	}
	if p.After == nil {
		return lines
	}
	for _, c := range unlessKnown(p.After.Conflicts, p.Before, func(b *review.Limits) []string { return b.Conflicts }) {
		lines = append(lines, plainly("conflict: %s", c))
	}
	for _, a := range unlessKnown(p.After.Audit, p.Before, func(b *review.Limits) []string { return b.Audit }) {
		lines = append(lines, plainly("audit: %s", a))
	}
	return lines
}

// unlessKnown leaves out what was so before.
func unlessKnown(now []string, before *review.Limits, of func(*review.Limits) []string) []string {
	if before == nil {
		return now
	}
	known := of(before)
	return slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(known, s) })
}

// limitLine tells one number; nil if there is nothing to tell.
func limitLine(p *review.Pool, name string) phrase {
	declaredAs := func(l *review.Limits) string { return declared(l, name) }
	inForce := func(l *review.Limits) string { return effective(l, name, "what held before") }
	said, holds := both(p.Before, p.After, declaredAs), both(p.Before, p.After, inForce)
	rules, former := boundsOf(p.After, name), boundsOf(p.Before, name)
	same := p.Before != nil && p.After != nil && declaredAs(p.Before) == declaredAs(p.After) && inForce(p.Before) == inForce(p.After)
	switch {
	case p.Change == review.Deleted, same:
		return nil
	case said == holds && len(rules)+len(former) == 0:
		return plainly("%s: %s", name, said)
	}
	line := plainly("%s: declared %s, in force %s", name, said, holds)
	for _, b := range rules {
		line = join(line, plainly("; %s ", b.Reason), byRule(b.Rule))
	}
	for _, b := range former {
		if !slices.ContainsFunc(rules, func(r v1alpha1.LimitBound) bool { return r.Reason == b.Reason && r.Rule.Name == b.Rule.Name }) {
			line = join(line, plainly("; before: %s ", b.Reason), byRule(b.Rule))
		}
	}
	return line
}

// boundsOf returns the rules that made a field's number on a side.
func boundsOf(l *review.Limits, field string) []v1alpha1.LimitBound {
	if l == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(l.Bounds), func(b v1alpha1.LimitBound) bool { return b.Field != field })
}

func rolloutLines(r *review.Rollout) []phrase {
	if r == nil {
		return nil
	}
	text := fmt.Sprintf("rolls out by %s, at most %d more and %d fewer than wanted meanwhile", r.Strategy, r.MaxSurge, r.MaxUnavailable)
	if r.Canary > 0 {
		text += fmt.Sprintf(", %d first", r.Canary)
	}
	if r.Hold {
		text += "; held for now"
	}
	if len(r.Reasons) > 0 {
		text += ": " + strings.Join(r.Reasons, "; ")
	}
	return []phrase{plainly("%s", text)}
}

// liveLines tell what runs now.
func liveLines(l *review.Live) []phrase {
	if l == nil {
		return nil
	}
	if l.Absent {
		return []phrase{join(plainly("the cluster has no such pool in the namespace "), code(l.Namespace))}
	}
	lines := []phrase{plainly("now: %s, %s (%d busy, %d idle, %d pending)", wording.Count(int(l.Jobs), "job"), wording.Count(int(l.Runners.Total), "runner"),
		l.Runners.Busy, l.Runners.Idle, l.Runners.Pending)}
	if len(l.Differs) > 0 {
		lines = append(lines, join(plainly("the cluster's pool is not the base's: "), code(strings.Join(l.Differs, ", "))))
	}
	for _, e := range l.Effects {
		lines = append(lines, plainly("now: %s", e))
	}
	return lines
}

// fieldTable lists fields that differ with their places.
func fieldTable(fields []review.FieldChange) *table {
	if len(fields) == 0 {
		return nil
	}
	t := &table{head: []string{"Field", "Before", "After", "Where"}}
	for _, f := range fields {
		t.rows = append(t.rows, []phrase{code(f.Path), value(f.Before), value(f.After), code(pair(where(f.BaseAt), where(f.HeadAt)))})
	}
	return t
}

// value shows a JSON value as short as it is understood.
func value(raw json.RawMessage) phrase {
	if raw == nil {
		return plainly("–")
	}
	var text string
	if err := json.Unmarshal(raw, &text); err == nil && text != "" && strings.TrimSpace(text) == text && !strings.ContainsAny(text, "\n\t\r") {
		return code(text)
	}
	return code(string(raw))
}

// scheduleLines list what schedules make of the numbers, on both sides.
func scheduleLines(s *review.Schedule) *folded {
	if s == nil {
		return nil
	}
	f := &folded{heading: "Schedules, the seven days to come"}
	for _, side := range []struct {
		name  string
		spans []review.Span
	}{{"before", s.Before}, {"after", s.After}} {
		for _, span := range side.spans {
			text := fmt.Sprintf("%-6s from %s  max %s, min %d, idle %d", side.name, span.From.Format(time.RFC3339), wording.Max(span.Scale.Max), span.Scale.Min, span.Scale.Idle)
			if len(span.Active) > 0 {
				text += "  " + strings.Join(span.Active, ", ")
			}
			f.lines = append(f.lines, text)
		}
	}
	return f
}

// costLine tells the three amounts; nil without any.
func costLine(c *review.Cost) phrase {
	if c == nil || c.Before == nil && c.After == nil {
		return nil
	}
	least := both(c.Before, c.After, func(a *review.Amounts) string { return money(a.Min) })
	most := both(c.Before, c.After, func(a *review.Amounts) string {
		if a.Max == nil {
			return "unbounded"
		}
		return money(*a.Max)
	})
	line := plainly("min %s, typical %s, max %s %s", least, typical(c), most, c.Currency)
	line = join(line, leftOut("", ", whose price isn't known", c.Before, c.UnknownBefore, c.Unknown))
	return join(line, leftOut("max ", ", which no max bounds", c.Before, c.UnboundedBefore, c.Unbounded))
}

// leftOut names the pools that aren't in amounts: in neither side's, or in those of one.
func leftOut(what, why string, base *review.Amounts, before, after []string) phrase {
	var line phrase
	names := func(when string, pools []string) {
		if len(pools) > 0 {
			line = join(line, plainly("; %s%swithout ", what, when), code(strings.Join(pools, ", ")), plainly("%s", why))
		}
	}
	if base == nil { // there is one side
		before = after
	}
	names("", slices.DeleteFunc(slices.Clone(after), func(p string) bool { return !slices.Contains(before, p) }))
	names("before ", slices.DeleteFunc(slices.Clone(before), func(p string) bool { return slices.Contains(after, p) }))
	names("after ", slices.DeleteFunc(slices.Clone(after), func(p string) bool { return slices.Contains(before, p) }))
	return line
}

// typical is the typical amount on both sides.
func typical(c *review.Cost) string {
	return both(c.Before, c.After, func(a *review.Amounts) string { return money(a.Typical) })
}

// money writes an amount: whole numbers in groups of three, or cents below a hundred.
func money(v float64) string {
	if math.Abs(v) < 100 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var b strings.Builder
	if v < 0 {
		b.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
