// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Schedule has the schedules of a pool that hold, and the numbers that follow.
type Schedule struct {
	// Declared is how many schedules the pool has.
	Declared int `json:"declared"`
	// Seen is false until the controller has looked at them.
	Seen bool `json:"seen"`
	// Holding are those that hold, in the order of the spec.
	Holding []HoldingSchedule `json:"holding,omitempty"`
	// Numbers that hold, and those of spec.scale.
	Numbers v1alpha1.Scale `json:"numbers"`
	Spec    v1alpha1.Scale `json:"spec"`
	// Next is when that changes; absent if no change is in sight.
	Next *metav1.Time `json:"next,omitempty"`

	decides map[string]string // name of the schedule that sets a number, by field
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
	// By names the schedule earlier in the list that sets the number instead; absent if this one does.
	By string `json:"by,omitempty"`
}

// schedule returns the pool's schedules that hold, and the numbers that follow; nil if it has no schedule.
func (f *PoolFacts) schedule() *Schedule {
	spec, status := &f.Pool.Spec, f.Pool.Status.Schedule
	if len(spec.Scale.Schedules) == 0 {
		return nil
	}
	numbers := spec.Scale.Numbers()
	s := &Schedule{Declared: len(spec.Scale.Schedules), Seen: status != nil, Spec: numbers, Numbers: numbers, decides: map[string]string{}}
	if status == nil {
		return s
	}
	s.Numbers, s.Next = status.Numbers(), status.Next
	for i := range spec.Scale.Schedules {
		if d := &spec.Scale.Schedules[i]; slices.Contains(status.Active, d.Name) {
			s.Holding = append(s.Holding, holding(d, s.decides))
		}
	}
	return s
}

// holding lists the numbers of a schedule, and enters in decides those that no earlier schedule sets.
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
		decides[n.field] = cmp.Or(decides[n.field], d.Name)
	}
	return h
}

// decider names the schedule that sets a number now; "" if none does.
func (f *PoolFacts) decider(field string) string {
	if s := f.schedule(); s != nil {
		return s.decides[field]
	}
	return ""
}

// declared returns the numbers that the pool declares now, after its schedules.
func (f *PoolFacts) declared() v1alpha1.Scale {
	if s := f.schedule(); s != nil {
		return s.Numbers
	}
	return f.Pool.Spec.Scale.Numbers()
}
