// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// fixConnection is for reasons of a GitHubConnection, wherever they are told.
const fixConnection = "Fix the GitHubConnection: the message says what it lacks. It is looked at again every minute."

// remedies say what to do, by the reason of a condition. Those of a pool are the first; remediesOf has what is otherwise for another kind.
var remedies = map[string]string{
	v1alpha1.InvalidSpecReason:           "Correct spec: the message names the fields.",
	v1alpha1.SuspendedReason:             "Set spec.suspend to false: then it accepts jobs again.",
	v1alpha1.AccessDeniedReason:          "Have the owner of the GitHubConnection add the pool's namespace to its spec.allowedNamespaces, or name another in spec.connectionRef.",
	v1alpha1.RunnerGroupNotFoundReason:   "Create the runner group on GitHub, let the connection see it, or correct spec.runnerGroup.",
	v1alpha1.OwnedElsewhereReason:        "Choose another spec.scaleSetName, or end what holds the scale set: it is tried again, and goes on by itself once that is closed.",
	v1alpha1.SessionRefusedReason:        "Wait: a session that was not closed expires within 92 s.",
	v1alpha1.GitHubUnavailableReason:     "Wait: GitHub is asked again. Editing the connection doesn't help, unless GitHub can't be reached at all.",
	v1alpha1.RunnersFailingReason:        "Fix what makes its runners fail." + thenRetry,
	v1alpha1.NodesFailingReason:          "Look at the nodes that the message names: kubectl describe node NODE. If no node takes the pods, change what spec.template asks for." + thenRetry,
	v1alpha1.PodsDeletedReason:           "Find out who deletes the pods: the audit log of the API server has the user. Exclude pods with the label corral.dev/pool from deschedulers and clean-up jobs." + thenRetry,
	v1alpha1.CacheUnavailableReason:      "Raise spec.cache.maxClaims, or set spec.cache.onMissing to StartWithout.",
	v1alpha1.QuotaExceededReason:         "Raise the namespace's ResourceQuota, or lower spec.scale.max.",
	v1alpha1.TemplateInvalidReason:       "Correct spec.template: the message names the field.",
	v1alpha1.RunnerRefusedReason:         "Let Corral create Runners in the namespace: the message says what refuses them.",
	v1alpha1.SecretRefusedReason:         "Let Corral create Secrets in the namespace: the message says what refuses them.",
	v1alpha1.ServiceAccountMissingReason: "Create the ServiceAccount, or name another in spec.template.spec.serviceAccountName.",
	v1alpha1.PolicyPendingReason:         "Fix the policies that fail: until each has answered once, the pool starts no runners and accepts no jobs.",
	v1alpha1.PolicyFailedReason:          "Fix the policies that fail: until then the last limits hold.",
	v1alpha1.PolicyDeniedReason:          "Change spec.template as the message says, or have the policy's owner allow it.",
	v1alpha1.RolledBackReason:            "Change spec.template, or give the pool's annotation corral.dev/retry another value: runners of the new one failed, and the former one is in force again.",
	v1alpha1.UpdateHeldReason:            "Set spec.update.paused to false, or change the policy that holds the update.",
	v1alpha1.RunnerOutdatedReason:        "Update the runner in the pool's image.",
	v1alpha1.LabelsDroppedReason:         "Give the pool one label, or update GitHub Enterprise Server to 3.21.",
	v1alpha1.LabelsKeptReason:            "Delete the pool and declare it again, or let another name have the new labels.",
	v1alpha1.MaxReachedReason:            "Raise max, of spec.scale, a schedule or a policy, or wait: corral explain pool/NAME says which.",
	v1alpha1.DisruptionBudgetsReason:     "Let your PodDisruptionBudget leave out pods with the label corral.dev/job-id.",
	v1alpha1.DeletionRefusedReason:       "Let Corral delete Runners: change the policy, webhook or right that the message names.",
	v1alpha1.DrainingReason:              "Wait: runners with a job finish it.",
	v1alpha1.ProgressingReason:           "Wait. If it takes long, read the controller's log.",
	v1alpha1.ProgressingWithRetryReason:  "Read the message: it is tried again, more and more seldom.",

	v1alpha1.ConnectionNotReadyReason:   fixConnection,
	v1alpha1.CredentialsMissingReason:   "Create the Secret or folder, or the key in it, that the message names.",
	v1alpha1.CredentialsRefusedReason:   "Put good credentials into the connection's Secret.",
	v1alpha1.PermissionMissingReason:    "Grant the App or the token the right that the message names.",
	v1alpha1.ScopeNotFoundReason:        "Make another GitHubConnection with the right spec.url, or let the App or token see the organization, repository or enterprise.",
	v1alpha1.WebhookSecretMissingReason: "Create the Secret of spec.webhook with the key secret. Until then GitHub's events are refused.",

	v1alpha1.DependencyNotReadyReason: "Fix the source in spec.dependsOn that the message names.",
	v1alpha1.ArtifactFailedReason:     "Look at what the message names: the server, or the source's URL, reference, credentials or size." + revisionRunsOn,
	v1alpha1.VerificationFailedReason: "Sign the revision with a key of spec.git.verify, and push it again." + revisionRunsOn,
	v1alpha1.CommitStatusFailedReason: "Let the connection of spec.commitStatus write commit statuses and check runs.",
	v1alpha1.BuildFailedReason:        "Correct the definitions at the place that the message names, and push." + revisionRunsOn,
	v1alpha1.ApplyFailedReason:        "Correct the object that the message names, and push." + revisionRunsOn,
	v1alpha1.PruneRefusedReason:       "Restore the pools in the source, or correct its spec.path.",
	v1alpha1.PruneFailedReason:        "Remove what keeps the object that the message names from being deleted.",
	v1alpha1.PolicyInvalidReason:      "Correct the policy at the place that the message names; status.diagnostics has all." + lastHolds,
}

