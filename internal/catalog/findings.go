// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// askExplain ends a remedy that depends on the pool.
	askExplain = "corral explain pool/NAME says what would change it."
	// lookGrace is how long a controller may take to look at a change.
	lookGrace = time.Minute
	// startGrace is how long a runner may be kept from starting before it counts: a node may be on its way.
	startGrace = 2 * time.Minute
)

// Findings of corral status that no condition reports.
var (
	NoLeader = define(Row{Code: "NoLeader", Role: Finding, Severity: Critical, Title: "no controller works", Message: "Lease {namespace}/{name}: {holder} renewed it last",
		Remedy: "Look at the controller's pods: kubectl get pods -n {namespace}. Running jobs go on; no runner is started or ended."})
	ControllerLost = define(Row{Code: "ControllerLost", Role: Finding, Severity: Error, Title: "a controller doesn't work, and another does", Message: "Lease {namespace}/{name}: {holder} renewed it last",
		Remedy: "If it was uninstalled: kubectl delete lease -n {namespace} {name}. Otherwise look at its pods: kubectl get pods -n {namespace}."})
	NotLookedAt = define(Row{Code: "NotLookedAt", Role: Finding, Severity: Error, Title: "no controller has looked at it",
		Remedy: "See that a controller works and watches the namespace (--watch-namespaces), and read its log."})
	StatusMissing      = define(Row{Code: "StatusMissing", Reason: "NotLookedAt", Role: Finding, Message: "it has no status yet"})
	SpecChanged        = define(Row{Code: "SpecChanged", Reason: "NotLookedAt", Role: Finding, Message: "its spec changed since it was looked at"})
	RequestUnhandled   = define(Row{Code: "RequestUnhandled", Reason: "NotLookedAt", Role: Finding, Message: "it was asked to be looked at by {annotation}"})
	TokenExpiring      = define(Row{Code: "TokenExpiring", Role: Finding, Severity: Ahead, Title: "a token ends", Message: "GitHub refuses the token from then on", Remedy: "Make another token on GitHub, and put it into the connection's Secret: pools go on without a pause."})
	EventsRefused      = define(Row{Code: "EventsRefused", Role: Finding, Severity: Warning, Title: "GitHub's events are refused", Remedy: "Give GitHub's webhook and the Secret of spec.webhook the same secret. Where GitHub's Recent Deliveries show no 401, somebody else sends these events."})
	SourceUnread       = define(Row{Code: "SourceUnread", Role: Finding, Severity: Ahead, Title: "a source isn't read, and changes in it have no effect", Message: "{reason}", Remedy: "Fix what keeps the source from being read."})
	DemandStale        = define(Row{Code: "DemandStale", Role: Finding, Severity: Warning, Title: `the source of demand "{source}" gives no signal, and its last number counts`, Remedy: "Fix what the source reads. " + askExplain})
	RunnersBelowJobs   = define(Row{Code: "RunnersBelowJobs", Reason: v1alpha1.MaxReachedReason, Role: Finding, Message: "{pool}: {runners} for {jobs}"})
	JobsWait           = define(Row{Code: "JobsWait", Role: Finding, Severity: Warning, Title: "jobs wait for runners", Message: "{pool}: {jobs}; {runners}", Remedy: askExplain})
	Held               = define(Row{Code: "Held", Role: Finding, Severity: Warning, Title: "{what} of a pool is held back", Grace: lookGrace, Remedy: askExplain})
	NotListening       = define(Row{Code: "NotListening", Role: Finding, Severity: Error, Title: "a pool listens to no messages of GitHub", Grace: lookGrace, Early: "a message session is being opened", Message: "{reason}", Remedy: askExplain})
	SessionUnresumable = define(Row{Code: "SessionUnresumable", Role: Finding, Severity: Ahead, Title: "a restart of the controller couldn't resume a session: no new jobs for up to 92 s", Message: "status.sessionID is empty", Remedy: "Nothing, unless it stays so: the id is written with the next look at the session."})
	RunnersWait        = define(Row{Code: "RunnersWait", Role: Finding, Severity: Error, Title: "runners don't start ({cause})", Grace: startGrace, Early: "runners wait to start ({cause})", Remedy: askExplain})
	RunnersEnd         = define(Row{Code: "RunnersEnd", Role: Finding, Severity: Error, Title: "runners fail ({cause})", Remedy: askExplain})
	RunnerUnread       = define(Row{Code: "RunnerUnread", Reason: v1alpha1.InvalidSpecReason, Role: Finding, Severity: Warning, Title: "a runner whose spec can't be read isn't started", Remedy: "Correct the field that the message names."})
	RunnerUnowned      = define(Row{Code: "RunnerUnowned", Reason: v1alpha1.InvalidSpecReason, Role: Finding, Severity: Warning, Title: "a runner that no pool made isn't started", Remedy: "Delete the Runner: its pool makes those that it needs."})
	QuotaNearlyFull    = define(Row{Code: "QuotaNearlyFull", Role: Finding, Severity: Ahead, Title: "a quota is nearly used up", Message: "{resource}: {used} of {hard} used", Remedy: "Raise the namespace's ResourceQuota, or lower spec.scale.max."})
)

