// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/meter"
)

// The number of series depends on the number of pools, never on the number of events.
var (
	events  = meter.Counters("corral_demand_events_total", "Events of GitHub that were accepted, by outcome.", "event", "outcome")
	caught  = meter.Counters("corral_demand_deliveries_recovered_total", "Lost deliveries of webhooks, by what happened: read, requested again, or bad.", "how")
	expired = meter.Counters("corral_demand_jobs_expired_total",
		"Waiting jobs that expired after spec.demand.webhook.holdFor without an event.", "namespace", "pool")
	compared = meter.Counter("corral_demand_repositories_compared_total", "Repositories whose jobs were compared with GitHub's list.")
	writes   = meter.Counters("corral_demand_writes_total", "Writes of ConfigMaps, by content.", "part")
)

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	return append(append(pollerCollectors(), events, caught, expired, compared, writes), jobCollectors()...)
}

// unmeasure drops the series of a deleted pool.
func unmeasure(key types.NamespacedName) {
	expired.DeleteLabelValues(key.Namespace, key.Name)
}
