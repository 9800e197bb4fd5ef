// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// The profile of a week is exact for schedules, because their authors could otherwise choose which of the changes count. The
// work is bounded, because a tree can have thousands of pools. The unit of work is a change of a schedule.
const (
	// maxChanges is the maximum number of schedule changes of a pool in the week. A schedule that begins and ends in every
	// minute has 20,160.
	maxChanges = 30_000
	// evaluation is the work of an evaluation of policies.
	evaluation = 5
	// ownWork is how much work each pool may cause, and sharedWork how much all pools of a side may cause beyond that.
	ownWork, sharedWork = 200, 500_000
)

// profile describes a pool's number of runners during the week after the review.
type profile struct {
	// floor is the average number of runners without jobs, and most the average max. unbounded is true if there is no max at
	// some time.
	floor, most float64
	unbounded   bool
	steps       []Span // periods in which the limits do not change
	// isUnknown is true if the limits change too often to compute them. The other fields are not set then.
	isUnknown bool
}

// answer contains the limits that policies set for the numbers of the schedules. They are valid until a time.
type answer struct {
	policy.Scale
	until time.Time
}

// profile computes the limits of a pool for the week. It starts with a, the answer for the time of the review, and evaluates
// policies for all numbers that schedules set. An answer is valid until the time that the policies announce. Rules that read
// the clock need not announce changes, so their answers are valid until the next full hour.
func (s *side) profile(ctx context.Context, p *pool, a scaled) (week profile) {
	if p.rests() {
		return week
	}
	end, work := s.in.At.Add(lookout), s.budgetOf(p)
	most := min(maxChanges, work.left())
	changes := p.plan.Changes(s.in.At, end, p.Spec.Scale, most)
	if !work.spend(len(changes)) || len(changes) == most {
		return profile{isUnknown: true}
	}
	answers := map[v1alpha1.Scale]answer{a.Scale: p.answer(a, s.in.At)}
	for at, now := s.in.At, a.Now; at.Before(end); {
		current := answers[now.Scale]
		if !current.until.After(at) {
			if !work.spend(evaluation) {
				return profile{isUnknown: true}
			}
			current = p.answer(s.decide(ctx, p, now, s.moment(p, at)), at)
			answers[now.Scale] = current
		}
		next := earliest(current.until, end)
		if len(changes) > 0 && !changes[0].At.After(next) {
			next, now, changes = changes[0].At, changes[0].Now, changes[1:]
		}
		week.add(at, next, current.Scale)
		at = next
	}
	return week
}

// answer returns the answer a of policies with the time until which it is valid after the time at.
func (p *pool) answer(a scaled, at time.Time) answer {
	until := at.Add(lookout)
	switch {
	case p.readsClock:
		until = at.Truncate(time.Hour).Add(time.Hour)
	case a.answer.Until.After(at):
		until = a.answer.Until
	}
	return answer{a.inForce(), until}
}

// moment returns the time for which policies are evaluated to find the limits at the time at. If rules read the clock, it is a
// time within the same hour that depends on the time of the review. Otherwise the author of a rule could set other limits at
// the few moments that a review evaluates.
func (s *side) moment(p *pool, at time.Time) time.Time {
	hour := at.Truncate(time.Hour)
	if !p.readsClock || !hour.After(s.in.At) {
		return at
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%d %d", s.in.At.UnixNano(), hour.Unix()))
	return hour.Add(time.Duration(binary.BigEndian.Uint64(hash[:]) % uint64(time.Hour)))
}

// budget is the work that the profile of a pool may still cause. It draws on the shared budget after its own.
type budget struct {
	own    int
	shared *int
}

func (s *side) budgetOf(p *pool) *budget {
	b := &budget{ownWork, &s.sharedWork}
	if p.readsClock {
		b.own += evaluation * int(lookout/time.Hour+1)
	}
	return b
}

func (b *budget) left() int { return b.own + max(0, *b.shared) }

// spend subtracts work. It reports whether the budget allows it.
func (b *budget) spend(work int) bool {
	beyond := max(0, work-b.own)
	b.own -= work - beyond
	*b.shared -= beyond
	return beyond == 0 || *b.shared >= 0
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// rests reports whether a pool has no runners regardless of its limits: it only observes, or its stop policy is Drain.
func (p *pool) rests() bool { return p.Spec.GetStopPolicy() == v1alpha1.StopDrain || p.Spec.Observes() }

// inForce returns the limits that apply. While a policy fails, they are the limits that the controller would keep in force.
func (a *scaled) inForce() policy.Scale {
	if len(a.answer.Failures) == 0 {
		return a.answer.Scale
	}
	return a.answer.Held(*cmp.Or(a.last, &a.Scale), a.Scale)
}

// add adds a period with constant limits.
func (w *profile) add(from, to time.Time, scale policy.Scale) {
	weight := float64(to.Sub(from)) / float64(lookout)
	w.floor += weight * float64(floor(scale))
	w.most += weight * float64(scale.Max)
	w.unbounded = w.unbounded || scale.Max == v1alpha1.UnboundedMax
	if n := len(w.steps); n == 0 || w.steps[n-1].Scale != scale {
		w.steps = append(w.steps, Span{From: from, Scale: scale})
	}
}
