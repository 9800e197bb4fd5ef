// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// longestHold is how long a recorded number of jobs is taken to hold at most.
const longestHold = time.Hour

// failed stands for a decision that isn't taken.
const failed = "no decision: a policy fails"

// ask puts a recorded question to the side's policies that bind its pool.
func (s *side) ask(ctx context.Context, b *policy.Bound, q *question) (r replayed) {
	var failures []policy.Failure
	switch q.decision {
	case policy.DecisionScaling:
		a := b.Scaling(ctx, q.scaling)
		failures, r.words, r.max = a.Failures, scaleWords(a.Scale, a.Hard), a.Scale.Max
		for _, b := range a.Bounds {
			r.rules = append(r.rules, s.locate(b.Rule))
		}
	case policy.DecisionTemplate:
		a := b.Template(ctx, q.template)
		failures, r.words = a.Failures, denialWords(a.Denials)
		for _, d := range a.Denials {
			r.rules = append(r.rules, s.locate(d.Rule))
		}
	default:
		a := b.Update(ctx, q.update)
		failures, r.words = a.Failures, rolloutWords(recordedRollout{a.Hold, a.Strategy, a.MaxSurge, a.MaxUnavailable, a.Canary})
		for _, reason := range a.Reasons {
			r.rules = append(r.rules, s.locate(reason.Rule))
		}
	}
	if len(failures) > 0 {
		r.words, r.rules = failed, nil
	}
	return r
}

// words tell a recorded outcome; empty if there is none in the record.
func (r *Record) words() string {
	switch {
	case len(r.result.Failures) > 0:
		return failed
	case r.decision == policy.DecisionTemplate:
		return denialWords(r.result.Denials)
	case r.result.Limits != nil:
		return scaleWords(*r.result.Limits, r.result.Hard)
	case r.result.Rollout != nil:
		return rolloutWords(*r.result.Rollout)
	}
	return ""
}

func scaleWords(s policy.Scale, hard bool) string {
	words := fmt.Sprintf("max %s, min %d, idle %d", wording.Max(s.Max), s.Min, s.Idle)
	if hard {
		words += ", hard"
	}
	return words
}

func denialWords(denials []v1alpha1.PolicyFinding) string {
	if len(denials) == 0 {
		return "allowed"
	}
	var messages []string
	for _, d := range denials {
		messages = append(messages, d.Message)
	}
	return "denied: " + strings.Join(messages, "; ")
}

func (r *Rollout) words() string {
	return rolloutWords(recordedRollout{r.Hold, r.Strategy, r.MaxSurge, r.MaxUnavailable, r.Canary})
}

func rolloutWords(r recordedRollout) string {
	words := fmt.Sprintf("%s, maxSurge %d, maxUnavailable %d, canary %d", r.Strategy, r.MaxSurge, r.MaxUnavailable, r.Canary)
	if r.Hold {
		words = "hold, " + words
	}
	return words
}

// recordedRunners is how many runners a pool would have had on average, by the jobs of its recorded decisions and the limits of a side;
// false if there are fewer than two of them. Each holds until the next, and an hour at most.
func (c *comparison) recordedRunners(p *pool, j *judgement) (float64, bool) {
	if j.limits.Effective == nil {
		return 0, false
	}
	jobs := c.recordedJobs()[p.name()]
	limits, total, hours := *j.limits.Effective, 0.0, 0.0
	for i := range len(jobs) - 1 {
		held := min(jobs[i+1].at.Sub(jobs[i].at), longestHold).Hours()
		wanted := int64(jobs[i].jobs) + int64(limits.Idle)
		total += held * float64(min(int64(limits.Max), max(int64(limits.Min), wanted)))
		hours += held
	}
	if hours == 0 {
		return 0, false
	}
	return total / hours, true
}

// jobsAt is how many jobs there were at a time.
type jobsAt struct {
	at   time.Time
	jobs int32
}

// recordedJobs are the jobs in recorded decisions, by pool and time.
func (c *comparison) recordedJobs() map[string][]jobsAt {
	if c.jobs != nil {
		return c.jobs
	}
	c.jobs = map[string][]jobsAt{}
	for i := range c.in.Records {
		r := &c.in.Records[i]
		if q, err := r.question(); err == nil && q.decision == policy.DecisionScaling {
			name := wording.Qualified(q.pool.Namespace, q.pool.Name)
			c.jobs[name] = append(c.jobs[name], jobsAt{r.at, q.scaling.Jobs})
		}
	}
	return c.jobs
}
