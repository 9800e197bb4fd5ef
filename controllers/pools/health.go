// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/scaling"
)

// healthy is how long a runner has to wait for jobs to count as one in good health.
const healthy = 10 * time.Second

// passing is how long GitHub may fail to register a runner before the pool tells of it.
const passing = 5 * time.Second

// examine looks at what ails the pool's runners: those that GitHub doesn't see, a row of
// failures, a quota.
func (x *run) examine(context.Context) error {
	x.connections()
	x.doubt()
	x.judgeHealth()
	x.judgeQuota()
	x.judgeRegistration()
	return nil
}

// connections gives up runners that run and that GitHub doesn't see. Where GitHub may be
// one that doesn't count, their registrations are looked up instead.
func (x *run) connections() {
	if !x.words.Known || x.words.Counted.IsZero() || x.words.State != scaleset.Listening {
		return
	}
	idle := x.staying(v1alpha1.RunnerIdle)
	deadline := x.pool.Spec.Deadlines.GetConnect()
	busy := len(x.staying(v1alpha1.RunnerBusy))
	s := x.words.Statistics
	c := poolstatus.Connections(idle, busy, s.IdleRunners+s.BusyRunners, x.words.Counted, deadline, x.Now())
	if c.Ask {
		x.Sessions.Refresh(x.key)
	}
	x.lookAgain(c.Next)
	for _, name := range c.Missing {
		switch {
		case !x.counts(), s.RegisteredRunners < len(idle)+busy: // or the counts are of another time
			x.Failures.Suspect(types.NamespacedName{Namespace: x.key.Namespace, Name: name}, x.Now())
		case x.recall.connected[name]:
			x.giveUp(name, v1alpha1.CauseRemoved, "GitHub doesn't see it any more: is its node gone?")
		default:
			x.giveUp(name, v1alpha1.CauseNeverConnected, fmt.Sprintf("its container runs, but GitHub doesn't see it %s later: can it reach GitHub?", deadline))
		}
	}
	x.noteConnected(c, idle, deadline)
}

// counts says whether GitHub was seen to count the pool's runners.
func (x *run) counts() bool {
	s := x.words.Statistics
	x.recall.counts = x.recall.counts || s.RegisteredRunners+s.IdleRunners+s.BusyRunners > 0
	return x.recall.counts
}

// doubt has the registrations of runners looked up that are busy only by our account.
func (x *run) doubt() {
	if !x.words.Known || !x.counts() {
		return
	}
	for _, name := range poolstatus.Doubtful(x.staying(v1alpha1.RunnerBusy), x.words.Statistics.BusyRunners, x.words.Counted) {
		x.Failures.Suspect(types.NamespacedName{Namespace: x.key.Namespace, Name: name}, x.Now())
	}
}

// staying returns the runners in a state that aren't being ended.
func (x *run) staying(state v1alpha1.RunnerState) []poolstatus.Runner {
	var list []poolstatus.Runner
	for _, o := range x.runners {
		here := x.set == nil || o.runner.Spec.ScaleSetID == x.set.Status.ID // GitHub's counts are of one set
		if here && o.verdict.State == state && o.runner.DeletionTimestamp.IsZero() {
			list = append(list, poolstatus.Runner{Name: o.runner.Name, Since: o.verdict.Since})
		}
	}
	return list
}

// noteConnected remembers the runners that had to be connected when GitHub counted and
// missed none.
func (x *run) noteConnected(c poolstatus.Connected, idle []poolstatus.Runner, deadline time.Duration) {
	maps.DeleteFunc(x.recall.connected, func(name string, _ bool) bool {
		return !slices.ContainsFunc(x.runners, func(o observed) bool { return o.runner.Name == name })
	})
	if c.Ask || len(c.Missing) > 0 {
		return
	}
	for _, r := range idle {
		if !x.words.Counted.Before(r.Since.Add(deadline)) {
			x.recall.connected[r.Name] = true
		}
	}
}

// giveUp counts a runner for nothing and ends it: it is deregistered first, so it
// can't be one with a job.
func (x *run) giveUp(name string, cause v1alpha1.RunnerCause, why string) {
	for i := range x.runners {
		if o := &x.runners[i]; o.runner.Name == name {
			o.verdict = poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: why, Since: x.Now(), Cause: cause}
			x.lost = append(x.lost, o.runner)
			x.Failures.MarkFailed(client.ObjectKeyFromObject(o.runner), o.runner.UID, o.verdict)
			x.Event(o.runner, corev1.EventTypeWarning, string(v1alpha1.RunnerFailed), fmt.Sprintf("%s: %s", cause, why))
			if c, ok := x.recall.circuits[o.runner.Spec.Revision]; ok {
				x.recall.circuits[c.Revision] = c.Failed(cause, why, o.runner.CreationTimestamp.Time, x.Now())
			}
		}
	}
}

// judgeHealth opens and closes the circuits of the revisions that runners are made from.
func (x *run) judgeHealth() {
	circuits := map[string]scaling.Circuit{}
	for _, revision := range x.sources() {
		circuits[revision] = scaling.Circuit{Revision: revision}
		if c, ok := x.recall.circuits[revision]; ok {
			circuits[revision] = c
		}
	}
	outcomes := x.Failures.TakeOutcomes(x.key)
	for _, f := range outcomes.Failures {
		if c, ok := circuits[f.Revision]; ok && x.isCertain(f) {
			circuits[f.Revision] = c.Failed(f.Cause, f.Message, f.Began, f.At)
		}
	}
	for revision, c := range circuits {
		if began, ok := outcomes.Worked[revision]; ok && c.IsNewer(began) || x.succeeded(c) {
			circuits[revision] = c.Succeeded()
		}
	}
	x.recall.circuits = circuits
}

