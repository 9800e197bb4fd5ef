// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types. Ready is always present; Reconciling and Stalled follow
// kstatus: abnormal when True, absent otherwise.
const (
	// ReadyCondition is True when the object is in the state its spec asks for.
	ReadyCondition = "Ready"
	// ReconcilingCondition is True while Corral works towards the spec.
	ReconcilingCondition = "Reconciling"
	// StalledCondition is True when no retry will help until something outside
	// changes: the spec, the revision, a Secret, a setting on GitHub.
	StalledCondition = "Stalled"
	// TemplateValidCondition is on a RunnerPool: the API server accepts the pod of
	// the current revision (a dry run, once per revision).
	TemplateValidCondition = "TemplateValid"
	// HealthyCondition is on a RunnerPool: False while its runners fail one after another for a cause that another attempt does not fix, or
	// while nodes, users or other controllers end its runners before they work.
	HealthyCondition = "Healthy"
	// PolicyCondition is on a RunnerPool: policies allow its template and decided its limits.
	PolicyCondition = "PolicyAllowed"
	// UpdatedCondition is on a RunnerPool: True if all replaceable runners have the template of its spec.
	UpdatedCondition = "Updated"
	// RunnerVersionCondition is on a RunnerPool: False when GitHub may refuse its runners within 14 days, as their version is old; Unknown
	// while GitHub doesn't tell.
	RunnerVersionCondition = "RunnerVersionSupported"
	// SaturatedCondition is on a RunnerPool: True while it has as many jobs as max allows, and more wait; Unknown until jobs are counted.
	SaturatedCondition = "Saturated"
	// DrainableCondition is on a RunnerPool: False while another PodDisruptionBudget selects its runners with a job, so that drains of their
	// nodes fail.
	DrainableCondition = "Drainable"
	// ListeningCondition is on a RunnerScaleSet: a message session is open and was polled.
	ListeningCondition = "Listening"
	// LabelsAcceptedCondition is on a RunnerScaleSet: GitHub read back the labels we set.
	LabelsAcceptedCondition = "LabelsAccepted"
)