// What keeps runners from starting, or ended them, by the code of status.cause of a Runner.
var (
	Unschedulable  = define(Row{Code: string(v1alpha1.CauseUnschedulable), Role: Finding, Title: "no node takes the pod", Remedy: "Let a node take its pod: look at the template's requests, node selector and tolerations, and at the nodes' room."})
	Quota          = define(Row{Code: string(v1alpha1.CauseQuota), Role: Finding, Title: "the quota is used up", Remedy: "Raise the namespace's ResourceQuota, or lower spec.scale.max."})
	Refused        = define(Row{Code: string(v1alpha1.CauseRefused), Role: Finding, Title: "the pod is refused", Remedy: "Correct spec.template, or what refuses its pod."})
	ImagePull      = define(Row{Code: string(v1alpha1.CauseImagePull), Role: Finding, Title: "the image can't be pulled", Remedy: "Correct the image's name, or let the nodes pull it."})
	Config         = define(Row{Code: string(v1alpha1.CauseConfig), Role: Finding, Title: "the container lacks its configuration", Remedy: "Create what the container needs, such as a ConfigMap or a Secret."})
	Crash          = define(Row{Code: string(v1alpha1.CauseCrash), Role: Finding, Title: "a container ends too early", Remedy: "Look at the log of the container that the message names, or else of the runner's: it ends before the runner has a job. Set spec.failedPodTTL: 10m in the pool to keep the pod of the last failed runner for ten minutes."})
	Outdated       = define(Row{Code: string(v1alpha1.CauseOutdated), Role: Finding, Title: "GitHub refuses the runner's version", Remedy: "Update the image: GitHub refuses the version of the runner in it."})
	NeverConnected = define(Row{Code: string(v1alpha1.CauseNeverConnected), Role: Finding, Title: "the runner doesn't reach GitHub", Remedy: "Let the runner reach GitHub: its container runs, and GitHub doesn't see it."})
	GitHub         = define(Row{Code: string(v1alpha1.CauseGitHub), Role: Finding, Title: "GitHub registers no runner", Remedy: "Fix the GitHubConnection, or wait for GitHub: it registers no runners."})
	Cache          = define(Row{Code: string(v1alpha1.CauseCache), Role: Finding, Title: "no claim of the cache", Remedy: "Look at spec.cache: its claims' storage class, zones and quota, and maxClaims."})
	Slow           = define(Row{Code: string(v1alpha1.CauseSlow), Role: Finding, Title: "the pod takes too long", Remedy: "Look at the events of its pod: it takes too long, and the cause isn't known."})
)

// What GitHub does instead of what it is asked for: remedies of an outage.
var (
	GitHubUnreachable    = define(Row{Code: "GitHubUnreachable", Reason: v1alpha1.GitHubUnavailableReason, Role: Finding, Remedy: "Let the controller reach GitHub: look at DNS, firewall and proxy. It is tried again."})
	GitHubLimitsRequests = define(Row{Code: "GitHubLimitsRequests", Reason: v1alpha1.GitHubUnavailableReason, Role: Finding, Remedy: "Wait: GitHub limits the requests of these credentials, and editing the connection doesn't help. If it lasts, give some pools the connection of another App."})
	GitHubHasTrouble     = define(Row{Code: "GitHubHasTrouble", Reason: v1alpha1.GitHubUnavailableReason, Role: Finding, Remedy: "Wait: GitHub has trouble (https://www.githubstatus.com), and editing the connection doesn't help. It is asked again."})
)

