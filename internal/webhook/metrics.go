// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
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
	limited   result = "limited"   // too many from its source
	busy      result = "busy"      // too many at once
	unready   result = "unready"   // no leader, or no secret
)

var results = []result{accepted, passed, duplicate, unused, probed, forged, malformed, unusable, oversized, unknown, slow, limited, busy, unready}

// isBad reports whether a request is held against its source. What was signed never is: its source may be a proxy's, and the signer
// one tenant of many. Nor is what costs nothing.
func (r result) isBad() bool {
	return slices.Contains([]result{forged, malformed, oversized, slow}, r)
}

// isRefused reports whether somebody may have to mend something.
func (r result) isRefused() bool { return r.isBad() || r == unknown || r == unusable }

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_webhook_requests_total",
		Help: "Requests to the webhook server by result: accepted, passed (on to the leader), duplicate, unused, probed, forged, malformed, unusable, oversized, unknown, slow, limited, busy or unready.",
	}, []string{"result"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "corral_webhook_request_duration_seconds",
		Help:    "Time to the answer of the webhook server, by result.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"result"})
	// events is bounded by the connections there are: only signed events count.
	events = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "corral_webhook_events_total",
		Help: "Events that were taken, by connection and name of the event.",
	}, []string{"namespace", "connection", "event"})
)

func init() {
	for _, r := range results {
		requests.WithLabelValues(string(r))
	}
}

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{requests, durations, events} }
