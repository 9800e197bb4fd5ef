// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// askExplain ends a remedy that depends on the pool.
	askExplain = "corral explain pool/NAME shows what to change."
	// lookGrace is how long a controller may take to reconcile a change before corral status reports a problem.
	lookGrace = time.Minute
	// startGrace is how long a runner may wait to start before corral status reports a problem, because a new node may
	// be about to join.
	startGrace = 2 * time.Minute
)

// Findings of corral status that no condition reports.
var (
	NoLeader = define(Row{Code: "NoLeader", Role: Finding, Severity: Critical, Title: "no controller is running", Message: "Lease {namespace}/{name} was last renewed by {holder}",
		Remedy: "Check the controller's pods: kubectl get pods -n {namespace}. Running jobs continue, but no controller creates or deletes runners."})
	ControllerLost = define(Row{Code: "ControllerLost", Role: Finding, Severity: Error, Title: "a controller stopped while another one is running", Message: "Lease {namespace}/{name} was last renewed by {holder}",
		Remedy: "If you uninstalled it, run: kubectl delete lease -n {namespace} {name}. Otherwise check its pods: kubectl get pods -n {namespace}."})
	VersionsDiffer = define(Row{Code: "VersionsDiffer", Role: Finding, Severity: Note, Title: "the controller has version {controller}, and this command has {command}",
		Remedy: "Use the same version for both. One minor release of difference is supported."})
	NotLookedAt = define(Row{Code: "NotLookedAt", Role: Finding, Severity: Error, Title: "no controller has reconciled it",
		Remedy: "Check that a controller is running and watches the namespace (--watch-namespaces). Then check its log."})
	StatusMissing      = define(Row{Code: "StatusMissing", Reason: "NotLookedAt", Role: Finding, Message: "the object has no status yet"})
	SpecChanged        = define(Row{Code: "SpecChanged", Reason: "NotLookedAt", Role: Finding, Message: "its spec changed and has not been reconciled since"})
	RequestUnhandled   = define(Row{Code: "RequestUnhandled", Reason: "NotLookedAt", Role: Finding, Message: "the reconciliation requested by {annotation} has not happened yet"})
	TokenExpiring      = define(Row{Code: "TokenExpiring", Role: Finding, Severity: Ahead, Title: "a token expires soon", Message: "GitHub will refuse the token after it expires", Remedy: "Create a new token on GitHub and put it into the connection's Secret. Pools continue without interruption."})
	EventsRefused      = define(Row{Code: "EventsRefused", Role: Finding, Severity: Warning, Title: "Corral refuses GitHub's events", Remedy: "Use the same secret for GitHub's webhook and for the Secret in spec.webhook. If GitHub's Recent Deliveries page shows no response with status 401, the events come from another sender."})
	SourceUnread       = define(Row{Code: "SourceUnread", Role: Finding, Severity: Ahead, Title: "a source is not read, so its changes have no effect", Message: "{problem}", Remedy: "Fix the problem that prevents Corral from reading the source."})
	DemandStale        = define(Row{Code: "DemandStale", Role: Finding, Severity: Warning, Title: `demand source "{source}" reports no value, so Corral uses the last one`, Remedy: "Fix the system that the source queries. " + askExplain})
	RunnersBelowJobs   = define(Row{Code: "RunnersBelowJobs", Reason: v1alpha1.MaxReachedReason, Role: Finding, Message: "{pool}: {runners} for {jobs}"})
	JobsWait           = define(Row{Code: "JobsWait", Role: Finding, Severity: Warning, Title: "jobs wait for runners", Message: "{pool}: {jobs}; {runners}", Remedy: askExplain})
	Held               = define(Row{Code: "Held", Role: Finding, Severity: Warning, Title: "a pool is held back ({what})", Grace: lookGrace, Remedy: askExplain})
	NotListening       = define(Row{Code: "NotListening", Role: Finding, Severity: Error, Title: "a pool receives no messages from GitHub", Grace: lookGrace, Early: "a message session is being opened", Message: "{reason}", Remedy: askExplain})
	SessionUnresumable = define(Row{Code: "SessionUnresumable", Role: Finding, Severity: Ahead, Title: "a controller restart could not resume a session: the pool would accept no new jobs for up to 92 s", Message: "status.sessionID is empty", Remedy: "Wait: Corral writes the session ID at the next reconciliation. If status.sessionID stays empty, check the controller's log."})
	RunnersWait        = define(Row{Code: "RunnersWait", Role: Finding, Severity: Error, Title: "runners do not start ({cause})", Grace: startGrace, Early: "runners are waiting to start ({cause})", Remedy: askExplain})
	RunnersEnd         = define(Row{Code: "RunnersEnd", Role: Finding, Severity: Error, Title: "runners fail ({cause})", Remedy: askExplain})
	RunnerUnread       = define(Row{Code: "RunnerUnread", Reason: v1alpha1.InvalidSpecReason, Role: Finding, Severity: Warning, Title: "a runner with an unreadable spec does not start", Remedy: "Correct the field that the message names."})
	RunnerUnowned      = define(Row{Code: "RunnerUnowned", Reason: v1alpha1.InvalidSpecReason, Role: Finding, Severity: Warning, Title: "a runner that no pool created does not start", Remedy: deleteRunner})
	QuotaNearlyFull    = define(Row{Code: "QuotaNearlyFull", Role: Finding, Severity: Ahead, Title: "a quota is almost used up", Message: "{resource}: {used} of {hard} used", Remedy: "Raise the namespace's ResourceQuota or lower spec.scale.max."})
)

