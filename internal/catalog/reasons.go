// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// ThenRetry ends a remedy for a pool whose runners fail.
	ThenRetry = " If the fix is outside spec.template, change the pool's annotation corral.dev/retry to retry now. Otherwise Corral retries one runner periodically and resumes when one succeeds."
	// RevisionRunsOn ends a remedy for a source whose current revision Corral cannot apply.
	RevisionRunsOn = " The last good revision stays in force."
	// LastHolds ends a remedy for a policy that cannot be evaluated.
	LastHolds = " Its pools keep the last decision."
)

// fine lists the reasons that report no problem. They have neither a title nor a remedy.
var fine = []string{v1alpha1.SucceededReason, v1alpha1.WithinMaxReason, v1alpha1.NoOtherBudgetsReason, v1alpha1.VersionUnknownReason}

// IsFine reports whether a reason reports no problem.
func IsFine(reason string) bool { return slices.Contains(fine, reason) }

// Rows for the reasons of the API. They are the defaults for causes with that reason.
var (
	Succeeded      = define(Row{Code: v1alpha1.SucceededReason})
	WithinMax      = define(Row{Code: v1alpha1.WithinMaxReason})
	NoOtherBudgets = define(Row{Code: v1alpha1.NoOtherBudgetsReason})
	VersionUnknown = define(Row{Code: v1alpha1.VersionUnknownReason})
	Progressing    = define(Row{Code: v1alpha1.ProgressingReason, Severity: Warning, Title: "in progress for a long time", Grace: 10 * time.Minute, Early: "in progress",
		Remedy: "Wait. If this persists, check the controller's log.",
	})
	ProgressingWithRetry = define(Row{Code: v1alpha1.ProgressingWithRetryReason, Severity: Warning, Title: "an attempt failed", Grace: time.Minute,
		Remedy: "Check the message. Corral retries with increasing delays.",
	})
	Suspended = define(Row{Code: v1alpha1.SuspendedReason, Severity: Note, Title: "suspended",
		Remedy: "Set spec.stopPolicy to None, so that the pool accepts jobs again.",
		Remedies: map[string]string{
			"PoolSource":       "Set spec.suspend to false to resume. The objects that Corral applied stay in force.",
			"GitHubConnection": "Set spec.verification to Active once, so that Corral verifies the credentials.",
		},
	})
	InvalidSpec = define(Row{Code: v1alpha1.InvalidSpecReason, Stalls: true, Severity: Error, Title: "the spec is invalid",
		Remedy: "Correct the fields of spec that the message names.",
		Remedies: map[string]string{
			"PoolSource":       "Correct the fields of the source's spec that the message names.",
			"GitHubConnection": "Correct the part of the connection's spec, credentials or proxy that the message names.",
			"RunnerScaleSet":   "Delete the RunnerScaleSet. It was created manually. Corral creates the ones that it needs.",
			"Runner":           deleteRunner,
		},
	})
	ConnectionNotReady = define(Row{Code: v1alpha1.ConnectionNotReadyReason, Severity: Error, Title: "a connection is not ready",
		Remedy: "Correct the GitHubConnection that the message names. Corral checks it every minute.",
	})
	CredentialsMissing = define(Row{Code: v1alpha1.CredentialsMissingReason, Stalls: true, Severity: Error, Title: "credentials are missing",
		Remedy:   "Create the Secret, folder or key that the message names.",
		Remedies: map[string]string{"PoolSource": "Create the Secret or the keys that the message names."},
	})
	WebhookSecretMissing = define(Row{Code: v1alpha1.WebhookSecretMissingReason, Stalls: true, Severity: Warning, Title: "Corral refuses GitHub's events",
		Remedy: "Create the Secret that spec.webhook.secretRef names, with the webhook's secret under the key secret. Until then, Corral refuses GitHub's events.",
	})
	CredentialsRefused = define(Row{Code: v1alpha1.CredentialsRefusedReason, Stalls: true, Severity: Error, Title: "GitHub refuses the credentials",
		Remedy: "Put valid credentials into the connection's Secret.",
	})
	PermissionMissing = define(Row{Code: v1alpha1.PermissionMissingReason, Stalls: true, Severity: Error, Title: "the credentials have too few permissions",
		Remedy: "Grant the GitHub App or the token the permission that the message names.",
	})
	ScopeNotFound = define(Row{Code: v1alpha1.ScopeNotFoundReason, Stalls: true, Severity: Error, Title: "the organization, repository or enterprise was not found on GitHub",
		Remedy: "Create another GitHubConnection with the correct spec.url, or give the GitHub App or token access to the organization, repository or enterprise.",
	})
	GitHubUnavailable = define(Row{Code: v1alpha1.GitHubUnavailableReason, Message: "{detail}{nextBy}", Severity: Error, Title: "GitHub is unavailable",
		Remedy: "Wait: Corral keeps retrying. Editing the connection helps only if the controller cannot connect to GitHub at all.",
	})
	RunnerGroupNotFound = define(Row{Code: v1alpha1.RunnerGroupNotFoundReason, Stalls: true, Severity: Error, Title: "the runner group was not found",
		Remedy: "Create the runner group on GitHub, give the connection access to it, or correct spec.runnerGroup.",
	})
	OwnedElsewhere = define(Row{Code: v1alpha1.OwnedElsewhereReason, Stalls: true, Severity: Error, Title: "another owner uses the scale set",
		Remedy: "Use another spec.scaleSetName, or stop the process that owns the scale set. Corral keeps retrying.",
	})
	SessionRefused = define(Row{Code: v1alpha1.SessionRefusedReason, Severity: Warning, Title: "an earlier session has not expired", Grace: 2 * time.Minute,
		Remedy: "Wait: a session that was not closed expires within 92 s.",
	})
	LabelsDropped = define(Row{Code: v1alpha1.LabelsDroppedReason, Severity: Warning, Title: "GitHub kept fewer labels",
		Remedy: "Use only one label for the pool, or update GitHub Enterprise Server to 3.21 or later.",
	})
	DisruptionBudgets = define(Row{Code: v1alpha1.DisruptionBudgetsReason, Severity: Warning, Title: "a second PodDisruptionBudget makes node drains fail",
		Remedy: "Exclude pods with the label corral.dev/job-id from your PodDisruptionBudget.",
	})
	MaxReached = define(Row{Code: v1alpha1.MaxReachedReason, Severity: Warning, Title: "the pool is full and jobs wait",
		Remedy: "Raise max in spec.scale, in a schedule or in a policy, or wait. corral explain pool/NAME shows which max applies.",
	})
	LabelsKept = define(Row{Code: v1alpha1.LabelsKeptReason, Severity: Warning, Title: "GitHub keeps the previous labels",
		Remedy: "Delete the pool and create it again, or use another scale set name for the new labels.",
	})
	Draining = define(Row{Code: v1alpha1.DrainingReason, Severity: Note, Title: "being deleted",
		Remedy: "Wait until its runners finish their jobs.",
	})
	DeletionRefused = define(Row{Code: v1alpha1.DeletionRefusedReason, Severity: Warning, Title: "the API server refuses to delete runners",
		Remedy: "Change the policy, webhook or permission that the message names, so that Corral can delete Runners.",
	})
	TemplateInvalid = define(Row{Code: v1alpha1.TemplateInvalidReason, Stalls: true, Severity: Error, Title: "the pod template is invalid",
		Remedy: "Correct the field of spec.template that the message names.",
	})
	RunnerRefused = define(Row{Code: v1alpha1.RunnerRefusedReason, Severity: Error, Title: "the API server refuses new runners",
		Remedy: "Allow Corral to create Runners in the namespace. The message names what refuses them.",
	})
	SecretRefused = define(Row{Code: v1alpha1.SecretRefusedReason, Severity: Error, Title: "the API server refuses registration Secrets",
		Remedy: "Allow Corral to create Secrets in the namespace. The message names what refuses them.",
	})
	ServiceAccountMissing = define(Row{Code: v1alpha1.ServiceAccountMissingReason, Severity: Error, Title: "a ServiceAccount is missing",
		Remedy: "Create the ServiceAccount, or use another one in spec.template.spec.serviceAccountName.",
	})
	QuotaExceeded = define(Row{Code: v1alpha1.QuotaExceededReason, Severity: Error, Title: "the quota allows no more runners",
		Remedy: "Raise the namespace's ResourceQuota or lower spec.scale.max.",
	})
	CacheUnavailable = define(Row{Code: v1alpha1.CacheUnavailableReason, Severity: Error, Title: "runners wait for a cache",
		Remedy: "Raise spec.cache.maxClaims, or set spec.cache.onMissing to StartWithout.",
	})
	RunnerOutdated = define(Row{Code: v1alpha1.RunnerOutdatedReason, Severity: Warning, Title: "GitHub may refuse the runners' version",
		Remedy: "Update the runner in the pool's image.",
	})
	RunnersFailing = define(Row{Code: v1alpha1.RunnersFailingReason, Severity: Error, Title: "runners fail",
		Remedy: "Fix the cause of the failures." + ThenRetry,
	})
	NodesFailing = define(Row{Code: v1alpha1.NodesFailingReason, Severity: Warning, Title: "nodes refuse or stop runners",
		Remedy: "Check the nodes that the message names: kubectl describe node NODE. If no node can run the pods, change the requirements in spec.template." + ThenRetry,
	})
	PodsDeleted = define(Row{Code: v1alpha1.PodsDeletedReason, Severity: Warning, Title: "a user or another controller deletes the pods of runners",
		Remedy: "Check the API server's audit log for the user that deletes the pods. Exclude pods with the label corral.dev/pool from deschedulers and cleanup jobs." + ThenRetry,
	})
	PolicyPending = define(Row{Code: v1alpha1.PolicyPendingReason, Severity: Error, Title: "a pool has no policy decision yet",
		Remedy: "Fix the policies that fail. The pool starts no runners and accepts no jobs until each policy has returned a decision.",
	})
	PolicyDenied = define(Row{Code: v1alpha1.PolicyDeniedReason, Stalls: true, Severity: Error, Title: "policies deny the pod template",
		Remedy: "Change spec.template as the message says, or ask the policy's owner to allow it.",
	})
	PolicyFailed = define(Row{Code: v1alpha1.PolicyFailedReason, Severity: Warning, Title: "policies fail, so their last decision applies",
		Remedy: "Fix the policies that fail. Until then, the last limits apply.",
	})
	PolicyInvalid = define(Row{Code: v1alpha1.PolicyInvalidReason, Stalls: true, Severity: Warning, Title: "a policy cannot be loaded",
		Remedy: "Correct the policy at the location that the message names. status.diagnostics lists all errors.", Meanwhile: LastHolds,
	})
	RolledBack = define(Row{Code: v1alpha1.RolledBackReason, Stalls: true, Severity: Warning, Title: "an update was rolled back",
		Remedy: "Change spec.template, or change the pool's annotation corral.dev/retry to try again. Runners of the new template failed, so Corral went back to the previous one.",
	})
	UpdateHeld = define(Row{Code: v1alpha1.UpdateHeldReason, Severity: Note, Title: "an update is on hold",
		Remedy: "Set spec.update.paused to false, or change the policy that holds the update.",
	})
	AccessDenied = define(Row{Code: v1alpha1.AccessDeniedReason, Stalls: true, Severity: Error, Title: "access to a referenced object is denied",
		Remedies: map[string]string{"PoolSource": "Grant the source's ServiceAccount the permission that the message names, or refer to an object in the source's own namespace."},
		Remedy:   "Ask the owner of the GitHubConnection to add the pool's namespace to spec.allowedNamespaces, or use another GitHubConnection in spec.connectionRef.",
	})
	DependencyNotReady = define(Row{Code: v1alpha1.DependencyNotReadyReason, Severity: Warning, Title: "a source waits for another source", Grace: time.Minute,
		Remedy: "Fix the source in spec.dependsOn that the message names.",
	})
	ArtifactFailed = define(Row{Code: v1alpha1.ArtifactFailedReason, Severity: Warning, Title: "definitions cannot be fetched",
		Remedy: "Check the server that the message names, and the source's URL, reference, credentials and size.", Meanwhile: RevisionRunsOn,
	})
	VerificationFailed = define(Row{Code: v1alpha1.VerificationFailedReason, Stalls: true, Severity: Warning, Title: "the revision has no valid signature",
		Remedy: "Sign the revision with a key in spec.git.verify and push it again.", Meanwhile: RevisionRunsOn,
	})
	CommitStatusFailed = define(Row{Code: v1alpha1.CommitStatusFailedReason, Severity: Warning, Title: "GitHub does not show the result of a revision",
		Remedy: "Grant the connection in spec.commitStatus permission to write commit statuses and check runs.",
	})
	BuildFailed = define(Row{Code: v1alpha1.BuildFailedReason, Stalls: true, Severity: Warning, Title: "definitions do not compile",
		Remedy: "Correct the definitions at the location that the message names, and push the change.", Meanwhile: RevisionRunsOn,
	})
	ApplyFailed = define(Row{Code: v1alpha1.ApplyFailedReason, Stalls: true, Severity: Warning, Title: "definitions cannot be applied",
		Remedy: "Correct the object that the message names, and push the change.", Meanwhile: RevisionRunsOn,
	})
	PruneRefused = define(Row{Code: v1alpha1.PruneRefusedReason, Stalls: true, Severity: Warning, Title: "a revision would remove too many pools",
		Remedy: "Restore the pools in the source, or correct the source's spec.path.",
	})
	PruneFailed = define(Row{Code: v1alpha1.PruneFailedReason, Severity: Warning, Title: "an object that was removed from its source cannot be deleted",
		Remedy: "Fix the problem that prevents the deletion of the object that the message names.",
	})
)
