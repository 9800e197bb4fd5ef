// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/scaling"
	"github.com/corral-dev/corral/internal/wording"
)

// project returns the status after a pass. d is nil if the pass ended before the decision, and err is why the pass did not
// complete. After an incomplete pass, project updates only the fields that the next pass needs.
func project(o observation, d *decision, err error) v1alpha1.RunnerPoolStatus {
	pool := &v1alpha1.RunnerPool{ObjectMeta: o.pool.ObjectMeta, Status: *o.pool.Status.DeepCopy()}
	s := &pool.Status
	s.Policy = o.template.verdict
	o.template.mark(pool)
	markUnknown(pool)
	if d == nil {
		// The revision stays unchanged until an update to the new one is planned. Otherwise the update's starting point would be
		// lost.
		s.Revision = cmp.Or(s.Revision, o.template.revision)
		return *s
	}
	s.Revision, s.Update = o.template.revision, d.step.State
	s.Failures = o.memory.health.failures
	s.Runners, s.Demand, s.Schedule, s.Cache = o.counts, nil, o.scale.schedule, o.cache.status
	s.Selector = v1alpha1.PoolLabel + "=" + o.pool.Name
	if o.demand.Known {
		s.Jobs = new(o.demand.Jobs)
	} else if o.counts.Busy > s.GetJobs() {
		s.Jobs = new(o.counts.Busy)
	}
	if hasDemand(o.pool) {
		s.Demand = o.demand.Statuses
	}
	s.Health = d.circuit.Status()
	if i := o.memory.health.interruption.status(); i != nil {
		s.Health = cmp.Or(s.Health, &v1alpha1.HealthStatus{Revision: d.circuit.Revision})
		s.Health.Interruption = i
	}
	markHealthy(pool, d.circuit, o.memory.health.interruption)
	markVersion(pool, o)
	// The time until which a rule applies may differ in each decision. That alone is no reason to write the status.
	if last := s.Decision; last == nil || last.Reason != d.record.Reason || !explain.SameDecision(last, d.record) {
		s.Decision = d.record
	}
	if err != nil {
		return *s
	}
	markPolicies(pool, o, d)
	if o.demand.Known {
		markSaturated(pool, d, o.pool.Spec.Observes())
	}
	markUpdated(pool, d.step, o.template)
	markDrainable(pool, o.memory.budgets)
	s.Observation = nil
	if o.pool.Spec.Observes() {
		s.Observation = compare(d.plan.Desired, o.demand.actual)
	}
	if at, ok := meta.ReconcileAnnotationValue(pool.Annotations); ok {
		s.LastHandledReconcileAt = at
	}
	s.LastHandledRetryAt = cmp.Or(o.memory.health.retried, s.LastHandledRetryAt)
	return *s
}

// markUnknown sets the conditions that every pool has to Unknown, if the pool does not have them yet.
func markUnknown(pool *v1alpha1.RunnerPool) {
	for _, condition := range []string{v1alpha1.RunnerVersionCondition, v1alpha1.SaturatedCondition, v1alpha1.DrainableCondition} {
		if !conditions.Has(pool, condition) {
			conditions.MarkUnknown(pool, condition, v1alpha1.ProgressingReason, "not known yet")
		}
	}
}

// markHealthy sets the condition that reports why runners fail.
func markHealthy(pool *v1alpha1.RunnerPool, c scaling.Circuit, i interruption) {
	why := failing(c, i)
	switch {
	case len(why.causes) > 0:
		kube.Mark(pool, v1alpha1.HealthyCondition, why.causes...)
	case i.reason != "":
		kube.Mark(pool, v1alpha1.HealthyCondition, i.causes()...)
	default:
		conditions.MarkTrue(pool, v1alpha1.HealthyCondition, v1alpha1.SucceededReason, "fewer than %d runners failed in a row", scaling.Tolerated)
	}
}

// markVersion sets the condition that reports how long GitHub accepts the runners' version. It drops the version of a
// revision that is not in force.
func markVersion(pool *v1alpha1.RunnerPool, o observation) {
	v := cmp.Or(o.template.version, pool.Status.RunnerVersion)
	if v != nil && v.Revision != pool.Status.InForce() {
		v = nil
	}
	pool.Status.RunnerVersion = v
	switch {
	case v == nil:
		conditions.MarkUnknown(pool, v1alpha1.RunnerVersionCondition, v1alpha1.VersionUnknownReason, "no runner of the revision in force reported its version")
	case v.Latest == "":
		conditions.MarkUnknown(pool, v1alpha1.RunnerVersionCondition, v1alpha1.VersionUnknownReason, "GitHub does not show the connection which version is the latest")
	case v.UpdateBy == nil:
		conditions.MarkTrue(pool, v1alpha1.RunnerVersionCondition, v1alpha1.SucceededReason, "%s is the latest", v.Version)
	case o.now.Before(v.UpdateBy.Add(-poolstatus.UpdateNotice)):
		conditions.MarkTrue(pool, v1alpha1.RunnerVersionCondition, v1alpha1.SucceededReason, "%s is good until %s, when GitHub may refuse it; %s is the latest",
			v.Version, v.UpdateBy.Format(time.DateOnly), v.Latest)
	default:
		kube.Mark(pool, v1alpha1.RunnerVersionCondition, catalog.RunnerVersionEnds.With(v.Version, v.UpdateBy.Format(time.DateOnly), v.Latest))
	}
}