// Problems that prevent runners from starting, or that ended them. Their codes are the codes of status.cause of a
// Runner.
var (
	Unschedulable  = define(Row{Code: string(v1alpha1.CauseUnschedulable), Role: Finding, Title: "no node can run the pod", Remedy: "Check the template's requests, node selector and tolerations, and the free capacity of the nodes."})
	Quota          = define(Row{Code: string(v1alpha1.CauseQuota), Role: Finding, Title: "the quota is used up", Remedy: "Raise the namespace's ResourceQuota or lower spec.scale.max."})
	Refused        = define(Row{Code: string(v1alpha1.CauseRefused), Role: Finding, Title: "the API server refuses the pod", Remedy: "Correct spec.template, or the policy or webhook that refuses its pod."})
	ImagePull      = define(Row{Code: string(v1alpha1.CauseImagePull), Role: Finding, Title: "the image cannot be pulled", Remedy: "Correct the image's name, or give the nodes access to the image."})
	Config         = define(Row{Code: string(v1alpha1.CauseConfig), Role: Finding, Title: "the container's configuration is missing", Remedy: "Create the ConfigMap or Secret that the container needs."})
	Crash          = define(Row{Code: string(v1alpha1.CauseCrash), Role: Finding, Title: "a container exits too early", Remedy: "Check the log of the container that the message names, or of the runner container: it exits before the runner gets a job. To keep the pod of the last failed runner for ten minutes, set spec.failedPodTTL: 10m in the pool."})
	Outdated       = define(Row{Code: string(v1alpha1.CauseOutdated), Role: Finding, Title: "GitHub refuses the runner's version", Remedy: "Update the pool's image: GitHub refuses the runner version that it contains."})
	NeverConnected = define(Row{Code: string(v1alpha1.CauseNeverConnected), Role: Finding, Title: "the runner cannot connect to GitHub", Remedy: "Check the runner's network access to GitHub: its container is running, but it has not connected."})
	GitHub         = define(Row{Code: string(v1alpha1.CauseGitHub), Role: Finding, Title: "GitHub registers no runners", Remedy: "Fix the GitHubConnection, or wait until GitHub registers runners again."})
	Cache          = define(Row{Code: string(v1alpha1.CauseCache), Role: Finding, Title: "no cache claim is available", Remedy: "Check spec.cache: the storage class, zones and quota of its claims, and maxClaims."})
	Slow           = define(Row{Code: string(v1alpha1.CauseSlow), Role: Finding, Title: "the pod takes too long to start", Remedy: "Check the events of its pod. The pod takes too long to start, and Corral could not determine the cause."})
)

// Kinds of GitHub outages, with their remedies.
var (
	GitHubUnreachable    = define(Row{Code: "GitHubUnreachable", Reason: v1alpha1.GitHubUnavailableReason, Role: Finding, Remedy: "Check DNS, firewall and proxy: the controller cannot connect to GitHub. Corral keeps retrying."})
	GitHubLimitsRequests = define(Row{Code: "GitHubLimitsRequests", Reason: v1alpha1.GitHubUnavailableReason, Role: Finding, Remedy: "Wait: GitHub limits the requests of these credentials. Editing the connection does not help. If this persists, move some pools to a connection with another GitHub App."})
	GitHubHasTrouble     = define(Row{Code: "GitHubHasTrouble", Reason: v1alpha1.GitHubUnavailableReason, Role: Finding, Remedy: "Wait: GitHub responds with server errors (see https://www.githubstatus.com). Editing the connection does not help. Corral keeps retrying."})
)

