// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/github"
)

var (
	meter = github.Meter{Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_github_rest_requests_total",
		Help: "Requests sent to GitHub's REST API, by call and status code; GitHub doesn't count requests with 304; \"error\" means no answer.",
	}, []string{"call", "code"}), Latencies: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "corral_github_rest_request_duration_seconds",
		Help:    "Response time of GitHub's REST API, by call.",
		Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"call"})}
	remainingCalls = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "corral_github_rest_remaining",
		Help: "Calls that GitHub's REST API still allows a connection within the hour, according to its last answer.",
	}, []string{"connection"})
)

// Collectors returns the package's metrics. They must be registered only once.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{meter.Requests, meter.Latencies, remainingCalls}
}
