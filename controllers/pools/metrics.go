// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/meter"
)

// The number of series depends on the number of pools and their demand sources, never on the number of jobs.
var (
	runnersGauge  = gauge("corral_pool_runners", "Runners of a pool by state.", "state")
	jobsGauge     = gauge("corral_pool_jobs", "Jobs assigned to a pool and not finished.")
	desiredGauge  = gauge("corral_pool_desired_runners", "Runners a pool should have.")
	announced     = gauge("corral_pool_announced_capacity", "Maximum number of jobs that GitHub may assign to a pool in total.")
	limitGauge    = gauge("corral_pool_limit", "Limits of a pool after schedules and policies.", "field")
	demandGauge   = gauge("corral_pool_demand", "Demand reported by a source.", "source", "of")
	updateByGauge = gauge("corral_pool_runner_update_by_timestamp_seconds", "When GitHub may refuse the version of a pool's runners, in seconds since 1970; absent while it is the latest.", "version")
	waitingGauge  = gauge("corral_pool_jobs_waiting", "Jobs that wait because a pool accepts no more jobs.")
	fullGauge     = gauge("corral_pool_saturated", "1 while a pool has as many jobs as its max allows and more jobs wait, otherwise 0.")
	suspendGauge  = gauge("corral_pool_suspended", "1 while spec.stopPolicy prevents a pool from accepting jobs, otherwise 0. Its jobs then wait as intended.")
	healthyGauge  = gauge("corral_pool_healthy", "0 while a pool's runners fail one after the other, or nodes, users or other controllers stop them, otherwise 1.")
	failuresTotal = meter.OwnedBy[prometheus.Counter](meter.Counters("corral_pool_runner_failures_total", "Runners that failed, by cause.", "namespace", "pool", "cause"))
	leftGauge     = gauge("corral_deleted_pool_runners", "Remaining runners of a deleted pool. Runners with a job finish it.")
	createdTotal  = meter.OwnedBy[prometheus.Counter](meter.Counters("corral_pool_runners_created_total", "Runners created for a pool.", "namespace", "pool"))
)

func gauge(name, help string, labels ...string) *meter.Owned[prometheus.Gauge] {
	return meter.OwnedBy[prometheus.Gauge](meter.Gauges(name, help, append([]string{"namespace", "pool"}, labels...)...))
}

// Collectors returns the metrics of this package, each with series by namespace and pool.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{runnersGauge, jobsGauge, desiredGauge, announced, limitGauge, demandGauge, updateByGauge, waitingGauge, fullGauge, suspendGauge, healthyGauge, failuresTotal, createdTotal, leftGauge}
}

// causeWithJob is the metric label for a runner that failed during a job.
const causeWithJob = "WithJob"

// countFailed counts the runners that failed since the last pass, and the runners that this pass gives up.
func countFailed(o observation) {
	for _, f := range o.health.failures {
		failuresTotal.WithLabelValues(o.key().Namespace, o.key().Name, cmp.Or(string(f.Cause), causeWithJob)).Inc()
	}
}

// measure sets a pool's gauges. An unbounded max is reported as infinity.
func measure(pool *v1alpha1.RunnerPool, desired, capacity int32) {
	key, s := client.ObjectKeyFromObject(pool), &pool.Status
	set := func(g *meter.Owned[prometheus.Gauge], v int32, labels ...string) {
		number := float64(v)
		if v == v1alpha1.UnboundedMax {
			number = math.Inf(1)
		}
		g.WithLabelValues(append([]string{key.Namespace, key.Name}, labels...)...).Set(number)
	}
	r := s.Runners
	for state, number := range map[string]int32{"pending": r.Pending, "idle": r.Idle, "busy": r.Busy, "finished": r.Finished, "failed": r.Failed} {
		set(runnersGauge, number, state)
	}
	if s.Jobs != nil {
		set(jobsGauge, *s.Jobs)
	}
	set(waitingGauge, s.JobsWaiting)
	set(fullGauge, oneIf(meta.IsStatusConditionTrue(s.Conditions, v1alpha1.SaturatedCondition)))
	set(suspendGauge, oneIf(pool.Spec.Stops()))
	set(healthyGauge, oneIf(!meta.IsStatusConditionFalse(s.Conditions, v1alpha1.HealthyCondition)))
	set(desiredGauge, desired)
	set(announced, capacity)
	updateByGauge.Drop(key.Namespace, key.Name)
	if v := s.RunnerVersion; v != nil && v.UpdateBy != nil {
		updateByGauge.WithLabelValues(key.Namespace, key.Name, v.Version).Set(float64(v.UpdateBy.Unix()))
	}
	demandGauge.Drop(key.Namespace, key.Name)
	for _, d := range s.Demand {
		for of, number := range map[string]*int32{"jobs": d.Jobs, "total": d.Total, "idle": d.Idle} {
			if number != nil {
				set(demandGauge, *number, d.Name, of)
			}
		}
	}
	if d := s.Decision; d != nil && d.Limits != nil {
		set(limitGauge, d.Limits.Min, "min")
		set(limitGauge, d.Limits.GetMax(), "max")
		set(limitGauge, d.Limits.Idle, "idle")
	}
}

func oneIf(holds bool) int32 {
	if holds {
		return 1
	}
	return 0
}

// setLeft sets the number of runners that remain of a deleted pool.
func setLeft(key types.NamespacedName, runners int) {
	leftGauge.WithLabelValues(key.Namespace, key.Name).Set(float64(runners))
}

// unmeasure drops the series of a pool that is gone.
func unmeasure(key types.NamespacedName) {
	for _, c := range Collectors() {
		if series, ok := c.(interface{ Drop(namespace, name string) }); ok {
			series.Drop(key.Namespace, key.Name)
		}
	}
}
