// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package schedule says what the schedules of a pool make of its numbers at a time, and when
// that changes.
package schedule

import (
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Plan is a pool's schedules, ready to be asked. It never changes; any number of goroutines
// may ask it.
type Plan struct {
	entries []entry
}

// entry is a schedule that can hold.
type entry struct {
	name  string
	path  string
	scale v1alpha1.ScheduledScale
	span  span
}

// span is when a schedule holds.
type span interface {
	// at says whether it holds at a time, and when that changes; the zero time stands for never,
	// as far as is looked.
	at(now time.Time) (holds bool, until time.Time)
}

// Now is what holds at a time.
type Now struct {
	// Scale has the pool's numbers then.
	v1alpha1.Scale
	// Active are the names of the schedules that hold, in the order of the list.
	Active []string
	// Next is when a schedule begins or ends to hold; zero if none does for nine years.
	Next time.Time
}

// Change is what holds from a time on.
type Change struct {
	At time.Time
	Now
}

// At returns what the schedules make of a pool's own numbers at a time. Of those that hold, the
// first in the list that sets a number decides on it; min and idle are then cut to max.
func (p *Plan) At(now time.Time, scale v1alpha1.ScaleSpec) Now {
	return p.walk(now).now(scale)
}

// Changes returns what holds from each moment between two times, from excluded, at which a
// schedule begins or ends to hold, in order: the first so many of them.
func (p *Plan) Changes(from, to time.Time, scale v1alpha1.ScaleSpec, most int) []Change {
	var changes []Change
	w := p.walk(from)
	for next := w.next(); !next.IsZero() && next.Before(to) && len(changes) < most; next = w.next() {
		w.advance(next)
		changes = append(changes, Change{At: next, Now: w.now(scale)})
	}
	return changes
}

// walk is where one is in time, and what each schedule is at there.
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

// advance goes on to a time that is not after next.
func (w *walk) advance(now time.Time) {
	for i, s := range w.states {
		if !s.until.IsZero() && !s.until.After(now) {
			w.states[i].holds, w.states[i].until = w.plan.entries[i].span.at(now)
		}
	}
}

// next is when the state of a schedule changes; zero if none does.
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
	for i, e := range slices.Backward(w.plan.entries) { // the first in the list has the last word
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
