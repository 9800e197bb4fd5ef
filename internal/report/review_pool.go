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

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// maxLeftOut is the maximum number of pool names in a line about costs.
const maxLeftOut = 5

// changeLabels contains the labels for changes that matter more to a reader than the classes of the changed fields.
var changeLabels = map[review.Change]string{
	review.Added: "added", review.Deleted: "deleted", review.Renamed: "renamed", review.Moved: "changed by policies alone", review.Uncompared: "not compared",
}

// live is the state of a pool in the cluster, with the name of the pool.
type live struct {
	*review.Live
	Pool string
}

// poolBlock returns the block for a changed pool. If only changes of policies affect the pool, the place of the block is the
// place of the last such policy.
func poolBlock(p *review.Pool, name string, policies []review.PolicyChange) block {
	at := changed(p.Places, p.Fields, p.Class())
	for _, cause := range policies {
		if p.Change == review.Moved && slices.Contains(cause.Moved, name) {
			at = changed(cause.Places, cause.Fields, "")
		}
	}
	statement, fields := withFields(cmp.Or(changeLabels[p.Change], words.Phrase("classes", p)), fieldList{p.Fields, p.MoreFields})
	return block{
		class: classOf(cmp.Or(changeLabels[p.Change], p.Class().Text())), Kind: "pool", Names: []string{both(p.Former, name)}, places: []Place{at},
		Statement: statement, fieldList: fields, known: keyOf([]any{text(statement), p.Effects}), Lines: slices.Concat(p.Effects, limitLines(p)),
		Alone: words.Sentences("rollout", p.Rollout), Own: words.Sentences("live", live{p.Live, name}), Cost: p.Cost,
	}
}

// plus adds the cost of a pool to a total; nil if either is unknown.
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
	// maxShort is the maximum number of fields that a heading names, and shortest the maximum size in bytes of a value in a
	// heading.
	maxShort, shortest = 2, 40
)

// withFields adds the changed fields to a statement, with their values if these are short, and returns the fields to list
// below the heading. If there are more than maxShort, it adds only their number. A single field with short values is not
// listed again.
func withFields(statement string, all fieldList) (heading string, below fieldList) {
	if all.count() > maxShort {
		return statement + " · " + wording.Count(all.count(), "field"), all
	}
	isShort := true
	for _, f := range all.fields {
		name := f.Path[len(around.FindString(f.Path)):]
		was, is := readable(f.Before), readable(f.After)
		if prefix := image.FindString(was); prefix == image.FindString(is) {
			was, is = was[len(prefix):], is[len(prefix):]
		}
		statement += " · " + code(name)
		if max(len(was), len(is)) > shortest {
			isShort = false
		} else {
			statement += " " + code(was) + arrow + code(is)
		}
	}
	if all.count() == 1 && isShort {
		return statement, fieldList{}
	}
	return statement, all
}

// around matches the part of a field's path that a heading omits.
var around = regexp.MustCompile(`^spec\.(scale\.|template\.spec\.containers\[[^]]*\]\.)?`)

// image matches the part of an image reference before its tag or digest.
var image = regexp.MustCompile(`^[\w./-]+(:\d+)?/[\w./-]+[:@]`)

// limit is one of a pool's limits: max, min or idle.
type limit struct {
	Pool          *review.Pool
	Before, After limitOf
	// IsField is true if the limit is one of the changed fields.
	IsField bool
}

// limitOf is a limit on one side. Reasons are the schedules and rules that changed the declared number.
type limitOf struct {
	*review.Limits
	Name    string
	Reasons []v1alpha1.LimitBound
}

// limitLines describes the limits that differ between the sides, or all limits if the base does not have the pool. It adds
// the conflicts and audit results that the base does not have.
func limitLines(p *review.Pool) (lines []string) {
	was, is := cmp.Or(p.Before, &review.Limits{}), cmp.Or(p.After, &review.Limits{})
	for _, name := range []string{"max", "min", "idle"} {
		after := reasons(is, name)
		before := slices.DeleteFunc(reasons(was, name), isAmong(after))
		isField := slices.ContainsFunc(p.Fields, func(f review.FieldChange) bool { return f.Path == "spec.scale."+name })
		lines = append(lines, words.Sentences("limit", limit{p, limitOf{p.Before, name, before}, limitOf{p.After, name, after}, isField})...)
	}
	return slices.Concat(lines, each("conflict: ", unlessKnown(is.Conflicts, was.Conflicts)), each("audit: ", unlessKnown(is.Audit, was.Audit)))
}

// reasons returns the schedules and rules that change a declared number, without duplicates.
func reasons(l *review.Limits, name string) (all []v1alpha1.LimitBound) {
	if s := l.Scheduled; s != nil && *s.Scale.Number(name) != *l.Declared.Number(name) {
		all = append(all, v1alpha1.LimitBound{Reason: fmt.Sprintf("%s by schedule %s", wording.Max(*s.Scale.Number(name)), strings.Join(s.Active, ", "))})
	}
	for _, b := range l.Bounds {
		if b.Field == name && !isAmong(all)(b) {
			all = append(all, b)
		}
	}
	return all
}

// isAmong returns a function that reports whether others contain the same rule with the same reason.
func isAmong(others []v1alpha1.LimitBound) func(v1alpha1.LimitBound) bool {
	return func(b v1alpha1.LimitBound) bool {
		return slices.ContainsFunc(others, func(o v1alpha1.LimitBound) bool { return o.Rule.Name == b.Rule.Name && o.Reason == b.Reason })
	}
}

// unlessKnown returns the texts that are not among the known texts.
func unlessKnown(now, known []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(known, s) })
}

// readable returns a JSON value as text, without quotes if the text is still unambiguous, and – for nil.
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

// leftOut returns the reason why amounts do not include some pools, with the names of the pools. It lists the pools that are
// missing on both sides, only at the base, and only at the head separately.
func leftOut(what, why string, base *review.Amounts, before, after []string) (line string) {
	if base == nil { // the base has no amounts
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