// Reasons of conditions and events. They are part of the API: change them as you
// would change a field.
const (
	// SucceededReason is true when everything asked for was done.
	SucceededReason = "Succeeded"
	// ProgressingReason is true while Corral still works on it.
	ProgressingReason = "Progressing"
	// ProgressingWithRetryReason is true when the last attempt failed and another follows.
	ProgressingWithRetryReason = "ProgressingWithRetry"
	// SuspendedReason is true when spec.stopPolicy of a pool, spec.verification of a connection or spec.suspend of a source stopped the
	// object.
	SuspendedReason = "Suspended"
	// InvalidSpecReason is true when the spec can't be acted on as it stands.
	InvalidSpecReason = "InvalidSpec"

	// ConnectionNotReadyReason is true when the GitHubConnection is absent or not Ready.
	ConnectionNotReadyReason = "ConnectionNotReady"
	// CredentialsMissingReason is true when the Secret or the mounted folder, or a key in it, is absent.
	CredentialsMissingReason = "CredentialsMissing"
	// WebhookSecretMissingReason is true when the Secret of spec.webhook, or the key in it, is absent. The connection serves its
	// pools; GitHub's events are refused.
	WebhookSecretMissingReason = "WebhookSecretMissing"
	// CredentialsRefusedReason is true when GitHub answers 401 to the credentials.
	CredentialsRefusedReason = "CredentialsRefused"
	// PermissionMissingReason is true when the credentials are valid but have too few permissions. The message names the missing one.
	PermissionMissingReason = "PermissionMissing"
	// ScopeNotFoundReason is true when the organization, repository or enterprise isn't there or isn't visible.
	ScopeNotFoundReason = "ScopeNotFound"
	// GitHubUnavailableReason is true when GitHub can't be reached or answers 5xx or 429.
	GitHubUnavailableReason = "GitHubUnavailable"

	// RunnerGroupNotFoundReason is true when spec.runnerGroup names no group that the connection sees.
	RunnerGroupNotFoundReason = "RunnerGroupNotFound"
	// OwnedElsewhereReason is true when another cluster or pool holds the scale set's session.
	OwnedElsewhereReason = "OwnedElsewhere"
	// SessionRefusedReason is true while a stale session of our own blocks a new one (60 to 92 s after a crash).
	SessionRefusedReason = "SessionRefused"
	// LabelsDroppedReason is true when GitHub read back fewer labels than we set (GHES before 3.21).
	LabelsDroppedReason = "LabelsDropped"
	// DisruptionBudgetsReason is true when another PodDisruptionBudget selects runners that have a job.
	DisruptionBudgetsReason = "DisruptionBudgets"
	// NoOtherBudgetsReason is true when no other PodDisruptionBudget selects runners that have a job.
	NoOtherBudgetsReason = "NoOtherBudgets"
	// WithinMaxReason is true while no job waits because of a pool's max.
	WithinMaxReason = "WithinMax"
	// MaxReachedReason is true while jobs wait because a pool has as many as its max allows.
	MaxReachedReason = "MaxReached"
	// LabelsKeptReason is true when GitHub keeps labels that a pool no longer declares: it does not change the labels of a scale set.
	LabelsKeptReason = "LabelsKept"
	// DrainingReason is true while runners end before something is deleted.
	DrainingReason = "Draining"
	// DeletionRefusedReason is true while the API server refuses to delete a Runner that has ended or that the pool does not need.
	DeletionRefusedReason = "DeletionRefused"
	// TemplateInvalidReason is true when the pod template can't be decoded or the API server refuses the pod.
	TemplateInvalidReason = "TemplateInvalid"
	// RunnerRefusedReason is true while the API server refuses to create the Runners of a pool, for a reason other than a quota.
	RunnerRefusedReason = "RunnerRefused"
	// SecretRefusedReason is true while the API server refuses the Secret of a runner's registration.
	SecretRefusedReason = "SecretRefused"
	// ServiceAccountMissingReason is true while the ServiceAccount isn't there that a pool's pods name.
	ServiceAccountMissingReason = "ServiceAccountMissing"
	// QuotaExceededReason is true while a ResourceQuota of the namespace admits no more pods, Secrets or Runners.
	QuotaExceededReason = "QuotaExceeded"
	// CacheUnavailableReason is true while runners wait for a claim of their pool's cache.
	CacheUnavailableReason = "CacheUnavailable"
	// VersionUnknownReason is true while it is not known how long GitHub takes the runners' version.
	VersionUnknownReason = "VersionUnknown"
	// RunnerOutdatedReason is true when the runner program in a pool's image has to be updated.
	RunnerOutdatedReason = "RunnerOutdated"
	// RunnersFailingReason is true while a pool's runners fail one after the other; the
	// message names the cause, and one runner is tried now and then.
	RunnersFailingReason = "RunnersFailing"
	// NodesFailingReason is true while nodes refuse or end a pool's runners one after the other; the message names the nodes and has the last
	// reason. The pool's template is not blamed. While round after round fails, the pool is not ready, and fewer jobs are accepted.
	NodesFailingReason = "NodesFailing"
	// PodsDeletedReason is true while a user or another controller deletes or evicts the pods of a pool's runners one after the other, as for
	// NodesFailing. Kubernetes does not record who it is.
	PodsDeletedReason = "PodsDeleted"

	// PolicyPendingReason is true until policies have decided for a pool once: it starts and announces nothing.
	PolicyPendingReason = "PolicyPending"
	// PolicyDeniedReason is true when a policy denies the template; the message names the rule and what to change.
	PolicyDeniedReason = "PolicyDenied"
	// PolicyFailedReason is true while a policy can't be asked: its last decision stays in force.
	PolicyFailedReason = "PolicyFailed"
	// PolicyInvalidReason is true when a policy can't be loaded; status.diagnostics says where and why.
	PolicyInvalidReason = "PolicyInvalid"
	// RolledBackReason is true when the runners of a new template failed and the previous template is in force again.
	RolledBackReason = "RolledBack"
	// UpdateHeldReason is true while a policy, or spec.update.paused, holds an update.
	UpdateHeldReason = "UpdateHeld"

	// AccessDeniedReason is true when an object refers to another object that it may not use, or a service account has too few permissions.
	AccessDeniedReason = "AccessDenied"
	// DependencyNotReadyReason is true while a source that another one depends on is not ready, or has not applied what it holds now.
	DependencyNotReadyReason = "DependencyNotReady"
	// ArtifactFailedReason is true when a source's files can't be fetched.
	ArtifactFailedReason = "ArtifactFailed"
	// VerificationFailedReason is true when no key of spec.git.verify signed a revision.
	VerificationFailedReason = "VerificationFailed"
	// CommitStatusFailedReason is of an event: Corral could not report the outcome of a revision to GitHub (spec.commitStatus). status.commitStatus has
	// the cause while it lasts.
	CommitStatusFailedReason = "CommitStatusFailed"
	// BuildFailedReason is true when a revision doesn't compile; the message has file:line:col.
	BuildFailedReason = "BuildFailed"
	// ApplyFailedReason is true when the API server refuses a compiled object.
	ApplyFailedReason = "ApplyFailed"
	// PruneRefusedReason is true when removing what left the source would end too many pools.
	PruneRefusedReason = "PruneRefused"
	// PruneFailedReason is true when an object that left the source can't be deleted.
	PruneFailedReason = "PruneFailed"
)

