// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	rfc3339 = time.RFC3339
	// maxLeftOut bounds how many pools a line of costs names.
	maxLeftOut = 5
)

// poolBlock tells what becomes of a pool. Causes are the places of what changes of policies, by the pools that only they change.
func poolBlock(p *review.Pool, name string, causes map[string]Place) block {
	label := map[review.Change]string{
		review.Added: "added", review.Deleted: "deleted", review.Renamed: "renamed", review.Moved: "changed by policies alone", review.Uncompared: "not compared",
	}[p.Change]
	said := label
	if label == "" {
		label = p.Class().Text()
		var all []string
		for _, c := range p.Classes {
			word := c.Text()
			if c == review.ReplacesRunners && p.Rollout == nil {
				word = "another template, denied"
			}
			all = append(all, word)
		}
		said = strings.Join(all, ", ")
	}
	at, ok := causes[name]
	if !ok || p.Change != review.Moved {
		at = changed(p.Places, p.Fields, p.Class())
	}
	b := blockOf(label, "pool", name, at)
	if b.said = said; p.Former != "" {
		b.names[0] = p.Former + " → " + name
	}
	b.tell(p.Fields)
	b.lines = slices.Concat(p.Effects, limitLines(p))
	b.known = keyOf([]any{text(b.said), p.Effects})
	b.alone, b.own, b.cost = rolloutLines(p.Rollout), liveLines(name, p.Live), p.Cost
	return b
}

// plus adds the cost of a pool to that of others; nil if either isn't known.
func plus(total, c *review.Cost) *review.Cost {
	if total == nil || c == nil {
		return nil
	}
	sum := *total
	sum.Before, sum.After = total.Before.Plus(c.Before), total.After.Plus(c.After)
	if total.Basis != c.Basis {
		sum.Basis = ""
	}
	return &sum
}

const (
	// maxShort bounds how many fields a heading tells of, and shortest a value there.
	maxShort, shortest = 2, 40
)

// tell adds what differs: to what is said if that is little, and as a table unless all of it is said.
func (b *block) tell(fields []review.FieldChange) {
	if len(fields) != 1 {
		b.fields = fields
	}
	if len(fields) > maxShort {
		b.said += fmt.Sprintf(" · %s", wording.Count(len(fields), "field"))
		return
	}
	for _, f := range fields {
		name := f.Path[len(around.FindString(f.Path)):]
		was, is := readable(f.Before), readable(f.After)
		if prefix := image.FindString(was); prefix == image.FindString(is) {
			was, is = was[len(prefix):], is[len(prefix):]
		}
		b.said += " · " + code(name)
		if len(was) > shortest || len(is) > shortest {
			b.fields = fields
			continue
		}
		b.said += " " + code(was) + " → " + code(is)
	}
}

// around is what a heading leaves out of a field's path.
var around = regexp.MustCompile(`^spec\.(scale\.|template\.spec\.containers\[[^]]*\]\.)?`)

// image is what is before the tag or digest of one.
var image = regexp.MustCompile(`^[\w./-]+(:\d+)?/[\w./-]+[:@]`)

// limitLines tell the numbers that change, or that policies make others.
func limitLines(p *review.Pool) []string {
	lines := present(limitLine(p, "max"), limitLine(p, "min"), limitLine(p, "idle"))
	before, after := cmp.Or(p.Before, &review.Limits{}), cmp.Or(p.After, &review.Limits{})
	return slices.Concat(lines, each("conflict: ", unlessKnown(after.Conflicts, before.Conflicts)), each("audit: ", unlessKnown(after.Audit, before.Audit)))
}

// unlessKnown leaves out what is known.
func unlessKnown(now, known []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(known, s) })
}

// limitLine tells one number, and the rules that make it on either side; nil if there is nothing to tell.
func limitLine(p *review.Pool, name string) string {
	said := both(p.Before, p.After, func(l *review.Limits) string { return wording.Max(*l.Declared.Number(name)) })
	holds := both(p.Before, p.After, func(l *review.Limits) string {
		if l.Effective == nil {
			return "what held before"
		}
		return wording.Max(*l.Effective.Number(name))
	})
	if p.Change == review.Deleted || p.Before != nil && !strings.Contains(said, arrow) && (p.After.Effective == nil || !strings.Contains(holds, arrow)) {
		return "" // it goes, is the same, or what policies that fail leave
	}
	rules := ruleText(p, name)
	switch {
	case said != holds || rules != "":
		return fmt.Sprintf("%s: declared %s, in force %s%s", name, said, holds, rules)
	case slices.ContainsFunc(p.Fields, func(f review.FieldChange) bool { return f.Path == "spec.scale."+name }):
		return "" // the field tells it
	}
	return name + ": " + said
}

