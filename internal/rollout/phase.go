// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// begin returns the current update, or starts one; nil if there is nothing to update.
//
// An update replaces the revision at which the last update finished. An edit during an update
// changes its target but not its origin. Without a state, the origin is the previous revision,
// and without that the most common revision of the existing runners.
func begin(in Input) *update {
	s := in.State
	switch {
	case s != nil && s.To == in.To:
		return &update{Input: in, from: s.From, before: s.Phase}
	case s != nil && s.From == in.To: // the change is reverted
		return &update{Input: in, from: in.To}
	case s != nil:
		return &update{Input: in, from: in.usable(s.From, in.Stored)}
	case in.Stored != "" && in.Stored != in.To:
		return &update{Input: in, from: in.usable(in.Stored)}
	}
	counts := in.others()
	if len(counts) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	return &update{Input: in, from: in.usable(names...)}
}

// usable returns the first of the given revisions that new runners may use and that is not the new revision; "" if there is
// none.
func (in Input) usable(revisions ...string) string {
	for _, r := range revisions {
		if r != in.To && slices.Contains(in.Usable, r) {
			return r
		}
	}
	return ""
}

// others counts, by revision, the runners of other revisions that may have to be replaced. Runners with a job count only if
// the status is lost. Otherwise they do not start an update, because a completed update leaves runners of previous
// revisions until they finish their job.
func (in Input) others() map[string]int {
	counts := map[string]int{}
	for _, r := range in.Runners {
		waits := (r.State == v1alpha1.RunnerPending || r.State == v1alpha1.RunnerIdle) && !r.Deleting
		lost := in.Stored == "" && (r.State == v1alpha1.RunnerBusy || r.Settling)
		if r.Revision != in.To && (waits || lost) {
			counts[r.Revision]++
		}
	}
	return counts
}

// enter sets the phase of this step.
func (u *update) enter() {
	u.counts = u.count(u.To)
	switch {
	case u.hasFailed():
		u.phase = v1alpha1.UpdateRolledBack
	case u.isHeld():
		u.phase = v1alpha1.UpdateHeld
	case u.Bounds.Canary > 0 && u.isSound() && u.before != v1alpha1.UpdateRolling && !u.proven():
		u.phase = v1alpha1.UpdateCanary
	default:
		u.phase = v1alpha1.UpdateRolling
	}
}

// hasFailed reports whether the update must be rolled back, and why.
func (u *update) hasFailed() bool {
	if u.before == v1alpha1.UpdateRolledBack && !u.hasRecovered() {
		u.reason = u.State.Reason
		return u.canGoBack()
	}
	record := u.Records[u.To]
	u.reason = fmt.Sprintf("%s: %s stays in force until spec.template or the annotation corral.dev/retry changes", record.Message, u.from)
	return record.Owned >= Tolerated && u.isSound() && !u.bothFail()
}

// hasRecovered reports whether an update that was rolled back continues: runners of the previous template fail, and one of the new template
// succeeded since the last failure. After a restart no failures are known, so their absence alone proves nothing.
func (u *update) hasRecovered() bool {
	return u.mayRetry() && u.Records[u.To].First.IsZero() && u.hasWorked()
}

// mayRetry reports whether the pool may try a template again that was rolled back. It may do so only while runners of the
// previous template fail and nothing holds the update.
func (u *update) mayRetry() bool {
	return u.Records[u.from].Open && u.hold() == "" && slices.Contains(u.Usable, u.To)
}

// retried returns the abandoned revision for which the pool creates one runner now, because runners of the revision that
// replaced it fail as well; "" for none. Either of the two may work again first, so the pool tries both.
func (u *update) retried() string {
	previous, latest := u.Records[u.from], u.Records[u.To]
	switch {
	case !u.canGoBack() || !previous.Open:
	case u.phase == v1alpha1.UpdateRolling && latest.Open && previous.Probe:
		return u.from
	case u.phase == v1alpha1.UpdateRolledBack && u.mayRetry() && (latest.Probe || !latest.Open && !u.isTrying()):
		return u.To
	}
	return ""
}

// isTrying reports whether a runner of the new template is starting, or is waiting for a job.
func (u *update) isTrying() bool {
	return slices.ContainsFunc(u.Runners, func(r Runner) bool {
		return r.Revision == u.To && !r.Deleting && (r.State == v1alpha1.RunnerPending || r.State == v1alpha1.RunnerIdle)
	})
}

