// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// checkScaleSets finds what pools don't say themselves: labels that GitHub didn't take, sessions, and records of pools that are gone,
// but for those whose runners are known to be leaving.
func checkScaleSets(v view, causes, leaving map[object]string) symptoms {
	var all symptoms
	for i := range v.ScaleSets {
		set := &v.ScaleSets[i]
		s := seen{object{scaleSetKind, set.Namespace, set.Name}, set, set.Status.ObservedGeneration, ""}
		all = append(all, checkLook(v, s)...)
		ready, pool := s.ready(), v.poolOf(set)
		if pool == nil {
			gone := object{poolKind, set.Namespace, set.Spec.PoolRef.Name}
			if isAmiss(ready) && (ready.Reason != v1alpha1.DrainingReason || leaving[gone] == "") {
				all = append(all, s.amiss(ready).during(set.Status.Outage))
			}
			continue
		}
		if labels := ConditionOf(set, v1alpha1.LabelsAcceptedCondition); labels != nil && labels.Status == metav1.ConditionFalse {
			one := seen{of: ofPool(pool), object: set}.amiss(labels)
			one.goOn = true
			all = append(all, one)
		}
		ofPools := ConditionOf(pool, v1alpha1.ReadyCondition)
		if isAmiss(ready) && !isAmiss(ofPools) && ready.Status == metav1.ConditionFalse {
			one := s.amiss(ready)
			one.of = ofPool(pool)
			all = append(all, causeOf(v, pool, one, causes))
		}
		all = append(all, checkSession(set, pool, ready, ofPools)...)
	}
	return all
}

// checkSession finds a session that isn't open though nothing else says so, and one that a restart would lose.
func checkSession(set *v1alpha1.RunnerScaleSet, pool *v1alpha1.RunnerPool, ready, ofPools *Condition) symptoms {
	listening := ConditionOf(set, v1alpha1.ListeningCondition)
	isOpen := listening != nil && listening.Status == metav1.ConditionTrue
	switch {
	case listening != nil && !isOpen && !isAmiss(ready) && !isAmiss(ofPools):
		is := seen{of: ofPool(pool), object: set}.amiss(listening)
		s := found(is.of, catalog.NotListening.With(listening.Reason).Detailed(listening.Message), is.key)
		s.since, s.next, s.do = is.since, is.next, is.do
		return symptoms{s}
	case isOpen && set.Status.SessionID == "":
		return symptoms{found(ofPool(pool), catalog.SessionUnresumable.With())}
	}
	return nil
}
