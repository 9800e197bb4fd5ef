// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"strings"

	"github.com/corral-dev/corral/internal/jobmatch"
)

// maxOverlaps bounds how many pairs are told of.
const maxOverlaps = 100

// contender is a pool as a job sees it.
type contender struct {
	*pool
	jobmatch.Pool
	labels []string
}

// findOverlaps looks for pairs of pools that the same jobs are for at the head and weren't at the base. A job that asks for all labels
// of one pool is also for each other that has these and more.
func (c *comparison) findOverlaps() {
	before, after := c.base.contenders, c.head.contenders
	left := 0
	for i, p := range c.pairs {
		if !p.redeclared() {
			continue
		}
		for j, o := range c.pairs {
			if o.head == nil || i == j || j < i && o.redeclared() { // the other has looked at the pair
				continue
			}
			this, other := after[p.head.name()], after[o.head.name()]
			switch {
			case !this.overlaps(other) || overlapped(p, o, before):
			case len(c.result.Overlaps) == maxOverlaps:
				left++
			default:
				c.result.Overlaps = append(c.result.Overlaps, overlapOf(this, other))
			}
		}
	}
	if left > 0 {
		c.result.Notes = append(c.result.Notes, fmt.Sprintf("%d more pairs of pools overlap.", left))
	}
}

// redeclared says whether the head has the pool, and not as the base has it.
func (p *pair) redeclared() bool {
	return p.head != nil && p.shown.Change != Same && p.shown.Change != Moved
}

// overlapped says whether two pools overlapped at the base.
func overlapped(p, other *pair, before map[string]*contender) bool {
	return p.base != nil && other.base != nil && before[p.base.name()].overlaps(before[other.base.name()])
}

func (s *side) contenderOf(p *pool) *contender {
	labels := p.GetRunnerLabels()
	if p.isREST() {
		labels = p.GetRegisteredLabels()
	}
	return &contender{pool: p, Pool: jobmatch.Of(p.RunnerPool, s.scopeOf(p)), labels: labels}
}

// takers name the other pools of the side that jobs are for which ask for a label, and are otherwise as those of a pool.
func (s *side) takers(as *contender, label string) []string {
	var names []string
	for _, p := range s.order {
		if o := s.contenders[p.name()]; p.name() != as.name() && !p.rests() && o.Bears([]string{label}) && as.competes(o) {
			names = append(names, p.name())
		}
	}
	return names
}

// scopeOf is what a pool's connection is for. Of one that isn't declared here, only the name is known.
func (s *side) scopeOf(p *pool) jobmatch.Scope {
	if c := s.connections[p.connectionName()]; c != nil {
		if scope, ok := jobmatch.ScopeOf(c.Spec.URL); ok {
			return scope
		}
	}
	return jobmatch.Scope{Kind: jobmatch.Organization, Path: p.connectionName()}
}

// overlaps says whether there are jobs for both.
func (a *contender) overlaps(b *contender) bool {
	return a.competes(b) && (a.Bears(b.labels) || b.Bears(a.labels))
}

// competes says whether there are jobs for both, if their labels are the same.
func (a *contender) competes(b *contender) bool {
	if !strings.EqualFold(a.Scope.Host, b.Scope.Host) || !strings.EqualFold(a.Scope.Path, b.Scope.Path) || !strings.EqualFold(a.Group, b.Group) {
		return false
	}
	return a.Spec.GetMode() == b.Spec.GetMode() && jobmatch.ShareRepositories(a.Repositories, b.Repositories)
}

func overlapOf(p, other *contender) Overlap {
	labels := p.labels
	if !other.Bears(labels) {
		labels = other.labels
	}
	path := "spec.labels"
	if len(p.Spec.Labels) == 0 {
		path = "spec.scaleSetName"
	}
	return Overlap{
		Pool: p.name(), Other: other.name(), At: fieldPlace(p.object, path), Labels: labels,
		Message: fmt.Sprintf("Jobs that ask for %s are for %s as well: either may get them.", strings.Join(labels, " and "), other.name()),
	}
}
