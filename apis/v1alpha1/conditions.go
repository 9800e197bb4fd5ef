// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types. Ready is always present; Reconciling and Stalled follow
// kstatus: abnormal when True, absent otherwise.
const (
	// ReadyCondition is True when the object is in the state that its spec describes.
	ReadyCondition = "Ready"
	// ReconcilingCondition is True while Corral works towards the spec.
	ReconcilingCondition = "Reconciling"
	// StalledCondition is True when no retry helps until something changes: the spec, the revision, a Secret, or a setting
	// on GitHub.
	StalledCondition = "Stalled"
	// TemplateValidCondition of a RunnerPool is True if the API server accepts the pod of the current revision, according to
	// one dry run per revision.
	TemplateValidCondition = "TemplateValid"
	// HealthyCondition of a RunnerPool is False while its runners fail one after another for a cause that another attempt
	// does not fix, or while nodes, users or other controllers stop its runners before they work.
	HealthyCondition = "Healthy"
	// PolicyCondition of a RunnerPool is True if policies allow its template and decided its limits.
	PolicyCondition = "PolicyAllowed"
	// UpdatedCondition of a RunnerPool is True if all replaceable runners have the template of its spec.
	UpdatedCondition = "Updated"
	// RunnerVersionCondition of a RunnerPool is False if GitHub may refuse its runners within 14 days because of their
	// version. It is Unknown while GitHub does not report the version.
	RunnerVersionCondition = "RunnerVersionSupported"
	// SaturatedCondition of a RunnerPool is True while it has as many jobs as max allows and more jobs wait. It is Unknown
	// until jobs were counted.
	SaturatedCondition = "Saturated"
	// DrainableCondition of a RunnerPool is False while another PodDisruptionBudget selects its runners with a job, so that
	// drains of their nodes fail.
	DrainableCondition = "Drainable"
	// ListeningCondition of a RunnerScaleSet is True if a message session is open and was polled.
	ListeningCondition = "Listening"
	// LabelsAcceptedCondition of a RunnerScaleSet is True if GitHub has all labels that Corral set.
	LabelsAcceptedCondition = "LabelsAccepted"
)

