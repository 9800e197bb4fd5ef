// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// untilRead describes what stays in force until the fields of an object can be read.
var untilRead = map[string]string{
	poolKind:          " Until then Corral makes no decisions for the pool and neither creates nor deletes runners. Running jobs continue.",
	sourceKind:        catalog.RevisionRunsOn,
	policyKind:        catalog.LastHolds,
	clusterPolicyKind: catalog.LastHolds,
}

// firstRemedy returns the remedy for a source that never applied a revision, so that none stays in force.
func firstRemedy(src *v1alpha1.PoolSource, c *Condition) string {
	row := c.Row()
	switch {
	case src.Unreadable() != nil:
		return catalog.FieldUnreadable.Remedy
	case row.Remedy == "" || c.Reason == v1alpha1.CredentialsMissingReason:
		row = catalog.Of(c.Reason)
	}
	return cmp.Or(row.Remedies[sourceKind], row.Remedy)
}

// FailingRemedy returns the remedy for a pool whose runners fail, given the cause of the last failure.
func FailingRemedy(cause v1alpha1.RunnerCause) string {
	if remedy := CauseRemedy(cause); remedy != "" {
		return remedy + catalog.ThenRetry
	}
	return catalog.RunnersFailing.Remedy
}

// Readable is an object that reports which of its fields cannot be read.
type Readable interface{ Unreadable() error }

// RemedyFor returns the remedy for an object of a kind, given its condition; "" if no action is needed. The object is nil if
// it is unknown.
func RemedyFor(kind string, o Readable, c *Condition) string {
	remedy := catalog.RemedyOf(kind, c.Reason)
	switch {
	case o != nil && o.Unreadable() != nil && (c.Reason == v1alpha1.InvalidSpecReason || c.Reason == v1alpha1.PolicyInvalidReason):
		return catalog.FieldUnreadable.Remedy + untilRead[kind] // no controller acts on any part of it
	case kind == poolKind && c.has(catalog.PodDenied) && c.has(catalog.PreviousRevision):
		return remedy + " The previous revision stays in force."
	case kind == poolKind && c.Reason == v1alpha1.PolicyDeniedReason:
		return remedy + " Until then the pool starts no runners and accepts no jobs."
	case len(c.Causes) > 0 && c.Causes[0].Code != c.Reason:
		return cmp.Or(catalog.Remedy(&c.Causes[0]), remedy)
	}
	return remedy
}

// answers maps the status code of GitHub's answer, or its first digit, to the row of the outage. 0 means no answer.
var answers = map[int32]*catalog.Row{0: catalog.GitHubUnreachable, 401: catalog.CredentialsRefused, 4: catalog.GitHubLimitsRequests}

// OutageRemedy returns the remedy while GitHub is unavailable, given its answer.
func OutageRemedy(o *v1alpha1.GitHubOutage) string {
	if o == nil {
		return catalog.GitHubUnavailable.Remedy
	}
	return cmp.Or(answers[o.Code], answers[o.Code/100], catalog.GitHubHasTrouble).Remedy
}

// RunnerRemedy returns the remedy for a runner that does not start or that failed, given its cause; "" if no action is
// needed. If GitHub refused a request, the remedy is the one for the runner's condition Ready.
func RunnerRemedy(r *Runner) string {
	ready, outage := ConditionOf(r.Object, v1alpha1.ReadyCondition), r.Object.Status.Outage
	isRefused := r.Cause == v1alpha1.CauseGitHub && ready.isFalse()
	switch {
	case r.Cause == v1alpha1.CauseGitHub && outage != nil:
		return OutageRemedy(outage)
	case isRefused, NeverStarts(r.Object) != nil, r.Cause == v1alpha1.CauseQuota && ready.has(catalog.ClaimQuota):
		return cmp.Or(RemedyFor(runnerKind, r.Object, ready), CauseRemedy(r.Cause))
	}
	return CauseRemedy(r.Cause)
}

// CauseRemedy returns the remedy for runners that do not start or that failed because of a cause; "" if no action is needed.
func CauseRemedy(cause v1alpha1.RunnerCause) string { return catalog.Of(string(cause)).Remedy }
