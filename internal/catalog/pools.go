// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// Causes of pools.
var (
	PoolHeld              = define(Row{Code: "PoolHeld", Reason: v1alpha1.SuspendedReason, Role: Named, Message: "on hold: no new jobs are accepted; min and idle runners are kept"})
	PoolDrained           = define(Row{Code: "PoolDrained", Reason: v1alpha1.SuspendedReason, Role: Named, Message: "draining: no new jobs are accepted; idle runners end"})
	DecisionStays         = define(Row{Code: "DecisionStays", Role: Lead, Message: "the last decision stays in force"})
	NoPolicyDecision      = define(Row{Code: "NoPolicyDecision", Reason: v1alpha1.PolicyPendingReason, Message: "{policy}: {kind}"})
	PolicyTooCostly       = define(Row{Code: "PolicyTooCostly", Reason: v1alpha1.PolicyFailedReason, Volatile: []string{"kind"}, Message: "{policy}: {kind}"})
	PolicyUnavailable     = define(Row{Code: "PolicyUnavailable", Reason: v1alpha1.PolicyFailedReason, Message: "{policy}: {kind}"})
	PodDenied             = define(Row{Code: "PodDenied", Reason: v1alpha1.PolicyDeniedReason, Stalls: true, Message: "{denials}"})
	PoliciesLoading       = define(Row{Code: "PoliciesLoading", Reason: v1alpha1.ProgressingReason, Message: "policies are being loaded"})
	PreviousRevision      = define(Row{Code: "PreviousRevision", Role: Lead, Message: "revision {inForce} goes on"})
	SpecProblems          = define(Row{Code: "SpecProblems", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{problems}"})
	PodInvalid            = define(Row{Code: "PodInvalid", Reason: v1alpha1.TemplateInvalidReason, Stalls: true})
	TemplateUnreadable    = define(Row{Code: "TemplateUnreadable", Reason: v1alpha1.TemplateInvalidReason, Stalls: true, Message: "spec.template"})
	PodRefused            = define(Row{Code: "PodRefused", Reason: v1alpha1.TemplateInvalidReason, Stalls: true})
	RevisionNamesTaken    = define(Row{Code: "RevisionNamesTaken", Reason: v1alpha1.TemplateInvalidReason, Stalls: true, Message: "spec.template: other templates have all names that revision {revision} could have; change it, as by an annotation"})
	RevisionHidden        = define(Row{Code: "RevisionHidden", Reason: v1alpha1.ProgressingReason, Message: `a ControllerRevision "{revision}" is there of another template`})
	RevisionOfFormerPool  = define(Row{Code: "RevisionOfFormerPool", Reason: v1alpha1.ProgressingReason, Message: `a ControllerRevision "{revision}" of a former pool is still there`})
	RevisionUnseen        = define(Row{Code: "RevisionUnseen", Reason: v1alpha1.ProgressingReason, Message: `a ControllerRevision "{revision}" is there that may be of another template`})
	RunnerQuota           = define(Row{Code: "RunnerQuota", Reason: v1alpha1.QuotaExceededReason, Message: "creating a runner"})
	RunnerCreationRefused = define(Row{Code: "RunnerCreationRefused", Reason: v1alpha1.RunnerRefusedReason, Message: "creating a runner"})
	ScaleSetPending       = define(Row{Code: "ScaleSetPending", Reason: v1alpha1.ProgressingReason, Message: "the scale set is being made"})
	FormerScaleSetKept    = define(Row{Code: "FormerScaleSetKept", Reason: v1alpha1.DrainingReason, Message: "the former scale set is deleted; its RunnerScaleSet must go, and finalizer {finalizers} keeps it"})
	FormerScaleSetFirst   = define(Row{Code: "FormerScaleSetFirst", Reason: v1alpha1.ProgressingReason, Message: "the former scale set goes first"})
	OfRunner              = define(Row{Code: "OfRunner", Role: Lead, Message: "runner {runner}"})
	CircuitOpen           = define(Row{Code: "CircuitOpen", Reason: v1alpha1.RunnersFailingReason, Volatile: []string{"count"}, Message: "{count} runners in a row failed ({cause}: {detail}){next}"})
	RoundsFailing         = define(Row{Code: "RoundsFailing", Reason: v1alpha1.RunnersFailingReason, Volatile: []string{"count"}, Message: "{count} attempts in a row produced no working runner ({cause}: {detail}){next}"})
	NodesEndRunners       = define(Row{Code: "NodesEndRunners", Reason: v1alpha1.NodesFailingReason, Volatile: []string{"nodes"}, Message: "nodes refuse or end runners: {nodes}"})
	PodsDeletedByOthers   = define(Row{Code: "PodsDeletedByOthers", Reason: v1alpha1.PodsDeletedReason, Message: "others delete the pods of runners"})
	LastEnd               = define(Row{Code: "LastEnd", Role: Aside, Message: "the last: {reason}"})
	AttemptsFailing       = define(Row{Code: "AttemptsFailing", Role: Aside, Message: "{count} attempts in a row produced no working runner ({cause}: {detail}){next}"})
	UpdateRolledBack      = define(Row{Code: "UpdateRolledBack", Reason: v1alpha1.RolledBackReason, Stalls: true, Message: "revision {revision} is rolled back: {why}"})
	UpdateRevoked         = define(Row{Code: "UpdateRevoked", Reason: v1alpha1.RolledBackReason, Role: Named, Message: "RolledBack {way}: {why}"})
	UpdatePaused          = define(Row{Code: "UpdatePaused", Reason: v1alpha1.UpdateHeldReason, Message: "Held {way}: {why}"})
	UpdateRolling         = define(Row{Code: "UpdateRolling", Reason: v1alpha1.ProgressingReason, Volatile: []string{"why"}, Message: "{phase} {way}: {why}"})
	RunnerVersionEnds     = define(Row{Code: "RunnerVersionEnds", Reason: v1alpha1.RunnerOutdatedReason, Message: "GitHub may refuse runner {version} from {day} on: update the image to {latest}"})
	PoolFull              = define(Row{Code: "PoolFull", Reason: v1alpha1.MaxReachedReason, Message: "as many jobs as max allows, {max}; more wait{bounds}"})
	PoolClosed            = define(Row{Code: "PoolClosed", Reason: v1alpha1.MaxReachedReason, Message: "max is 0, and jobs wait{bounds}"})
	BudgetSelectsRunners  = define(Row{Code: "BudgetSelectsRunners", Reason: v1alpha1.DisruptionBudgetsReason, Message: "PodDisruptionBudget {budgets} selects runners that have a job, as corral-busy-runners does: no pod is evicted that two select, so that a drain of its node fails; let it leave out pods with the label corral.dev/job-id"})
	OfScaleSet            = define(Row{Code: "OfScaleSet", Role: Lead, Message: "scale set"})
)
