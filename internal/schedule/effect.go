// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// lookout is the time span in which Warnings looks for an effect: a little more than a year.
	lookout = 400 * day
	// maxSteps limits the number of examined changes.
	maxSteps = 20_000
)

// Warnings returns the schedules without an effect after a given time: schedules that are over, and
// schedules that are active only while schedules earlier in the list set the same numbers. It reports
// only what it can determine within 400 days and 20,000 changes.
func (p *Plan) Warnings(now time.Time) []Problem {
	effects := p.effects(now)
	var problems []Problem
	for i, e := range p.entries {
		warn := func(format string, args ...any) {
			problems = append(problems, Problem{Path: e.path, Message: fmt.Sprintf(format, args...)})
		}
		o, isOnce := e.span.(once)
		switch {
		case isOnce && !now.Before(o.to):
			warn("schedule %s is over since %s: remove it", e.name, o.to.UTC().Format(time.RFC3339))
		case effects == nil || !effects[i].held || effects[i].decided:
		default:
			warn("schedule %s has no effect: whenever it holds, %s sets the same numbers and is before it in the list. Put it first, or remove it",
				e.name, strings.Join(effects[i].others, " or "))
		}
	}
	return problems
}

// effect records whether a schedule was active, and whether it determined a number.
type effect struct {
	held, decided bool
	// others are the schedules that determined the numbers instead.
	others []string
}

// effects returns the effect of each schedule within the lookout, or nil if there are too many changes.
func (p *Plan) effects(now time.Time) []effect {
	effects := make([]effect, len(p.entries))
	w := p.walk(now)
	for range maxSteps {
		w.judge(effects)
		next := w.next()
		if next.IsZero() || next.Sub(now) > lookout {
			return effects
		}
		w.advance(next)
	}
	return nil
}

// judge records which schedule determines each number.
func (w *walk) judge(effects []effect) {
	var first [3]string
	for i, e := range w.plan.entries {
		if !w.states[i].holds {
			continue
		}
		effects[i].held = true
		for field, number := range [3]*int32{e.scale.Min, e.scale.Idle, e.scale.Max} {
			switch {
			case number == nil:
			case first[field] == "":
				first[field] = e.name
				effects[i].decided = true
			case !slices.Contains(effects[i].others, first[field]):
				effects[i].others = append(effects[i].others, first[field])
			}
		}
	}
}
