// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/scaling"
)

const (
	// interruptedFor is how long after the last end by a node or an outsider a pool may report that they end its runners.
	interruptedFor = 10 * time.Minute
	// interruptedLeast is how long a pool reports it at least, so that the condition doesn't change with each runner of a pool whose nodes differ.
	interruptedLeast = time.Minute
)

// interruption is what ends a pool's runners one after the other that is not the fault of their template; the zero value for nothing.
type interruption struct {
	reason, message string
	// isNew is true in the first pass that finds it.
	isNew bool
}

// interruptionOf finds it among the last failures of the pool's runners, the newest first. No runner is known to have done well since a time.
func interruptionOf(o observation, last []v1alpha1.RunnerFailure, well time.Time) interruption {
	external := slices.DeleteFunc(slices.Clone(last), func(f v1alpha1.RunnerFailure) bool { return !f.Cause.IsExternal() })
	if len(external) == 0 {
		return interruption{}
	}
	row, nodes := 0, map[string]bool{}
	for _, f := range external {
		if !f.Time.Time.Before(well.Truncate(time.Second)) {
			row++
		}
		if f.Cause == v1alpha1.CauseNode && f.Node != "" {
			nodes[f.Node] = true
		}
	}
	newest, before := external[0], o.memory.health.interruption.reason
	age := o.now.Sub(newest.Time.Time)
	if age >= interruptedFor || row < scaling.Tolerated && (before == "" || age >= interruptedLeast) {
		return interruption{}
	}
	i := interruption{reason: v1alpha1.PodsDeletedReason, message: "pods of runners are deleted by others; the last: " + newest.Reason}
	if newest.Cause == v1alpha1.CauseNode {
		names := strings.Join(slices.Sorted(maps.Keys(nodes)), ", ")
		i = interruption{reason: v1alpha1.NodesFailingReason, message: fmt.Sprintf("nodes refuse or end runners: %s; the last: %s", names, newest.Reason)}
	}
	i.isNew = before == "" && conditions.GetReason(o.pool, v1alpha1.HealthyCondition) != i.reason
	return i
}

// wellSince is when the last runner of the pool began to do well. A process that has just begun counts from now on, unless the pool reported an
// interruption last.
func wellSince(o observation, results runners.Results) time.Time {
	began := []time.Time{o.memory.health.well}
	for _, w := range results.Worked {
		began = append(began, w.Began)
	}
	reported := []string{v1alpha1.NodesFailingReason, v1alpha1.PodsDeletedReason}
	if o.memory.health.failures == nil && !slices.Contains(reported, conditions.GetReason(o.pool, v1alpha1.HealthyCondition)) {
		began = append(began, o.now)
	}
	for _, x := range o.runners {
		s := x.verdict.State
		if s == v1alpha1.RunnerBusy || s == v1alpha1.RunnerIdle && o.now.Sub(x.verdict.Since) >= healthy {
			began = append(began, x.verdict.Since)
		}
	}
	return slices.MaxFunc(began, time.Time.Compare)
}
