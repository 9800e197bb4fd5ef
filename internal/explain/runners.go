// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// nearlyFull is the used percentage of a quota from which a finding reports the quota.
const nearlyFull = 90

// reasonsOf maps causes that delay runners to the reason that their pool reports.
var reasonsOf = map[v1alpha1.RunnerCause]string{
	v1alpha1.CauseQuota: v1alpha1.QuotaExceededReason, v1alpha1.CauseCache: v1alpha1.CacheUnavailableReason, v1alpha1.CauseGitHub: v1alpha1.GitHubUnavailableReason,
}

// checkRunners finds runners that do not start or that failed, and attributes them to a known problem of their pool or its
// connection.
func (l *search) checkRunners() {
	byReason, causes := l.found.byReason(), l.found.causes()
	for r := range pointers(l.Runners) {
		runner := reported(r)
		l.checkSpec(r)
		if !runner.isStuck() || runner.Cause == "" || runner.Cause.IsExternal() || runner.Cause == v1alpha1.CauseDeadline || !r.DeletionTimestamp.IsZero() {
			continue
		}
		row := map[v1alpha1.RunnerState]*catalog.Row{v1alpha1.RunnerPending: catalog.RunnersWait, v1alpha1.RunnerFailed: catalog.RunnersEnd}[runner.State]
		one := found(object{runnerKind, r.Namespace, r.Name}, row.With(runner.Cause).Detailed(runner.Reason), string(runner.Cause), alike(runner.Reason)).from(r.CreationTimestamp.Time)
		one.reason, one.do = string(runner.Cause), RunnerRemedy(&runner)
		if pool := l.pools[r.Namespace+"/"+r.Spec.PoolRef.Name]; pool != nil {
			one.pools = []string{nameOf(pool)}
			reason, connection := reasonOfRunner(r), pool.Spec.ConnectionRef.From(pool.Namespace)
			key := byReason[saying{ofPool(pool), reason}]
			if isConnections(reason) {
				key = cmp.Or(key, causes[object{connectionKind, connection.Namespace, connection.Name}])
			}
			if key != "" {
				one.key, one.grace = key, 0
			}
		}
		l.add(one)
	}
}

// checkSpec adds a symptom for a runner that will never start.
func (l *search) checkSpec(r *v1alpha1.Runner) {
	why, row := NeverStarts(r), catalog.RunnerUnowned
	if why == nil {
		return
	}
	if r.Unreadable() != nil {
		row = catalog.RunnerUnread
	}
	never := seen{of: object{runnerKind, r.Namespace, r.Name}, object: r}.symptomOf(why)
	never.severity, never.what = row.Severity, row.Title
	l.add(never)
}

// reasonOfRunner returns the reason that the runner's pool has because of the runner's cause; "" for none.
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

// ofPods lists the quota resources that runners use.
var ofPods = []corev1.ResourceName{
	corev1.ResourcePods, "count/pods", corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage, corev1.ResourceSecrets, "count/secrets",
}

// checkQuotas finds quotas that are nearly used up, in namespaces whose pools do not already report it.
func (l *search) checkQuotas() {
	pools := l.poolsBy(func(p *v1alpha1.RunnerPool) string { return p.Namespace })
	for q := range pointers(l.Quotas) {
		isReported := slices.ContainsFunc(l.found, func(s symptom) bool { return s.reason == v1alpha1.QuotaExceededReason && s.of.namespace == q.Namespace })
		if len(pools[q.Namespace]) == 0 || isReported {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			hard, used := q.Status.Hard[name], q.Status.Used[name]
			if slices.Contains(ofPods, name) && isNear(used, hard) {
				s := found(object{quotaKind, q.Namespace, q.Name}, catalog.QuotaNearlyFull.With(name, used.String(), hard.String()), q.Namespace)
				s.pools = pools[q.Namespace]
				l.add(s)
			}
		}
	}
}

// isNear reports whether a quota is nearly used up.
func isNear(used, hard resource.Quantity) bool {
	most := hard.AsApproximateFloat64()
	return most > 0 && used.AsApproximateFloat64()*100 >= most*nearlyFull
}
