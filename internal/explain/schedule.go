// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// Schedule is what schedules make of a pool's numbers.
type Schedule struct {
	// Declared is how many schedules the pool has.
	Declared int `json:"declared"`
	// Seen is false until the controller has looked at them.
	Seen bool `json:"seen"`
	// Holding are those that hold, in the order of the spec.
	Holding []HoldingSchedule `json:"holding,omitempty"`
	// Numbers that hold, and those of spec.scale.
	Numbers ScaleNumbers `json:"numbers"`
	Spec    ScaleNumbers `json:"spec"`
	// Next is when that changes; absent for never, as far as is looked.
	Next *metav1.Time `json:"next,omitempty"`
}

// ScaleNumbers are those of a pool. 2147483647 stands for no bound.
type ScaleNumbers struct {
	Min  int32 `json:"min"`
	Idle int32 `json:"idle"`
	Max  int32 `json:"max"`
}

// HoldingSchedule is a schedule that holds.
type HoldingSchedule struct {
	Name string `json:"name"`
	// Sets are the numbers that it has.
	Sets []ScheduledNumber `json:"sets"`
}

// ScheduledNumber is a number of a schedule.
type ScheduledNumber struct {
	// Field is min, idle or max.
	Field string `json:"field"`
	Value int32  `json:"value"`
	// By names the schedule before it in the list that decides instead; absent if it decides itself.
	By string `json:"by,omitempty"`
}

// schedule is what the pool's schedules make of its numbers; nil if it has none.
func (f *PoolFacts) schedule() *Schedule {
	spec, status := &f.Pool.Spec, f.Pool.Status.Schedule
	if len(spec.Scale.Schedules) == 0 {
		return nil
	}
	s := &Schedule{
		Declared: len(spec.Scale.Schedules), Seen: status != nil,
		Spec: ScaleNumbers{Min: spec.Scale.GetMin(), Idle: spec.Scale.GetIdle(), Max: spec.Scale.GetMax()},
	}
	s.Numbers = s.Spec
	if status == nil {
		return s
	}
	s.Numbers, s.Next = ScaleNumbers{Min: status.Min, Idle: status.Idle, Max: status.Max}, status.Next
	decides := map[string]string{}
	for i := range spec.Scale.Schedules {
		if d := &spec.Scale.Schedules[i]; slices.Contains(status.Active, d.Name) {
			s.Holding = append(s.Holding, holding(d, decides))
		}
	}
	return s
}

// holding tells the numbers of a schedule, and notes which it decides on.
func holding(d *v1alpha1.Schedule, decides map[string]string) HoldingSchedule {
	h := HoldingSchedule{Name: d.Name}
	for _, n := range []struct {
		field string
		value *int32
	}{{"min", d.Scale.Min}, {"idle", d.Scale.Idle}, {"max", d.Scale.Max}} {
		if n.value == nil {
			continue
		}
		h.Sets = append(h.Sets, ScheduledNumber{Field: n.field, Value: *n.value, By: decides[n.field]})
		if decides[n.field] == "" {
			decides[n.field] = d.Name
		}
	}
	return h
}

// decider names the schedule that decides on a number now; "" if none does.
func (f *PoolFacts) decider(field string) string {
	s := f.schedule()
	if s == nil {
		return ""
	}
	for _, h := range s.Holding {
		for _, n := range h.Sets {
			if n.Field == field && n.By == "" {
				return h.Name
			}
		}
	}
	return ""
}

// declared are the numbers that the pool declares now, after its schedules.
func (f *PoolFacts) declared() ScaleNumbers {
	if s := f.schedule(); s != nil {
		return s.Numbers
	}
	scale := &f.Pool.Spec.Scale
	return ScaleNumbers{Min: scale.GetMin(), Idle: scale.GetIdle(), Max: scale.GetMax()}
}

func (a *PoolAnswer) schedule(p *page) {
	s := a.Schedule
	if s == nil {
		return
	}
	p.section("Schedule")
	switch {
	case !s.Seen:
		p.line(2, "The controller has not looked at its schedules yet.")
		return
	case len(s.Holding) == 0:
		p.line(2, "None of its %s holds: the numbers are those of spec.scale.", wording.Count(int32(s.Declared), "schedule")) //nolint:gosec // at most 32
	}
	for _, h := range s.Holding {
		p.line(2, "%s holds: %s", h.Name, h.words())
	}
	if len(s.Holding) > 0 {
		p.line(2, "So it declares %s; spec.scale has %s.", s.Numbers, s.Spec)
	}
	switch {
	case s.Next == nil:
		p.line(2, "No change is in sight.")
	case s.Next.After(a.now):
		p.line(2, "Next change: %s.", p.when(s.Next.Time))
	default:
		p.line(2, "A change was due at %s: the controller has not looked at it since.", p.when(s.Next.Time))
	}
}

// words are the numbers of a schedule that holds.
func (h *HoldingSchedule) words() string {
	var parts []string
	for _, n := range h.Sets {
		words := fmt.Sprintf("%s %d", n.Field, n.Value)
		if n.By != "" {
			words += fmt.Sprintf(" (without effect: %s is before it in the list)", n.By)
		}
		parts = append(parts, words)
	}
	return strings.Join(parts, ", ")
}

// String writes the numbers.
func (n ScaleNumbers) String() string {
	most := "no max"
	if n.Max != v1alpha1.UnboundedMax {
		most = fmt.Sprintf("max %d", n.Max)
	}
	return fmt.Sprintf("min %d, idle %d, %s", n.Min, n.Idle, most)
}
