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

// poolKey is the same of pools that change alike: what each has for itself is left out.
func poolKey(p review.Pool) string {
	if p.Change == review.Deleted || len(limitLines(&p)) == 0 {
		p.Before, p.After = nil, nil
	}
	p.Namespace, p.Name, p.Former, p.Places, p.Findings, p.Cost, p.Live = "", "", "", review.Places{}, nil, nil, nil
	p.Fields = slices.Clone(p.Fields)
	for i := range p.Fields {
		p.Fields[i].Places = review.Places{}
	}
	if r := p.Rollout; r != nil {
		p.Rollout = &review.Rollout{Hold: r.Hold, Strategy: r.Strategy, Reasons: r.Reasons}
	}
	return keyOf(p)
}

// poolBlock tells what becomes of pools that change alike. Causes are the places of what changes of policies, by the pools that only they change.
func poolBlock(alike []review.Pool, causes map[string]Place) block {
	p := &alike[0]
	words := map[review.Change]string{
		review.Added: "added", review.Deleted: "deleted", review.Renamed: "renamed", review.Moved: "changed by policies alone", review.Uncompared: "not compared",
	}[p.Change]
	b := block{kind: "pool", said: words}
	if words == "" {
		words = p.Class().Words()
		var all []string
		for _, c := range p.Classes {
			word := c.Words()
			if c == review.ReplacesRunners && p.Rollout == nil {
				word = "another template, denied"
			}
			all = append(all, word)
		}
		b.said = strings.Join(all, ", ")
	}
	b.class = classOf(words)
	b.tell(p.Fields)
	b.lines = slices.Concat(p.Effects, limitLines(p))
	b.known = keyOf([]any{text(b.said), p.Effects})
	b.details = rolloutLines(alike)
	var total *review.Cost
	var live []string
	for i := range alike {
		name := wording.Qualified(alike[i].Namespace, alike[i].Name)
		if alike[i].Former != "" {
			b.lines = append(b.lines, code(name)+" was "+code(alike[i].Former))
		}
		at, ok := causes[name]
		if !ok || p.Change != review.Moved {
			at = changed(alike[i].Places, alike[i].Fields, p.Class())
		}
		b.add(name, at)
		total = plus(total, alike[i].Cost)
		live = append(live, liveLines(name, alike[i].Live)...)
	}
	if line := costLine("cost by month: ", total); line != "" && keyOf(total.Before) != keyOf(total.After) {
		b.details = append(b.details, line+when(total.Basis != "", " (%s)", total.Basis))
	}
	b.details = append(b.details, live...)
	return b
}

// plus adds the cost of a pool to that of others.
func plus(total, c *review.Cost) *review.Cost {
	if total == nil || c == nil {
		return c
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
		name := strings.TrimPrefix(strings.TrimPrefix(f.Path, "spec."), "scale.")
		if in, ok := strings.CutPrefix(name, "template.spec.containers["); ok {
			_, name, _ = strings.Cut(in, "].")
		}
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

// image is what is before the tag or digest of one.
var image = regexp.MustCompile(`^[\w./-]+(:\d+)?/[\w./-]+[:@]`)

// limitLines tell the numbers that change, or that policies make others.
func limitLines(p *review.Pool) []string {
	lines := present(limitLine(p, "max"), limitLine(p, "min"), limitLine(p, "idle"))
	if p.After == nil {
		return lines
	}
	before := cmp.Or(p.Before, &review.Limits{})
	return slices.Concat(lines, each("conflict: ", unlessKnown(p.After.Conflicts, before.Conflicts)), each("audit: ", unlessKnown(p.After.Audit, before.Audit)))
}

// unlessKnown leaves out what is known.
func unlessKnown(now, known []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(known, s) })
}

// limitLine tells one number, and the rules that make it on either side; nil if there is nothing to tell.
func limitLine(p *review.Pool, name string) string {
	declaredAs := func(l *review.Limits) string { return wording.Max(*l.Declared.Number(name)) }
	inForce := func(l *review.Limits) string {
		if l.Effective == nil {
			return "what held before"
		}
		return wording.Max(*l.Effective.Number(name))
	}
	said, holds := both(p.Before, p.After, declaredAs), both(p.Before, p.After, inForce)
	if p.Change == review.Deleted {
		return ""
	}
	if p.Before != nil && p.After != nil && declaredAs(p.Before) == declaredAs(p.After) && (p.After.Effective == nil || inForce(p.Before) == inForce(p.After)) {
		return "" // it is the same, or what policies that fail leave
	}
	rules := ruleWords(p, name)
	switch {
	case said != holds || rules != "":
		return fmt.Sprintf("%s: declared %s, in force %s%s", name, said, holds, rules)
	case slices.ContainsFunc(p.Fields, func(f review.FieldChange) bool { return f.Path == "spec.scale."+name }):
		return "" // the field tells it
	}
	return name + ": " + said
}

// ruleWords tell which schedules and rules make a number at the head, and which others did at the base.
func ruleWords(p *review.Pool, field string) string {
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

// rolloutLines tell the steps in which a change of one pool's template rolls out, unless it is on hold: the effects tell the rest.
func rolloutLines(alike []review.Pool) []string {
	r := alike[0].Rollout
	if len(alike) > 1 || r == nil || r.Hold {
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
	lines := []string{fmt.Sprintf("%s, %s (%d busy, %d idle, %d pending)", wording.Count(int(l.Jobs), "job"), wording.Count(int(l.Runners.Total), "runner"),
		l.Runners.Busy, l.Runners.Idle, l.Runners.Pending)}
	if len(l.Differs) > 0 {
		lines = append(lines, "the cluster's pool is not the base's: "+code(strings.Join(l.Differs, ", ")))
	}
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
func leftOut(what, why string, base *review.Amounts, before, after []string) string {
	var line string
	names := func(when string, pools []string) {
		if len(pools) > 0 {
			line += fmt.Sprintf("; left out%s%s, %s: %s", what, when, why, listed(pools, maxLeftOut))
		}
	}
	if base == nil { // there is one side
		before = after
	}
	names("", unlessKnown(after, unlessKnown(after, before)))
	names(" before", unlessKnown(before, after))
	names(" after", unlessKnown(after, before))
	return line
}