// sources are the revisions that runners are made from: that of the spec, and while an
// update is under way the former.
func (x *run) sources() []string {
	names := []string{x.pool.Status.Revision, x.stored}
	if u := x.pool.Status.Update; u != nil {
		names = append(names, u.From)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// holdBack holds the pool back while the runners fail of the revision that new ones are made
// from.
func (x *run) holdBack(in *scaling.Input) {
	c := x.recall.circuits[x.step.Rest]
	if !c.Open() {
		conditions.MarkTrue(x.pool, v1alpha1.HealthyCondition, v1alpha1.SucceededReason, "runners start")
		return
	}
	hold, next := c.Hold(x.count(v1alpha1.RunnerBusy), x.free(), x.probes(c), x.Now())
	in.Holds = append(in.Holds, hold)
	x.lookAgain(cmp.Or(next, healthy))
	conditions.MarkFalse(x.pool, v1alpha1.HealthyCondition, v1alpha1.RunnersFailingReason, "%s", c)
	x.ailment, x.ails = v1alpha1.RunnersFailingReason, c.String()
}

// succeeded says whether a runner of the circuit's template got a job since the last
// failure, or waits for one in good health.
func (x *run) succeeded(c scaling.Circuit) bool {
	return slices.ContainsFunc(x.runners, func(o observed) bool {
		well := o.verdict.State == v1alpha1.RunnerBusy || o.verdict.State == v1alpha1.RunnerIdle && x.isWell(c, o.verdict.Since)
		return well && o.runner.Spec.Revision == c.Revision && c.IsNewer(o.verdict.Since)
	})
}

// isWell says whether a runner that is idle since a time is in good health, as far as
// what others failed of goes.
func (x *run) isWell(c scaling.Circuit, since time.Time) bool {
	if c.Cause == v1alpha1.CauseNeverConnected {
		return !x.words.Counted.Before(since.Add(x.pool.Spec.Deadlines.GetConnect()))
	}
	return x.Now().Sub(since) >= healthy
}

// count returns how many runners are in one of some states.
func (x *run) count(states ...v1alpha1.RunnerState) int32 {
	var n int32
	for _, o := range x.runners {
		if slices.Contains(states, o.verdict.State) {
			n++
		}
	}
	return n
}

// free counts the runners that may get a job yet.
func (x *run) free() int32 {
	return int32(len(x.staying(v1alpha1.RunnerIdle)) + len(x.staying(v1alpha1.RunnerPending))) //nolint:gosec // far below
}

// probes counts the runners whose success or failure will be news to the circuit.
func (x *run) probes(c scaling.Circuit) int32 {
	var n int32
	for _, o := range x.runners {
		mayTell := o.verdict.State == v1alpha1.RunnerPending || o.verdict.State == v1alpha1.RunnerIdle && c.IsNewer(o.verdict.Since)
		if mayTell && o.runner.Spec.Revision == c.Revision && o.runner.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// isCertain says whether a failure was one. A runner that ended in peace while nobody
// listened to GitHub may have had a job.
func (x *run) isCertain(f runners.Failure) bool {
	return !f.Clean ||
		x.words.State == scaleset.Listening && f.At.Sub(x.words.Since) >= poolstatus.Settle
}

// judgeQuota takes in no more than a ResourceQuota admits, as long as a runner waits for it.
func (x *run) judgeQuota() {
	admitted := x.count(v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy)
	var waiting *v1alpha1.Runner
	for _, o := range x.runners {
		if o.runner.Status.Cause == v1alpha1.CauseQuota && o.verdict.State == v1alpha1.RunnerPending && slices.Contains(x.sources(), o.runner.Spec.Revision) {
			waiting = o.runner
			admitted--
		}
	}
	if waiting == nil {
		return
	}
	x.holds = append(x.holds, scaling.Hold{Announce: admitted, Reason: fmt.Sprintf("the namespace's quota admits %d", admitted)})
	x.ailment, x.ails = v1alpha1.QuotaExceededReason, fmt.Sprintf("runner %s: %s", waiting.Name, waiting.Status.Reason)
}

// judgeRegistration tells why GitHub registers no runners.
func (x *run) judgeRegistration() {
	for _, o := range x.runners {
		if o.runner.Status.Cause != v1alpha1.CauseGitHub || o.verdict.State != v1alpha1.RunnerPending {
			continue
		}
		if age := x.Now().Sub(o.runner.CreationTimestamp.Time); age < passing {
			x.lookAgain(passing - age)
			continue
		}
		reason := conditions.GetReason(o.runner, v1alpha1.ReadyCondition)
		if reason == v1alpha1.ProgressingWithRetryReason {
			reason = v1alpha1.GitHubUnavailableReason
		}
		x.ailment, x.ails = reason, fmt.Sprintf("runner %s: %s", o.runner.Name, o.runner.Status.Reason)
		return
	}
}

// lookAgain asks for the next pass within a time; 0 asks for nothing.
func (x *run) lookAgain(after time.Duration) {
	if after > 0 && (x.again == 0 || after < x.again) {
		x.again = after
	}
}
