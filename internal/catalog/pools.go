// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// Causes of pools.
var (
	PoolHeld              = define(Row{Code: "PoolHeld", Reason: v1alpha1.SuspendedReason, Role: Named, Message: "on hold: Corral accepts no new jobs and keeps min and idle runners"})
	PoolDrained           = define(Row{Code: "PoolDrained", Reason: v1alpha1.SuspendedReason, Role: Named, Message: "draining: Corral accepts no new jobs and deletes idle runners"})
	DecisionStays         = define(Row{Code: "DecisionStays", Role: Lead, Message: "the last decision stays in force"})
	NoPolicyDecision      = define(Row{Code: "NoPolicyDecision", Reason: v1alpha1.PolicyPendingReason, Message: "{policy}: {kind}"})
	PolicyTooCostly       = define(Row{Code: "PolicyTooCostly", Reason: v1alpha1.PolicyFailedReason, Volatile: []string{"kind"}, Message: "{policy}: {kind}"})
	PolicyUnavailable     = define(Row{Code: "PolicyUnavailable", Reason: v1alpha1.PolicyFailedReason, Message: "{policy}: {kind}"})
	PodDenied             = define(Row{Code: "PodDenied", Reason: v1alpha1.PolicyDeniedReason, Stalls: true, Message: "{denials}"})
	PoliciesLoading       = define(Row{Code: "PoliciesLoading", Reason: v1alpha1.ProgressingReason, Message: "policies are being loaded"})
	PreviousRevision      = define(Row{Code: "PreviousRevision", Role: Lead, Message: "revision {inForce} stays in force"})
	SpecProblems          = define(Row{Code: "SpecProblems", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{problems}"})
	PodInvalid            = define(Row{Code: "PodInvalid", Reason: v1alpha1.TemplateInvalidReason, Stalls: true})
	TemplateUnreadable    = define(Row{Code: "TemplateUnreadable", Reason: v1alpha1.TemplateInvalidReason, Stalls: true, Message: "cannot decode spec.template"})
	PodRefused            = define(Row{Code: "PodRefused", Reason: v1alpha1.TemplateInvalidReason, Stalls: true})
	RevisionNamesTaken    = define(Row{Code: "RevisionNamesTaken", Reason: v1alpha1.TemplateInvalidReason, Stalls: true, Message: "spec.template: other templates use every possible name for revision {revision}: change the template, for example by adding an annotation"})
	RevisionHidden        = define(Row{Code: "RevisionHidden", Reason: v1alpha1.ProgressingReason, Message: `ControllerRevision "{revision}" already exists with another template`})
	RevisionOfFormerPool  = define(Row{Code: "RevisionOfFormerPool", Reason: v1alpha1.ProgressingReason, Message: `ControllerRevision "{revision}" of a deleted pool with the same name still exists`})
	RevisionUnseen        = define(Row{Code: "RevisionUnseen", Reason: v1alpha1.ProgressingReason, Message: `ControllerRevision "{revision}" already exists and may have another template`})
	RunnerQuota           = define(Row{Code: "RunnerQuota", Reason: v1alpha1.QuotaExceededReason, Message: "cannot create a runner"})
	RunnerCreationRefused = define(Row{Code: "RunnerCreationRefused", Reason: v1alpha1.RunnerRefusedReason, Message: "cannot create a runner"})
	ScaleSetPending       = define(Row{Code: "ScaleSetPending", Reason: v1alpha1.ProgressingReason, Message: "the scale set is being created"})
	FormerScaleSetKept    = define(Row{Code: "FormerScaleSetKept", Reason: v1alpha1.DrainingReason, Message: "the previous scale set was deleted, but the finalizer {finalizers} keeps its RunnerScaleSet", Remedy: "Wait for the controller that added the finalizer. If it no longer exists, remove the finalizer."})
	FormerScaleSetFirst   = define(Row{Code: "FormerScaleSetFirst", Reason: v1alpha1.ProgressingReason, Message: "waiting until the previous scale set is deleted"})
	OfRunner              = define(Row{Code: "OfRunner", Role: Lead, Message: "runner {runner}"})
	CircuitOpen           = define(Row{Code: "CircuitOpen", Reason: v1alpha1.RunnersFailingReason, Volatile: []string{"count"}, Message: "{count} runners in a row failed ({cause}: {detail}){next}"})
	RoundsFailing         = define(Row{Code: "RoundsFailing", Reason: v1alpha1.RunnersFailingReason, Volatile: []string{"count"}, Message: "{count} attempts in a row produced no working runner ({cause}: {detail}){next}"})
	NodesEndRunners       = define(Row{Code: "NodesEndRunners", Reason: v1alpha1.NodesFailingReason, Volatile: []string{"nodes"}, Message: "nodes refuse or stop runners: {nodes}"})
	PodsDeletedByOthers   = define(Row{Code: "PodsDeletedByOthers", Reason: v1alpha1.PodsDeletedReason, Message: "a user or another controller deletes the pods of runners"})
	LastEnd               = define(Row{Code: "LastEnd", Role: Aside, Message: "last: {reason}"})
	AttemptsFailing       = define(Row{Code: "AttemptsFailing", Role: Aside, Message: "{count} attempts in a row produced no working runner ({cause}: {detail}){next}"})
	UpdateRolledBack      = define(Row{Code: "UpdateRolledBack", Reason: v1alpha1.RolledBackReason, Stalls: true, Message: "Corral rolled back revision {revision}: {why}"})
	UpdateRevoked         = define(Row{Code: "UpdateRevoked", Reason: v1alpha1.RolledBackReason, Role: Named, Message: "RolledBack {way}: {why}"})
	UpdatePaused          = define(Row{Code: "UpdatePaused", Reason: v1alpha1.UpdateHeldReason, Message: "Held {way}: {why}"})
	UpdateRolling         = define(Row{Code: "UpdateRolling", Reason: v1alpha1.ProgressingReason, Volatile: []string{"why"}, Message: "{phase} {way}: {why}"})
	RunnerVersionEnds     = define(Row{Code: "RunnerVersionEnds", Reason: v1alpha1.RunnerOutdatedReason, Message: "GitHub may refuse runner version {version} from {day} on: update the image to {latest}"})
	PoolFull              = define(Row{Code: "PoolFull", Reason: v1alpha1.MaxReachedReason, Message: "the pool runs the maximum of {max} jobs and more jobs wait{bounds}"})
	PoolClosed            = define(Row{Code: "PoolClosed", Reason: v1alpha1.MaxReachedReason, Message: "max is 0, and jobs wait{bounds}"})
	BudgetSelectsRunners  = define(Row{Code: "BudgetSelectsRunners", Reason: v1alpha1.DisruptionBudgetsReason, Message: "PodDisruptionBudget {budgets} selects runners with a job, as corral-busy-runners does. Kubernetes evicts no pod that two budgets select, so node drains fail. Exclude pods with the label corral.dev/job-id from your budget"})
	OfScaleSet            = define(Row{Code: "OfScaleSet", Role: Lead, Message: "scale set"})
)
