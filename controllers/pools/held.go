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
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/wording"
)

// runnersHeld is the event reason for ended Runners that finalizers of other controllers keep.
const runnersHeld = "RunnersHeld"

// heldAfter is how long other controllers may keep Runners before an event reports it, and heldAgain the interval between
// such events.
const heldAfter, heldAgain = 30 * time.Second, time.Hour

// holding records since when other controllers have kept ended Runners, and when an event last reported it.
type holding struct{ since, reported time.Time }

// reportHeld emits an event if other controllers have kept Runners for some time.
func (r *Reconciler) reportHeld(o observation, held []*v1alpha1.Runner) holding {
	h := o.memory.held
	switch {
	case len(held) == 0:
		return holding{reported: h.reported} // so that Runners that come and go cause no more events
	case h.since.IsZero():
		h.since = o.now
	case o.now.Sub(h.since) >= heldAfter && o.now.Sub(h.reported) >= heldAgain:
		h.reported = o.now
		r.Event(o.pool, corev1.EventTypeWarning, runnersHeld, describeHeld(held))
	}
	return h
}

// describeHeld returns the finalizers and how many Runners each keeps.
func describeHeld(held []*v1alpha1.Runner) string {
	counts := map[string]int{}
	for _, x := range held {
		for _, f := range x.Finalizers {
			counts[f]++
		}
	}
	var parts []string
	for _, f := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("finalizer %s keeps %s", f, wording.Count(counts[f], "Runner")))
	}
	return strings.Join(parts, ", ") + "; they have ended and do not count; the controller that added the finalizer must remove it"
}

// undeleted records when and why the API server refused to delete Runners that a pool does not need; the zero value for
// never.
type undeleted struct {
	at  time.Time
	err error
}

// after returns the value to remember after a pass. err is the error of the pass.
func (u undeleted) after(o observation, err error) undeleted {
	switch {
	case kube.ReasonOf(err, "") != v1alpha1.DeletionRefusedReason:
		return undeleted{}
	case o.now.Sub(u.at) < runners.EndRetry:
		return u
	}
	return undeleted{o.now, err}
}

// refusedEnd returns the reason if the API server refuses to delete Runners that have ended.
func refusedEnd(list runnerList) notReady {
	for _, x := range list {
		if ready := conditions.Get(x.runner, v1alpha1.ReadyCondition); !x.isEnding() && ready != nil && ready.Reason == v1alpha1.DeletionRefusedReason {
			return notReady{causes: kube.CausesAt(x.runner, v1alpha1.ReadyCondition), runner: x.runner.Name}
		}
	}
	return notReady{}
}
