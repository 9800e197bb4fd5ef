// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// competing warns of pools that webhooks tell of jobs, and that the same jobs are for: the older gets all of them. Of connections that
// aren't declared here, only the name is known.
func (w *workspace) competing() []report.Finding {
	scopes := w.scopes()
	var warnings []report.Finding
	for i := range w.pools {
		for j := range i {
			first, second := &w.pools[j], &w.pools[i]
			if first.Namespace != second.Namespace || !sourcesOverlap(first, second) {
				continue
			}
			a, b := matchOf(first, scopes), matchOf(second, scopes)
			if !jobmatch.Compete(&a, &b) {
				continue
			}
			warning := second.warning(ruleCompeting, "Pools compete for the same jobs", ".spec.runnerLabels",
				fmt.Sprintf("the same jobs are for pool %s: webhooks give all of them to the older of the two", wording.Qualified(first.Namespace, first.Name)))
			warning.Help = "give one of them another label or runner group, or other repositories in spec.demand.webhook"
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// sourcesOverlap says whether both pools count jobs by webhooks, and both act or both observe.
func sourcesOverlap(a, b *declaredPool) bool {
	return a.Spec.Demand.Webhook != nil && b.Spec.Demand.Webhook != nil && a.Spec.GetMode() == b.Spec.GetMode()
}

// scopes of the connections that are declared, by namespace and name.
func (w *workspace) scopes() map[string]jobmatch.Scope {
	scopes := map[string]jobmatch.Scope{}
	for name, spec := range w.connections() {
		url, _ := spec["url"].(string)
		if scope, ok := jobmatch.ScopeOf(url); ok {
			scopes[name] = scope
		}
	}
	return scopes
}

// connectionOf names a pool's connection. A namespace that isn't declared is that of the source.
func connectionOf(p *v1alpha1.RunnerPool) string {
	key := p.Spec.ConnectionRef.From(p.Namespace)
	return wording.Qualified(key.Namespace, key.Name)
}

func matchOf(p *declaredPool, scopes map[string]jobmatch.Scope) jobmatch.Pool {
	connection := connectionOf(p.RunnerPool)
	scope, known := scopes[connection]
	if !known {
		scope = jobmatch.Scope{Kind: jobmatch.Organization, Path: connection}
	}
	return jobmatch.Of(p.RunnerPool, scope)
}