// kinds whose reasons ask for something else than a pool's.
const (
	poolKind       = "RunnerPool"
	sourceKind     = "PoolSource"
	connectionKind = "GitHubConnection"
	scaleSetKind   = "ScaleSet"
	runnerKind     = "Runner"
)

var remediesOf = map[string]map[string]string{
	sourceKind: {
		v1alpha1.AccessDeniedReason:       "Grant its ServiceAccount the right that the message names, or name an object of its own namespace.",
		v1alpha1.InvalidSpecReason:        "Correct the source's spec: the message says what can't be.",
		v1alpha1.SuspendedReason:          "Set spec.suspend to false: then it is read again. What was applied runs on.",
		v1alpha1.CredentialsMissingReason: "Create the Secret, or the keys in it, that the message names." + revisionRunsOn,
	},
	connectionKind: {
		v1alpha1.SuspendedReason:   "Set spec.suspend to false once: its credentials were never verified.",
		v1alpha1.InvalidSpecReason: "Correct the connection's spec, keys or proxy: the message says what can't be.",
	},
	scaleSetKind: {
		v1alpha1.InvalidSpecReason: "Delete the ScaleSet: somebody made it by hand.",
	},
	runnerKind: {
		v1alpha1.InvalidSpecReason: "Delete the Runner: its pool makes those that it needs.",
	},
}

// untilRead is what holds of an object until its fields can be read.
var untilRead = map[string]string{
	poolKind:              " Until then nothing is decided on the pool: no runner is started or ended; running jobs go on.",
	sourceKind:            revisionRunsOn,
	"RunnerPolicy":        lastHolds,
	"ClusterRunnerPolicy": lastHolds,
}

// UnreadRemedy says what to do about an object of a kind with fields that can't be read: nobody acts on any of it.
func UnreadRemedy(kind string) string {
	return "Correct the field that the message names." + untilRead[kind]
}

// lastHolds ends what is to be done about a policy that can't be asked.
const lastHolds = " Its pools keep what was decided last."

// revisionRunsOn ends what is to be done about a source that applied a revision before.
const revisionRunsOn = " The last good revision runs on."

// WithoutRevision is a remedy for a source that never applied a revision.
func WithoutRevision(remedy string) string { return strings.TrimSuffix(remedy, revisionRunsOn) }

// ofCache is how words begin that say what keeps the claim of a cache from being made.
const ofCache = "spec.cache: "

// thenRetry ends what is to be done about a pool whose runners fail.
const thenRetry = " After a mend outside spec.template, give the pool's annotation corral.dev/retry another value; without it one is tried from time to time, and the first that works lets the pool go on."

// FailingRemedy says what to do about a pool whose runners fail, by the cause of the last failure.
func FailingRemedy(cause v1alpha1.RunnerCause) string {
	if remedy := CauseRemedy(cause); remedy != "" {
		return remedy + thenRetry
	}
	return remedies[v1alpha1.RunnersFailingReason]
}