// Reasons of conditions and events. They are part of the API, so changing them is a breaking change.
const (
	// SucceededReason is used when the spec has been applied completely.
	SucceededReason = "Succeeded"
	// ProgressingReason is used while Corral works towards the spec.
	ProgressingReason = "Progressing"
	// ProgressingWithRetryReason is used when the last attempt failed and Corral will retry.
	ProgressingWithRetryReason = "ProgressingWithRetry"
	// SuspendedReason is used when spec.stopPolicy of a pool, spec.verification of a connection or spec.suspend of a source
	// stopped the object.
	SuspendedReason = "Suspended"
	// InvalidSpecReason is used when the spec cannot be applied.
	InvalidSpecReason = "InvalidSpec"

	// ConnectionNotReadyReason is used when the GitHubConnection does not exist or is not Ready.
	ConnectionNotReadyReason = "ConnectionNotReady"
	// CredentialsMissingReason is used when the Secret or the mounted folder, or one of its keys, does not exist.
	CredentialsMissingReason = "CredentialsMissing"
	// WebhookSecretMissingReason is used when the Secret of spec.webhook, or its key, does not exist. The connection serves
	// its pools, but Corral refuses GitHub's events.
	WebhookSecretMissingReason = "WebhookSecretMissing"
	// CredentialsRefusedReason is used when GitHub answers 401 to the credentials.
	CredentialsRefusedReason = "CredentialsRefused"
	// PermissionMissingReason is used when the credentials are valid but a permission is missing. The message names it.
	PermissionMissingReason = "PermissionMissing"
	// ScopeNotFoundReason is used when the organization, repository or enterprise does not exist or is not visible.
	ScopeNotFoundReason = "ScopeNotFound"
	// GitHubUnavailableReason is used when GitHub does not answer, or answers 5xx or 429.
	GitHubUnavailableReason = "GitHubUnavailable"

	// RunnerGroupNotFoundReason is used when the connection cannot see the group of spec.runnerGroup.
	RunnerGroupNotFoundReason = "RunnerGroupNotFound"
	// OwnedElsewhereReason is used when another cluster or pool holds the scale set's session.
	OwnedElsewhereReason = "OwnedElsewhere"
	// SessionRefusedReason is used while a stale session of the same pool blocks a new one, for 60 to 92 s after a crash.
	SessionRefusedReason = "SessionRefused"
	// LabelsDroppedReason is used when GitHub stored fewer labels than Corral set (GHES before 3.21).
	LabelsDroppedReason = "LabelsDropped"
	// DisruptionBudgetsReason is used when another PodDisruptionBudget selects runners that have a job.
	DisruptionBudgetsReason = "DisruptionBudgets"
	// NoOtherBudgetsReason is used when no other PodDisruptionBudget selects runners that have a job.
	NoOtherBudgetsReason = "NoOtherBudgets"
	// WithinMaxReason is used while no job waits because of a pool's max.
	WithinMaxReason = "WithinMax"
	// MaxReachedReason is used while jobs wait because a pool has as many jobs as its max allows.
	MaxReachedReason = "MaxReached"
	// LabelsKeptReason is used when GitHub keeps labels that a pool no longer declares, because GitHub does not change the
	// labels of a scale set.
	LabelsKeptReason = "LabelsKept"
	// DrainingReason is used while runners finish before an object is deleted.
	DrainingReason = "Draining"
	// DeletionRefusedReason is used while the API server refuses to delete a Runner that has ended or that the pool does not
	// need.
	DeletionRefusedReason = "DeletionRefused"
	// TemplateInvalidReason is used when the pod template cannot be decoded or the API server refuses the pod.
	TemplateInvalidReason = "TemplateInvalid"
	// RunnerRefusedReason is used while the API server refuses to create the Runners of a pool, for a reason other than a
	// quota.
	RunnerRefusedReason = "RunnerRefused"
	// SecretRefusedReason is used while the API server refuses the Secret of a runner's registration.
	SecretRefusedReason = "SecretRefused"
	// ServiceAccountMissingReason is used while the ServiceAccount of a pool's pods does not exist.
	ServiceAccountMissingReason = "ServiceAccountMissing"
	// QuotaExceededReason is used while a ResourceQuota of the namespace admits no more pods, Secrets or Runners.
	QuotaExceededReason = "QuotaExceeded"
	// CacheUnavailableReason is used while runners wait for a claim of their pool's cache.
	CacheUnavailableReason = "CacheUnavailable"
	// VersionUnknownReason is used while it is unknown how long GitHub will accept the runners' version.
	VersionUnknownReason = "VersionUnknown"
	// RunnerOutdatedReason is used when the runner program in a pool's image must be updated.
	RunnerOutdatedReason = "RunnerOutdated"
	// RunnersFailingReason is used while a pool's runners fail one after the other. The message names the cause. Corral
	// retries one runner periodically.
	RunnersFailingReason = "RunnersFailing"
	// NodesFailingReason is used while nodes refuse or stop a pool's runners one after the other. The message names the
	// nodes and the last reason. The pool's template is not at fault. While all runners of consecutive rounds fail, the pool
	// is not ready and accepts fewer jobs.
	NodesFailingReason = "NodesFailing"
	// PodsDeletedReason is used while a user or another controller deletes or evicts the pods of a pool's runners one after
	// the other. The effect is the same as for NodesFailing. Kubernetes does not record who deletes them.
	PodsDeletedReason = "PodsDeleted"

	// PolicyPendingReason is used until policies have decided about a pool once. Until then the pool starts and announces
	// nothing.
	PolicyPendingReason = "PolicyPending"
	// PolicyDeniedReason is used when a policy denies the template. The message names the rule and what to change.
	PolicyDeniedReason = "PolicyDenied"
	// PolicyFailedReason is used while a policy cannot be evaluated. Its last decision stays in force.
	PolicyFailedReason = "PolicyFailed"
	// PolicyInvalidReason is used when a policy cannot be loaded. status.diagnostics contains the place and the reason.
	PolicyInvalidReason = "PolicyInvalid"
	// RolledBackReason is used when the runners of a new template failed and the previous template is in force again.
	RolledBackReason = "RolledBack"
	// UpdateHeldReason is used while a policy, or spec.update.paused, holds an update.
	UpdateHeldReason = "UpdateHeld"

	// AccessDeniedReason is used when an object refers to another object that it may not use, or a service account has too
	// few permissions.
	AccessDeniedReason = "AccessDenied"
	// DependencyNotReadyReason is used while a source in spec.dependsOn is not ready, or has not applied its current
	// revision.
	DependencyNotReadyReason = "DependencyNotReady"
	// ArtifactFailedReason is used when a source's files cannot be fetched.
	ArtifactFailedReason = "ArtifactFailed"
	// VerificationFailedReason is used when no key of spec.git.verify signed a revision.
	VerificationFailedReason = "VerificationFailed"
	// CommitStatusFailedReason is used for an event: Corral could not report the outcome of a revision to GitHub
	// (spec.commitStatus). status.commitStatus has the cause while the problem lasts.
	CommitStatusFailedReason = "CommitStatusFailed"
	// BuildFailedReason is used when a revision does not compile. The message has file:line:col.
	BuildFailedReason = "BuildFailed"
	// ApplyFailedReason is used when the API server refuses a compiled object.
	ApplyFailedReason = "ApplyFailed"
	// PruneRefusedReason is used when a revision would remove too many pools.
	PruneRefusedReason = "PruneRefused"
	// PruneFailedReason is used when an object that the source no longer contains cannot be deleted.
	PruneFailedReason = "PruneFailed"
)

