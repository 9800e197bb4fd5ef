// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// nearlyFull is the part of a quota, in percent, from which on it is said.
const nearlyFull = 90

// reasonsOf are reasons of a pool that say which cause holds up its runners.
var reasonsOf = map[v1alpha1.RunnerCause]string{
	v1alpha1.CauseQuota: v1alpha1.QuotaExceededReason, v1alpha1.CauseCache: v1alpha1.CacheUnavailableReason, v1alpha1.CauseGitHub: v1alpha1.GitHubUnavailableReason,
}

// checkRunners finds what keeps runners from starting, or ended them, and whether it is known of their pool or its connection.
func checkRunners(v view, known symptoms) symptoms {
	var all symptoms
	byReason, causes := known.byReason(), known.causes()
	for i := range v.Runners {
		r := &v.Runners[i]
		s := &r.Status
		isStuck := s.State == v1alpha1.RunnerPending || s.State == v1alpha1.RunnerFailed
		all = append(all, checkSpec(r)...)
		if !isStuck || s.Cause == "" || s.Cause.IsExternal() || s.Cause == v1alpha1.CauseDeadline || !r.DeletionTimestamp.IsZero() {
			continue
		}
		row := catalog.RunnersWait
		if s.State == v1alpha1.RunnerFailed {
			row = catalog.RunnersEnd
		}
		one := found(object{runnerKind, r.Namespace, r.Name}, row.With(s.Cause).Detailed(s.Reason), string(s.Cause), alike(s.Reason))
		one.reason, one.since = string(s.Cause), r.CreationTimestamp.Time
		one.do = RunnerRemedy(&Runner{Object: r, Judgement: Judgement{Cause: s.Cause}})
		if pool := v.pools[r.Namespace+"/"+r.Spec.PoolRef.Name]; pool != nil {
			one.pools = []string{nameOf(pool)}
			reason, connection := reasonOfRunner(r), pool.Spec.ConnectionRef.From(pool.Namespace)
			key, isKnown := byReason[saying{ofPool(pool), reason}]
			if !isKnown && isConnections(reason) {
				key, isKnown = causes[object{connectionKind, connection.Namespace, connection.Name}]
			}
			if isKnown {
				one.key, one.grace = key, 0
			}
		}
		all = append(all, one)
	}
	return all
}

// checkSpec finds out whether a runner is never started.
func checkSpec(r *v1alpha1.Runner) symptoms {
	why := NeverStarts(r)
	if why == nil {
		return nil
	}
	never, row := seen{of: object{runnerKind, r.Namespace, r.Name}, object: r}.amiss(why), catalog.RunnerUnowned
	if r.Unreadable() != nil {
		row = catalog.RunnerUnread
	}
	never.severity, never.what = row.Severity, row.Title
	return symptoms{never}
}

// reasonOfRunner is the reason of a pool that a runner's cause holds up; "" for none.
func reasonOfRunner(r *v1alpha1.Runner) string {
	cause, ready := r.Status.Cause, ConditionOf(r, v1alpha1.ReadyCondition)
	switch {
	case cause.Permanent():
		return v1alpha1.RunnersFailingReason
	case cause == v1alpha1.CauseGitHub && ready != nil && isConnections(ready.Reason):
		return ready.Reason
	}
	return reasonsOf[cause]
}

// checkQuotas finds quotas that are nearly used up, of namespaces with pools none of which says that one is.
func checkQuotas(v view, known symptoms) symptoms {
	var all symptoms
	pools := v.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Namespace })
	for i := range v.Quotas {
		q := &v.Quotas[i]
		isSaid := slices.ContainsFunc(known, func(s symptom) bool { return s.reason == v1alpha1.QuotaExceededReason && s.of.namespace == q.Namespace })
		if len(pools[q.Namespace]) == 0 || isSaid {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			hard, used := q.Status.Hard[name], q.Status.Used[name]
			if !isOfPods(name) || !isNear(used, hard) {
				continue
			}
			s := found(object{quotaKind, q.Namespace, q.Name}, catalog.QuotaNearlyFull.With(name, used.String(), hard.String()), q.Namespace)
			s.pools = pools[q.Namespace]
			all = append(all, s)
		}
	}
	return all
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