// saying are remedies for what a source says that ask for something else than its reason does.
var saying = []struct{ reason, says, remedy string }{
	{v1alpha1.BuildFailedReason, "there is no folder ", "Correct spec.path of the source, or push a folder with pools there." + revisionRunsOn},
	{v1alpha1.BuildFailedReason, "no pools found in ", "Declare pools there and push, or correct spec.path of the source." + revisionRunsOn},
	{v1alpha1.BuildFailedReason, "compiling revision ", "Look at the controller's CPU, memory and log: the definitions are not to blame, and are compiled again." + revisionRunsOn},
	{v1alpha1.VerificationFailedReason, "which is not among the ", "Add the signer's key to spec.git.verify, or sign the revision with one that is there and push it again." + revisionRunsOn},
	{v1alpha1.ApplyFailedReason, " holds it; remove it there first", "Remove the pool from one of the two sources, and push." + revisionRunsOn},
	{v1alpha1.ArtifactFailedReason, "known_hosts", "Compare the fingerprint with what the server's owner says, and only then put its key into known_hosts of the source's Secret." + revisionRunsOn},
}

// ifMeant is how a refusal to prune begins the command that allows it.
const ifMeant = "If this is meant: "

// RemedyFor says what to do about an object of a kind, by its condition; "" where nothing is to be done.
func RemedyFor(kind string, c *Condition) string {
	switch {
	case kind == poolKind && c.Reason == v1alpha1.PolicyDeniedReason && strings.Contains(c.Message, " goes on: "):
		return Remedy(kind, c.Reason) + " The revision before goes on."
	case kind == poolKind && c.Reason == v1alpha1.PolicyDeniedReason:
		return Remedy(kind, c.Reason) + " Until then the pool starts no runners and accepts no jobs."
	case kind != sourceKind:
		return Remedy(kind, c.Reason)
	}
	for _, s := range saying {
		if s.reason == c.Reason && strings.Contains(c.Message, s.says) {
			return s.remedy
		}
	}
	remedy := Remedy(kind, c.Reason)
	if _, command, ok := strings.Cut(c.Message, ifMeant); ok && c.Reason == v1alpha1.PruneRefusedReason {
		remedy += " " + ifMeant + command
	}
	return remedy
}

// QuotaRemedy says what to do about a quota that is used up, by what is told of it.
func QuotaRemedy(says string) string {
	if IsOfClaims(says) {
		return "Raise the namespace's ResourceQuota of claims, lower spec.cache.maxClaims of pools there, or set spec.cache.onMissing to StartWithout."
	}
	return remedies[v1alpha1.QuotaExceededReason]
}

// IsOfClaims reports whether what is told of a quota is about claims of caches.
func IsOfClaims(says string) bool { return strings.Contains(says, ofCache) }

// Remedy says what to do about an object of a kind, by the reason of its condition; "" where nothing is to be done.
func Remedy(kind, reason string) string {
	return cmp.Or(remediesOf[kind][reason], remedies[reason])
}

// OutageRemedy says what to do about a GitHub that can't be used, by what it answers.
func OutageRemedy(o *v1alpha1.GitHubOutage) string {
	switch {
	case o == nil:
		return remedies[v1alpha1.GitHubUnavailableReason]
	case o.Code == 0:
		return "Let the controller reach GitHub: look at DNS, firewall and proxy. It is tried again."
	case o.Code == 401:
		return remedies[v1alpha1.CredentialsRefusedReason]
	case o.Code >= 400 && o.Code < 500:
		return "Wait: GitHub limits the requests of these credentials, and editing the connection doesn't help. If it lasts, give some pools the connection of another App."
	}
	return "Wait: GitHub has trouble (https://www.githubstatus.com), and editing the connection doesn't help. It is asked again."
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
		if ready := ConditionOf(r.Object.Status.Conditions, v1alpha1.ReadyCondition); ready.isFalse() && Remedy(runnerKind, ready.Reason) != "" {
			return Remedy(runnerKind, ready.Reason)
		}
	}
	if r.Cause == v1alpha1.CauseQuota {
		return QuotaRemedy(r.Reason)
	}
	return CauseRemedy(r.Cause)
}

// CauseRemedy says what to do about runners that a cause keeps from starting, or ended; "" where nothing is to be done.
func CauseRemedy(cause v1alpha1.RunnerCause) string {
	for _, c := range causes {
		if c.cause == cause {
			return c.remedy
		}
	}
	return ""
}