// Labels and annotations that Corral sets on objects that it creates, or reads from objects that users create.
const (
	// PoolLabel names the RunnerPool to which a Runner, Secret, Pod or ControllerRevision belongs.
	PoolLabel = "corral.dev/pool"
	// RunnerLabel names the Runner to which a Pod or Secret belongs.
	RunnerLabel = "corral.dev/runner"
	// RunnerUIDAnnotation on a Pod is the UID of its Runner, which deletes it.
	RunnerUIDAnnotation = "corral.dev/runner-uid"
	// ObjectMetadataAnnotation on a RunnerScaleSet lists the keys that come from spec.objectMetadata of its pool.
	ObjectMetadataAnnotation = "corral.dev/object-metadata"
	// RunnerIDAnnotation on a Pod is the id of its runner's registration on GitHub.
	RunnerIDAnnotation = "corral.dev/runner-id"
	// RevisionLabel names the ControllerRevision (template revision) of a Runner and its Pod.
	RevisionLabel = "corral.dev/revision"
	// TemplateDigestAnnotation on a ControllerRevision is the SHA-256 of its template, because the name has only the first
	// ten digits. It is informational; Corral does not trust it.
	TemplateDigestAnnotation = "corral.dev/template-digest"
	// SourceLabel names the PoolSource that applied an object.
	SourceLabel = "corral.dev/source"
	// RetryAnnotation on a RunnerPool: a new value ends the back-off after failures, and restarts an update that was rolled
	// back.
	RetryAnnotation = "corral.dev/retry"
	// KeptUntilAnnotation on the pod of a failed runner is the time at which Corral deletes the pod (spec.failedPodTTL).
	KeptUntilAnnotation = "corral.dev/kept-until"
	// TerminateAnnotation on a Runner stops it even if it has a job. Its value is the reason.
	TerminateAnnotation = "corral.dev/terminate"
	// AllowPruneAnnotation on a PoolSource allows one revision to remove more pools than the safety limit. Its value is that
	// revision.
	AllowPruneAnnotation = "corral.dev/allow-prune"
	// DeletionPolicyAnnotation on a GitHubConnection is Delete if Corral deletes the connection once its PoolSource was
	// deleted and no object needs it.
	DeletionPolicyAnnotation = "corral.dev/deletion-policy"
	// JobRepositoryLabel, JobRunIDLabel and JobIDLabel are set on a Pod when its runner starts a job.
	JobRepositoryLabel = "corral.dev/job-repository"
	// JobRunIDLabel is the id of the workflow run.
	JobRunIDLabel = "corral.dev/job-run-id"
	// JobIDLabel is the id of the job.
	JobIDLabel = "corral.dev/job-id"
	// JobAnnotation on a Pod is the complete job identity as JSON (JobReference).
	JobAnnotation = "corral.dev/job"
)

// Finalizers, only on objects that Corral creates itself.
const (
	// RunnerFinalizer keeps a Runner until GitHub no longer has its registration and its Pod is gone.
	RunnerFinalizer = "corral.dev/deregister"
	// ScaleSetFinalizer keeps a RunnerScaleSet until GitHub no longer has the scale set.
	ScaleSetFinalizer = "corral.dev/delete-scale-set"
)

// RunnerContainerName is the name of the container that runs the runner in a pod template, as in ARC.
const RunnerContainerName = "runner"
