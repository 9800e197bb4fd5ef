// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
)

// lookAtConnections finds connections that aren't ready, and the pools that use them.
func (w *world) lookAtConnections() {
	users := w.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Spec.ConnectionRef.From(p.Namespace).String() })
	for i := range w.Connections {
		c := &w.Connections[i]
		of := object{connectionKind, c.Namespace, c.Name}
		ready := w.ready(of, c, c.Status.ObservedGeneration, c.Status.LastHandledReconcileAt)
		if !isAmiss(ready) {
			continue
		}
		s := w.condition(of, ready)
		if s.reason != v1alpha1.GitHubUnavailableReason {
			s.key = s.reason + "|" + of.String() // each connection has credentials of its own
		}
		s.pools = users[of.key()]
		if s.reason == v1alpha1.WebhookSecretMissingReason || s.rank.severity == Note {
			s.pools = nil // its pools go on
		}
		w.add(s)
	}
}

// poolsBy lists the pools, as NAMESPACE/NAME, by what they belong to.
func (w *world) poolsBy(owner func(*v1alpha1.RunnerPool) string) map[string][]string {
	pools := map[string][]string{}
	for i := range w.Pools {
		p := &w.Pools[i]
		pools[owner(p)] = append(pools[owner(p)], p.Namespace+"/"+p.Name)
	}
	return pools
}

// lookAtPolicies finds policies that can't be asked.
func (w *world) lookAtPolicies() {
	look := func(of object, o owned, s *v1alpha1.RunnerPolicyStatus) {
		if ready := w.ready(of, o, s.ObservedGeneration, s.LastHandledReconcileAt); isAmiss(ready) {
			one := w.condition(of, ready)
			one.key = one.reason + "|" + of.String()
			w.add(one)
		}
	}
	for i := range w.Policies {
		p := &w.Policies[i]
		look(object{policyKind, p.Namespace, p.Name}, p, &p.Status)
	}
	for i := range w.ClusterPolicies {
		p := &w.ClusterPolicies[i]
		look(object{clusterPolicyKind, "", p.Name}, p, &p.Status)
	}
}

// lookAtSources finds sources whose last revision isn't in force, and those that weren't read for long.
func (w *world) lookAtSources() {
	pools := w.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Namespace + "/" + p.Labels[v1alpha1.SourceLabel] })
	for i := range w.Sources {
		src := &w.Sources[i]
		of := object{sourceKind, src.Namespace, src.Name}
		ready := w.ready(of, src, src.Status.ObservedGeneration, src.Status.LastHandledReconcileAt)
		if !isAmiss(ready) {
			continue
		}
		s := w.condition(of, ready)
		if s.pools, s.goOn = pools[of.key()], true; s.rank.severity == Note { // else its trouble says it
			s.key, s.pools = s.key+"|"+sourceKind, nil
			w.lookWhetherRead(of, src, ready)
		}
		w.add(s)
	}
}

// lookWhetherRead finds out whether a source wasn't read for an hour, or three of its intervals if that is longer: what was merged since
// isn't known.
func (w *world) lookWhetherRead(of object, src *v1alpha1.PoolSource, ready *explain.Condition) {
	long := max(time.Hour, 3*src.Spec.Interval.Duration)
	if w.Now.Sub(ready.Since.Time) < long {
		return
	}
	w.add(symptom{
		key: notReadReason + "|" + ready.Reason, of: of, reason: notReadReason, rank: rank{severity: Ahead, what: "a source isn't read, and changes in it have no effect"},
		message: fmt.Sprintf("%s: %s", ready.Reason, ready.Message), since: ready.Since.Time, do: explain.Remedy(sourceKind, ready.Reason),
	})
}

// isAmiss reports whether an object's condition Ready is there and not True.
func isAmiss(c *explain.Condition) bool { return c != nil && c.Status != metav1.ConditionTrue }
