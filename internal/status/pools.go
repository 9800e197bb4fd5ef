// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/wording"
)

// watched are the conditions of a pool that are looked at beside Ready, and the status in which each is amiss.
var watched = []struct {
	name  string
	amiss metav1.ConditionStatus
}{
	{v1alpha1.TemplateValidCondition, metav1.ConditionFalse},
	{v1alpha1.HealthyCondition, metav1.ConditionFalse},
	{v1alpha1.PolicyCondition, metav1.ConditionFalse},
	{v1alpha1.UpdatedCondition, metav1.ConditionFalse},
	{v1alpha1.RunnerVersionCondition, metav1.ConditionFalse},
	{v1alpha1.SaturatedCondition, metav1.ConditionTrue},
}

// lookAtPools finds what is wrong with pools.
func (w *world) lookAtPools() {
	for i := range w.Pools {
		p := &w.Pools[i]
		of := object{poolKind, p.Namespace, p.Name}
		ready := w.ready(of, p, p.Status.ObservedGeneration, p.Status.LastHandledReconcileAt)
		told := map[string]bool{v1alpha1.SucceededReason: true, v1alpha1.ProgressingReason: true}
		if isAmiss(ready) {
			told[ready.Reason] = true
			w.add(w.causeOf(p, w.condition(of, ready)))
		}
		for _, c := range watched {
			is := explain.ConditionOf(p.Status.Conditions, c.name)
			if is == nil || is.Status != c.amiss || told[is.Reason] {
				continue
			}
			told[is.Reason] = true
			s := w.causeOf(p, w.condition(of, is))
			if c.name == v1alpha1.RunnerVersionCondition {
				s = w.version(p, s)
			}
			w.add(s)
		}
		if p.Spec.Suspend && !told[v1alpha1.SuspendedReason] { // its trouble comes first in Ready
			w.add(symptom{key: v1alpha1.SuspendedReason, of: of, reason: v1alpha1.SuspendedReason, rank: rankOf(v1alpha1.SuspendedReason),
				do: explain.Remedy(poolKind, v1alpha1.SuspendedReason)})
		}
		w.lookAtDemand(of, p)
	}
}

// causeOf finds what a pool's symptom is a part of: its connection, or a policy, that is told by itself.
func (w *world) causeOf(p *v1alpha1.RunnerPool, s symptom) symptom {
	connection := p.Spec.ConnectionRef.From(p.Namespace)
	switch s.reason {
	case v1alpha1.QuotaExceededReason:
		s.key = s.reason + "|" + p.Namespace
	case v1alpha1.AccessDeniedReason:
		s.key = s.reason + "|" + connection.String()
	case v1alpha1.SuspendedReason, v1alpha1.UpdateHeldReason, v1alpha1.MaxReachedReason:
		s.key = s.reason // each has its own message
	case v1alpha1.PolicyFailedReason, v1alpha1.PolicyPendingReason:
		if ref := policyRef.FindString(s.message); ref != "" {
			s.key = s.reason + "|" + ref
			s = w.joined(s, w.policy(ref))
		}
	}
	if ofConnection[s.reason] {
		_, isThere := w.connections[connection.String()]
		if !isThere && s.reason != v1alpha1.GitHubUnavailableReason {
			s.key = s.reason + "|" + connection.String()
		}
		s = w.joined(s, object{connectionKind, connection.Namespace, connection.Name})
	}
	return s
}

// joined makes a symptom one of the finding that another object is told by, if there is one that is no mere note.
func (w *world) joined(s symptom, cause object) symptom {
	if key, ok := w.keys[cause]; ok && key != notLookedAtReason {
		s.key = key
	}
	return s
}

// policy finds an object by KIND/NAME or KIND/NAMESPACE/NAME.
func (w *world) policy(ref string) object {
	for of := range w.keys {
		if (of.kind == policyKind || of.kind == clusterPolicyKind) && of.String() == ref {
			return of
		}
	}
	return object{}
}

// version tells of a runner's version that ends: of what lies ahead, until the day has come.
func (w *world) version(p *v1alpha1.RunnerPool, s symptom) symptom {
	v := p.Status.RunnerVersion
	if v == nil || v.UpdateBy == nil {
		return s
	}
	s.key = s.reason + "|" + v.Version
	if w.Now.Before(v.UpdateBy.Time) {
		s.rank.severity, s.by, s.since = Ahead, v.UpdateBy.Time, time.Time{}
		return s
	}
	s.since = v.UpdateBy.Time
	return s
}

// lookAtDemand finds sources of demand that give no signal.
func (w *world) lookAtDemand(of object, p *v1alpha1.RunnerPool) {
	for _, d := range p.Status.Demand {
		if d.Stale {
			w.add(symptom{
				key: staleReason + "|" + d.Name + "|" + alike(d.Reason), of: of, reason: staleReason,
				rank:    rank{severity: Warning, what: fmt.Sprintf("the source of demand %q gives no signal, and its last number counts", d.Name)},
				message: d.Reason, do: "Fix what the source reads. " + explainPool,
			})
		}
	}
}

// explainPool is what else to ask about a pool.
const explainPool = "corral explain pool/NAME says what would change it."

