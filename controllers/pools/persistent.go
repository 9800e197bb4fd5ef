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

// retiredEvent is the reason of the event about a persistent runner that is replaced as it has worked long enough.
const retiredEvent = "Retired"

// retirement is when a persistent runner has worked long enough; the zero value for never.
type retirement struct {
	// why it has; "" if it hasn't yet.
	why string
	// in is the time after which it will have.
	in time.Duration
}

// retires reports whether the runner is to be replaced once it has no job.
func (r retirement) retires() bool { return r.why != "" }

func (r *Reconciler) retirementOf(runner *v1alpha1.Runner, o observation) retirement {
	_, done := r.Results.LastJob(runner)
	why, in := poolstatus.Retires(runner, done, o.pool.Spec.Persistent, o.now)
	return retirement{why, in}
}

// retiring has the runners to end now that have worked long enough and have no job: a quarter of all at once, so that the others take
// jobs until new ones run. New ones that wait for room hold nothing up: those that end make it.
func (o observation) retiring() map[string]bool {
	room := max(1, int(o.runners.live())/4)
	for _, x := range o.runners {
		if x.waits() && (x.isEnding() || x.verdict.State == v1alpha1.RunnerPending && !x.lacksRoom()) {
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

// lacksRoom reports whether a runner waits for what other runners have: quota, a node or a volume.
func (o observed) lacksRoom() bool {
	return slices.Contains([]v1alpha1.RunnerCause{v1alpha1.CauseQuota, v1alpha1.CauseUnschedulable, v1alpha1.CauseCache}, o.verdict.Cause)
}

// nextRetirement is the time after which another runner will have worked long enough; 0 for never.
func (o observation) nextRetirement() (next time.Duration) {
	for _, x := range o.runners {
		next = soonest(next, x.in)
	}
	return next
}

// tellRetired records why runners are ended that have worked long enough.
func (r *Reconciler) tellRetired(o observation, d decision) {
	for _, x := range o.runners {
		if x.retires() && slices.Contains(d.step.End, x.runner.Name) {
			r.Event(x.runner, corev1.EventTypeNormal, retiredEvent, x.why)
		}
	}
}
