// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"runtime"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/webhook"
)

// The cost of a comparison is up to the tenants, who choose the number of their pools and patterns. Therefore, events are
// compared with pools without holding a lock, and only with pools that ask for the event's kind and one of its labels.
const (
	// littleWork is the maximum size of a small comparison, in characters, which suffices for 64 pools with a few patterns.
	// Larger comparisons of a space run one after the other, so that the space uses at most one CPU. They yield the CPU
	// after each part of this size.
	littleWork = 64 << 10
	// overhead is the fixed cost of a comparison, in characters.
	overhead = 512
	// maxName is the length of the longest OWNER/NAME on GitHub.
	maxName = 140
	// maxWaiting is the maximum number of events that wait for a large comparison with the pools of a space. Each of them
	// occupies a request of the webhook server. Further events are not compared with these pools.
	maxWaiting = 32
)

// onComparison is called before each comparison. Only tests set it.
var onComparison = func() {}

// candidate describes the jobs and events that a pool asks for. It is immutable, so that it can be compared without a lock.
// A change of the pool or its connection creates a new candidate.
type candidate struct {
	pool     *pool
	observes bool
	jobs     bool // it has spec.demand.webhook
	placed   bool // its connection is known and allows the pool
	match    jobmatch.Pool
	triggers []trigger
	// ofJob is the cost of comparing the pool with a job's repository, and ofEvent with any other event.
	ofJob, ofEvent effort
}

// effort is the cost of comparing patterns with a text.
type effort struct{ patterns, characters int }

func (e *effort) add(lists ...[]string) {
	for _, patterns := range lists {
		e.patterns += len(patterns)
		for _, p := range patterns {
			e.characters += len(p)
		}
	}
}

// with returns an upper bound for the number of characters that a comparison with a text of the given length reads: each
// pattern, and the text once per pattern.
func (e *effort) with(length int) int { return overhead + e.characters + e.patterns*length }

// candidateOf returns the candidate of a pool, without the scope of the pool's connection.
func candidateOf(obj *v1alpha1.RunnerPool) candidate {
	c := candidate{observes: obj.Spec.GetMode() == v1alpha1.Observe, jobs: obj.Spec.Demand.Webhook != nil, match: jobmatch.Of(obj, jobmatch.Scope{})}
	c.ofJob.add(c.match.Repositories)
	for _, t := range obj.Spec.Demand.Boosts {
		c.triggers = append(c.triggers, newTrigger(t))
		c.ofEvent.add(t.Repositories, t.Names, t.Branches, t.Actions)
	}
	return c
}

// fits reports whether the pool may serve a job.
func (c *candidate) fits(job jobmatch.Job) bool {
	onComparison()
	return c.match.Has(job.Labels) && c.match.Covers(job)
}

// jobWork returns the cost of comparing a job with a candidate.
func jobWork(job jobmatch.Job) func(*candidate) int {
	return func(c *candidate) int { return c.ofJob.with(len(job.Repository)) }
}

// covers reports whether the pool may serve jobs of a repository.
func (c *candidate) covers(job jobmatch.Job) bool {
	onComparison()
	return c.match.Covers(job)
}

// triggered returns the triggers that match an event.
func (c *candidate) triggered(job jobmatch.Job, d webhook.Delivery) (fitting []*trigger) {
	onComparison()
	if !c.match.Scope.Covers(job) {
		return nil
	}
	for i := range c.triggers {
		if c.triggers[i].fits(d) {
			fitting = append(fitting, &c.triggers[i])
		}
	}
	return fitting
}

// trigger is a boost with compiled patterns.
type trigger struct {
	v1alpha1.Boost
	repositories, names, branches jobmatch.Patterns
}

func newTrigger(t v1alpha1.Boost) trigger {
	return trigger{
		Boost: t, repositories: jobmatch.CompileRepositories(t.Repositories),
		names: jobmatch.CompileNames(t.Names), branches: jobmatch.Compile(t.Branches),
	}
}

