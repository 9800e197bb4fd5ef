// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobmatch decides which pool a job belongs to if GitHub reports only the job's requirements. It uses scope,
// runner group and labels, as GitHub itself does when it assigns jobs to runners. It is pure.
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

// Kind is the level at which a pool's runners are registered, most specific first.
type Kind int

// Kinds.
const (
	Repository Kind = iota
	Organization
	Enterprise
)

// Scope is where a pool's runners are registered.
type Scope struct {
	// Host of the GitHub server, such as github.com.
	Host string
	// Kind of the scope.
	Kind Kind
	// Path is OWNER/NAME, or the name of the organization or enterprise.
	Path string
}

// Pool holds the data of a RunnerPool that decides which jobs belong to it. NewPool creates it.
type Pool struct {
	// Namespace and Name of the RunnerPool.
	Namespace, Name string
	// Created is the RunnerPool's creation time.
	Created time.Time
	// Scope is the scope of its connection.
	Scope Scope
	// Group is the runner group's name.
	Group string
	// Repositories are patterns, as OWNER/NAME, of the repositories whose jobs belong to the pool; * matches any
	// characters but /. Empty means all repositories. NewPool compiles the patterns.
	Repositories []string
	// Resting is true if spec.stopPolicy stops the pool. Such a pool gets only jobs that no other pool can run.
	Resting bool

	labels       map[string]struct{} // of its runners, in lower case
	size         int                 // the number of labels
	repositories Patterns
}

// DefaultGroup is the runner group that each scope has.
const DefaultGroup = "default"

// NewPool returns p with the labels of its runners on GitHub: the declared labels, self-hosted, the operating system
// and the architecture.
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

// Of returns the Pool for a RunnerPool and the scope of its connection. If the pool has a scale set, it uses only the
// labels of the scale set, because jobs for a scale set may request no others.
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

// Job is a job in an event.
type Job struct {
	// Host of the GitHub server.
	Host string
	// Repository as OWNER/NAME.
	Repository string
	// OfUser is true if a user owns the repository. Runners of organizations and enterprises do not run its jobs.
	OfUser bool
	// Enterprise is the enterprise of the repository's owner; "" if unknown.
	Enterprise string
	// Labels are the requested labels.
	Labels []string
}

// Visibility is whether a repository may use a runner group.
type Visibility int

// Visibilities. Unknown counts as visible.
const (
	Unknown Visibility = iota
	Visible
	Hidden
)

// Winner returns the index of the pool that a job belongs to, or -1. If several pools match, the first of these
// criteria in which they differ decides: a pool that is not resting, the most specific scope (repository, organization,
// enterprise), a runner group other than the default, the fewest labels beyond the requested ones, the older pool, and
// the namespace and name. visible reports whether the job's repository may use the runner group of a pool, given by its
// index. Winner calls it only for pools that match otherwise.
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

// Covers reports whether the repository of a job is in the pool's scope and matches the pool's repository patterns.
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

// Bears reports whether the pool's runners have all labels, ignoring case. It returns false without labels, because a
// job that requests no labels belongs to no pool.
func (p *Pool) Bears(labels []string) bool { return p.Has(Labels(labels)) }

// Has does what Bears does, for labels that are already normalized by the function Labels.
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

// Size returns the number of labels of the pool's runners.
func (p *Pool) Size() int { return p.size }

// Labels normalizes labels: it converts them to lower case and drops empty ones.
func Labels(labels []string) []string {
	all := make([]string, 0, len(labels))
	for _, l := range labels {
		if l = strings.ToLower(strings.TrimSpace(l)); l != "" {
			all = append(all, l)
		}
	}
	return all
}

// Compare orders two pools that match a job, by the criteria of Winner. Both have all requested labels, so the pool
// with fewer labels in total also has fewer labels beyond the requested ones.
func Compare(a, b *Pool) int {
	if c := rank(a, b); c != 0 {
		return c
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// rank compares two pools by what they declare, but not by their age and name.
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

// Compete reports whether there are jobs that match two pools and for which no declaration prefers one of them. The
// older pool then gets all of these jobs. It returns false for two runner groups, because they may serve different
// repositories, which only GitHub knows.
func Compete(a, b *Pool) bool {
	if !sharePlace(a, b) || rank(a, b) != 0 {
		return false
	}
	for l := range a.labels {
		if _, ok := b.labels[l]; !ok {
			return false
		}
	}
	return ShareRepositories(a.Repositories, b.Repositories)
}

// sharePlace reports whether the runners of two pools register at the same place, in the same runner group.
func sharePlace(a, b *Pool) bool {
	sameGroup := strings.EqualFold(a.Group, b.Group) || isDefault(a.Group) && isDefault(b.Group)
	return sameGroup && strings.EqualFold(a.Scope.Host, b.Scope.Host) && strings.EqualFold(a.Scope.Path, b.Scope.Path)
}

// SharedName returns the first of the given scale set names that both pools have as a label; empty if there is none. A
// job that requests only this label may go to either pool.
func SharedName(a, b *Pool, names ...string) string {
	if !sharePlace(a, b) {
		return ""
	}
	for _, name := range names {
		if label := []string{name}; a.Bears(label) && b.Bears(label) {
			return name
		}
	}
	return ""
}

// ShareRepositories reports whether two lists of repository patterns certainly overlap: one list is empty, or a pattern
// of one list matches a pattern of the other. It may return false for other lists that overlap.
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
