// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// Demand is what tells a pool of jobs, where that isn't its scale set alone.
type Demand struct {
	// Sources in the order of the spec; none if only min and idle say how many runners there are.
	Sources []Source `json:"sources,omitempty"`
	// Webhooks are the GitHubConnections that take events in for it, as NAMESPACE/NAME; absent if
	// that isn't known, or no source goes by events.
	Webhooks *[]string `json:"webhooks,omitempty"`

	busy int32 // runners with a job, where they are more than any source tells of
}

// Source is one that tells of jobs, or asks for runners.
type Source struct {
	// Name as in spec.demand; scaleSet and webhook for those.
	Name string `json:"name"`
	// Kind is scaleSet, webhook, slack, jobs, busy, prometheus or external.
	Kind string `json:"kind"`
	// Heard is false if nothing is known of it yet.
	Heard bool `json:"heard"`
	// Jobs that it tells of, Total of runners that it proposes, Idle runners that it adds.
	Jobs  *int32 `json:"jobs,omitempty"`
	Total *int32 `json:"total,omitempty"`
	Idle  *int32 `json:"idle,omitempty"`
	// Reason for the number.
	Reason string `json:"reason,omitempty"`
	// Held is true while it gives no signal, and what it said last goes on to count.
	Held bool `json:"held,omitempty"`
	// Counts is true of the one whose number of jobs is the pool's.
	Counts bool `json:"counts,omitempty"`
}

// isREST says whether the pool's runners register without a scale set.
func (f *PoolFacts) isREST() bool { return f.Pool.Spec.GetRegistration() == v1alpha1.RegisterREST }

// observes says whether the pool acts on nothing.
func (f *PoolFacts) observes() bool { return f.Pool.Spec.GetMode() == v1alpha1.Observe }

// goesByEvents says whether GitHub's events concern the pool.
func (f *PoolFacts) goesByEvents() bool {
	d := &f.Pool.Spec.Demand
	return d.Webhook != nil || len(d.Slack) > 0
}

// isDeaf says whether the pool waits for events that nothing takes in.
func (f *PoolFacts) isDeaf() bool {
	return f.goesByEvents() && f.Webhooks != nil && len(*f.Webhooks) == 0
}

// demand is what tells the pool of jobs; nil if that is its scale set alone.
func (f *PoolFacts) demand() *Demand {
	declared := f.sources()
	if len(declared) == 1 && declared[0].Name == v1alpha1.DemandScaleSet && !f.observes() {
		return nil
	}
	d := &Demand{}
	if f.goesByEvents() {
		d.Webhooks = f.Webhooks
	}
	most := int32(-1)
	for _, said := range f.Pool.Status.Demand {
		i := slices.IndexFunc(declared, func(s Source) bool { return s.Name == said.Name })
		if i < 0 {
			declared = append(declared, Source{Name: said.Name})
			i = len(declared) - 1
		}
		s := &declared[i]
		s.Heard, s.Jobs, s.Total, s.Idle, s.Reason, s.Held = true, said.Jobs, said.Total, said.Idle, said.Reason, said.Held
		if s.Jobs != nil {
			most = max(most, *s.Jobs)
		}
	}
	d.Sources = declared
	if i := slices.IndexFunc(declared, func(s Source) bool { return s.Jobs != nil && *s.Jobs == most }); i >= 0 && most == f.Pool.Status.Jobs {
		declared[i].Counts = true
	} else if busy := f.Pool.Status.Runners.Busy; busy > max(0, most) && busy == f.Pool.Status.Jobs {
		d.busy = f.Pool.Status.Jobs
	}
	return d
}

// sources are those that the pool declares.
func (f *PoolFacts) sources() []Source {
	var all []Source
	d := &f.Pool.Spec.Demand
	if !f.isREST() {
		all = append(all, Source{Name: v1alpha1.DemandScaleSet, Kind: v1alpha1.DemandScaleSet})
	}
	if d.Webhook != nil {
		all = append(all, Source{Name: v1alpha1.DemandWebhook, Kind: v1alpha1.DemandWebhook})
	}
	for i := range d.Slack {
		all = append(all, Source{Name: d.Slack[i].Name, Kind: "slack"})
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

// listens says whose webhook takes events in.
func (d *Demand) listens() string {
	switch {
	case d.Webhooks == nil:
		return ""
	case len(*d.Webhooks) == 0:
		return "No event of GitHub's reaches it: no GitHubConnection of its namespace and its GitHub has spec.webhook."
	}
	return "GitHub's events come in by the webhook of GitHubConnection " + strings.Join(*d.Webhooks, ", ") + "."
}

func (a *PoolAnswer) demand(p *page) {
	d := a.Demand
	if d == nil {
		return
	}
	p.section("Demand")
	if len(d.Sources) == 0 {
		p.line(2, "Nothing tells of jobs: spec.demand has no source. Only min and idle say how many runners there are.")
	}
	for _, s := range d.Sources {
		p.line(2, "%s: %s", s.title(), s.words())
		if s.Reason != "" {
			p.line(6, "%s", s.Reason)
		}
	}
	if d.busy > 0 {
		p.line(2, "Jobs are no fewer than the runners with a job: %d.", d.busy)
	}
	if of := slices.DeleteFunc(slices.Clone(d.Sources), func(s Source) bool { return s.Jobs == nil }); len(of) > 1 {
		p.line(2, "Of those that tell of jobs, the largest number counts.")
	}
	if words := d.listens(); words != "" {
		p.line(2, "%s", words)
	}
}

// title names a source and what it is.
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

// words are what a source says.
func (s *Source) words() string {
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
	words := strings.Join(parts, ", ")
	switch {
	case !s.Heard:
		return "not heard yet"
	case words == "" && s.Held:
		return "no number yet, and no runner ends for want of jobs until there is one"
	case words == "":
		return "no number"
	case s.Held:
		words += ", held: it gives no signal, and what it said last goes on to count"
	}
	if s.Counts {
		words += "; this number counts"
	}
	return words
}

// ofDemand says what would change what tells of jobs.
func (f *PoolFacts) ofDemand() []string {
	d := f.demand()
	if d == nil {
		return nil
	}
	var all []string
	if len(d.Sources) == 0 {
		all = append(all, "Say what tells of jobs: set spec.demand.webhook, or spec.demand.metrics. Without, jobs make no runners.")
	}
	if f.isDeaf() {
		all = append(all, deafWords(f.Pool.Namespace))
	}
	for _, s := range d.Sources {
		if s.Held {
			all = append(all, fmt.Sprintf("Mend %s: until it gives a signal, the pool doesn't fall below what it said last.", s.title()))
		}
	}
	return all
}

// deafWords say how events come in.
func deafWords(namespace string) string {
	return fmt.Sprintf("Set spec.webhook of a GitHubConnection of its GitHub in namespace %s, and give GitHub a webhook that leads there.", namespace)
}

// observed says what a pool that only observes would do.
func (a *PoolAnswer) observed(p *page) {
	if a.Mode != v1alpha1.Observe || a.Past {
		return
	}
	p.section("Observe")
	p.line(2, "It decides, and acts on nothing: it starts and ends no runners, and takes no jobs.")
	o := a.Observed
	if o == nil {
		p.line(2, "What it would do was not looked at yet.")
		return
	}
	if o.Actual != nil && o.Busy != nil {
		p.line(2, "GitHub has %s for its labels, whoever made them, %d of them with a job.", wording.Count(*o.Actual, "runner"), *o.Busy)
	}
	p.line(2, "Difference: %s.", o.Difference)
}