// fits reports whether an event matches the trigger.
func (t *trigger) fits(d webhook.Delivery) bool {
	if string(t.Event) != d.Event || !t.repositories.AnyRepository(d.Repository.FullName) {
		return false
	}
	if len(t.Actions) > 0 && d.Event != webhook.PushEvent && !slices.Contains(t.Actions, d.Action) {
		return false
	}
	switch d.Event {
	case webhook.CheckRunEvent:
		return d.CheckRun != nil && (t.Status == "" || t.Status == d.CheckRun.Status) && t.names.Any(d.CheckRun.Name)
	case webhook.PushEvent:
		return d.Branch != "" && t.branches.Any(d.Branch)
	}
	return t.branches.Any(d.Branch)
}

// candidates is a set of candidates.
type candidates map[*candidate]struct{}

// asked is a key of the index of a space: a kind of event and, for jobs, optionally a label.
type asked struct{ event, label string }

// asks returns the keys under which the index lists the candidate; none while it is not placed.
func (c *candidate) asks() []asked {
	if !c.placed {
		return nil
	}
	var all []asked
	if c.jobs {
		all = append(all, asked{event: webhook.WorkflowJobEvent})
		for label := range c.match.Labels() {
			all = append(all, asked{webhook.WorkflowJobEvent, label})
		}
	}
	for i := range c.triggers {
		if e := (asked{event: string(c.triggers[i].Event)}); !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// list adds a candidate to the index of events, or removes it, and updates the weight of the space.
func (s *space) list(c *candidate, isListed bool) {
	keys := c.asks()
	if weight := int64(c.ofJob.with(maxName) + c.ofEvent.with(maxName)); len(keys) > 0 && isListed {
		s.weight.Add(weight)
	} else if len(keys) > 0 {
		s.weight.Add(-weight)
	}
	for _, key := range keys {
		if s.index[key] == nil {
			s.index[key] = candidates{}
		}
		if isListed {
			s.index[key][c] = struct{}{}
		} else {
			delete(s.index[key], c)
		}
		if len(s.index[key]) == 0 {
			delete(s.index, key)
		}
	}
}

// asking returns the candidates to compare with a job that requests the labels. A pool must have all requested labels, so
// only the candidates for the rarest label can match.
func (s *space) asking(labels []string) (fewest candidates) {
	for i, label := range labels {
		if those := s.index[asked{webhook.WorkflowJobEvent, label}]; i == 0 || len(those) < len(fewest) {
			fewest = those
		}
	}
	return fewest
}

// settle calls decide for each candidate of a set, without the lock of the space. It repeats this for candidates that were
// added in the meantime, until every current candidate has a result. If too many comparisons wait for their turn (more than
// most), it returns false. It always returns with the lock held.
func settle[T any](s *space, most int32, of func() candidates, work func(*candidate) int, decide func(*candidate) T) (map[*candidate]T, bool) {
	decided := map[*candidate]T{}
	for {
		var left []*candidate
		s.mu.Lock()
		for c := range of() {
			if _, ok := decided[c]; !ok {
				left = append(left, c)
			}
		}
		if len(left) == 0 {
			return decided, true
		}
		s.mu.Unlock()
		if !s.compare(most, left, work, func(c *candidate) { decided[c] = decide(c) }) {
			s.mu.Lock()
			return nil, false
		}
	}
}

// compare calls do for each candidate. Unless the work is small, it first waits for its turn in the space. If too many
// comparisons wait for their turn (more than most), it returns false and does not call do.
func (s *space) compare(most int32, list []*candidate, work func(*candidate) int, do func(*candidate)) bool {
	total := 0
	for _, c := range list {
		total += work(c)
	}
	if total > littleWork {
		if s.waiting.Add(1) > most {
			s.waiting.Add(-1)
			return false
		}
		s.turn.Lock()
		s.waiting.Add(-1)
		defer s.turn.Unlock()
	}
	part := 0
	for _, c := range list {
		if part += work(c); part > littleWork {
			part = 0
			yield()
		}
		do(c)
	}
	return true
}

// yield is called after each part of a large comparison. Tests replace it.
var yield = runtime.Gosched
