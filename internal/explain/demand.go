// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// Demand lists the sources of a pool's demand.
type Demand struct {
	// Sources in the order of the spec; none if only min and idle set the number of runners.
	Sources []Source `json:"sources,omitempty"`
	// Webhooks are the GitHubConnections that receive events for it, as NAMESPACE/NAME; absent if they aren't
	// known, or no source counts events.
	Webhooks *[]string `json:"webhooks,omitempty"`
	// Refused says why the webhook of the pool's connection, or all of Webhooks, refuse events.
	Refused string `json:"refused,omitempty"`

	// allRefuse is true if all Webhooks refuse what comes, for its signature.
	allRefuse bool
	busy      int32 // busy runners, if there are more than any source knows jobs; else 0
}

// Source is a source of demand.
type Source struct {
	// Name as in spec.demand; scaleSet and webhook for those.
	Name string `json:"name"`
	// Kind is scaleSet, webhook, boost, jobs, busy, prometheus or external.
	Kind string `json:"kind"`
	// Read is false until the controller has read it.
	Read bool `json:"read"`
	// Jobs that it knows of, the Total of runners that it proposes, and the Idle runners that it adds.
	Jobs  *int32 `json:"jobs,omitempty"`
	Total *int32 `json:"total,omitempty"`
	Idle  *int32 `json:"idle,omitempty"`
	// Reason for the number.
	Reason string `json:"reason,omitempty"`
	// Stale is true while it gives no signal, and its last number counts.
	Stale bool `json:"stale,omitempty"`
	// Counts is true of the source whose number of jobs is the pool's.
	Counts bool `json:"counts,omitempty"`
}

// isREST reports whether the pool's runners register without a scale set.
func (f *PoolFacts) isREST() bool { return f.Pool.Spec.GetRegistration() == v1alpha1.RegisterREST }

// observes reports whether the pool decides without acting.
func (f *PoolFacts) observes() bool { return f.Pool.Spec.GetMode() == v1alpha1.Observe }

// countsEvents reports whether a source of the pool counts GitHub's events.
func (f *PoolFacts) countsEvents() bool {
	d := &f.Pool.Spec.Demand
	return d.Webhook != nil || len(d.Boosts) > 0
}

// lacksWebhook reports whether the pool counts events but receives none.
func (f *PoolFacts) lacksWebhook() bool {
	return f.countsEvents() && f.Webhooks != nil && len(*f.Webhooks) == 0
}

// demand lists the sources of the pool; nil if its scale set is the only one.
func (f *PoolFacts) demand() *Demand {
	declared := f.sources()
	if len(declared) == 1 && declared[0].Name == v1alpha1.DemandScaleSet && !f.observes() {
		return nil
	}
	d := f.receipt()
	most := int32(-1)
	for _, said := range f.Pool.Status.Demand {
		i := slices.IndexFunc(declared, func(s Source) bool { return s.Name == said.Name })
		if i < 0 {
			declared = append(declared, Source{Name: said.Name})
			i = len(declared) - 1
		}
		s := &declared[i]
		s.Read, s.Jobs, s.Total, s.Idle, s.Reason, s.Stale = true, said.Jobs, said.Total, said.Idle, said.Reason, said.Stale
		if s.Jobs != nil {
			most = max(most, *s.Jobs)
		}
	}
	d.Sources = declared
	jobs := f.Pool.Status.GetJobs()
	if i := slices.IndexFunc(declared, func(s Source) bool { return s.Jobs != nil && *s.Jobs == most }); i >= 0 && most == jobs {
		declared[i].Counts = true
	} else if busy := f.Pool.Status.Runners.Busy; busy > max(0, most) && busy == jobs {
		d.busy = jobs
	}
	return d
}

// receipt is a Demand that says whether events arrive, if they count.
func (f *PoolFacts) receipt() *Demand {
	d := &Demand{}
	if !f.countsEvents() {
		return d
	}
	d.Webhooks = f.Webhooks
	if c := f.Connection; c != nil && c.Reason == v1alpha1.WebhookSecretMissingReason {
		d.Refused = c.Message
	} else {
		d.Refused, d.allRefuse = f.EventsRefused, f.EventsRefused != ""
	}
	return d
}

// sources returns the sources that the pool declares.
func (f *PoolFacts) sources() []Source {
	var all []Source
	d := &f.Pool.Spec.Demand
	if !f.isREST() {
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

// noWebhook says why a pool receives no events.
const noWebhook = "no GitHubConnection of its namespace and its GitHub has spec.webhook"

// receivesBy says whose webhook receives the pool's events; "" if no source counts them.
func (d *Demand) receivesBy() string {
	switch {
	case d.Webhooks == nil:
		return ""
	case len(*d.Webhooks) == 0:
		return "It receives no events: " + noWebhook + "."
	}
	connections := "GitHubConnection " + strings.Join(*d.Webhooks, ", ")
	switch {
	case d.Refused != "" && len(*d.Webhooks) == 1:
		return "The webhook of " + connections + " refuses its events: " + d.Refused + "."
	case d.allRefuse:
		return "The webhooks of " + connections + " refuse its events: " + d.Refused + "."
	case d.Refused != "":
		return "It receives events by the webhooks of " + connections + ", but that of its own connection refuses them: " + d.Refused + "."
	}
	return "It receives events by the webhook of " + connections + "."
}

// severalCount reports whether several sources count jobs.
func (d *Demand) severalCount() bool {
	n := 0
	for _, s := range d.Sources {
		if s.Jobs != nil {
			n++
		}
	}
	return n > 1
}

// title names a source and its kind.
func (s *Source) title() string {
	switch s.Kind {
	case v1alpha1.DemandScaleSet:
		return "scale set"
	case s.Name:
		return s.Name
	case "":
		return s.Name + " (no longer declared)"
	}
	return fmt.Sprintf("%s (%s)", s.Name, s.Kind)
}

// text is what a source says.
func (s *Source) text() string {
	var parts []string
	if s.Jobs != nil {
		parts = append(parts, wording.Count(*s.Jobs, "job"))
	}
	if s.Total != nil {
		parts = append(parts, wording.Count(*s.Total, "runner")+" in total")
	}
	if s.Idle != nil {
		parts = append(parts, wording.Count(*s.Idle, "idle runner")+" more")
	}
	text := strings.Join(parts, ", ")
	switch {
	case !s.Read:
		return "not read yet"
	case text == "" && s.Stale:
		return "no number yet; until there is one, no runner ends for lack of jobs"
	case text == "":
		return "no number"
	case s.Stale:
		text += ", stale: it gives no signal, and its last number counts"
	}
	if s.Counts {
		text += "; this number counts"
	}
	return text
}

// ofDemand says what would change the demand.
func (f *PoolFacts) ofDemand() []string {
	d := f.demand()
	if d == nil {
		return nil
	}
	var all []string
	if len(d.Sources) == 0 {
		all = append(all, catalog.DemandMissing.Remedy)
	}
	if f.lacksWebhook() {
		all = append(all, catalog.WebhookMissing.Advice(f.Pool.Namespace))
	}
	if d.allRefuse {
		all = append(all, catalog.EventsRefused.Remedy)
	}
	for _, s := range d.Sources {
		if s.Stale {
			all = append(all, catalog.SourceStale.Advice(s.title()))
		}
	}
	return all
}
