// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// overlapSection tells of pools that the same jobs are for.
func overlapSection(r *review.Result) []section {
	if len(r.Overlaps) == 0 {
		return nil
	}
	s := section{heading: plainly("Pools that the same jobs are for, and weren't before")}
	for _, o := range r.Overlaps {
		line := join(code(o.Pool), plainly(": %s", o.Message))
		if at := where(&o.At); at != "" {
			line = join(line, plainly(" ("), code(at), plainly(")"))
		}
		s.lines = append(s.lines, line)
	}
	return []section{s}
}

// movesNone is said of a policy that moves no pool. It has no time: that would make it another alert of code scanning each day.
const movesNone = "moves no pool that is declared as before, neither now nor in the week to come as far as rules say until"

// policySections tell of policies that change.
func policySections(r *review.Result) []section {
	var sections []section
	for _, p := range r.Policies {
		s := headed("policy", p.Policy, strings.ToLower(string(p.Change)), p.Places)
		s.fields = fieldTable(p.Fields)
		if len(p.What) > 0 {
			s.lines = append(s.lines, plainly("changed: %s", strings.Join(p.What, ", ")))
		}
		mode := both(p.Before, p.After, func(x *review.PolicyState) string { return string(x.Mode) })
		binds := both(p.Before, p.After, func(x *review.PolicyState) string { return wording.Count(x.Pools, "pool") })
		digest := both(p.Before, p.After, func(x *review.PolicyState) string { return short(x.Digest) })
		s.lines = append(s.lines, join(plainly("mode %s, binds %s, digest ", mode, binds), code(digest)))
		if len(p.Moved) > 0 {
			s.lines = append(s.lines, join(plainly("moves %s that %s not declared otherwise: ", wording.Count(len(p.Moved), "pool"), isAre(len(p.Moved))),
				code(strings.Join(p.Moved, ", "))))
		} else {
			s.lines = append(s.lines, plainly(movesNone))
		}
		sections = append(sections, s)
	}
	return sections
}

// short cuts a digest to what tells it from others.
func short(digest string) string {
	if algorithm, sum, ok := strings.Cut(digest, ":"); ok && len(sum) > 12 {
		return algorithm + ":" + sum[:12]
	}
	return digest[:min(12, len(digest))]
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// connectionSections tell of connections that change.
func connectionSections(r *review.Result) []section {
	var sections []section
	for _, c := range r.Connections {
		said := strings.ToLower(string(c.Change))
		if c.Class != "" && c.Change == review.Changed {
			said += ", " + strings.TrimSuffix(classWords[c.Class], " only")
		}
		s := headed("connection", wording.Qualified(c.Namespace, c.Name), said, c.Places)
		s.fields, s.lines = fieldTable(c.Fields), each(c.Effects)
		if len(c.Pools) > 0 {
			s.lines = append(s.lines, join(plainly("used by "), code(strings.Join(c.Pools, ", "))))
		}
		sections = append(sections, s)
	}
	return sections
}

// priceSection tells which prices differ.
func priceSection(r *review.Result) []section {
	if r.Prices == nil {
		return nil
	}
	heading := join(plainly("prices: "), code(pair(r.Prices.BaseFile, r.Prices.HeadFile)))
	return []section{{heading: heading, fields: fieldTable(r.Prices.Fields)}}
}

// recordedSection tells what recorded decisions would have been.
func recordedSection(r *review.Result) []section {
	rec := r.Recorded
	if rec == nil {
		return nil
	}
	s := section{heading: plainly("Recorded decisions"), more: rec.Differ - len(rec.Changed)}
	text := fmt.Sprintf("%s judged again, %d passed over", wording.Count(rec.Decisions, "decision"), rec.Skipped)
	if !rec.From.IsZero() {
		text += fmt.Sprintf(", from %s to %s", rec.From.Format(time.RFC3339), rec.To.Format(time.RFC3339))
	}
	s.lines = append(s.lines, plainly("%s: %d would have been decided otherwise than by the base's policies", text, rec.Differ))
	if rec.Unbound > 0 {
		s.lines = append(s.lines, plainly("%s passed over because no policy binds the pool: policies that name no namespace are of the one that --namespace names",
			wording.Count(rec.Unbound, "decision")))
	}
	if rec.Drifted > 0 {
		s.lines = append(s.lines, plainly("%s would have been taken otherwise by the base's policies already: others were asked then, or the log leaves out what they read",
			wording.Count(rec.Drifted, "decision")))
	}
	for _, c := range rec.Changed {
		line := join(plainly("%s ", c.Time.Format(time.RFC3339)), code(c.Pool), plainly(" %s: %s → %s", c.Decision, c.Before, c.After))
		for _, rule := range c.Rules {
			line = join(line, plainly(" "), byRule(rule))
		}
		if c.Waiting > 0 {
			line = join(line, plainly("; %s would have waited", wording.Count(int(c.Waiting), "job")))
		}
		if c.Inexact {
			line = join(line, plainly("; the log leaves out some of what is asked"))
		}
		s.lines = append(s.lines, line)
	}
	return []section{s}
}
