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

// UnreadRemedy says what to do about an object of a kind with fields that can't be read: nobody acts on any of it.
func UnreadRemedy(kind string) string {
	return catalog.FieldUnreadable.Remedy + untilRead[kind]
}

// firstRemedy is the remedy for a source that never applied a revision, so that none stays in force.
func firstRemedy(c *Condition) string {
	row := c.Row()
	if row.Remedy == "" || c.Reason == v1alpha1.CredentialsMissingReason {
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

// RemedyFor says what to do about an object of a kind, by its condition; "" where nothing is to be done.
func RemedyFor(kind string, c *Condition) string {
	remedy := Remedy(kind, c.Reason)
	switch {
	case kind == poolKind && c.has(catalog.PodDenied) && c.has(catalog.PreviousRevision):
		return remedy + " The previous revision stays in force."
	case kind == poolKind && c.Reason == v1alpha1.PolicyDeniedReason:
		return remedy + " Until then the pool starts no runners and accepts no jobs."
	case len(c.Causes) > 0 && c.Causes[0].Code != c.Reason:
		return cmp.Or(catalog.Remedy(&c.Causes[0]), remedy)
	}
	return remedy
}

// Remedy says what to do about an object of a kind, by the reason of its condition; "" where nothing is to be done.
func Remedy(kind, reason string) string { return catalog.RemedyOf(kind, reason) }

// OutageRemedy says what to do about a GitHub that can't be used, by what it answers.
func OutageRemedy(o *v1alpha1.GitHubOutage) string {
	switch {
	case o == nil:
		return catalog.GitHubUnavailable.Remedy
	case o.Code == 0:
		return catalog.GitHubUnreachable.Remedy
	case o.Code == 401:
		return catalog.CredentialsRefused.Remedy
	case o.Code >= 400 && o.Code < 500:
		return catalog.GitHubLimitsRequests.Remedy
	}
	return catalog.GitHubHasTrouble.Remedy
}

// RunnerRemedy says what to do about a runner that its cause keeps from starting, or ended; "" where nothing is to be done. What GitHub
// refused is in the reason of its condition.
func RunnerRemedy(r *Runner) string {
	if r.Cause == v1alpha1.CauseGitHub && r.Object.Status.Outage != nil {
		return OutageRemedy(r.Object.Status.Outage)
	}
	never := NeverStarts(r.Object)
	if never != nil && r.Object.Unreadable() != nil {
		return UnreadRemedy(runnerKind)
	}
	if r.Cause == v1alpha1.CauseGitHub || never != nil {
		if ready := ConditionOf(r.Object, v1alpha1.ReadyCondition); ready.isFalse() && Remedy(runnerKind, ready.Reason) != "" {
			return Remedy(runnerKind, ready.Reason)
		}
	}
	if ready := ConditionOf(r.Object, v1alpha1.ReadyCondition); r.Cause == v1alpha1.CauseQuota && ready != nil && ready.has(catalog.ClaimQuota) {
		return RemedyFor(runnerKind, ready)
	}
	return CauseRemedy(r.Cause)
}

// CauseRemedy says what to do about runners that a cause keeps from starting, or ended; "" where nothing is to be done.
func CauseRemedy(cause v1alpha1.RunnerCause) string { return catalog.Of(string(cause)).Remedy }