// markSaturated sets the condition that reports that a pool is full while more jobs wait. The number of jobs is in another
// field, because the condition would otherwise be written with each job.
func markSaturated(pool *v1alpha1.RunnerPool, d *decision, observes bool) {
	pool.Status.JobsWaiting = d.plan.Waiting
	if observes { // it accepts no jobs
		pool.Status.JobsWaiting = 0
	}
	if !d.plan.Full || observes {
		conditions.MarkFalse(pool, v1alpha1.SaturatedCondition, v1alpha1.WithinMaxReason, "no job waits because of max")
		return
	}
	full := catalog.PoolFull.With(wording.Max(d.limits.GetMax()), boundsText(ofMax(d.limits.Bounds)))
	if d.limits.GetMax() == 0 {
		full = catalog.PoolClosed.With(boundsText(ofMax(d.limits.Bounds)))
	}
	kube.NewState(v1alpha1.SaturatedCondition, metav1.ConditionTrue, full).SetOn(pool)
}

// markPolicies sets the condition that reports the result of policies.
func markPolicies(pool *v1alpha1.RunnerPool, o observation, d *decision) {
	switch {
	case d.loading: // the last result stays in force
	case len(d.failures) > 0:
		causes := heldBy(d.failures)
		if d.limits == nil {
			causes = causesOf(catalog.NoPolicyDecision, d.failures)
		}
		kube.Mark(pool, v1alpha1.PolicyCondition, causes...)
	case o.policies.bound.Digest() == "":
		conditions.Delete(pool, v1alpha1.PolicyCondition)
	case isAllowed(o.template.verdict):
		conditions.MarkTrue(pool, v1alpha1.PolicyCondition, v1alpha1.SucceededReason, "policies allow the template and decided the limits")
	}
}

// outcome returns what is wrong with the pool after a pass that did all that it decided; nil if nothing is. done.After is
// the delay until the next pass.
func outcome(o observation, d *decision, done kube.Done) error {
	err := cmp.Or(o.denied, o.template.invalid, rolledBack(d.step.State, o.template.revision), o.scale.invalid(), o.registration.copyCondition(o.pool), o.registration.afterlife(o.pool))
	switch {
	case err != nil:
		return err
	case len(d.notReady.causes) > 0:
		return kube.Wait(done.After, d.notReady.causes...)
	case d.loading:
		return kube.Starting(done.After, catalog.PoliciesLoading.With())
	}
	return nil
}

// doneBy returns how a successful pass is reported, and when the next one is due.
func doneBy(o observation, d *decision, s v1alpha1.RunnerPoolStatus, err error) kube.Done {
	done := kube.Done{After: recheck, Urgent: isNews(o, d, s, err)}
	if d != nil {
		done.After = soonest(d.lookAgain, recheck)
	}
	set := o.registration.set
	switch {
	case o.pool.Spec.Observes() && s.Observation != nil:
		done.Message = "observing: " + s.Observation.Difference
	case o.pool.Spec.GetStopPolicy() == v1alpha1.StopHold:
		done.Unready = []catalog.Cause{catalog.PoolHeld.With()}
	case o.pool.Spec.Stops():
		done.Unready = []catalog.Cause{catalog.PoolDrained.With()}
	case o.pool.Spec.IsREST():
		done.Message = "registering runners by GitHub's REST API"
	case set != nil:
		done.Message = fmt.Sprintf("listening as scale set %q (id %d)", set.Status.Name, set.Status.ID)
	}
	if o.registration.former {
		done.Notes = []catalog.Cause{catalog.UsesFormerCredentials.With(o.pool.Spec.ConnectionRef.Name)}
	}
	return done
}

// isNews reports whether a status must be written at once. New limits, a new update phase, and the state that stays in
// force when a later template is refused or fails must not be lost.
func isNews(o observation, d *decision, s v1alpha1.RunnerPoolStatus, err error) bool {
	before := o.pool.Status
	if s.Revision != before.Revision || s.LastHandledRetryAt != before.LastHandledRetryAt || isAllowed(s.Policy) != isAllowed(before.Policy) {
		return true
	}
	return err == nil && (phaseKey(s.Update) != phaseKey(before.Update) || newLimits(o.lastLimits(), d.limits))
}
