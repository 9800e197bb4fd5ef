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
	ThenRetry = " After a mend outside spec.template, give the pool's annotation corral.dev/retry another value; without it one is tried from time to time, and the first that works lets the pool go on."
	// RevisionRunsOn ends a remedy for a source that applied a revision before.
	RevisionRunsOn = " The last good revision runs on."
	// LastHolds ends a remedy for a policy that can't be asked.
	LastHolds = " Its pools keep what was decided last."
)

// fine are the reasons that report no problem. They have neither a title nor a remedy.
var fine = []string{v1alpha1.SucceededReason, v1alpha1.WithinMaxReason, v1alpha1.NoOtherBudgetsReason, v1alpha1.VersionUnknownReason}

// IsFine reports whether a reason reports no problem.
func IsFine(reason string) bool { return slices.Contains(fine, reason) }

// Rows of the reasons of the API: what holds for each cause with that reason whose own row does not differ.
var (
	Succeeded      = define(Row{Code: v1alpha1.SucceededReason})
	WithinMax      = define(Row{Code: v1alpha1.WithinMaxReason})
	NoOtherBudgets = define(Row{Code: v1alpha1.NoOtherBudgetsReason})
	VersionUnknown = define(Row{Code: v1alpha1.VersionUnknownReason})
	Progressing    = define(Row{Code: v1alpha1.ProgressingReason, Severity: Warning, Title: "under way for long", Grace: 10 * time.Minute, Early: "under way",
		Remedy: "Wait. If it takes long, read the controller's log.",
	})
	ProgressingWithRetry = define(Row{Code: v1alpha1.ProgressingWithRetryReason, Severity: Warning, Title: "an attempt failed", Grace: time.Minute,
		Remedy: "Read the message: it is tried again, more and more seldom.",
	})
	Suspended = define(Row{Code: v1alpha1.SuspendedReason, Severity: Note, Title: "suspended",
		Remedy: "Set spec.stopPolicy to None: then it accepts jobs again.",
		Remedies: map[string]string{
			"PoolSource":       "Set spec.suspend to false: then it is read again. What was applied runs on.",
			"GitHubConnection": "Set spec.verification to Active once: its credentials were never verified.",
		},
	})
	InvalidSpec = define(Row{Code: v1alpha1.InvalidSpecReason, Stalls: true, Severity: Error, Title: "the spec can't be acted on",
		Remedy: "Correct spec: the message names the fields.",
		Remedies: map[string]string{
			"PoolSource":       "Correct the source's spec: the message says what can't be.",
			"GitHubConnection": "Correct the connection's spec, keys or proxy: the message says what can't be.",
			"RunnerScaleSet":   "Delete the RunnerScaleSet: somebody made it by hand.",
			"Runner":           "Delete the Runner: its pool makes those that it needs.",
		},
	})
	ConnectionNotReady = define(Row{Code: v1alpha1.ConnectionNotReadyReason, Severity: Error, Title: "a connection isn't ready",
		Remedy: "Fix the GitHubConnection: the message says what it lacks. It is looked at again every minute.",
	})
	CredentialsMissing = define(Row{Code: v1alpha1.CredentialsMissingReason, Stalls: true, Severity: Error, Title: "credentials are missing",
		Remedy:   "Create the Secret or folder, or the key in it, that the message names.",
		Remedies: map[string]string{"PoolSource": "Create the Secret, or the keys in it, that the message names."},
	})
	WebhookSecretMissing = define(Row{Code: v1alpha1.WebhookSecretMissingReason, Stalls: true, Severity: Warning, Title: "GitHub's events are refused",
		Remedy: "Create the Secret of spec.webhook with the key secret. Until then GitHub's events are refused.",
	})
	CredentialsRefused = define(Row{Code: v1alpha1.CredentialsRefusedReason, Stalls: true, Severity: Error, Title: "GitHub refuses the credentials",
		Remedy: "Put good credentials into the connection's Secret.",
	})
	PermissionMissing = define(Row{Code: v1alpha1.PermissionMissingReason, Stalls: true, Severity: Error, Title: "the credentials lack a right",
		Remedy: "Grant the App or the token the right that the message names.",
	})
	ScopeNotFound = define(Row{Code: v1alpha1.ScopeNotFoundReason, Stalls: true, Severity: Error, Title: "GitHub doesn't show the organization, repository or enterprise",
		Remedy: "Make another GitHubConnection with the right spec.url, or let the App or token see the organization, repository or enterprise.",
	})
	GitHubUnavailable = define(Row{Code: v1alpha1.GitHubUnavailableReason, Message: "{detail}{nextBy}", Severity: Error, Title: "GitHub can't be used",
		Remedy: "Wait: GitHub is asked again. Editing the connection doesn't help, unless GitHub can't be reached at all.",
	})
	RunnerGroupNotFound = define(Row{Code: v1alpha1.RunnerGroupNotFoundReason, Stalls: true, Severity: Error, Title: "the runner group isn't there",
		Remedy: "Create the runner group on GitHub, let the connection see it, or correct spec.runnerGroup.",
	})
	OwnedElsewhere = define(Row{Code: v1alpha1.OwnedElsewhereReason, Stalls: true, Severity: Error, Title: "somebody else holds the scale set",
		Remedy: "Choose another spec.scaleSetName, or end what holds the scale set: it is tried again, and goes on by itself once that is closed.",
	})
	SessionRefused = define(Row{Code: v1alpha1.SessionRefusedReason, Severity: Warning, Title: "a former session is in the way", Grace: 2 * time.Minute,
		Remedy: "Wait: a session that was not closed expires within 92 s.",
	})
	LabelsDropped = define(Row{Code: v1alpha1.LabelsDroppedReason, Severity: Warning, Title: "GitHub kept fewer labels",
		Remedy: "Give the pool one label, or update GitHub Enterprise Server to 3.21.",
	})
	DisruptionBudgets = define(Row{Code: v1alpha1.DisruptionBudgetsReason, Severity: Warning, Title: "a second PodDisruptionBudget makes drains fail",
		Remedy: "Let your PodDisruptionBudget leave out pods with the label corral.dev/job-id.",
	})
	MaxReached = define(Row{Code: v1alpha1.MaxReachedReason, Severity: Warning, Title: "full, and jobs wait",
		Remedy: "Raise max, of spec.scale, a schedule or a policy, or wait: corral explain pool/NAME says which.",
	})
	LabelsKept = define(Row{Code: v1alpha1.LabelsKeptReason, Severity: Warning, Title: "GitHub keeps former labels",
		Remedy: "Delete the pool and declare it again, or let another name have the new labels.",
	})
	Draining = define(Row{Code: v1alpha1.DrainingReason, Severity: Note, Title: "being deleted",
		Remedy: "Wait: runners with a job finish it.",
	})
	DeletionRefused = define(Row{Code: v1alpha1.DeletionRefusedReason, Severity: Warning, Title: "the API server refuses to delete runners",
		Remedy: "Let Corral delete Runners: change the policy, webhook or right that the message names.",
	})
	TemplateInvalid = define(Row{Code: v1alpha1.TemplateInvalidReason, Stalls: true, Severity: Error, Title: "the pod template is refused",
		Remedy: "Correct spec.template: the message names the field.",
	})
	RunnerRefused = define(Row{Code: v1alpha1.RunnerRefusedReason, Severity: Error, Title: "the API server refuses new runners",
		Remedy: "Let Corral create Runners in the namespace: the message says what refuses them.",
	})
	SecretRefused = define(Row{Code: v1alpha1.SecretRefusedReason, Severity: Error, Title: "the Secrets of registrations are refused",
		Remedy: "Let Corral create Secrets in the namespace: the message says what refuses them.",
	})
	ServiceAccountMissing = define(Row{Code: v1alpha1.ServiceAccountMissingReason, Severity: Error, Title: "a ServiceAccount is missing",
		Remedy: "Create the ServiceAccount, or name another in spec.template.spec.serviceAccountName.",
	})
	QuotaExceeded = define(Row{Code: v1alpha1.QuotaExceededReason, Severity: Error, Title: "the quota admits no more runners",
		Remedy: "Raise the namespace's ResourceQuota, or lower spec.scale.max.",
	})
	CacheUnavailable = define(Row{Code: v1alpha1.CacheUnavailableReason, Severity: Error, Title: "runners wait for a cache",
		Remedy: "Raise spec.cache.maxClaims, or set spec.cache.onMissing to StartWithout.",
	})
	RunnerOutdated = define(Row{Code: v1alpha1.RunnerOutdatedReason, Severity: Warning, Title: "GitHub may refuse the runners' version",
		Remedy: "Update the runner in the pool's image.",
	})
	RunnersFailing = define(Row{Code: v1alpha1.RunnersFailingReason, Severity: Error, Title: "runners fail",
		Remedy: "Fix what makes its runners fail." + ThenRetry,
	})
	NodesFailing = define(Row{Code: v1alpha1.NodesFailingReason, Severity: Warning, Title: "nodes refuse or end runners",
		Remedy: "Look at the nodes that the message names: kubectl describe node NODE. If no node takes the pods, change what spec.template asks for." + ThenRetry,
	})
	PodsDeleted = define(Row{Code: v1alpha1.PodsDeletedReason, Severity: Warning, Title: "others delete the pods of runners",
		Remedy: "Find out who deletes the pods: the audit log of the API server has the user. Exclude pods with the label corral.dev/pool from deschedulers and clean-up jobs." + ThenRetry,
	})
	PolicyPending = define(Row{Code: v1alpha1.PolicyPendingReason, Severity: Error, Title: "policies never decided on a pool",
		Remedy: "Fix the policies that fail: until each has answered once, the pool starts no runners and accepts no jobs.",
	})
	PolicyDenied = define(Row{Code: v1alpha1.PolicyDeniedReason, Stalls: true, Severity: Error, Title: "policies deny the pod template",
		Remedy: "Change spec.template as the message says, or have the policy's owner allow it.",
	})
	PolicyFailed = define(Row{Code: v1alpha1.PolicyFailedReason, Severity: Warning, Title: "policies fail, and what they decided last holds",
		Remedy: "Fix the policies that fail: until then the last limits hold.",
	})
	PolicyInvalid = define(Row{Code: v1alpha1.PolicyInvalidReason, Stalls: true, Severity: Warning, Title: "a policy can't be loaded",
		Remedy: "Correct the policy at the place that the message names; status.diagnostics has all.", Meanwhile: LastHolds,
	})
	RolledBack = define(Row{Code: v1alpha1.RolledBackReason, Stalls: true, Severity: Warning, Title: "an update was rolled back",
		Remedy: "Change spec.template, or give the pool's annotation corral.dev/retry another value: runners of the new one failed, and the former one is in force again.",
	})
	UpdateHeld = define(Row{Code: v1alpha1.UpdateHeldReason, Severity: Note, Title: "an update is held",
		Remedy: "Set spec.update.paused to false, or change the policy that holds the update.",
	})
	AccessDenied = define(Row{Code: v1alpha1.AccessDeniedReason, Stalls: true, Severity: Error, Title: "it may not use what it names",
		Remedies: map[string]string{"PoolSource": "Grant its ServiceAccount the right that the message names, or name an object of its own namespace."},
		Remedy:   "Have the owner of the GitHubConnection add the pool's namespace to its spec.allowedNamespaces, or name another in spec.connectionRef.",
	})
	DependencyNotReady = define(Row{Code: v1alpha1.DependencyNotReadyReason, Severity: Warning, Title: "a source waits for another", Grace: time.Minute,
		Remedy: "Fix the source in spec.dependsOn that the message names.",
	})
	ArtifactFailed = define(Row{Code: v1alpha1.ArtifactFailedReason, Severity: Warning, Title: "definitions can't be fetched",
		Remedy: "Look at what the message names: the server, or the source's URL, reference, credentials or size.", Meanwhile: RevisionRunsOn,
	})
	VerificationFailed = define(Row{Code: v1alpha1.VerificationFailedReason, Stalls: true, Severity: Warning, Title: "no known key signed the revision",
		Remedy: "Sign the revision with a key of spec.git.verify, and push it again.", Meanwhile: RevisionRunsOn,
	})
	CommitStatusFailed = define(Row{Code: v1alpha1.CommitStatusFailedReason, Severity: Warning, Title: "GitHub doesn't show what became of a revision",
		Remedy: "Let the connection of spec.commitStatus write commit statuses and check runs.",
	})
	BuildFailed = define(Row{Code: v1alpha1.BuildFailedReason, Stalls: true, Severity: Warning, Title: "definitions don't compile",
		Remedy: "Correct the definitions at the place that the message names, and push.", Meanwhile: RevisionRunsOn,
	})
	ApplyFailed = define(Row{Code: v1alpha1.ApplyFailedReason, Stalls: true, Severity: Warning, Title: "definitions can't be applied",
		Remedy: "Correct the object that the message names, and push.", Meanwhile: RevisionRunsOn,
	})
	PruneRefused = define(Row{Code: v1alpha1.PruneRefusedReason, Stalls: true, Severity: Warning, Title: "a revision would remove too many pools",
		Remedy: "Restore the pools in the source, or correct its spec.path.",
	})
	PruneFailed = define(Row{Code: v1alpha1.PruneFailedReason, Severity: Warning, Title: "an object that left its source can't be deleted",
		Remedy: "Remove what keeps the object that the message names from being deleted.",
	})
)
