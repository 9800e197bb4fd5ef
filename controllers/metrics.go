// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
)

var (
	buildInfo = meter.Gauges("corral_build_info", "1, with the version of Corral and of Go.", "version", "go_version")
	readiness = &readinessCollector{desc: prometheus.NewDesc("corral_objects",
		"Objects by kind, and by status and reason of their condition Ready.", []string{"kind", "status", "reason"}, nil)}
)

// readTimeout limits how long a scrape waits for the cache.
const readTimeout = 5 * time.Second

// readinessCollector counts the objects in the leader's cache at each scrape. It makes no requests to the API server.
type readinessCollector struct {
	desc   *prometheus.Desc
	leader atomic.Pointer[leader]
}

// leader contains the cache to count objects in, and a channel that is closed once this process leads.
type leader struct {
	cache   client.Reader
	elected <-chan struct{}
}

// Describe sends the description of the metric.
func (c *readinessCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.desc }

// Collect counts the objects of all kinds except Runner, which pools count.
func (c *readinessCollector) Collect(metrics chan<- prometheus.Metric) {
	l := c.leader.Load()
	if l == nil {
		return
	}
	select {
	case <-l.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for kind, list := range map[string]client.ObjectList{
		"PoolSource": &v1alpha1.PoolSourceList{}, "GitHubConnection": &v1alpha1.GitHubConnectionList{}, "RunnerPool": &v1alpha1.RunnerPoolList{},
		"RunnerPolicy": &v1alpha1.RunnerPolicyList{}, "ClusterRunnerPolicy": &v1alpha1.ClusterRunnerPolicyList{}, "RunnerScaleSet": &v1alpha1.RunnerScaleSetList{},
	} {
		counts, err := countReady(ctx, l.cache, list)
		if err != nil {
			metrics <- prometheus.NewInvalidMetric(c.desc, fmt.Errorf("listing objects of kind %s: %w", kind, err))
			continue
		}
		for r, n := range counts {
			metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), kind, r.status, r.reason)
		}
	}
}

// ready is the state of an object's condition Ready.
type ready struct{ status, reason string }

// countReady counts the objects of a list by their condition Ready. Objects without the condition count as Unknown.
func countReady(ctx context.Context, cache client.Reader, list client.ObjectList) (map[ready]int, error) {
	if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	counts := map[ready]int{}
	err := meta.EachListItem(list, func(item apiruntime.Object) error {
		r := ready{status: "Unknown"}
		if o, ok := item.(kube.Object); ok {
			if c := meta.FindStatusCondition(o.GetConditions(), v1alpha1.ReadyCondition); c != nil {
				r = ready{string(c.Status), c.Reason}
			}
		}
		counts[r]++
		return nil
	})
	return counts, err
}

// measure sets the metric of the versions, and makes readiness count objects once this process leads.
func measure(mgr *Manager, version string) {
	buildInfo.WithLabelValues(version, runtime.Version()).Set(1)
	readiness.leader.Store(&leader{mgr.GetClient(), mgr.Elected()})
}
