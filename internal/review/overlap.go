// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"strings"

	"github.com/corral-dev/corral/internal/jobmatch"
)

// maxOverlaps is the maximum number of overlaps that are listed. A note gives the number of the others.
const maxOverlaps = 100

// findOverlaps adds the pairs of pools that compete for the same jobs at the head but did not at the base. A job that
// requests all labels of one pool also matches every pool that has these labels and more.
func (c *comparison) findOverlaps() {
	found := 0
	for i, p := range c.pairs {
		for j, o := range c.pairs {
			isKnown := i == j || j < i && o.redeclared() // the pair was compared when the loop reached the other pool
			if !p.redeclared() || isKnown || !p.overlaps(o) {
				continue
			}
			found++
			if found <= maxOverlaps {
				c.result.Overlaps = append(c.result.Overlaps, overlapOf(p.head, o.head))
			}
		}
	}
	say(&c.result.Notes, found > maxOverlaps, "%d more pairs of pools overlap.", found-maxOverlaps)
}

// overlaps reports whether the pools compete for jobs at the head and did not at the base.
func (p *pair) overlaps(o *pair) bool {
	return o.head != nil && p.head.overlaps(o.head) && (p.base == nil || o.base == nil || !p.base.overlaps(o.base))
}

// redeclared reports whether the head declares the pool differently from the base.
func (p *pair) redeclared() bool {
	return p.head != nil && p.shown.Change != Same && p.shown.Change != Moved
}

// readJobs sets which jobs a pool matches.
func (s *side) readJobs(p *pool) {
	p.match, p.asked = jobmatch.Of(p.RunnerPool, s.scopeOf(p)), p.GetRunnerLabels()
	if p.Spec.IsREST() {
		p.asked = p.GetRegisteredLabels()
	}
}

// takers returns the names of the other pools of a side that match jobs with a label and, apart from labels, match the same
// jobs as the given pool.
func (s *side) takers(as *pool, label string) []string {
	return s.named(func(p *pool) bool {
		return p.name() != as.name() && !p.rests() && p.match.Bears([]string{label}) && as.competes(p)
	})
}

// scopeOf returns the scope of a pool's connection on GitHub. If the side does not declare the connection, the connection's
// name stands for an organization.
func (s *side) scopeOf(p *pool) jobmatch.Scope {
	if scope, ok := jobmatch.ScopeOf(s.connectionOf(p).Spec.URL); ok {
		return scope
	}
	return jobmatch.Scope{Kind: jobmatch.Organization, Path: p.connectionName()}
}

// overlaps reports whether any job matches both pools.
func (p *pool) overlaps(o *pool) bool {
	return p.competes(o) && (p.match.Bears(o.asked) || o.match.Bears(p.asked) || p.sharedName(o) != "")
}

// sharedName returns the scale set name of either pool if both pools have that name as a label; empty otherwise.
func (p *pool) sharedName(o *pool) string {
	if p.Spec.IsREST() || o.Spec.IsREST() {
		return ""
	}
	return jobmatch.SharedName(&p.match, &o.match, p.GetScaleSetName(), o.GetScaleSetName())
}

// competes reports whether jobs can match both pools, apart from labels.
func (p *pool) competes(o *pool) bool {
	a, b := &p.match, &o.match
	return strings.EqualFold(a.Scope.Host, b.Scope.Host) && strings.EqualFold(a.Scope.Path, b.Scope.Path) && strings.EqualFold(a.Group, b.Group) &&
		p.Spec.GetMode() == o.Spec.GetMode() && jobmatch.ShareRepositories(a.Repositories, b.Repositories)
}

func overlapOf(p, other *pool) Overlap {
	labels := p.asked
	switch {
	case other.match.Bears(labels):
	case p.match.Bears(other.asked):
		labels = other.asked
	default:
		labels = []string{p.sharedName(other)}
	}
	path := "spec.runnerLabels"
	if len(p.Spec.RunnerLabels) == 0 {
		path = "spec.scaleSetName"
	}
	return Overlap{
		Pool: p.name(), Other: other.name(), At: fieldPlace(p.object, path), Labels: labels,
		Message: fmt.Sprintf("Jobs that request %s also match %s: either pool may get them.", strings.Join(labels, " and "), other.name()),
	}
}
