// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runner"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
	actions "github.com/corral-dev/corral/internal/scaleset"
	"github.com/corral-dev/corral/internal/scaling"
)

// healthy is how long a runner has to wait for jobs to count as one in good health.
const healthy = 10 * time.Second

// examine looks at what ails the pool's runners: those that GitHub doesn't see, a row of
// failures, a quota.
func (x *run) examine(context.Context) error {
	x.connections()
	x.judgeHealth()
	x.judgeQuota()
	return nil
}

// connections gives up runners that run and that GitHub doesn't see.
func (x *run) connections() {
	if !x.words.Known || x.words.Counted.IsZero() {
		return
	}
	var idle []poolstatus.Idle
	for _, o := range x.runners {
		if o.verdict.State == v1alpha1.RunnerIdle && o.runner.DeletionTimestamp.IsZero() {
			idle = append(idle, poolstatus.Idle{Name: o.runner.Name, Since: o.verdict.Since})
		}
	}
	deadline := x.pool.Spec.Deadlines.GetConnect()
	online := x.words.Statistics.IdleRunners + x.words.Statistics.BusyRunners
	c := poolstatus.Connections(idle, int(x.count(v1alpha1.RunnerBusy)), online, x.words.Counted, deadline, x.Now())
	if c.Ask {
		x.Sessions.Refresh(x.key)
	}
	x.lookAgain(c.Next)
	for _, name := range c.Missing {
		x.giveUp(name, fmt.Sprintf("its container runs, but GitHub doesn't see it %s later: can it reach GitHub?", deadline))
	}
}

// giveUp counts a runner for nothing and ends it: it is deregistered first, so it
// can't be one with a job.
func (x *run) giveUp(name, why string) {
	for i := range x.runners {
		if o := &x.runners[i]; o.runner.Name == name {
			o.verdict = poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: why, Since: x.Now(), Cause: v1alpha1.CauseNeverConnected}
			x.lost = append(x.lost, o.runner)
			x.recall.circuit = x.recall.circuit.Failed(o.verdict.Cause, why, x.Now())
		}
	}
}

// judgeHealth opens and closes the pool's circuit.
func (x *run) judgeHealth() {
	c := x.recall.circuit
	if c.Revision != x.pool.Status.Revision {
		c = scaling.Circuit{Revision: x.pool.Status.Revision}
	}
	for _, f := range x.Failures.TakeFailures(x.key) {
		if f.Revision == c.Revision && x.isCertain(f) {
			c = c.Failed(f.Cause, f.Message, f.At)
		}
	}
	if x.succeeded(c) {
		c = c.Succeeded()
	}
	x.recall.circuit = c
	if !c.Open() {
		conditions.MarkTrue(x.pool, v1alpha1.HealthyCondition, v1alpha1.SucceededReason, "runners start")
		return
	}
	hold, next := c.Hold(x.count(v1alpha1.RunnerBusy), x.count(v1alpha1.RunnerIdle, v1alpha1.RunnerPending), x.Now())
	x.holds = append(x.holds, hold)
	x.lookAgain(cmp.Or(next, healthy))
	conditions.MarkFalse(x.pool, v1alpha1.HealthyCondition, v1alpha1.RunnersFailingReason, "%s", c)
	x.ailment = kube.Wait(v1alpha1.RunnersFailingReason, cmp.Or(next, healthy), "%s", c)
}

// succeeded says whether a runner of the circuit's template got a job since the last
// failure, or waits for one in good health.
func (x *run) succeeded(c scaling.Circuit) bool {
	return slices.ContainsFunc(x.runners, func(o observed) bool {
		since := o.verdict.Since
		well := o.verdict.State == v1alpha1.RunnerBusy || o.verdict.State == v1alpha1.RunnerIdle && x.Now().Sub(since) >= healthy
		return well && o.runner.Spec.Revision == c.Revision && since.After(c.Last)
	})
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

// isCertain says whether a failure was one. A runner that ended while nobody listened to
// GitHub may have had a job.
func (x *run) isCertain(f runner.Failure) bool {
	return f.Cause != v1alpha1.CauseCrash ||
		x.words.State == actions.Listening && f.At.Sub(x.words.Since) >= poolstatus.Settle
}

// judgeQuota takes in no more than a ResourceQuota admits, as long as a runner waits for it.
func (x *run) judgeQuota() {
	admitted := x.count(v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy)
	var waiting *v1alpha1.Runner
	for _, o := range x.runners {
		if o.runner.Status.Cause == v1alpha1.CauseQuota && o.verdict.State == v1alpha1.RunnerPending {
			waiting = o.runner
			admitted--
		}
	}
	if waiting == nil {
		return
	}
	x.holds = append(x.holds, scaling.Hold{Announce: admitted, Reason: fmt.Sprintf("the namespace's quota admits %d", admitted)})
	x.ailment = kube.Wait(v1alpha1.QuotaExceededReason, recheck, "runner %s: %s", waiting.Name, waiting.Status.Reason)
}

// lookAgain asks for the next pass within a time; 0 asks for nothing.
func (x *run) lookAgain(after time.Duration) {
	if after > 0 && (x.again == 0 || after < x.again) {
		x.again = after
	}
}
