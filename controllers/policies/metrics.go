// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/policy"
)

// The number of label values does not depend on the number of pools and policies.
var (
	decisionsTotal    = meter.Counters("corral_policy_decisions_total", "Decisions of policies, by outcome.", "decision", "outcome")
	evaluationSeconds = meter.Histograms("corral_policy_evaluation_seconds",
		"Time to evaluate the policies that apply to a pool.", []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}, "decision")
	policiesGauge = meter.Gauges("corral_policies", "Policies in force, by state.", "kind", "state")
	unloggedTotal = meter.Counter("corral_policy_decisions_unlogged_total",
		"Decisions missing in the decision log because it was not written fast enough.")
)

// Outcomes of decisions.
const (
	// allowed is a decision that does not change what was declared.
	allowed = "allowed"
	// bounded is a decision that changes declared numbers.
	bounded = "bounded"
	// denied is a template that may not run.
	denied = "denied"
	// held is an update that may not continue.
	held = "held"
	// failed is a decision without effect, because a policy could not be evaluated.
	failed = "failed"
	// abstained means that policies bind the pool, but none of them takes part in the decision.
	abstained = "abstained"
)

// States of policies.
const (
	ready       = "ready"
	broken      = "broken"
	quarantined = "quarantined"
)

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	for decision, outcomes := range map[string][]string{
		policy.DecisionScaling:  {allowed, bounded, failed, abstained},
		policy.DecisionTemplate: {allowed, denied, failed, abstained},
		policy.DecisionUpdate:   {allowed, bounded, held, failed, abstained},
	} {
		for _, outcome := range outcomes {
			decisionsTotal.WithLabelValues(decision, outcome)
		}
	}
	for _, kind := range []string{policy.KindRunnerPolicy, policy.KindClusterRunnerPolicy} {
		for _, state := range []string{ready, broken, quarantined} {
			policiesGauge.WithLabelValues(kind, state)
		}
	}
	return []prometheus.Collector{decisionsTotal, evaluationSeconds, policiesGauge, unloggedTotal}
}

// outcomeOf returns the outcome of a decision. change is the outcome if no policy failed; it is empty if the decision
// changes nothing.
func outcomeOf(b *policy.Bound, decision string, failures []policy.Failure, change string) string {
	isAsked := func(p *policy.Policy) bool {
		return p.Mode() == v1alpha1.PolicyEnforce && slices.Contains(p.Decisions(), decision)
	}
	switch {
	case len(failures) > 0:
		return failed
	case change != "":
		return change
	case slices.ContainsFunc(b.Policies(), isAsked):
		return allowed
	}
	return abstained
}

// count records a decision in the metrics. It also updates the states of the policies, because the decision may have
// started or ended a quarantine.
func (e *Engine) count(b *policy.Bound, decision, outcome string, took time.Duration) {
	evaluationSeconds.WithLabelValues(decision).Observe(took.Seconds())
	decisionsTotal.WithLabelValues(decision, outcome).Inc()
	for _, p := range b.Policies() {
		if len(p.Diagnostics()) == 0 {
			e.mu.Lock()
			e.countState(p.Ref())
			e.mu.Unlock()
		}
	}
}

// countState updates the metric corral_policies for one policy. The caller holds the lock.
func (e *Engine) countState(ref string) {
	kind, _, _ := strings.Cut(ref, "/")
	before, now := e.states[ref], ""
	if l, ok := e.loaded[ref]; ok {
		now = stateOf(l.policy)
	}
	if before == now {
		return
	}
	if e.states[ref] = now; now == "" {
		delete(e.states, ref)
	}
	for state, change := range map[string]float64{before: -1, now: 1} {
		if state != "" {
			policiesGauge.WithLabelValues(kind, state).Add(change)
		}
	}
}

func stateOf(p *policy.Policy) string {
	switch {
	case len(p.Diagnostics()) > 0:
		return broken
	case len(p.Quarantined()) > 0:
		return quarantined
	}
	return ready
}
