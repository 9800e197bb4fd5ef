// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// conditionsOfPools are those that are looked at beside Ready, and the status in which each is amiss.
var conditionsOfPools = []struct {
	name  string
	amiss metav1.ConditionStatus
}{
	{v1alpha1.TemplateValidCondition, metav1.ConditionFalse},
	{v1alpha1.HealthyCondition, metav1.ConditionFalse},
	{v1alpha1.PolicyCondition, metav1.ConditionFalse},
	{v1alpha1.UpdatedCondition, metav1.ConditionFalse},
	{v1alpha1.RunnerVersionCondition, metav1.ConditionFalse},
	{v1alpha1.SaturatedCondition, metav1.ConditionTrue},
	{v1alpha1.DrainableCondition, metav1.ConditionFalse},
}

// checkPools finds what is wrong with pools. Causes are those of connections and policies that have something themselves.
func checkPools(v view, causes map[object]string) symptoms {
	var all symptoms
	for i := range v.Pools {
		p := &v.Pools[i]
		s := seen{ofPool(p), p, p.Status.ObservedGeneration, p.Status.LastHandledReconcileAt}
		all = append(all, checkLook(v, s)...)
		all = append(all, checkConditions(v, p, s, causes)...)
		all = append(all, checkDemand(p)...)
	}
	return all
}

// checkConditions finds what the conditions of a pool say, each reason once.
func checkConditions(v view, p *v1alpha1.RunnerPool, look seen, causes map[object]string) symptoms {
	var all symptoms
	said := map[string]bool{v1alpha1.ProgressingReason: true}
	if ready := look.ready(); isAmiss(ready) {
		said[ready.Reason] = true
		all = append(all, causeOf(v, p, look.amiss(ready), causes))
	}
	for _, c := range conditionsOfPools {
		is := ConditionOf(p, c.name)
		if is == nil || is.Status != c.amiss || said[is.Reason] || catalog.IsFine(is.Reason) {
			continue
		}
		said[is.Reason] = true
		s := causeOf(v, p, seen{of: ofPool(p), object: p}.amiss(is), causes)
		if c.name == v1alpha1.RunnerVersionCondition {
			s = versionEnds(v.Now, p, s)
		}
		s.goOn = c.name == v1alpha1.DrainableCondition
		all = append(all, s)
	}
	if p.Spec.Stops() && !said[v1alpha1.SuspendedReason] { // its trouble comes first in Ready
		all = append(all, found(ofPool(p), catalog.Suspended.With()))
	}
	return all
}

// causeOf finds what a pool's symptom is a part of: its connection's, or a policy's.
func causeOf(v view, p *v1alpha1.RunnerPool, s symptom, causes map[object]string) symptom {
	connection := p.Spec.ConnectionRef.From(p.Namespace)
	switch s.reason {
	case v1alpha1.RunnersFailingReason, v1alpha1.NodesFailingReason, v1alpha1.PodsDeletedReason, v1alpha1.RolledBackReason:
		s = s.ofFailures(p.Status.Failures)
	case v1alpha1.QuotaExceededReason:
		s.key = keyOf(s.reason, p.Namespace, fmt.Sprint(s.cause.Code == catalog.ClaimQuota.Code)) // of pods, or of claims
	case v1alpha1.AccessDeniedReason:
		s.key = keyOf(s.reason, connection.String())
	case v1alpha1.MaxReachedReason:
		s.key, s.do = s.reason, MaxRemedy(p, v.Now)
	case v1alpha1.SuspendedReason, v1alpha1.UpdateHeldReason:
		s.key = s.reason // each has its own message
	case v1alpha1.GitHubUnavailableReason:
		s = s.during(v.outageOf(p))
	case v1alpha1.PolicyFailedReason, v1alpha1.PolicyPendingReason:
		for _, bound := range v.bindingPolicies(p) {
			s = s.partOf(causes, ofPolicy(bound))
		}
	}
	if !isConnections(s.reason) {
		return s
	}
	if v.connections[connection.String()] == nil && s.reason != v1alpha1.GitHubUnavailableReason {
		s.key = keyOf(s.reason, connection.String())
	}
	return s.partOf(causes, object{connectionKind, connection.Namespace, connection.Name})
}

// ofFailures adds the last failure of a pool, and what to do about it.
func (s symptom) ofFailures(failures []v1alpha1.RunnerFailure) symptom {
	if len(failures) == 0 {
		return s
	}
	s.failed = &failures[0]
	if s.reason == v1alpha1.RunnersFailingReason {
		s.do = FailingRemedy(s.failed.Cause)
	}
	return s
}

// versionEnds makes of a runner's version that ends what lies ahead, until the day has come.
func versionEnds(now time.Time, p *v1alpha1.RunnerPool, s symptom) symptom {
	version := p.Status.RunnerVersion
	if version == nil || version.UpdateBy == nil {
		return s
	}
	s.key, s.since = keyOf(s.reason, version.Version), version.UpdateBy.Time
	if now.Before(s.since) {
		s.severity = Ahead
		s.by, s.since = s.since, time.Time{}
	}
	return s
}

// checkDemand finds sources of demand that give no signal.
func checkDemand(p *v1alpha1.RunnerPool) symptoms {
	var all symptoms
	for _, d := range p.Status.Demand {
		if d.Stale {
			all = append(all, found(ofPool(p), catalog.DemandStale.With(d.Name).Detailed(d.Reason), d.Name, alike(d.Reason)))
		}
	}
	return all
}

// checkJobs finds pools that are full, and jobs that wait although nothing else is known to be wrong with their pool.
func checkJobs(v view, hurt map[string]bool) symptoms {
	var all symptoms
	for i := range v.Pools {
		p := &v.Pools[i]
		d, jobs := p.Status.Decision, p.Status.GetJobs()
		if Waiting(&p.Status) == 0 || d == nil || isAmiss(ConditionOf(p, v1alpha1.ReadyCondition)) {
			continue
		}
		switch isHurt := hurt[nameOf(p)]; {
		case isHurt && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.SaturatedCondition):
		case jobs > d.Desired: // accepted, or known of without a scale set
			s := found(ofPool(p), catalog.RunnersBelowJobs.With(nameOf(p), wording.Count(d.Desired, "runner"), wording.Count(jobs, "job")).Detailed(d.Reason))
			s.since, s.do = d.Time.Time, MaxRemedy(p, v.Now)
			all = append(all, s)
		case Waiting(&p.Status) <= p.Status.Runners.Finished: // GitHub may still count the job of each, which waits for nothing
		case !isHurt && v.Now.Sub(d.Time.Time) > p.Spec.Deadlines.GetStartup():
			s := found(ofPool(p), catalog.JobsWait.With(nameOf(p), wording.Count(jobs, "job"), RunnersText(p.Status.Runners)))
			s.since = d.Time.Time
			all = append(all, s)
		}
	}
	return all
}

// checkHolds takes over what corral explain says of pools with which nothing else is known to be wrong: the two never disagree.
func checkHolds(v view, causes map[object]string) symptoms {
	var all symptoms
	for i := range v.Pools {
		p := &v.Pools[i]
		if _, ok := causes[ofPool(p)]; ok {
			continue
		}
		f := PoolFacts{Pool: p, ScaleSet: v.setOf(p), Now: v.Now}
		for _, h := range f.held() {
			s := found(ofPool(p), catalog.Held.With(h.What).Detailed(h.Reason), h.What, alike(h.Reason))
			s.since = timeOf(h.Since)
			all = append(all, s)
		}
	}
	return all
}
