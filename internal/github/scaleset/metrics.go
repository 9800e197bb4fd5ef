// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/meter"
)

var (
	traffic = github.Meter{
		Requests: meter.Counters("corral_github_requests_total",
			"Requests sent to GitHub, by class of endpoint and status code; \"error\" when there was no answer.", "endpoint", "code"),
		Latencies: meter.Histograms("corral_github_request_duration_seconds",
			"Response time of GitHub, by class of endpoint. GitHub holds a message poll for up to 90 s.",
			[]float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 90}, "endpoint"),
	}
	sessions = meter.CountersOf("corral_github_sessions_total",
		"Attempts to open a message session, by result: opened, conflict or failed.", "result", "opened", "conflict", "failed")
	messages = meter.Counter("corral_github_messages_total", "Received messages, including repeated deliveries.")
	unknowns = meter.CountersOf("corral_github_unknown_messages_total",
		"Messages of an unknown type, and unknown events in messages, that were acknowledged.", "part", partMessage, partBody, partEvent)
	acknowledgements = meter.CountersOf("corral_github_acknowledgements_total",
		"Messages deleted from the queue, by result: ok or failed.", "result", "ok", "failed")
)

// Collectors returns the package's metrics. They must be registered only once.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{traffic.Requests, traffic.Latencies, sessions, messages, unknowns, acknowledgements}
}
