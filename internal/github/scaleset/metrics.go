// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/github"
)

var (
	meter = github.Meter{Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_github_requests_total",
		Help: "Requests sent to GitHub, by class of endpoint and status code; \"error\" when there was no answer.",
	}, []string{"endpoint", "code"}), Latencies: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "corral_github_request_duration_seconds",
		Help:    "Time to GitHub's answer, by class of endpoint. A message poll is held for up to 90 s.",
		Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 90},
	}, []string{"endpoint"})}
	sessions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_github_sessions_total",
		Help: "Attempts to open a message session, by result: opened, conflict or failed.",
	}, []string{"result"})
	messages = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "corral_github_messages_total",
		Help: "Messages received, those delivered again included.",
	})
	unknowns = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_github_unknown_messages_total",
		Help: "Messages, and events inside of messages, that were acknowledged without being understood.",
	}, []string{"part"})
	acknowledgements = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_github_acknowledgements_total",
		Help: "Messages deleted from the queue, by result: ok or failed.",
	}, []string{"result"})
)

func init() {
	for _, result := range []string{"opened", "conflict", "failed"} {
		sessions.WithLabelValues(result)
	}
	for _, part := range []string{partMessage, partBody, partEvent} {
		unknowns.WithLabelValues(part)
	}
	for _, result := range []string{"ok", "failed"} {
		acknowledgements.WithLabelValues(result)
	}
}

// Collectors returns the package's metrics, to be registered once.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{meter.Requests, meter.Latencies, sessions, messages, unknowns, acknowledgements}
}
