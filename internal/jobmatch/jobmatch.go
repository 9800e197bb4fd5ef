// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobmatch decides which pool a job is for, where GitHub says what a job asks for and not who gets it:
// by scope, runner group and labels, as GitHub itself gives jobs to runners. All of it works on values.
package jobmatch

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Kind is what a pool's runners are registered for, the most specific first.
type Kind int

// Kinds.
const (
	Repository Kind = iota
	Organization
	Enterprise
)

// Scope is what a pool's runners are registered for.
type Scope struct {
	// Host of the GitHub, as github.com.
	Host string
	// Kind of the scope.
	Kind Kind
	// Path is OWNER/NAME, the organization's or the enterprise's name.
	Path string
}

// Pool is a pool as a job sees it. Make it with NewPool.
type Pool struct {
	// Namespace and Name of the RunnerPool.
	Namespace, Name string
	// Created is when the RunnerPool was made.
	Created time.Time
	// Scope of its connection.
	Scope Scope
	// Group is the runner group's name.
	Group string
	// Repositories as OWNER/NAME whose jobs count, with * for any characters but /; all if empty. NewPool prepares them.
	Repositories []string
	// Resting pools (spec.stopPolicy) get what no other pool gets.
	Resting bool

	labels       map[string]struct{} // that its runners bear, in lower case
	size         int                 // how many there are
	repositories Patterns
}

// DefaultGroup is the runner group that each scope has.
const DefaultGroup = "default"

// NewPool returns p with the labels that its runners bear on GitHub: the declared ones, self-hosted, the operating system and the
// architecture.
func NewPool(p Pool, labels []string) Pool {
	p.labels = make(map[string]struct{}, len(labels))
	for _, l := range Labels(labels) {
		p.labels[l] = struct{}{}
	}
	p.size = len(p.labels)
	p.repositories = CompileRepositories(p.Repositories)
	p.Scope.Host, p.Scope.Path = strings.ToLower(p.Scope.Host), strings.ToLower(p.Scope.Path)
	return p
}

// Of returns a RunnerPool as a job sees it, on what its connection is for. The jobs of a scale set name its own labels and no others.
func Of(p *v1alpha1.RunnerPool, scope Scope) Pool {
	match := Pool{
		Namespace: p.Namespace, Name: p.Name, Created: p.CreationTimestamp.Time, Scope: scope, Group: p.Spec.GetRunnerGroup(), Resting: p.Spec.Stops(),
	}
	if w := p.Spec.Demand.Webhook; w != nil {
		match.Repositories = w.Repositories
	}
	if p.Spec.GetRegistration() == v1alpha1.RegisterREST || p.Spec.GetMode() == v1alpha1.Observe {
		return NewPool(match, p.GetRegisteredLabels())
	}
	return NewPool(match, p.GetRunnerLabels())
}

// Job is what an event tells of a job.
type Job struct {
	// Host of the GitHub that it is from.
	Host string
	// Repository as OWNER/NAME.
	Repository string
	// OfUser is true if a user owns the repository: no organization's runners take its jobs.
	OfUser bool
	// Enterprise that the repository's owner belongs to; "" if it isn't known.
	Enterprise string
	// Labels that it asks for.
	Labels []string
}

// Visibility is whether a runner group may be used by a repository.
type Visibility int

// Visibilities. What isn't known is taken as visible.
const (
	Unknown Visibility = iota
	Visible
	Hidden
)

// Winner returns the index of the pool that a job is for, -1 if it is for none of them. Of several that would do, it is, in this
// order: one that isn't resting, the one of the most specific scope (repository, organization, enterprise), one in another runner
// group than the default, the one with the fewest labels beyond those that the job asks for, the older, the first by namespace and name.
// visible reports whether the runner group of a pool, by its index, may be used by the job's repository; it is only asked
// about pools that would do otherwise.
func Winner(job Job, pools []Pool, visible func(pool int) Visibility) int {
	asked := Labels(job.Labels)
	best := -1
	for i := range pools {
		p := &pools[i]
		if !p.Has(asked) || !p.Covers(job) || (best >= 0 && Compare(p, &pools[best]) > 0) || visible(i) == Hidden {
			continue
		}
		best = i
	}
	return best
}

// Covers reports whether a repository's events concern a pool, by its scope and by the repositories it is bound to.
func (p *Pool) Covers(job Job) bool {
	return p.Scope.Covers(job) && p.repositories.AnyRepository(job.Repository)
}

// Covers reports whether a job's repository is in the scope.
func (s Scope) Covers(job Job) bool {
	owner, _, ok := strings.Cut(job.Repository, "/")
	if !ok || !strings.EqualFold(s.Host, job.Host) {
		return false
	}
	switch s.Kind {
	case Repository:
		return strings.EqualFold(s.Path, job.Repository)
	case Organization:
		return !job.OfUser && strings.EqualFold(s.Path, owner)
	case Enterprise:
		return !job.OfUser && job.Enterprise != "" && strings.EqualFold(s.Path, job.Enterprise)
	}
	return false
}

// Bears reports whether the pool's runners have all labels, whatever their case. A job that asks for none is for no pool.
func (p *Pool) Bears(labels []string) bool { return p.Has(Labels(labels)) }

// Has is Bears for labels as Labels returns them.
func (p *Pool) Has(asked []string) bool {
	for _, l := range asked {
		if _, ok := p.labels[l]; !ok {
			return false
		}
	}
	return len(asked) > 0
}

// Labels returns the labels of the pool's runners, in lower case.
func (p *Pool) Labels() iter.Seq[string] { return maps.Keys(p.labels) }

// Labels returns labels as they are compared: in lower case, without those that are empty.
func Labels(labels []string) []string {
	all := make([]string, 0, len(labels))
	for _, l := range labels {
		if l = strings.ToLower(strings.TrimSpace(l)); l != "" {
			all = append(all, l)
		}
	}
	return all
}

// Compare says which of two pools that would do comes first. As both have all labels that are asked for, the fewest labels beyond
// those are the fewest labels.
func Compare(a, b *Pool) int {
	if c := rank(a, b); c != 0 {
		return c
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// rank is Compare as far as what is declared decides.
func rank(a, b *Pool) int {
	return cmp.Or(
		first(!a.Resting, !b.Resting),
		cmp.Compare(a.Scope.Kind, b.Scope.Kind),
		first(!isDefault(a.Group), !isDefault(b.Group)),
		cmp.Compare(a.size, b.size),
	)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func isDefault(group string) bool { return group == "" || strings.EqualFold(group, DefaultGroup) }

// Compete reports whether there are jobs that two pools would both do for and that nothing declared gives to one of them: the older
// pool gets all of them, and the other none.
func Compete(a, b *Pool) bool {
	if !strings.EqualFold(a.Scope.Host, b.Scope.Host) || !strings.EqualFold(a.Scope.Path, b.Scope.Path) || rank(a, b) != 0 {
		return false
	}
	for l := range a.labels {
		if _, ok := b.labels[l]; !ok {
			return false
		}
	}
	return ShareRepositories(a.Repositories, b.Repositories)
}

// ShareRepositories reports whether two lists of patterns surely have a repository in common.
func ShareRepositories(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for _, x := range a {
		if slices.ContainsFunc(b, func(y string) bool {
			return strings.EqualFold(x, y) || Glob(strings.ToLower(x), strings.ToLower(y)) || Glob(strings.ToLower(y), strings.ToLower(x))
		}) {
			return true
		}
	}
	return false
}
