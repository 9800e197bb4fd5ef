// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Schedule contains the active schedules of a pool, and the resulting numbers.
type Schedule struct {
	// Declared is the number of schedules of the pool.
	Declared int `json:"declared"`
	// Seen is true once the controller has reconciled the schedules.
	Seen bool `json:"seen"`
	// Holding lists the active schedules, in the order of the spec.
	Holding []HoldingSchedule `json:"holding,omitempty"`
	// Numbers in force, and the numbers in spec.scale.
	Numbers v1alpha1.Scale `json:"numbers"`
	Spec    v1alpha1.Scale `json:"spec"`
	// Next is when the active schedules change; absent if no change is known.
	Next *metav1.Time `json:"next,omitempty"`

	decides map[string]string // name of the schedule that sets a number, by field
}

// HoldingSchedule is an active schedule.
type HoldingSchedule struct {
	Name string `json:"name"`
	// Sets lists its numbers.
	Sets []ScheduledNumber `json:"sets"`
}

// ScheduledNumber is a number of a schedule.
type ScheduledNumber struct {
	// Field is min, idle or max.
	Field string `json:"field"`
	Value int32  `json:"value"`
	// By is the schedule earlier in the list that overrides the number; absent if this schedule's number applies.
	By string `json:"by,omitempty"`
}

// schedule returns the active schedules of the pool and the resulting numbers; nil if the pool has no schedules.
func (f *PoolFacts) schedule() *Schedule {
	declared, seen := f.Pool.Spec.Scale.Schedules, f.Pool.Status.Schedule
	if len(declared) == 0 {
		return nil
	}
	numbers := f.Pool.Spec.Scale.Numbers()
	status := cmp.Or(seen, v1alpha1.ScheduleStatusOf(numbers)) // until then, no schedule is active
	s := &Schedule{Declared: len(declared), Seen: seen != nil, Spec: numbers, Numbers: status.Numbers(), Next: status.Next, decides: map[string]string{}}
	for d := range pointers(declared) {
		if slices.Contains(status.Active, d.Name) {
			s.Holding = append(s.Holding, holding(d, s.decides))
		}
	}
	return s
}

// holding lists the numbers of a schedule. It records the schedule in decides for each number that no earlier
// schedule sets.
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

// decider returns the name of the schedule that sets a number now; "" if there is none.
func (f *PoolFacts) decider(field string) string {
	return cmp.Or(f.schedule(), &Schedule{}).decides[field]
}

// declared returns the numbers that the pool declares now, after its schedules.
func (f *PoolFacts) declared() v1alpha1.Scale {
	return cmp.Or(f.schedule(), &Schedule{Numbers: f.Pool.Spec.Scale.Numbers()}).Numbers
}
