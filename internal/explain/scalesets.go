// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// checkScaleSets finds problems that pools do not report: labels that GitHub did not accept, sessions, and records of
// deleted pools. It skips deleted pools whose remaining runners are already reported.
func (l *search) checkScaleSets() {
	causes, known := l.found.causes(), l.found.byReason()
	for set := range pointers(l.ScaleSets) {
		s := seen{object{scaleSetKind, set.Namespace, set.Name}, set, set.Status.ObservedGeneration, ""}
		l.checkReconciled(s)
		ready, pool := s.ready(), l.poolOf(set)
		one := s.unready()
		if pool == nil {
			leaving := known[saying{object{poolKind, set.Namespace, set.Spec.PoolRef.Name}, catalog.RunnersLeaving.Reason}]
			if one.reason != v1alpha1.DrainingReason || leaving == "" {
				l.add(one.during(set.Status.Outage))
			}
			continue
		}
		s.of, one.of = ofPool(pool), ofPool(pool)
		if labels := ConditionOf(set, v1alpha1.LabelsAcceptedCondition); labels.isFalse() {
			dropped := s.symptomOf(labels)
			dropped.keepsWorking = true
			l.add(dropped)
		}
		isPoolReady := !isNotTrue(ConditionOf(pool, v1alpha1.ReadyCondition))
		if ready.isFalse() && isPoolReady {
			l.add(l.causeOf(pool, one, causes))
		}
		l.checkSession(s, set, !isNotTrue(ready) && isPoolReady)
	}
}

// checkSession finds a session that is not open although no other condition reports a problem, and a session that a restart would
// lose.
func (l *search) checkSession(s seen, set *v1alpha1.RunnerScaleSet, isReady bool) {
	listening := ConditionOf(set, v1alpha1.ListeningCondition)
	isOpen := listening != nil && listening.Status == metav1.ConditionTrue
	switch {
	case listening != nil && !isOpen && isReady:
		is := s.symptomOf(listening)
		one := found(s.of, catalog.NotListening.With(listening.Reason).Detailed(listening.Message), is.key).from(is.since)
		one.next, one.do = is.next, is.do
		l.add(one)
	case isOpen && set.Status.SessionID == "":
		l.add(found(s.of, catalog.SessionUnresumable.With()))
	}
}
