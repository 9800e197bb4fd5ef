// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
)

const (
	// startGrace is how long a runner may be kept from starting before it is told: a node may be on its way.
	startGrace = 2 * time.Minute
	// nearlyFull is the part of a quota, in percent, from which on it is told.
	nearlyFull = 90
)

// reasonsOf are reasons of a pool by which the cause that holds up its runners is told already.
var reasonsOf = map[v1alpha1.RunnerCause]string{
	v1alpha1.CauseQuota: v1alpha1.QuotaExceededReason, v1alpha1.CauseCache: v1alpha1.CacheUnavailableReason, v1alpha1.CauseGitHub: v1alpha1.GitHubUnavailableReason,
}

// lookAtRunners finds what keeps runners from starting, or ended them, unless their pool says it.
func (w *world) lookAtRunners() {
	for i := range w.Runners {
		r := &w.Runners[i]
		s := &r.Status
		isStuck := s.State == v1alpha1.RunnerPending || s.State == v1alpha1.RunnerFailed
		if !isStuck || s.Cause == "" || s.Cause == v1alpha1.CauseRemoved || !r.DeletionTimestamp.IsZero() {
			continue
		}
		pool := w.pools[r.Namespace+"/"+r.Spec.PoolRef.Name]
		one := symptom{
			key: fmt.Sprintf("%s|%s|%s", runnersWaitReason, s.Cause, alike(s.Reason)), of: object{runnerKind, r.Namespace, r.Name}, reason: string(s.Cause),
			rank:    rank{Error, fmt.Sprintf("runners don't start (%s)", s.Cause), startGrace, fmt.Sprintf("runners wait to start (%s)", s.Cause)},
			message: s.Reason, since: r.CreationTimestamp.Time, do: explain.CauseRemedy(s.Cause),
		}
		if s.State == v1alpha1.RunnerFailed {
			one.rank.what, one.rank.grace, one.key = fmt.Sprintf("runners fail (%s)", s.Cause), 0, one.key+"|failed"
		}
		if pool != nil {
			one.pools = []string{pool.Namespace + "/" + pool.Name}
			one = w.ofPool(one, pool, s.Cause)
		}
		w.add(one)
	}
}

// ofPool makes a runner's symptom a part of what its pool says, if that is the same.
func (w *world) ofPool(s symptom, pool *v1alpha1.RunnerPool, cause v1alpha1.RunnerCause) symptom {
	want := reasonsOf[cause]
	if cause.Permanent() {
		want = v1alpha1.RunnersFailingReason
	}
	if key, ok := w.told[telling{object{poolKind, pool.Namespace, pool.Name}, want}]; ok {
		s.key, s.rank.grace = key, 0
	}
	return s
}

// lookAtQuotas finds quotas of namespaces with pools that are nearly used up.
func (w *world) lookAtQuotas() {
	pools := w.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Namespace })
	for i := range w.Quotas {
		q := &w.Quotas[i]
		if len(pools[q.Namespace]) == 0 || w.isTold(v1alpha1.QuotaExceededReason, q.Namespace) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			hard, used := q.Status.Hard[name], q.Status.Used[name]
			if !isOfPods(name) || !isNear(used, hard) {
				continue
			}
			w.add(symptom{
				key: quotaNearReason + "|" + q.Namespace, of: object{quotaKind, q.Namespace, q.Name}, reason: quotaNearReason,
				rank:    rank{severity: Ahead, what: "a quota is nearly used up"},
				message: fmt.Sprintf("%s: %s of %s used", name, used.String(), hard.String()), pools: pools[q.Namespace],
				do: explain.Remedy(poolKind, v1alpha1.QuotaExceededReason),
			})
		}
	}
}

// isTold reports whether a pool of a namespace tells of a reason.
func (w *world) isTold(reason, namespace string) bool {
	return slices.ContainsFunc(w.symptoms, func(s symptom) bool { return s.reason == reason && s.of.namespace == namespace })
}

// isOfPods reports whether runners use up a resource of a quota.
func isOfPods(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourcePods, "count/pods", corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage, corev1.ResourceSecrets, "count/secrets":
		return true
	}
	return false
}

// isNear reports whether nearly all is used.
func isNear(used, hard resource.Quantity) bool {
	most := hard.AsApproximateFloat64()
	return most > 0 && used.AsApproximateFloat64()*100 >= most*nearlyFull
}
