// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/utils/ptr"

// Scale contains the three limits of a pool: 0 ≤ Min ≤ Max, 0 ≤ Idle ≤ Max. A Max of UnboundedMax means no limit.
// +kubebuilder:object:generate=false
type Scale struct {
	Min  int32 `json:"min"`
	Max  int32 `json:"max"`
	Idle int32 `json:"idle"`
}

// Number returns the number of a field: min, max or idle.
func (s *Scale) Number(field string) *int32 {
	switch field {
	case "max":
		return &s.Max
	case "min":
		return &s.Min
	default:
		return &s.Idle
	}
}

// Numbers returns the declared limits, with their defaults.
func (s *ScaleSpec) Numbers() Scale {
	return Scale{Min: s.GetMin(), Max: s.GetMax(), Idle: s.GetIdle()}
}

// Numbers returns the limits in force.
func (s *ScheduleStatus) Numbers() Scale {
	return Scale{Min: s.Min, Max: ptr.Deref(s.Max, UnboundedMax), Idle: s.Idle}
}

// ScheduleStatusOf returns the status for the limits in force.
func ScheduleStatusOf(s Scale) *ScheduleStatus {
	return &ScheduleStatus{Min: s.Min, Max: maxOf(s), Idle: s.Idle}
}

// maxOf returns max in the form used in statuses: nil without a limit.
func maxOf(s Scale) *int32 {
	if s.Max == UnboundedMax {
		return nil
	}
	return &s.Max
}

// Numbers returns the limits in force.
func (l *DecidedLimits) Numbers() Scale { return Scale{Min: l.Min, Max: l.GetMax(), Idle: l.Idle} }

// GetMax returns the maximum number of runners in force.
func (l *DecidedLimits) GetMax() int32 { return ptr.Deref(l.Max, UnboundedMax) }

// SetMax sets the maximum number of runners in force; UnboundedMax means no limit.
func (l *DecidedLimits) SetMax(n int32) { l.Max = maxOf(Scale{Max: n}) }
