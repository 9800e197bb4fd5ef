// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// retiredEvent is the event reason for a persistent runner that is replaced because it has reached its maximum age or
// number of jobs.
const retiredEvent = "Retired"

// retirement describes whether a persistent runner has reached its maximum age or number of jobs. The zero value means that
// it has not, and has no maximum age.
type retirement struct {
	// why is the reason; empty if it has not reached a maximum yet.
	why string
	// in is the time until it reaches its maximum age; 0 for none.
	in time.Duration
}

// retires reports whether the runner should be replaced once it has no job.
func (r retirement) retires() bool { return r.why != "" }

func (r *Reconciler) retirementOf(runner *v1alpha1.Runner, o observation) retirement {
	_, done := r.Results.LastJob(runner)
	why, in := poolstatus.Retires(runner, done, o.pool.Spec.Persistent, o.now)
	return retirement{why, in}
}

// retiring returns the runners to end now, which have reached their maximum age or number of jobs and have no job. At most
// a quarter of all runners end at once, so that the others take jobs until new runners are up. New runners that wait for
// room do not count, because the runners that end make that room.
func (o observation) retiring() map[string]bool {
	room := max(1, int(o.runners.live())/4)
	for _, x := range o.runners {
		if x.waits() && (x.isEnding() || x.verdict.State == v1alpha1.RunnerPending && !x.waitsForRoom()) {
			room--
		}
	}
	ends := map[string]bool{}
	for _, x := range o.runners {
		if x.retires() && x.waits() && !x.isEnding() && len(ends) < room {
			ends[x.runner.Name] = true
		}
	}
	return ends
}

// waitsForRoom reports whether a runner waits for something that other runners use: quota, a node or a volume.
func (o observed) waitsForRoom() bool {
	return slices.Contains([]v1alpha1.RunnerCause{v1alpha1.CauseQuota, v1alpha1.CauseUnschedulable, v1alpha1.CauseCache}, o.verdict.Cause)
}

// nextRetirement returns the delay until another runner reaches its maximum age; 0 for never.
func (o observation) nextRetirement() (next time.Duration) {
	for _, x := range o.runners {
		next = soonest(next, x.in)
	}
	return next
}

// reportRetired emits an event with the reason for each runner that ends because it has reached its maximum age or number
// of jobs.
func (r *Reconciler) reportRetired(o observation, d decision) {
	for _, x := range o.runners {
		if x.retires() && slices.Contains(d.step.End, x.runner.Name) {
			r.Event(x.runner, corev1.EventTypeNormal, retiredEvent, x.why)
		}
	}
}
