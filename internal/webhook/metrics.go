// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/meter"
)

// result classifies how a request ended.
type result string

const (
	accepted  result = "accepted"  // the job tracker of this process has it
	passed    result = "passed"    // the leader has it
	duplicate result = "duplicate" // it was accepted before
	unused    result = "unused"    // signed, and Corral does not use the event
	probed    result = "probed"    // a request that checks whether the server is up
	forged    result = "forged"    // not signed with the secret
	malformed result = "malformed" // headers differ from GitHub's format
	unusable  result = "unusable"  // signed, and the body differs from GitHub's format
	oversized result = "oversized" // larger than GitHub's maximum
	unknown   result = "unknown"   // no such connection that accepts events
	slow      result = "slow"      // the body did not arrive in time
	limited   result = "limited"   // too many bad requests from its source
	busy      result = "busy"      // too many requests at once
	unready   result = "unready"   // no leader, or no secret
)

var results = []result{accepted, passed, duplicate, unused, probed, forged, malformed, unusable, oversized, unknown, slow, limited, busy, unready}

// isBad reports whether a request counts against its source. A signed request never does: its source may be a proxy,
// and the signer is one of many tenants. A request for an unknown connection does, because its sender could otherwise
// find out which connections exist.
func (r result) isBad() bool {
	return slices.Contains([]result{forged, malformed, oversized, unknown, slow}, r)
}

// isRefused reports whether the request is logged, because a user may have to fix something.
func (r result) isRefused() bool { return r.isBad() || r == unusable }

var (
	requests = meter.Counters("corral_webhook_requests_total",
		"Requests to the webhook server, by result: accepted, passed (on to the leader), duplicate, unused, probed, forged, malformed, unusable, oversized, unknown, slow, limited, busy or unready.", "result")
	durations = meter.Histograms("corral_webhook_request_duration_seconds",
		"Response time of the webhook server, by result.", []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "result")
	// events has no more connections than exist, because only signed events count.
	events = meter.OwnedBy[prometheus.Counter](meter.Counters("corral_webhook_events_total",
		"Accepted events, by connection and name of the event.", "namespace", "connection", "event"))
)

func init() {
	for _, r := range results {
		requests.WithLabelValues(string(r))
	}
}

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requests, durations, events} }