// isHeld reports whether the update must stop at its current step, and why. An update that has no idle runners left to
// replace cannot be held, unless policies deny new runners of the new template.
func (u *update) isHeld() bool {
	if u.Denied != "" && u.canGoBack() {
		u.reason = u.Denied
		return true
	}
	u.reason = u.hold()
	return u.reason != "" && (u.before != v1alpha1.UpdateRolling || len(u.counts.others) > 0)
}

// hold returns the reason why the update must not continue, or "".
func (u *update) hold() string {
	b := u.Bounds
	if u.Hold == "" && b.Strategy == v1alpha1.RollingUpdate && b.MaxSurge <= 0 && b.MaxUnavailable <= 0 {
		return "neither surge nor unavailability is allowed"
	}
	return u.Hold
}

// canGoBack reports whether new runners can use the previous revision.
func (u *update) canGoBack() bool { return u.usable(u.from) != "" }

// isSound reports whether new runners can use the previous revision, and its runners are not known to fail.
func (u *update) isSound() bool { return u.canGoBack() && !u.Records[u.from].Open }

// together is the longest time between the last failure of the previous template's runners and the last failure of the new
// template's runners for which both templates count as failing. Within this time, the absence of further failures of the
// previous template proves nothing, because the pool creates no runners of it.
const together = 10 * time.Minute

// bothFail reports whether runners of the previous template failed during the failures of the
// new template. In this case the new template is not to blame.
func (u *update) bothFail() bool {
	former, now := u.Records[u.from], u.Records[u.To]
	return !former.Last.IsZero() && !former.Last.Before(now.First) && now.Last.Sub(former.Last) < together
}

// inForce returns the revision that runners should have.
func (u *update) inForce() string {
	if u.phase == v1alpha1.UpdateRolledBack {
		return u.from
	}
	return u.To
}

// wanted returns the number of canaries that must succeed: the declared number, but at most as many as the pool has
// runners.
func (u *update) wanted() int { return int(min(u.Bounds.Canary, max(1, u.Desired))) }

// proven reports whether the canaries succeeded: enough runners of the new template started at least the pause ago, and
// still run or have had a job. While enough of them run but the pause is not over, it sets u.next to the remaining time.
func (u *update) proven() bool {
	started := slices.Clone(u.Tried)
	for _, r := range u.Runners {
		runs := r.State == v1alpha1.RunnerIdle && !r.Deleting || r.State == v1alpha1.RunnerBusy
		if r.Revision == u.To && runs && !r.Started.IsZero() {
			started = append(started, r.Started)
		}
	}
	slices.SortFunc(started, time.Time.Compare)
	wanted := u.wanted()
	u.reason = fmt.Sprintf("%d of %d canaries run; they must run without failures for %s", min(len(started), wanted), wanted, u.Bounds.Pause)
	if record := u.Records[u.To]; record.Open {
		u.reason = fmt.Sprintf("%s; runners of %s take over", record.Message, u.from)
		return false
	}
	if len(started) < wanted {
		return false
	}
	u.next = max(0, started[wanted-1].Add(u.Bounds.Pause).Sub(u.Now))
	return u.next == 0
}

// status returns the state to store after a step.
func (u *update) status(p *Plan) *v1alpha1.UpdateStatus {
	if u.isOver(p) {
		return nil
	}
	s := &v1alpha1.UpdateStatus{From: u.from, To: u.To, Phase: u.phase, Since: metav1.Time{Time: u.Now}, Reason: u.reason}
	if u.phase == v1alpha1.UpdateRolling {
		s.Reason = u.progress(p)
	}
	if u.before == u.phase {
		s.Since = u.State.Since
	}
	return s
}

// progress describes how far the update has replaced runners.
func (u *update) progress(p *Plan) string {
	left := len(u.counts.others) - len(p.End) + u.counts.later
	switch record := u.Records[u.To]; {
	case record.Open && p.Rest != u.To:
		return fmt.Sprintf("%s; runners of %s take over", record.Message, u.from)
	case left == 0:
		return fmt.Sprintf("all runners are replaced; Corral keeps %s until a runner of %s succeeds", u.from, u.To)
	case u.Bounds.Strategy == v1alpha1.OnIdle:
		return fmt.Sprintf("%s with previous templates left, until their next job", runners(left))
	}
	return fmt.Sprintf("%s with previous templates left to replace", runners(left))
}

func runners(n int) string {
	if n == 1 {
		return "1 runner"
	}
	return fmt.Sprintf("%d runners", n)
}
