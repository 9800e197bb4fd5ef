// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Every series is bounded by the number of pools, whatever the number of jobs.
var (
	runnersGauge = gauge("corral_pool_runners", "Runners of a pool by state.", "state")
	jobsGauge    = gauge("corral_pool_jobs", "Jobs assigned to a pool and not finished.")
	desiredGauge = gauge("corral_pool_desired_runners", "Runners a pool should have.")
	announced    = gauge("corral_pool_announced_capacity", "Most jobs GitHub may have assigned to a pool in total.")
	createdTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_pool_runners_created_total", Help: "Runners created for a pool.",
	}, []string{"namespace", "pool"})
)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"namespace", "pool"}, labels...))
}

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{runnersGauge, jobsGauge, desiredGauge, announced, createdTotal}
}

// measure sets a pool's gauges.
func measure(key types.NamespacedName, s *v1alpha1.RunnerPoolStatus, desired, capacity int32) {
	set := func(g *prometheus.GaugeVec, v int32, labels ...string) {
		g.WithLabelValues(append([]string{key.Namespace, key.Name}, labels...)...).Set(float64(v))
	}
	set(runnersGauge, s.Runners.Pending, "pending")
	set(runnersGauge, s.Runners.Idle, "idle")
	set(runnersGauge, s.Runners.Busy, "busy")
	set(runnersGauge, s.Runners.Finished, "finished")
	set(runnersGauge, s.Runners.Failed, "failed")
	set(jobsGauge, s.Jobs)
	set(desiredGauge, desired)
	set(announced, capacity)
}

// unmeasure drops the series of a pool that is gone.
func unmeasure(key types.NamespacedName) {
	labels := prometheus.Labels{"namespace": key.Namespace, "pool": key.Name}
	for _, g := range []*prometheus.GaugeVec{runnersGauge, jobsGauge, desiredGauge, announced} {
		g.DeletePartialMatch(labels)
	}
	createdTotal.DeletePartialMatch(labels)
}
