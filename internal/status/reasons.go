// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"regexp"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// rank is how bad a reason is, and what it is called.
type rank struct {
	severity Severity
	what     string
	// grace is how long it is but a note: what passes by itself is no trouble.
	grace time.Duration
	// lately is what it is called meanwhile, if that is another word.
	lately string
}

// healthy is the rank of reasons with which nothing is wrong.
var healthy = rank{}

// ranks has each reason of the API.
var ranks = map[string]rank{
	v1alpha1.SucceededReason: healthy,

	v1alpha1.ConnectionNotReadyReason:    {Error, "a connection isn't ready", 0, ""},
	v1alpha1.CredentialsMissingReason:    {Error, "credentials are missing", 0, ""},
	v1alpha1.CredentialsRefusedReason:    {Error, "GitHub refuses the credentials", 0, ""},
	v1alpha1.PermissionMissingReason:     {Error, "the credentials lack a right", 0, ""},
	v1alpha1.ScopeNotFoundReason:         {Error, "GitHub doesn't show the organization, repository or enterprise", 0, ""},
	v1alpha1.GitHubUnavailableReason:     {Error, "GitHub can't be used", 0, ""},
	v1alpha1.AccessDeniedReason:          {Error, "it may not use what it names", 0, ""},
	v1alpha1.RunnerGroupNotFoundReason:   {Error, "the runner group isn't there", 0, ""},
	v1alpha1.OwnedElsewhereReason:        {Error, "somebody else holds the scale set", 0, ""},
	v1alpha1.InvalidSpecReason:           {Error, "the spec can't be acted on", 0, ""},
	v1alpha1.PolicyPendingReason:         {Error, "policies never decided on a pool", 0, ""},
	v1alpha1.RunnersFailingReason:        {Error, "runners fail", 0, ""},
	v1alpha1.TemplateInvalidReason:       {Error, "the pod template is refused", 0, ""},
	v1alpha1.PolicyDeniedReason:          {Error, "policies deny the pod template", 0, ""},
	v1alpha1.QuotaExceededReason:         {Error, "the quota admits no more runners", 0, ""},
	v1alpha1.RunnerRefusedReason:         {Error, "the API server refuses new runners", 0, ""},
	v1alpha1.SecretRefusedReason:         {Error, "the Secrets of registrations are refused", 0, ""},
	v1alpha1.ServiceAccountMissingReason: {Error, "a ServiceAccount is missing", 0, ""},
	v1alpha1.CacheUnavailableReason:      {Error, "runners wait for a cache", 0, ""},

	v1alpha1.DeletionRefusedReason:      {Warning, "the API server refuses to delete runners", 0, ""},
	v1alpha1.PolicyFailedReason:         {Warning, "policies fail, and what they decided last holds", 0, ""},
	v1alpha1.PolicyInvalidReason:        {Warning, "a policy can't be loaded", 0, ""},
	v1alpha1.NodesFailingReason:         {Warning, "nodes refuse or end runners", 0, ""},
	v1alpha1.PodsDeletedReason:          {Warning, "others delete the pods of runners", 0, ""},
	v1alpha1.RolledBackReason:           {Warning, "an update was rolled back", 0, ""},
	v1alpha1.MaxReachedReason:           {Warning, "full, and jobs wait", 0, ""},
	v1alpha1.LabelsDroppedReason:        {Warning, "GitHub kept fewer labels", 0, ""},
	v1alpha1.LabelsKeptReason:           {Warning, "GitHub keeps former labels", 0, ""},
	v1alpha1.RunnerOutdatedReason:       {Warning, "GitHub may refuse the runners' version", 0, ""},
	v1alpha1.WebhookSecretMissingReason: {Warning, "GitHub's events are refused", 0, ""},
	v1alpha1.DisruptionBudgetsReason:    {Warning, "a second PodDisruptionBudget makes drains fail", 0, ""},
	v1alpha1.BuildFailedReason:          {Warning, "definitions don't compile", 0, ""},
	v1alpha1.VerificationFailedReason:   {Warning, "no known key signed the revision", 0, ""},
	v1alpha1.ApplyFailedReason:          {Warning, "definitions can't be applied", 0, ""},
	v1alpha1.PruneRefusedReason:         {Warning, "a revision would remove too many pools", 0, ""},
	v1alpha1.PruneFailedReason:          {Warning, "an object that left its source can't be deleted", 0, ""},
	v1alpha1.ArtifactFailedReason:       {Warning, "definitions can't be fetched", 0, ""},
	v1alpha1.DependencyNotReadyReason:   {Warning, "a source waits for another", time.Minute, ""},
	v1alpha1.CommitStatusFailedReason:   {Warning, "GitHub doesn't show what became of a revision", 0, ""},
	v1alpha1.SessionRefusedReason:       {Warning, "a former session is in the way", 2 * time.Minute, ""}, // it expires within 92 s
	v1alpha1.ProgressingWithRetryReason: {Warning, "an attempt failed", time.Minute, ""},
	v1alpha1.ProgressingReason:          {Warning, "under way for long", 10 * time.Minute, "under way"},

	v1alpha1.SuspendedReason:  {Note, "suspended", 0, ""},
	v1alpha1.DrainingReason:   {Note, "being deleted", 0, ""},
	v1alpha1.UpdateHeldReason: {Note, "an update is held", 0, ""},
}

// reasons of findings that no condition has.
const (
	noLeaderReason      = "NoLeader"
	notLookedAtReason   = "NotLookedAt"
	runnersWaitReason   = "RunnersWait"
	jobsWaitReason      = "JobsWait"
	staleReason         = "DemandStale"
	heldReason          = "Held"
	notListening        = "NotListening"
	noResumeReason      = "SessionNotResumable"
	quotaNearReason     = "QuotaNearlyFull"
	tokenEndsReason     = "TokenEnds"
	eventsRefusedReason = "EventsRefused"
	notReadReason       = "NotRead"
)

// ofConnection are reasons of a pool that its connection is the cause of, if that isn't ready.
var ofConnection = map[string]bool{
	v1alpha1.ConnectionNotReadyReason: true, v1alpha1.CredentialsMissingReason: true, v1alpha1.CredentialsRefusedReason: true,
	v1alpha1.PermissionMissingReason: true, v1alpha1.ScopeNotFoundReason: true, v1alpha1.GitHubUnavailableReason: true,
}

// rankOf returns a reason's rank. One that isn't known is named as it is.
func rankOf(reason string) rank {
	if r, ok := ranks[reason]; ok {
		return r
	}
	return rank{severity: Warning, what: reason}
}

// varying is what differs in messages of one cause.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\d+`)

// alike returns a message without names and numbers, by which causes of several objects are found to be one.
func alike(message string) string { return varying.ReplaceAllString(message, "*") }
