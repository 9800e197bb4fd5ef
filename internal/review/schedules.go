// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"slices"
	"time"

	"github.com/corral-dev/corral/internal/schedule"
)

const (
	// lookout is how far schedules are looked at.
	lookout = 7 * 24 * time.Hour
	// maxSpans bounds how many spans are told of.
	maxSpans = 64
)

// compareSchedules tells what schedules make of a pool's numbers at either side; nil if it is the same.
func (c *comparison) compareSchedules(p *pair) *Schedule {
	if p.base != nil && p.head != nil && !p.shown.touches("spec.scale.schedules") {
		return nil
	}
	s := &Schedule{p.base.spans(c.in.At), p.head.spans(c.in.At)}
	if len(s.Before)+len(s.After) == 0 {
		return nil
	}
	return s
}

// spans are the times with the same numbers from a time on; nil of a pool without schedules, or no pool.
func (p *pool) spans(from time.Time) []Span {
	if p == nil || len(p.Spec.Scale.Schedules) == 0 {
		return nil
	}
	spans := []Span{span(from, p.plan.At(from, p.Spec.Scale))}
	for _, change := range p.plan.Changes(from, from.Add(lookout), p.Spec.Scale, maxSpans) {
		next := span(change.At, change.Now)
		if last := spans[len(spans)-1]; last.Scale == next.Scale && slices.Equal(last.Active, next.Active) {
			continue
		}
		spans = append(spans, next)
	}
	return spans[:min(len(spans), maxSpans)]
}

func span(at time.Time, n schedule.Now) Span {
	return Span{From: at.UTC(), Active: n.Active, Scale: n.Scale}
}
