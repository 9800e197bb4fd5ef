// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// contended is the failure if the grants of other pools changed during each evaluation of the policies.
var contended = policy.Failure{Kind: policy.EvaluationError, Message: "the grants of other pools changed during each evaluation: Corral evaluates the policies again"}

// decision is what one pass decides, and why.
type decision struct {
	plan scaling.Plan
	// step is the next step of an update.
	step rollout.Plan
	// limits are the limits in force; nil if the policies never decided any.
	limits *v1alpha1.DecidedLimits
	// failures are the policies that could not be evaluated. loading is true if all of them are still being loaded.
	failures []policy.Failure
	loading  bool
	notReady notReady
	// circuit is the circuit of the revision that new runners use.
	circuit scaling.Circuit
	// grant is the number of runners that the plan reserves for the pool under ceilings that it shares with other pools.
	grant  policies.Grant
	pacing pacing
	// record is the decision for the status and the history.
	record *v1alpha1.Decision
	// lookAgain is the delay until the next pass if nothing happens before; 0 for none.
	lookAgain time.Duration
}

// decide plans within the limits that the policies returned. granted is the pool's last grant.
func decide(o observation, update updateLimits, answer policy.Scaling, granted int32) decision {
	d := decision{
		failures: slices.Concat(o.template.failures, update.failures, o.policies.unloaded, answer.Failures),
		notReady: o.health.notReady,
	}
	d.loading = o.policies.areLoading(d.failures)
	in := scalingInput(o)
	accepted := answer
	switch {
	case len(o.policies.unloaded)+len(answer.Failures) == 0:
		in.Limits, in.JobsWait = answer.Scale, answer.AssignedJobs == v1alpha1.AssignedJobsWait
		d.limits = decidedLimits(answer, o.policies.bound.Needs().Usage())
	case o.lastLimits() == nil: // no runner is started or ended
		in.Demand.Known, accepted = false, policy.Scaling{}
		if !d.loading {
			d.notReady = notReady{causes: causesOf(catalog.NoPolicyDecision, d.failures)}
		}
	default:
		accepted = policy.Scaling{}
		in.Limits, d.limits = lastKnown(o, answer, granted)
		in.JobsWait = slices.Contains([]v1alpha1.AssignedJobs{d.limits.AssignedJobs, answer.AssignedJobs}, v1alpha1.AssignedJobsWait)
	}
	var paced time.Duration
	in.Pace, d.pacing, paced = pace(o, in)
	list := rolloutRunners(o)
	d.step = planUpdate(o, update, in, list)
	in = withUpdate(in, d.step, list)
	var probe time.Duration
	in.Holds, d.circuit, probe = holdBack(o, d.step, in.Holds)
	d.notReady = failing(d.circuit, o.memory.health.interruption).or(d.notReady)
	d.plan = scaling.Decide(in)
	if d.limits == nil {
		d.plan.Reason = "policies have not decided yet: Corral neither starts nor deletes runners"
	}
	if len(d.failures) > 0 && !d.loading {
		d.notReady = d.notReady.or(notReady{causes: heldBy(d.failures)})
	}
	d.notReady = d.notReady.or(refusedEnd(o.runners))
	d.grant = grant(o, d.plan, in)
	d.record = recordOf(o, d, accepted)
	d.lookAgain = soonest(o.health.lookAgain, o.scale.next, update.until, waitUntil(answer.Until, o.now), paced, probe, d.step.LookAgain, d.plan.LookAgain)
	return d
}

// scalingInput returns the input of scaling, without the limits.
func scalingInput(o observation) scaling.Input {
	in := scaling.Input{
		Suspended: o.pool.Spec.GetStopPolicy() == v1alpha1.StopDrain || o.registration.moving || o.denied != nil,
		Held:      o.pool.Spec.GetStopPolicy() == v1alpha1.StopHold,
		Jobs:      o.demand.accepted, IdleReason: o.scale.idleReason, Holds: o.health.holds, Now: o.now,
		Demand: o.demand.Demand, Offered: o.demand.offered, Saturated: conditions.IsTrue(o.pool, v1alpha1.SaturatedCondition),
	}
	switch {
	case o.denied != nil:
		in.SuspendedReason = "the connection may not be used"
	case o.registration.moving && o.pool.Spec.GetStopPolicy() != v1alpha1.StopDrain:
		in.SuspendedReason = "waiting until the previous scale set is deleted"
	}
	for _, x := range o.runners {
		in.Runners = append(in.Runners, scaling.Runner{
			Name: x.runner.Name, State: x.verdict.State, Settling: x.verdict.Settling, Since: x.verdict.Since, Deleting: x.isEnding(),
		})
	}
	return in
}