// Advice of corral explain that depends on a pool's numbers.
var (
	ModeObserve          = define(Row{Code: "ModeObserve", Role: Finding, Title: "the pool only observes", Remedy: "Set spec.mode to Active: then it acts on what it decides. It never goes back to Observe."})
	DemandMissing        = define(Row{Code: "DemandMissing", Role: Finding, Title: "the pool has no source of demand", Remedy: "Set spec.demand.webhook or spec.demand.metrics: without a source, jobs create no runners."})
	WebhookMissing       = define(Row{Code: "WebhookMissing", Role: Finding, Title: "no connection receives events", Remedy: "Set spec.webhook of a GitHubConnection of its GitHub in namespace {namespace}, and add a webhook on GitHub that points there."})
	SourceStale          = define(Row{Code: "SourceStale", Reason: "DemandStale", Role: Finding, Remedy: "Fix {source}: until it gives a signal, its last number counts."})
	DeliveriesMissing    = define(Row{Code: "DeliveriesMissing", Role: Finding, Title: "no event of the job came", Remedy: "If the job is queued, look at the recent deliveries of GitHub's webhook for GitHubConnection {connections}."})
	JobsWanted           = define(Row{Code: "JobsWanted", Role: Finding, Title: "no job asks for the pool", Remedy: "Jobs create runners: {which} whose runs-on are all among {labels}, of repositories that may use the runner group {group}."})
	FieldUnreadable      = define(Row{Code: "FieldUnreadable", Reason: v1alpha1.InvalidSpecReason, Role: Finding, Remedy: "Correct the field that the message names."})
	TemplateDenied       = define(Row{Code: "TemplateDenied", Reason: v1alpha1.PolicyDeniedReason, Role: Finding, Remedy: "Change {field}: {fix}. It is denied by {rule}."})
	MoreFindings         = define(Row{Code: "MoreFindings", Reason: v1alpha1.PolicyDeniedReason, Role: Finding, Remedy: "Change what the other findings under Template name, too."})
	MaxScheduled         = define(Row{Code: "MaxScheduled", Reason: v1alpha1.MaxReachedReason, Role: Finding, Remedy: "Raise max of the schedule {schedule}, now {max}, or wait: jobs and idle runners together ask for {wanted}."})
	MaxZero              = define(Row{Code: "MaxZero", Reason: v1alpha1.MaxReachedReason, Role: Finding, Remedy: "Raise spec.scale.max: it is 0, and no job runs."})
	MaxDeclared          = define(Row{Code: "MaxDeclared", Reason: v1alpha1.MaxReachedReason, Role: Finding, Remedy: "Raise spec.scale.max, now {max}, or wait: jobs and idle runners together ask for {wanted}."})
	UpdatePausedBySpec   = define(Row{Code: "UpdatePausedBySpec", Reason: v1alpha1.UpdateHeldReason, Role: Finding, Remedy: "Set spec.update.paused to false: then the update goes on."})
	UpdateHeldMeanwhile  = define(Row{Code: "UpdateHeldMeanwhile", Reason: v1alpha1.UpdateHeldReason, Role: Finding, Remedy: "The update goes on when nothing holds it: {why}"})
	UpdateWasRolledBack  = define(Row{Code: "UpdateWasRolledBack", Reason: v1alpha1.RolledBackReason, Role: Finding, Remedy: "Change spec.template, or give the pool's annotation corral.dev/retry another value: runners of {to} failed, and {from} is in force again."})
	ContainerOutOfMemory = define(Row{Code: "ContainerOutOfMemory", Role: Finding, Title: "a container takes too much memory", Remedy: "Give the container more memory in spec.template of the pool, and run the job again."})
	RunnerBusy           = define(Row{Code: "RunnerBusy", Role: Finding, Title: "a runner has a job", Remedy: "Only a person can end it before its job is over: kubectl annotate runner.corral.dev -n {namespace} {name} {annotation}=REASON."})
)
