// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// withoutSession lists reasons of Ready that leave a pool without a message session, so that capacity announced to GitHub no
// longer applies.
var withoutSession = []string{v1alpha1.OwnedElsewhereReason, v1alpha1.SessionRefusedReason, v1alpha1.AccessDeniedReason}

// Waiting returns the number of jobs known to have no runner: jobs that the pool accepted, and jobs for which it has no
// room.
func Waiting(s *v1alpha1.RunnerPoolStatus) int32 {
	if Known(s) == nil {
		return 0
	}
	return unserved(s) + More(s)
}

// unserved returns the number of accepted jobs that are known to have no runner.
func unserved(s *v1alpha1.RunnerPoolStatus) int32 {
	return max(0, ptr.Deref(Known(s), 0)-s.Runners.Busy)
}

// More returns how many waiting jobs the pool's status.jobs does not include. If the pool has several sources of demand,
// status.jobs includes jobs above the announced capacity, so More subtracts them from the waiting jobs.
func More(s *v1alpha1.RunnerPoolStatus) int32 {
	if len(s.Demand) == 0 || s.Decision == nil {
		return s.JobsWaiting
	}
	return max(0, s.JobsWaiting-max(0, s.GetJobs()-s.Decision.Announced))
}

// closed returns why the pool accepts no jobs regardless of its decision. The reason is empty if the decision applies. The
// message session announces the decision to GitHub, so without a session the decision has no effect.
func (f *PoolFacts) closed() (held Held) {
	if f.Pool.Spec.IsREST() || f.Pool.Spec.Observes() {
		return held
	}
	if f.ScaleSet != nil {
		listening := ConditionOf(f.ScaleSet, v1alpha1.ListeningCondition)
		if listening == nil || listening.Status != metav1.ConditionTrue {
			return Held{"intake", phrase("no-session", f), listening.start()}
		}
	}
	if ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition); ready.isFalse() && slices.Contains(withoutSession, ready.Reason) {
		held = Held{"intake", ready.text(), &ready.Since}
	}
	return held
}
