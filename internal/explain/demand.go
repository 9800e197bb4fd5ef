// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Demand lists the sources of a pool's demand.
type Demand struct {
	// Sources in the order of the spec; none if only min and idle set the number of runners.
	Sources []Source `json:"sources,omitempty"`
	// Webhooks lists the GitHubConnections that receive events for the pool, as NAMESPACE/NAME; absent if they are unknown,
	// or if no source counts events.
	Webhooks *[]string `json:"webhooks,omitempty"`
	// Refused is why events are refused: by the webhook of the pool's connection, or by all of Webhooks.
	Refused string `json:"refused,omitempty"`

	// AllRefuse is true if all Webhooks refuse events because of their signature.
	AllRefuse bool `json:"-"`
	// Busy is the number of busy runners if it is greater than the number of jobs of any source, and otherwise 0.
	Busy int32 `json:"-"`
	// Counting is the number of sources that count jobs.
	Counting int `json:"-"`
}

// Source is a source of demand.
type Source struct {
	// Name as in spec.demand, or scaleSet or webhook.
	Name string `json:"name"`
	// Kind is scaleSet, webhook, boost, jobs, busy, prometheus or external.
	Kind string `json:"kind"`
	// Read is true once the controller has read it.
	Read bool `json:"read"`
	// Jobs is the number of jobs that it reports, Total the number of runners that it proposes, and Idle the number of idle
	// runners that it adds.
	Jobs  *int32 `json:"jobs,omitempty"`
	Total *int32 `json:"total,omitempty"`
	Idle  *int32 `json:"idle,omitempty"`
	// Reason for the number.
	Reason string `json:"reason,omitempty"`
	// Stale is true while the source has no current value and its last value is used.
	Stale bool `json:"stale,omitempty"`
	// Counts is true for the source whose number of jobs the pool uses.
	Counts bool `json:"counts,omitempty"`
}

// demand lists the sources of the pool; nil if its scale set is the only one.
func (f *PoolFacts) demand() *Demand {
	declared := f.sources()
	if len(declared) == 1 && declared[0].Name == v1alpha1.DemandScaleSet && !f.Pool.Spec.Observes() {
		return nil
	}
	d := f.receipt()
	d.Sources = declared
	most, by := int32(-1), 0
	for _, said := range f.Pool.Status.Demand {
		i := slices.IndexFunc(d.Sources, func(s Source) bool { return s.Name == said.Name })
		if i < 0 {
			i = len(d.Sources)
			d.Sources = append(d.Sources, Source{Name: said.Name})
		}
		s := &d.Sources[i]
		*s = Source{Name: s.Name, Kind: s.Kind, Read: true, Jobs: said.Jobs, Total: said.Total, Idle: said.Idle, Reason: said.Reason, Stale: said.Stale}
		if s.Jobs == nil {
			continue
		}
		d.Counting++
		if *s.Jobs > most {
			most, by = *s.Jobs, i
		}
	}
	switch jobs, busy := f.Pool.Status.GetJobs(), f.Pool.Status.Runners.Busy; {
	case most == jobs:
		d.Sources[by].Counts = true
	case busy > max(0, most) && busy == jobs:
		d.Busy = jobs
	}
	return d
}

// receipt returns a Demand that shows whether events arrive, if the pool uses events.
func (f *PoolFacts) receipt() *Demand {
	d, declared := &Demand{}, &f.Pool.Spec.Demand
	if declared.Webhook == nil && len(declared.Boosts) == 0 {
		return d
	}
	d.Webhooks = f.Webhooks
	if c := f.Connection; c != nil && c.Reason == v1alpha1.WebhookSecretMissingReason {
		d.Refused = c.Message
	} else {
		d.Refused, d.AllRefuse = f.EventsRefused, f.EventsRefused != ""
	}
	return d
}

// sources returns the sources that the pool declares.
func (f *PoolFacts) sources() []Source {
	var all []Source
	d := &f.Pool.Spec.Demand
	if !f.Pool.Spec.IsREST() {
		all = append(all, Source{Name: v1alpha1.DemandScaleSet, Kind: v1alpha1.DemandScaleSet})
	}
	if d.Webhook != nil {
		all = append(all, Source{Name: v1alpha1.DemandWebhook, Kind: v1alpha1.DemandWebhook})
	}
	for i := range d.Boosts {
		all = append(all, Source{Name: d.Boosts[i].Name, Kind: "boost"})
	}
	for i := range d.Metrics {
		all = append(all, Source{Name: d.Metrics[i].Name, Kind: kindOf(&d.Metrics[i])})
	}
	return all
}

func kindOf(m *v1alpha1.MetricSource) string {
	switch {
	case m.Jobs != nil:
		return "jobs"
	case m.Busy != nil:
		return "busy"
	case m.Prometheus != nil:
		return "prometheus"
	}
	return "external"
}
