// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// untilRead is what holds of an object until its fields can be read.
var untilRead = map[string]string{
	poolKind:          " Until then Corral makes no decisions for the pool and neither creates nor deletes runners. Running jobs continue.",
	sourceKind:        catalog.RevisionRunsOn,
	policyKind:        catalog.LastHolds,
	clusterPolicyKind: catalog.LastHolds,
}

// firstRemedy is the remedy for a source that never applied a revision, so that none stays in force.
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

// FailingRemedy says what to do about a pool whose runners fail, by the cause of the last failure.
func FailingRemedy(cause v1alpha1.RunnerCause) string {
	if remedy := CauseRemedy(cause); remedy != "" {
		return remedy + catalog.ThenRetry
	}
	return catalog.RunnersFailing.Remedy
}

// Readable is an object that reports the fields that can't be read.
type Readable interface{ Unreadable() error }

// RemedyFor says what to do about an object of a kind, by its condition; "" where nothing is to be done. The object is nil if it isn't known.
func RemedyFor(kind string, o Readable, c *Condition) string {
	remedy := catalog.RemedyOf(kind, c.Reason)
	switch {
	case o != nil && o.Unreadable() != nil && (c.Reason == v1alpha1.InvalidSpecReason || c.Reason == v1alpha1.PolicyInvalidReason):
		return catalog.FieldUnreadable.Remedy + untilRead[kind] // nobody acts on any of it
	case kind == poolKind && c.has(catalog.PodDenied) && c.has(catalog.PreviousRevision):
		return remedy + " The previous revision stays in force."
	case kind == poolKind && c.Reason == v1alpha1.PolicyDeniedReason:
		return remedy + " Until then the pool starts no runners and accepts no jobs."
	case len(c.Causes) > 0 && c.Causes[0].Code != c.Reason:
		return cmp.Or(catalog.Remedy(&c.Causes[0]), remedy)
	}
	return remedy
}

// answers are the rows of outages, by the status code of GitHub's answer or by its first digit. 0 stands for no answer.
var answers = map[int32]*catalog.Row{0: catalog.GitHubUnreachable, 401: catalog.CredentialsRefused, 4: catalog.GitHubLimitsRequests}

// OutageRemedy says what to do about a GitHub that can't be used, by what it answers.
func OutageRemedy(o *v1alpha1.GitHubOutage) string {
	if o == nil {
		return catalog.GitHubUnavailable.Remedy
	}
	return cmp.Or(answers[o.Code], answers[o.Code/100], catalog.GitHubHasTrouble).Remedy
}

// RunnerRemedy says what to do about a runner that its cause keeps from starting, or ended; "" where nothing is to be done. What GitHub
// refused is in the reason of its condition.
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

// CauseRemedy says what to do about runners that a cause keeps from starting, or ended; "" where nothing is to be done.
func CauseRemedy(cause v1alpha1.RunnerCause) string { return catalog.Of(string(cause)).Remedy }
