// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// deleteRunner is the remedy for a Runner that its pool cannot use.
const deleteRunner = "Delete the Runner. Its pool creates the runners that it needs."

// Causes of runners.
var (
	RegistrationOutdated      = define(Row{Code: "RegistrationOutdated", Reason: v1alpha1.InvalidSpecReason, Message: `RunnerPool "{pool}" now uses another connection, runner group or set of labels`, Remedy: deleteRunner})
	LifetimeOutdated          = define(Row{Code: "LifetimeOutdated", Reason: v1alpha1.InvalidSpecReason, Message: `RunnerPool "{pool}" now uses another runner lifetime`, Remedy: deleteRunner})
	PoolSessionPending        = define(Row{Code: "PoolSessionPending", Reason: v1alpha1.ProgressingReason, Message: `RunnerPool "{pool}" has no message session yet`})
	PoolSessionMissing        = define(Row{Code: "PoolSessionMissing", Reason: v1alpha1.ProgressingReason, Message: `RunnerPool "{pool}" does not hold the session of scale set {id}`})
	PoolDeleted               = define(Row{Code: "PoolDeleted", Reason: v1alpha1.ProgressingReason, Message: "its RunnerPool was deleted, so the runner is deleted as well"})
	RunnerForged              = define(Row{Code: "RunnerForged", Reason: v1alpha1.InvalidSpecReason, Message: `RunnerPool "{pool}" did not create this runner, so Corral does not start it`, Remedy: deleteRunner})
	RegisteringAgain          = define(Row{Code: "RegisteringAgain", Reason: v1alpha1.ProgressingReason, Message: "registering again: the configuration of the first registration was lost"})
	RunnerIDInvalid           = define(Row{Code: "RunnerIDInvalid", Reason: v1alpha1.InvalidSpecReason, Message: `Secret "{secret}": the key {key} is invalid`, Remedy: deleteRunner})
	SecretOfAnother           = define(Row{Code: "SecretOfAnother", Reason: v1alpha1.InvalidSpecReason, Message: `Secret "{secret}" does not belong to this runner: delete the Secret or the runner`, Remedy: "Delete the Secret or the Runner. The pool creates the runners that it needs."})
	SecretQuota               = define(Row{Code: "SecretQuota", Reason: v1alpha1.QuotaExceededReason, Message: "cannot create the Secret for its registration"})
	RegistrationSecretRefused = define(Row{Code: "RegistrationSecretRefused", Reason: v1alpha1.SecretRefusedReason, Message: "cannot create the Secret for its registration"})
	ContainerEnding           = define(Row{Code: "ContainerEnding", Reason: v1alpha1.ProgressingReason, Volatile: []string{"deadline"}, Message: "its job finished", Awaits: "its container to exit; Corral deletes its pod at {deadline}"})
	RegistrationHeld          = define(Row{Code: "RegistrationHeld", Reason: v1alpha1.ProgressingReason, Message: "its job finished", Awaits: "GitHub to remove its registration"})
	JobFailing                = define(Row{Code: "JobFailing", Reason: v1alpha1.ProgressingReason, Message: "its container exited", Awaits: "GitHub to fail its job"})
	JobOfDeletedPool          = define(Row{Code: "JobOfDeletedPool", Reason: v1alpha1.ProgressingReason, Message: "its RunnerPool was deleted; Corral deletes the runner after its job"})
	JobRunning                = define(Row{Code: "JobRunning", Reason: v1alpha1.ProgressingReason, Message: "GitHub reports that it has a job; Corral deletes the runner after that job"})
	OtherRegistrationBusy     = define(Row{Code: "OtherRegistrationBusy", Reason: v1alpha1.ProgressingReason, Message: "runner {id}, registered {when}, has a job and may be this runner", Awaits: "that job"})
	PodChanged                = define(Row{Code: "PodChanged", Reason: v1alpha1.ProgressingReason, Message: "its pod changed and may have started; Corral checks it again before the deletion"})
	PodEnding                 = define(Row{Code: "PodEnding", Reason: v1alpha1.ProgressingReason, Awaits: "the pod to terminate"})
	KeptPodEnding             = define(Row{Code: "KeptPodEnding", Reason: v1alpha1.ProgressingReason, Awaits: "the pod to terminate; Corral keeps it for debugging"})
	RunnerUnknownRunning      = define(Row{Code: "RunnerUnknownRunning", Reason: v1alpha1.ProgressingReason, Message: "GitHub does not know the runner", Awaits: "its container to exit or to register"})
	RunnerUnknownEnding       = define(Row{Code: "RunnerUnknownEnding", Reason: v1alpha1.ProgressingReason, Message: "GitHub does not know runner {id}", Awaits: "its container to exit"})
	RunnerUnknown             = define(Row{Code: "RunnerUnknown", Reason: v1alpha1.ProgressingReason, Message: "GitHub does not know runner {id}; Corral retries"})
	FormerRunnerBusy          = define(Row{Code: "FormerRunnerBusy", Reason: v1alpha1.ProgressingReason, Message: "an earlier runner with this name has a job"})
	MarkChanging              = define(Row{Code: "MarkChanging", Reason: v1alpha1.ProgressingReason, Message: "its pod was modified; checking again whether the pod is marked as finished"})
	ClaimLeaving              = define(Row{Code: "ClaimLeaving", Reason: v1alpha1.ProgressingReason, Awaits: "a cache claim whose runner has finished"})
	ClaimsTaken               = define(Row{Code: "ClaimsTaken", Reason: v1alpha1.CacheUnavailableReason, Message: "other runners use all cache claims"})
	ClaimMissing              = define(Row{Code: "ClaimMissing", Reason: v1alpha1.CacheUnavailableReason, Message: "spec.cache: {why}"})
	ClaimQuota                = define(Row{Code: "ClaimQuota", Reason: v1alpha1.QuotaExceededReason, Title: "the quota allows no more cache claims", Message: "cannot create a claim for spec.cache", Remedy: "Raise the claim quota in the namespace's ResourceQuota, lower spec.cache.maxClaims of its pools, or set spec.cache.onMissing to StartWithout."})
	ClaimRefused              = define(Row{Code: "ClaimRefused", Reason: v1alpha1.CacheUnavailableReason, Message: "cannot create a claim for spec.cache"})
	RegistrationUnproved      = define(Row{Code: "RegistrationUnproved", Reason: v1alpha1.ConnectionNotReadyReason, Message: `cannot confirm that RunnerPool "{pool}" registered this runner`})
	RunnerAndScaleSetUnknown  = define(Row{Code: "RunnerAndScaleSetUnknown", Reason: v1alpha1.ConnectionNotReadyReason, Message: "GitHub knows neither the runner nor its scale set"})
	RunnerFinished            = define(Row{Code: "RunnerFinished", Reason: string(v1alpha1.RunnerFinished), Severity: Note, Title: "a runner finished", Role: Named, Volatile: []string{"reason"}, Message: "Finished: {reason}"})
	RunnerFailed              = define(Row{Code: "RunnerFailed", Reason: string(v1alpha1.RunnerFailed), Severity: Note, Title: "a runner failed", Role: Named, Volatile: []string{"reason"}, Message: "Failed: {reason}"})
	FinalizerKeeps            = define(Row{Code: "FinalizerKeeps", Role: Fact, Message: "the finalizer {finalizers} keeps the object"})
	RevisionMissing           = define(Row{Code: "RevisionMissing", Reason: v1alpha1.ProgressingReason, Awaits: "ControllerRevision {revision}, which holds the pod template"})
	ClaimUnseen               = define(Row{Code: "ClaimUnseen", Reason: v1alpha1.ProgressingReason, Awaits: "claim {claim} to appear in the informer cache"})
	RunnerEnding              = define(Row{Code: "RunnerEnding", Reason: v1alpha1.ProgressingReason, Message: "terminated {why}"})
	PodQuota                  = define(Row{Code: "PodQuota", Reason: v1alpha1.QuotaExceededReason, Message: "cannot create the pod"})
	PodCreationRefused        = define(Row{Code: "PodCreationRefused", Reason: v1alpha1.TemplateInvalidReason, Message: "cannot create the pod"})
	RevisionReplaced          = define(Row{Code: "RevisionReplaced", Reason: v1alpha1.TemplateInvalidReason, Stalls: true, Message: `the template in ControllerRevision "{revision}" changed after the runner was created`})
	PodDeniedBy               = define(Row{Code: "PodDeniedBy", Reason: v1alpha1.PolicyDeniedReason, Message: "{policy} denies the pod"})
	RunnerDoubted             = define(Row{Code: "RunnerDoubted", Reason: v1alpha1.ProgressingReason, Volatile: []string{"reason"}, Message: "{state}: {reason}"})
	EndRefused                = define(Row{Code: "EndRefused", Reason: v1alpha1.DeletionRefusedReason, Volatile: []string{"runner"}, Message: "cannot delete runner {runner}"})
	HookObjectsLeft           = define(Row{Code: "HookObjectsLeft", Reason: v1alpha1.ProgressingReason, Message: "deleting the objects that its container hooks created"})
	AccountMissing            = define(Row{Code: "AccountMissing", Reason: v1alpha1.ServiceAccountMissingReason, Message: "ServiceAccount {account} of the runners not found in namespace {namespace}: {remedy}"})
	Deregistering             = define(Row{Code: "Deregistering", Role: Lead, Message: "deregistering"})
)
