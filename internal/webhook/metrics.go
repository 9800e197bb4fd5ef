// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/meter"
)

// result says how a request ended.
type result string

const (
	accepted  result = "accepted"  // the job tracker of this process has it
	passed    result = "passed"    // the leader has it
	duplicate result = "duplicate" // it was taken before
	unused    result = "unused"    // signed, of an event that isn't used
	probed    result = "probed"    // somebody looks whether there is a server
	forged    result = "forged"    // not signed by the secret
	malformed result = "malformed" // headers not as GitHub sends them
	unusable  result = "unusable"  // signed, and the body not as GitHub sends it
	oversized result = "oversized" // larger than GitHub sends
	unknown   result = "unknown"   // for no connection that takes events
	slow      result = "slow"      // the body didn't arrive in time
	limited   result = "limited"   // too many bad ones from its source
	busy      result = "busy"      // too many at once
	unready   result = "unready"   // no leader, or no secret
)

var results = []result{accepted, passed, duplicate, unused, probed, forged, malformed, unusable, oversized, unknown, slow, limited, busy, unready}

// isBad reports whether a request is held against its source. What was signed never is: its source may be a proxy's, and the signer
// one tenant of many. A request for no connection is, or its sender would learn that there is none.
func (r result) isBad() bool {
	return slices.Contains([]result{forged, malformed, oversized, unknown, slow}, r)
}

// isRefused reports whether somebody may have to mend something.
func (r result) isRefused() bool { return r.isBad() || r == unusable }

var (
	requests = meter.Counters("corral_webhook_requests_total",
		"Requests to the webhook server by result: accepted, passed (on to the leader), duplicate, unused, probed, forged, malformed, unusable, oversized, unknown, slow, limited, busy or unready.", "result")
	durations = meter.Histograms("corral_webhook_request_duration_seconds",
		"Time to the answer of the webhook server, by result.", []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "result")
	// events is bounded by the connections there are: only signed events count.
	events = meter.Counters("corral_webhook_events_total",
		"Events that were taken, by connection and name of the event.", "namespace", "connection", "event")
)

func init() {
	for _, r := range results {
		requests.WithLabelValues(string(r))
	}
}

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requests, durations, events} }