// Remedies of corral explain that depend on the state of a pool.
var (
	ModeObserve          = define(Row{Code: "ModeObserve", Role: Finding, Title: "the pool only observes", Remedy: "To apply its decisions, set spec.mode to Active. The mode cannot change back to Observe."})
	DemandMissing        = define(Row{Code: "DemandMissing", Role: Finding, Title: "the pool has no demand source", Remedy: "Set spec.demand.webhook or spec.demand.metrics. Without a demand source, jobs create no runners."})
	WebhookMissing       = define(Row{Code: "WebhookMissing", Role: Finding, Title: "no connection receives events", Remedy: "In namespace {namespace}, set spec.webhook of a GitHubConnection for the pool's GitHub server. Then add a webhook on GitHub that points to Corral."})
	SourceStale          = define(Row{Code: "SourceStale", Reason: "DemandStale", Role: Finding, Remedy: "Fix {source}. Corral uses its last value until it reports a new one."})
	DeliveriesMissing    = define(Row{Code: "DeliveriesMissing", Role: Finding, Title: "Corral received no event for the job", Remedy: "If the job is queued, check the recent deliveries of GitHub's webhook for GitHubConnection {connections}."})
	JobsWanted           = define(Row{Code: "JobsWanted", Role: Finding, Title: "no job requests the pool", Remedy: "Corral creates runners for {which} whose runs-on labels are all among {labels}, in repositories that can use the runner group {group}."})
	FieldUnreadable      = define(Row{Code: "FieldUnreadable", Reason: v1alpha1.InvalidSpecReason, Role: Finding, Remedy: "Correct the field that the message names."})
	TemplateDenied       = define(Row{Code: "TemplateDenied", Reason: v1alpha1.PolicyDeniedReason, Role: Finding, Remedy: "Change {field}: {fix}. It is denied by {rule}."})
	MoreFindings         = define(Row{Code: "MoreFindings", Reason: v1alpha1.PolicyDeniedReason, Role: Finding, Remedy: "Also make the other changes listed under Template."})
	MaxScheduled         = define(Row{Code: "MaxScheduled", Reason: v1alpha1.MaxReachedReason, Role: Finding, Remedy: "Raise max of the schedule {schedule} (now {max}), or wait. Jobs and idle runners together need {wanted}."})
	MaxZero              = define(Row{Code: "MaxZero", Reason: v1alpha1.MaxReachedReason, Role: Finding, Remedy: "Raise spec.scale.max. It is 0, so no job runs."})
	MaxDeclared          = define(Row{Code: "MaxDeclared", Reason: v1alpha1.MaxReachedReason, Role: Finding, Remedy: "Raise spec.scale.max (now {max}), or wait. Jobs and idle runners together need {wanted}."})
	UpdatePausedBySpec   = define(Row{Code: "UpdatePausedBySpec", Reason: v1alpha1.UpdateHeldReason, Role: Finding, Remedy: "To resume the update, set spec.update.paused to false."})
	UpdateHeldMeanwhile  = define(Row{Code: "UpdateHeldMeanwhile", Reason: v1alpha1.UpdateHeldReason, Role: Finding, Remedy: "The update resumes when the hold ends: {why}"})
	UpdateWasRolledBack  = define(Row{Code: "UpdateWasRolledBack", Reason: v1alpha1.RolledBackReason, Role: Finding, Remedy: "Change spec.template, or change the pool's annotation corral.dev/retry to try again. Runners of {to} failed, so Corral went back to {from}."})
	ContainerOutOfMemory = define(Row{Code: "ContainerOutOfMemory", Role: Finding, Title: "a container ran out of memory", Remedy: "Raise the container's memory limit in the pool's spec.template, and run the job again."})
	RunnerBusy           = define(Row{Code: "RunnerBusy", Role: Finding, Title: "a runner is running a job", Remedy: "Corral does not interrupt a running job. To end it anyway: kubectl annotate runner.corral.dev -n {namespace} {name} {annotation}=REASON."})
)