// lookAtJobs finds pools that are full, and jobs that wait although nothing else is told of their pool.
func (w *world) lookAtJobs() {
	told := w.toldPools()
	for i := range w.Pools {
		p := &w.Pools[i]
		of, d := object{poolKind, p.Namespace, p.Name}, p.Status.Decision
		if explain.Waiting(&p.Status) == 0 || d == nil || isAmiss(explain.ConditionOf(p.Status.Conditions, v1alpha1.ReadyCondition)) {
			continue
		}
		switch {
		case told[of.key()] && explain.ConditionOf(p.Status.Conditions, v1alpha1.SaturatedCondition) != nil:
		case p.Status.Jobs > d.Desired: // accepted, or known of without a scale set
			w.add(symptom{
				key: v1alpha1.MaxReachedReason, of: of, reason: v1alpha1.MaxReachedReason, rank: rankOf(v1alpha1.MaxReachedReason),
				message: fmt.Sprintf("%s: %s for %s: %s", of.key(), wording.Count(d.Desired, "runner"), wording.Count(p.Status.Jobs, "job"), d.Reason),
				since:   d.Time.Time, do: explain.Remedy(poolKind, v1alpha1.MaxReachedReason),
			})
		case !told[of.key()] && w.Now.Sub(d.Time.Time) > p.Spec.Deadlines.GetStartup():
			w.add(symptom{
				key: jobsWaitReason, of: of, reason: jobsWaitReason, rank: rank{severity: Warning, what: "jobs wait for runners"},
				message: fmt.Sprintf("%s: %s; %s", of.key(), wording.Count(p.Status.Jobs, "job"), explain.RunnersWords(p.Status.Runners)),
				since:   d.Time.Time, do: explainPool,
			})
		}
	}
}

// toldPools are those of which something is told already.
func (w *world) toldPools() map[string]bool {
	told := map[string]bool{}
	for _, s := range w.symptoms {
		if s.of.kind == poolKind {
			told[s.of.key()] = true
		}
		for _, p := range s.pools {
			told[p] = told[p] || !s.goOn
		}
	}
	return told
}

// lookAtScaleSets finds what pools don't say themselves: labels that GitHub didn't take, sessions, and records of pools that are gone.
func (w *world) lookAtScaleSets() {
	for i := range w.ScaleSets {
		set := &w.ScaleSets[i]
		of := object{scaleSetKind, set.Namespace, set.Name}
		ready := w.ready(of, set, set.Status.ObservedGeneration, "")
		pool := w.pools[set.Namespace+"/"+set.Spec.PoolRef.Name]
		if pool == nil || string(pool.UID) != set.Spec.PoolUID {
			gone := telling{object{poolKind, set.Namespace, set.Spec.PoolRef.Name}, v1alpha1.DrainingReason}
			if _, isTold := w.told[gone]; isAmiss(ready) && (!isTold || ready.Reason != v1alpha1.DrainingReason) {
				w.add(w.condition(of, ready))
			}
			continue
		}
		of = object{poolKind, pool.Namespace, pool.Name}
		if labels := explain.ConditionOf(set.Status.Conditions, v1alpha1.LabelsAcceptedCondition); labels != nil && labels.Status == metav1.ConditionFalse {
			s := w.condition(of, labels)
			s.goOn = true
			w.add(s)
		}
		ofPool := explain.ConditionOf(pool.Status.Conditions, v1alpha1.ReadyCondition)
		if isAmiss(ready) && !isAmiss(ofPool) && ready.Status == metav1.ConditionFalse {
			w.add(w.causeOf(pool, w.condition(of, ready)))
		}
		w.lookAtSession(of, set, pool, ready)
	}
}

// lookAtSession finds a session that isn't open though nothing else says so, and one that a restart would lose.
func (w *world) lookAtSession(of object, set *v1alpha1.ScaleSet, pool *v1alpha1.RunnerPool, ready *explain.Condition) {
	listening := explain.ConditionOf(set.Status.Conditions, v1alpha1.ListeningCondition)
	isOpen := listening != nil && listening.Status == metav1.ConditionTrue
	switch ofPool := explain.ConditionOf(pool.Status.Conditions, v1alpha1.ReadyCondition); {
	case listening != nil && !isOpen && !isAmiss(ready) && !isAmiss(ofPool):
		s := w.condition(of, listening)
		s.reason, s.rank = notListening, rank{severity: Error, what: "a pool listens to no messages of GitHub", grace: lookGrace, lately: "a message session is being opened"}
		s.key, s.message = notListening+"|"+s.key, listening.Reason+": "+listening.Message
		w.add(s)
	case isOpen && set.Status.SessionID == "":
		w.add(symptom{
			key: noResumeReason, of: of, reason: noResumeReason, rank: rank{severity: Ahead, what: "a restart of the controller couldn't resume a session: no new jobs for up to 92 s"},
			message: "status.sessionID is empty", do: "Nothing, unless it stays so: the id is written with the next look at the session.",
		})
	}
}

// lookAtHolds takes over what corral explain tells of a pool that nothing else was told of: the two never disagree.
func (w *world) lookAtHolds() {
	for i := range w.Pools {
		p := &w.Pools[i]
		of := object{poolKind, p.Namespace, p.Name}
		if _, ok := w.keys[of]; ok {
			continue
		}
		f := explain.PoolFacts{Pool: p, Now: w.Now}
		if set := w.sets[p.Namespace+"/"+p.Name]; set != nil && set.Spec.PoolUID == string(p.UID) {
			f.ScaleSet = set
		}
		answer, err := explain.Pool(f)
		if err != nil {
			continue // of the past alone
		}
		for _, h := range answer.Held {
			s := symptom{
				key: heldReason + "|" + h.What + "|" + alike(h.Reason), of: of, reason: heldReason, rank: rank{severity: Warning, what: h.What + " of a pool is held back", grace: lookGrace},
				message: h.Reason, do: explainPool,
			}
			if h.Since != nil {
				s.since = h.Since.Time
			}
			w.add(s)
		}
	}
}