// ruleText says which schedules and rules make a number at the head, and which others did at the base.
func ruleText(p *review.Pool, field string) string {
	rules := ""
	known := map[string]bool{}
	for _, side := range []struct {
		*review.Limits
		when string
	}{{p.After, "; "}, {p.Before, "; before: "}} {
		if by := scheduledBy(side.Limits, field); by != "" && !known[by] {
			known[by] = true
			rules += side.when + by
		}
		for i := 0; side.Limits != nil && i < len(side.Bounds); i++ {
			if b := side.Bounds[i]; b.Field == field && !known[b.Rule.Name+b.Reason] {
				known[b.Rule.Name+b.Reason] = true
				rules += fmt.Sprintf("%s%s (%s)", side.when, b.Reason, byRule(b.Rule))
			}
		}
	}
	return rules
}

// scheduledBy says which number schedules make of a declared one; empty if it is the same.
func scheduledBy(l *review.Limits, name string) string {
	if l == nil || l.Scheduled == nil || *l.Scheduled.Scale.Number(name) == *l.Declared.Number(name) {
		return ""
	}
	return fmt.Sprintf("%s by schedule %s", wording.Max(*l.Scheduled.Scale.Number(name)), strings.Join(l.Scheduled.Active, ", "))
}

// rolloutLines tell the steps in which a change of a pool's template rolls out, unless it is on hold: the effects tell the rest.
func rolloutLines(r *review.Rollout) []string {
	if r == nil || r.Hold {
		return nil
	}
	steps := fmt.Sprintf("rolls out by %s, at most %d more and %d fewer than wanted meanwhile", r.Strategy, r.MaxSurge, r.MaxUnavailable)
	return []string{steps + when(r.Canary > 0, ", %d first", r.Canary) + strings.Join(each("; ", r.Reasons), "")}
}

// liveLines tell what runs now.
func liveLines(name string, l *review.Live) []string {
	if l == nil {
		return nil
	}
	if l.Absent {
		return []string{fmt.Sprintf("the cluster has no pool %s in the namespace %s", code(name), code(l.Namespace))}
	}
	jobs := "jobs aren't known"
	if l.Jobs != nil {
		jobs = wording.Count(*l.Jobs, "job")
	}
	lines := present(fmt.Sprintf("%s, %s (%d busy, %d idle, %d pending)", jobs, wording.Count(int(l.Runners.Total), "runner"),
		l.Runners.Busy, l.Runners.Idle, l.Runners.Pending),
		when(len(l.Differs) > 0, "the cluster's pool is not the base's: %s", code(strings.Join(l.Differs, ", "))))
	return each(fmt.Sprintf("now %s: ", code(name)), append(lines, l.Effects...))
}

// readable shows a JSON value as short as it is understood.
func readable(raw json.RawMessage) string {
	if raw == nil {
		return "–"
	}
	var text string
	if err := json.Unmarshal(raw, &text); err == nil && text != "" && strings.TrimSpace(text) == text && !strings.ContainsAny(text, "\n\t\r") {
		return text
	}
	return string(raw)
}

// costLine tells the three amounts, after a word; nil without any.
func costLine(word string, c *review.Cost) string {
	if c == nil || c.Before == nil && c.After == nil {
		return ""
	}
	least := both(c.Before, c.After, func(a *review.Amounts) string { return review.Money(a.Min) })
	typical := both(c.Before, c.After, func(a *review.Amounts) string { return review.Money(a.Typical) })
	most := both(c.Before, c.After, func(a *review.Amounts) string {
		if a.Max == nil {
			return "unbounded"
		}
		return review.Money(*a.Max)
	})
	return fmt.Sprintf("%smin %s, typical %s, max %s %s", word, least, typical, most, c.Currency) +
		leftOut("", "as no price is known", c.Before, c.UnknownBefore, c.Unknown) + leftOut(" of max", "as nothing bounds it", c.Before, c.UnboundedBefore, c.Unbounded)
}

// leftOut says why pools aren't in amounts, and names them: those in neither side's, or in those of one.
func leftOut(what, why string, base *review.Amounts, before, after []string) (line string) {
	if base == nil { // there is one side
		before = after
	}
	for _, left := range []struct {
		when  string
		pools []string
	}{{"", unlessKnown(after, unlessKnown(after, before))}, {" before", unlessKnown(before, after)}, {" after", unlessKnown(after, before)}} {
		line += when(len(left.pools) > 0, "; left out%s%s, %s: %s", what, left.when, why, listed(left.pools, maxLeftOut))
	}
	return line
}
