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

// ask puts a recorded question to the side's policies that bind its pool. It returns the rules that make the answer.
func (s *side) ask(ctx context.Context, b *policy.Bound, q *question) (d decided, rules []v1alpha1.RuleReference) {
	by := func(r v1alpha1.RuleReference) { rules = append(rules, s.locate(r)) }
	switch q.decision {
	case policy.DecisionScaling:
		a := b.Scaling(ctx, q.scaling)
		d = decided{Limits: &a.Scale, Hard: a.Hard, Failures: a.Failures}
		for _, b := range a.Bounds {
			by(b.Rule)
		}
	case policy.DecisionTemplate:
		a := b.Template(ctx, q.template)
		d = decided{Denials: a.Denials, Failures: a.Failures}
		for _, denial := range a.Denials {
			by(denial.Rule)
		}
	default:
		a := b.Update(ctx, q.update)
		d = decided{Rollout: rolloutOf(&a), Failures: a.Failures}
		for _, reason := range a.Reasons {
			by(reason.Rule)
		}
	}
	if len(d.Failures) > 0 {
		rules = nil
	}
	return d, rules
}

// words tell an outcome; empty if there is none.
func (d *decided) words(decision string) string {
	switch {
	case len(d.Failures) > 0:
		return failed
	case decision == policy.DecisionTemplate:
		return denialWords(d.Denials)
	case d.Limits != nil:
		return scaleWords(*d.Limits, d.Hard)
	case d.Rollout != nil:
		return d.Rollout.words()
	}
	return ""
}

// waiting is how many of the jobs at the time wait beyond max.
func (d *decided) waiting(q *question) int32 {
	if d.Limits == nil {
		return 0
	}
	return max(0, q.scaling.Jobs-d.Limits.Max)
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
	words := fmt.Sprintf("%s, maxSurge %d, maxUnavailable %d, canary %d", r.Strategy, r.MaxSurge, r.MaxUnavailable, r.Canary)
	if r.Hold {
		words = "hold, " + words
	}
	return words
}

// recordedRunners is how many runners a pool would have had on average, by the jobs of its recorded decisions and the limits of a side;
// false if there are fewer than two of them. Each holds until the next, and an hour at most.
func (c *comparison) recordedRunners(j *judgement) (float64, bool) {
	if j.limits.Effective == nil {
		return 0, false
	}
	jobs := c.recordedJobs()[j.pool.name()]
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
		if q, ok := r.question(); ok && q.decision == policy.DecisionScaling {
			name := wording.Qualified(q.pool.Namespace, q.pool.Name)
			c.jobs[name] = append(c.jobs[name], jobsAt{r.Timestamp, q.scaling.Jobs})
		}
	}
	return c.jobs
}