// Labels and annotations Corral sets on objects it makes, or reads on objects users make.
const (
	// PoolLabel names the RunnerPool a Runner, Secret, Pod or ControllerRevision belongs to.
	PoolLabel = "corral.dev/pool"
	// RunnerLabel names the Runner a Pod or Secret belongs to.
	RunnerLabel = "corral.dev/runner"
	// RunnerUIDAnnotation on a Pod is the UID of its Runner, which deletes it.
	RunnerUIDAnnotation = "corral.dev/runner-uid"
	// ObjectMetadataAnnotation on a RunnerScaleSet lists the keys that it has by spec.objectMetadata of its pool.
	ObjectMetadataAnnotation = "corral.dev/object-metadata"
	// RunnerIDAnnotation on a Pod is the id of its runner's registration on GitHub.
	RunnerIDAnnotation = "corral.dev/runner-id"
	// RevisionLabel names the ControllerRevision (template revision) of a Runner and its Pod.
	RevisionLabel = "corral.dev/revision"
	// TemplateDigestAnnotation on a ControllerRevision is the SHA-256 of its template. The name has only its first ten digits. It is for
	// readers; Corral does not trust it.
	TemplateDigestAnnotation = "corral.dev/template-digest"
	// SourceLabel names the PoolSource that applied an object.
	SourceLabel = "corral.dev/source"
	// RetryAnnotation on a RunnerPool: a new value ends its back-off after failures, and tries an update again that was rolled back.
	RetryAnnotation = "corral.dev/retry"
	// KeptUntilAnnotation on the pod of a runner that failed is when the pod is deleted (spec.failedPodTTL).
	KeptUntilAnnotation = "corral.dev/kept-until"
	// TerminateAnnotation on a Runner ends it although it may have a job; its value is the reason.
	TerminateAnnotation = "corral.dev/terminate"
	// AllowPruneAnnotation on a PoolSource allows one revision to remove more pools
	// than the safety limit; its value is that revision.
	AllowPruneAnnotation = "corral.dev/allow-prune"
	// DeletionPolicyAnnotation on a GitHubConnection is Delete if it is to be deleted once its PoolSource is gone and nothing
	// needs it any more.
	DeletionPolicyAnnotation = "corral.dev/deletion-policy"
	// JobRepositoryLabel, JobRunIDLabel and JobIDLabel are put on a Pod when its runner starts a job.
	JobRepositoryLabel = "corral.dev/job-repository"
	// JobRunIDLabel is the workflow run's id.
	JobRunIDLabel = "corral.dev/job-run-id"
	// JobIDLabel is the job's id.
	JobIDLabel = "corral.dev/job-id"
	// JobAnnotation is the whole job identity as JSON (JobReference) on a Pod.
	JobAnnotation = "corral.dev/job"
)

// Finalizers, only on objects Corral makes itself.
const (
	// RunnerFinalizer holds a Runner until GitHub no longer knows it and its Pod is gone.
	RunnerFinalizer = "corral.dev/deregister"
	// ScaleSetFinalizer holds a RunnerScaleSet until GitHub no longer knows it.
	ScaleSetFinalizer = "corral.dev/delete-scale-set"
)

// RunnerContainerName is the container of a pod template that runs the runner, as in ARC.
const RunnerContainerName = "runner"
