// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package schedule computes a pool's min, idle and max at a given time, according to its schedules, and the time of
// the next change.
package schedule

import (
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Plan holds a pool's compiled schedules. It is immutable, so any number of goroutines may
// use it.
type Plan struct {
	entries []entry
}

// entry is one compiled schedule.
type entry struct {
	name  string
	path  string
	scale v1alpha1.ScheduledScale
	span  span
}

// span is the time during which a schedule is active.
type span interface {
	// at reports whether the schedule is active at the time now, and returns the time of the next change. The zero
	// time means that there is no change within the horizon.
	at(now time.Time) (holds bool, until time.Time)
}

// Now contains a pool's min, idle and max, and its active schedules, at a given time.
type Now struct {
	// Scale holds the pool's min, idle and max at that time.
	v1alpha1.Scale
	// Active lists the names of the active schedules, in the order of the list.
	Active []string
	// Next is the time when a schedule starts or ends; zero if none does within nine years.
	Next time.Time
}

// Change is the state that begins at the time At.
type Change struct {
	At time.Time
	Now
}

// At applies the schedules that are active at the given time to a pool's own min, idle and max. Of several active
// schedules that set the same number, the first in the list applies. At then lowers min and idle to max if they exceed it.
func (p *Plan) At(now time.Time, scale v1alpha1.ScaleSpec) Now {
	return p.walk(now).now(scale)
}

// Changes returns the state after each start or end of a schedule between two times, both exclusive. It
// returns the earliest changes in order, and no more than the number in most.
func (p *Plan) Changes(from, to time.Time, scale v1alpha1.ScaleSpec, most int) []Change {
	var changes []Change
	w := p.walk(from)
	for next := w.next(); !next.IsZero() && next.Before(to) && len(changes) < most; next = w.next() {
		w.advance(next)
		changes = append(changes, Change{At: next, Now: w.now(scale)})
	}
	return changes
}

// walk is a position in time, with the state of each schedule at that time.
type walk struct {
	plan   *Plan
	states []state
}

type state struct {
	holds bool
	until time.Time
}

func (p *Plan) walk(now time.Time) *walk {
	w := &walk{plan: p, states: make([]state, len(p.entries))}
	for i := range p.entries {
		w.states[i].holds, w.states[i].until = p.entries[i].span.at(now)
	}
	return w
}

// advance moves the position to a time that must not be after w.next().
func (w *walk) advance(now time.Time) {
	for i, s := range w.states {
		if !s.until.IsZero() && !s.until.After(now) {
			w.states[i].holds, w.states[i].until = w.plan.entries[i].span.at(now)
		}
	}
}

// next returns the time when the first schedule changes its state; zero if none does.
func (w *walk) next() time.Time {
	var next time.Time
	for _, s := range w.states {
		if !s.until.IsZero() && (next.IsZero() || s.until.Before(next)) {
			next = s.until
		}
	}
	return next
}

func (w *walk) now(scale v1alpha1.ScaleSpec) Now {
	n := Now{Scale: scale.Numbers(), Next: w.next()}
	for i, e := range slices.Backward(w.plan.entries) { // the first in the list takes precedence
		if !w.states[i].holds {
			continue
		}
		n.Active = append(n.Active, e.name)
		set(&n.Min, e.scale.Min)
		set(&n.Idle, e.scale.Idle)
		set(&n.Max, e.scale.Max)
	}
	slices.Reverse(n.Active)
	n.Min, n.Idle = min(n.Min, n.Max), min(n.Idle, n.Max)
	return n
}

func set(number, to *int32) {
	if to != nil {
		*number = *to
	}
}
