// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// conditionsOfPools lists the conditions that are checked in addition to Ready, with the status that indicates a problem.
var conditionsOfPools = []struct {
	name    string
	problem metav1.ConditionStatus
}{
	{v1alpha1.TemplateValidCondition, metav1.ConditionFalse},
	{v1alpha1.HealthyCondition, metav1.ConditionFalse},
	{v1alpha1.PolicyCondition, metav1.ConditionFalse},
	{v1alpha1.UpdatedCondition, metav1.ConditionFalse},
	{v1alpha1.RunnerVersionCondition, metav1.ConditionFalse},
	{v1alpha1.SaturatedCondition, metav1.ConditionTrue},
	{v1alpha1.DrainableCondition, metav1.ConditionFalse},
}

// checkPools finds problems of pools. It attributes them to problems of connections and policies where these are the cause.
func (l *search) checkPools() {
	causes := l.found.causes()
	for p := range pointers(l.Pools) {
		s := seen{ofPool(p), p, p.Status.ObservedGeneration, p.Status.LastHandledReconcileAt}
		l.checkReconciled(s)
		l.checkConditions(p, s, causes)
		for _, d := range p.Status.Demand {
			if d.Stale {
				l.add(found(s.of, catalog.DemandStale.With(d.Name).Detailed(d.Reason), d.Name, alike(d.Reason)))
			}
		}
	}
}

// checkConditions adds the problems that a pool's conditions report, each reason once.
func (l *search) checkConditions(p *v1alpha1.RunnerPool, look seen, causes map[object]string) {
	said := map[string]bool{v1alpha1.ProgressingReason: true}
	if ready := look.ready(); isNotTrue(ready) {
		said[ready.Reason] = true
		l.add(l.causeOf(p, look.symptomOf(ready), causes))
	}
	for _, c := range conditionsOfPools {
		is := ConditionOf(p, c.name)
		if is == nil || is.Status != c.problem || said[is.Reason] || catalog.IsFine(is.Reason) {
			continue
		}
		said[is.Reason] = true
		s := l.causeOf(p, look.symptomOf(is), causes)
		s.keepsWorking = c.name == v1alpha1.DrainableCondition
		l.add(s)
	}
	if p.Spec.Stops() && !said[v1alpha1.SuspendedReason] { // Ready reports another problem instead of the suspension
		l.add(found(look.of, catalog.Suspended.With()))
	}
}

// ofFailures lists the reasons for which a finding shows the last failed runner.
var ofFailures = []string{v1alpha1.RunnersFailingReason, v1alpha1.NodesFailingReason, v1alpha1.PodsDeletedReason, v1alpha1.RolledBackReason}

// causeOf attributes a pool's symptom to its connection or a policy, if one of them is the cause.
func (v view) causeOf(p *v1alpha1.RunnerPool, s symptom, causes map[object]string) symptom {
	connection := p.Spec.ConnectionRef.From(p.Namespace)
	s.key = cmp.Or(map[string]string{
		v1alpha1.QuotaExceededReason: keyOf(s.reason, p.Namespace, fmt.Sprint(s.cause.Code == catalog.ClaimQuota.Code)), // of pods or of claims
		v1alpha1.AccessDeniedReason:  keyOf(s.reason, connection.String()),
		v1alpha1.MaxReachedReason:    s.reason, // each pool has its own message
		v1alpha1.SuspendedReason:     s.reason,
		v1alpha1.UpdateHeldReason:    s.reason,
	}[s.reason], s.key)
	if failures := p.Status.Failures; len(failures) > 0 && slices.Contains(ofFailures, s.reason) {
		s.failed = &failures[0]
	}
	switch {
	case s.reason == v1alpha1.RunnersFailingReason && s.failed != nil:
		s.do = FailingRemedy(s.failed.Cause)
	case s.reason == v1alpha1.MaxReachedReason:
		s.do = MaxRemedy(p, v.Now)
	case s.reason == v1alpha1.RunnerOutdatedReason:
		s = versionEnds(v.Now, p, s)
	case s.reason == v1alpha1.GitHubUnavailableReason:
		s = s.during(v.outageOf(p))
	case s.reason == v1alpha1.PolicyFailedReason || s.reason == v1alpha1.PolicyPendingReason:
		for _, bound := range v.bindingPolicies(p) {
			s.key = cmp.Or(causes[ofPolicy(bound)], s.key)
		}
	}
	if isConnections(s.reason) {
		s.key = cmp.Or(causes[object{connectionKind, connection.Namespace, connection.Name}], v.keyOfMissing(connection, s))
	}
	return s
}

// keyOfMissing returns a key that all pools with the same missing connection share; for other pools, the key of the
// symptom.
func (v view) keyOfMissing(connection types.NamespacedName, s symptom) string {
	if v.connections[connection.String()] == nil && s.reason != v1alpha1.GitHubUnavailableReason {
		return keyOf(s.reason, connection.String())
	}
	return s.key
}

// versionEnds reports the end of a runner version as an upcoming problem until that day.
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

// checkJobs finds pools that are full, and jobs that wait although no other problem of their pool is known.
func (l *search) checkJobs() {
	hurt := l.found.pools(func(s *symptom) bool { return !s.keepsWorking })
	for p := range pointers(l.Pools) {
		d, jobs := p.Status.Decision, p.Status.GetJobs()
		waiting := Waiting(&p.Status)
		if waiting == 0 || d == nil || isNotTrue(ConditionOf(p, v1alpha1.ReadyCondition)) {
			continue
		}
		switch isHurt := hurt[nameOf(p)]; {
		case isHurt && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.SaturatedCondition):
		case jobs > d.Desired: // jobs that the pool has accepted, or that it knows without a scale set
			s := found(ofPool(p), catalog.RunnersBelowJobs.With(nameOf(p), wording.Count(d.Desired, "runner"), wording.Count(jobs, "job")).Detailed(d.Reason)).from(d.Time.Time)
			s.do = MaxRemedy(p, l.Now)
			l.add(s)
		case waiting <= p.Status.Runners.Finished: // GitHub may still count the job of each finished runner
		case !isHurt && l.Now.Sub(d.Time.Time) > p.Spec.Deadlines.GetStartup():
			l.add(found(ofPool(p), catalog.JobsWait.With(nameOf(p), wording.Count(jobs, "job"), RunnersText(p.Status.Runners))).from(d.Time.Time))
		}
	}
}

// checkHolds adds what corral explain reports about pools without other known problems, so that corral status and corral
// explain never disagree.
func (l *search) checkHolds() {
	causes := l.found.causes()
	for p := range pointers(l.Pools) {
		if _, ok := causes[ofPool(p)]; ok {
			continue
		}
		f := PoolFacts{Pool: p, ScaleSet: l.setOf(p), Now: l.Now}
		for _, h := range f.held() {
			l.add(found(ofPool(p), catalog.Held.With(h.What).Detailed(h.Reason), h.What, alike(h.Reason)).from(timeOf(h.Since)))
		}
	}
}
