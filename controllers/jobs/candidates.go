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

// Tenants choose how many pools they have, and how many patterns in each. So events are compared with pools without any lock, and only with the
// pools that ask for the event's kind and one of its labels.
const (
	// littleWork is how many characters a namespace may compare at once. Larger comparisons of a namespace run one after the other, so that it
	// takes one CPU at most, and let others run after each such part. It is enough for 64 pools with a few patterns.
	littleWork = 64 << 10
	// overhead is what a comparison takes beside its characters, in characters.
	overhead = 512
	// maxName is the length of the longest OWNER/NAME on GitHub.
	maxName = 140
	// maxWaiting is how many events may wait for such a comparison: a quarter of what the webhook server works on at once. Further ones are not
	// compared with that namespace's pools.
	maxWaiting = 32
)

// onComparison is called before each comparison. Only tests set it.
var onComparison = func() {}

// candidate is what a pool asks for. It never changes, so that it can be compared without a lock: a change of the pool or of its connection
// makes another one.
type candidate struct {
	pool     *pool
	observes bool
	jobs     bool // it has spec.demand.webhook
	placed   bool // its connection is known, and it may use that
	match    jobmatch.Pool
	triggers []trigger
	// The effort of a comparison with a job's repository, and with an event.
	ofJob, ofEvent effort
}

// effort is what it takes to compare patterns with a text.
type effort struct{ patterns, characters int }

func (e *effort) add(lists ...[]string) {
	for _, patterns := range lists {
		e.patterns += len(patterns)
		for _, p := range patterns {
			e.characters += len(p)
		}
	}
}

// with bounds the characters that a comparison with a text of a length looks at: each pattern's, and the text's for each pattern.
func (e *effort) with(length int) int { return overhead + e.characters + e.patterns*length }

// candidateOf prepares what a pool asks for.
func candidateOf(obj *v1alpha1.RunnerPool) candidate {
	c := candidate{observes: obj.Spec.GetMode() == v1alpha1.Observe, jobs: obj.Spec.Demand.Webhook != nil, match: jobmatch.Of(obj, jobmatch.Scope{})}
	c.ofJob.add(c.match.Repositories)
	for _, t := range obj.Spec.Demand.Boosts {
		c.triggers = append(c.triggers, newTrigger(t))
		c.ofEvent.add(t.Repositories, t.Names, t.Branches, t.Actions)
	}
	return c
}

// fits reports whether a job may be for the pool.
func (c *candidate) fits(job jobmatch.Job) bool {
	onComparison()
	return c.match.Has(job.Labels) && c.match.Covers(job)
}

// jobWork returns what it takes to compare a job with a candidate.
func jobWork(job jobmatch.Job) func(*candidate) int {
	return func(c *candidate) int { return c.ofJob.with(len(job.Repository)) }
}

// covers reports whether jobs of a repository may be for the pool.
func (c *candidate) covers(job jobmatch.Job) bool {
	onComparison()
	return c.match.Covers(job)
}

// triggered returns the triggers that an event fits.
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

// trigger is a boost whose patterns are prepared.
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

// fits reports whether an event is one that the trigger waits for.
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

// candidates are a set.
type candidates map[*candidate]struct{}

// asked is what a pool asks for: events of a kind or, of jobs, ones with a label.
type asked struct{ event, label string }

// asks lists what a pool asks for; nothing while it isn't placed.
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

// list has events compared with a candidate, or no more.
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

// asking returns the candidates for jobs with labels: those that ask for the label for which there are the fewest.
func (s *space) asking(labels []string) (fewest candidates) {
	for i, label := range labels {
		if those := s.index[asked{webhook.WorkflowJobEvent, label}]; i == 0 || len(those) < len(fewest) {
			fewest = those
		}
	}
	return fewest
}

// settle decides something about each candidate of a set without the lock of the space, and takes the lock once nothing is left to decide: what
// changed meanwhile is decided on as well. It decides nothing and returns false, with the lock too, if more comparisons than so many wait for
// their turn.
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

// compare calls a function for each candidate, in a turn of the space's unless that is little work. It returns false and calls nothing if more
// comparisons than so many wait for their turn.
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