// holdBack adds the reasons to hold the pool back that concern the revision of new runners: policies deny it, or its
// runners fail. It returns the revision's circuit, and the delay until its next check.
func holdBack(o observation, step rollout.Plan, holds []scaling.Hold) ([]scaling.Hold, scaling.Circuit, time.Duration) {
	revision := step.Rest
	holds = slices.Clip(holds)
	if o.revisions.denied[revision] != "" && !slices.Contains(holds, denied) {
		holds = append(holds, denied)
	}
	c := o.memory.health.circuits[revision]
	if !c.Open() {
		if hold, holdsBack := c.Rounds.Hold(o.runners.live(), o.now); holdsBack {
			holds = append(holds, hold)
		}
		return holds, c, c.Rounds.Left(o.now)
	}
	hold, next := o.hold(c)
	if step.Try != "" {
		hold = hold.Trying(o.runners.count(v1alpha1.RunnerBusy))
	}
	return append(holds, hold), c, cmp.Or(next, healthy)
}

// failing returns why the pool is held back after repeated failures of its runners, or after external causes ended them;
// the zero value if it is not held back.
func failing(c scaling.Circuit, i interruption) notReady {
	switch {
	case c.Open():
		return notReady{causes: []catalog.Cause{catalog.CircuitOpen.With(c.Failures, c.Cause).Detailed(c.Message).Retry(c.NextProbe())}}
	case !c.Rounds.Open():
		return notReady{}
	case len(i.row) > 0 && c.Rounds.Cause.IsExternal():
		i.reason, i.nodes = endedBy(i.row)
		return notReady{causes: []catalog.Cause{i.cause().Retry(c.Rounds.Next()), roundsOf(catalog.AttemptsFailing, c.Rounds)}}
	}
	return notReady{causes: []catalog.Cause{roundsOf(catalog.RoundsFailing, c.Rounds)}}
}

func roundsOf(row *catalog.Row, r scaling.Rounds) catalog.Cause {
	return row.With(r.Count, r.Cause).Detailed(r.Message).Retry(r.Next())
}

// grant returns what the plan grants the pool, and what the pool would need without policies.
func grant(o observation, plan scaling.Plan, in scaling.Input) policies.Grant {
	if o.pool.Spec.Observes() {
		return policies.Grant{} // a pool that only observes takes no capacity from other pools
	}
	in.Limits, in.JobsWait, in.Pace = o.scale.Scale, false, nil
	wanted, _ := scaling.Desired(in)
	return policies.Grant{Granted: max(o.runners.live(), plan.Desired), Wanted: wanted}
}

// recordOf returns the decision for the status, with the previous decision's numbers. accepted is the answer that produced
// the limits; the zero value if an earlier answer did.
func recordOf(o observation, d decision, accepted policy.Scaling) *v1alpha1.Decision {
	record := &v1alpha1.Decision{
		Time: metav1.Time{Time: o.now}, Desired: d.plan.Desired, Announced: d.plan.Announce, Reason: d.plan.Reason, JobsUnknown: !o.demand.Known,
		ID: accepted.ID, PolicyDigest: accepted.Digest, Limits: d.limits,
	}
	last := o.pool.Status.Decision
	if len(d.failures) > 0 && last != nil {
		record.ID, record.PolicyDigest = last.ID, last.PolicyDigest // the earlier answer produced the limits
	}
	if d.limits != nil {
		if d.limits.AssignedJobs == v1alpha1.AssignedJobsWait {
			record.JobsHeld = max(0, o.demand.Jobs-d.plan.Desired)
		}
		record.Reason += boundsText(d.limits.Bounds)
	}
	if last != nil {
		record.Before = &v1alpha1.DecidedNumbers{Desired: last.Desired, Announced: last.Announced}
		if last.Limits != nil {
			record.Before.Max = last.Limits.GetMax()
		}
	}
	return record
}
