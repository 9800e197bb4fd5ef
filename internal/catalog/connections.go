// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/corral-dev/corral/apis/v1alpha1"

// createConnection is the remedy for objects whose connection does not exist.
const createConnection = "Create the GitHubConnection, or correct the pool's spec.connectionRef."

// Causes of connections.
var (
	CredentialsNotNamed     = define(Row{Code: "CredentialsNotNamed", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "exactly one of secretRef and mount must be set"})
	CredentialsDirMissing   = define(Row{Code: "CredentialsDirMissing", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "spec.mount requires the controller flag --credentials-dir, which is not set", Remedy: "Set the controller flag --credentials-dir (in the chart: credentials), or use spec.secretRef."})
	FolderUnreadable        = define(Row{Code: "FolderUnreadable", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "cannot open the mounted folder {folder}"})
	FolderKeyUnreadable     = define(Row{Code: "FolderKeyUnreadable", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "mounted folder {folder}: cannot read {key}"})
	CredentialsAmbiguous    = define(Row{Code: "CredentialsAmbiguous", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{from} contains both {key} and {others}: keep one kind of credentials"})
	CredentialsAbsent       = define(Row{Code: "CredentialsAbsent", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "{from} contains neither {key} nor {others}"})
	CredentialsIncomplete   = define(Row{Code: "CredentialsIncomplete", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "{from} is missing {keys}"})
	InstallationIDInvalid   = define(Row{Code: "InstallationIDInvalid", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{from}: {key} is not a number"})
	CredentialsUnusable     = define(Row{Code: "CredentialsUnusable", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "cannot use the credentials"})
	CredentialsOfAnother    = define(Row{Code: "CredentialsOfAnother", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "GitHubConnection {other} uses the same credentials for {server}: Corral does not send them to {wanted}. {remedy}"})
	CredentialsShared       = define(Row{Code: "CredentialsShared", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "GitHubConnection {other} uses the same credentials for {server}: Corral sends them to neither server. {remedy}"})
	CredentialsForServer    = define(Row{Code: "CredentialsForServer", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "the key {key} restricts the credentials to {server}: Corral does not send them to {wanted}"})
	SecretRefusedByGitHub   = define(Row{Code: "SecretRefusedByGitHub", Reason: v1alpha1.CredentialsRefusedReason, Stalls: true, Message: `Secret "{secret}"`})
	ConsentMissing          = define(Row{Code: "ConsentMissing", Reason: v1alpha1.AccessDeniedReason, Stalls: true, Message: "{consent}"})
	NamespaceNotWatched     = define(Row{Code: "NamespaceNotWatched", Reason: v1alpha1.AccessDeniedReason, Stalls: true, Message: "cannot use GitHubConnection {connection}: namespace {namespace} is not in --watch-namespaces"})
	ProxyURLInvalid         = define(Row{Code: "ProxyURLInvalid", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{field}.url must have the form http://HOST:PORT: put the user name and password into a Secret"})
	ProxyNotNamed           = define(Row{Code: "ProxyNotNamed", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{field}.secretRef: Secret {secret} has no key {key} with the address of this proxy: set it to {origin} if its credentials are for this proxy"})
	ProxyUserMissing        = define(Row{Code: "ProxyUserMissing", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "{field}.secretRef: Secret {secret} has no value for the key {key}"})
	CANotNamed              = define(Row{Code: "CANotNamed", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "spec.ca: exactly one of configMapRef and secretRef must be set"})
	CAKeyMissing            = define(Row{Code: "CAKeyMissing", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{field}: {object} has no value for the key {key}"})
	CATooLarge              = define(Row{Code: "CATooLarge", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{field}: the certificates under the key {key} of {object} exceed the limit of {bytes} bytes"})
	CAInvalid               = define(Row{Code: "CAInvalid", Reason: v1alpha1.InvalidSpecReason, Stalls: true, Message: "{field}: the key {key} of {object} is invalid"})
	ReferenceMissing        = define(Row{Code: "ReferenceMissing", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "{object} not found"})
	ReferenceForbidden      = define(Row{Code: "ReferenceForbidden", Reason: v1alpha1.CredentialsMissingReason, Stalls: true, Message: "the controller is not allowed to read {object}", Remedy: "Allow the controller's ServiceAccount to read the object that the message names."})
	GitHubRateLimited       = define(Row{Code: "GitHubRateLimited", Reason: v1alpha1.GitHubUnavailableReason, Message: "{detail}{nextBy}"})
	AnswersUnusable         = define(Row{Code: "AnswersUnusable", SameAs: v1alpha1.GitHubUnavailableReason, Reason: v1alpha1.GitHubUnavailableReason, Message: "cannot use GitHub's responses: {detail}{nextBy}"})
	AnswersTooLarge         = define(Row{Code: "AnswersTooLarge", SameAs: v1alpha1.GitHubUnavailableReason, Reason: v1alpha1.GitHubUnavailableReason, Message: "GitHub's responses to requests made for pools are too large: {detail}{nextBy}"})
	CallsUnanswered         = define(Row{Code: "CallsUnanswered", SameAs: v1alpha1.GitHubUnavailableReason, Reason: v1alpha1.GitHubUnavailableReason, Message: "GitHub did not respond to requests made for pools{nextBy}"})
	CallsFailing            = define(Row{Code: "CallsFailing", SameAs: v1alpha1.GitHubUnavailableReason, Reason: v1alpha1.GitHubUnavailableReason, Volatile: []string{"code"}, Message: "GitHub responded with {code} to requests made for pools{nextBy}"})
	CallsRateLimited        = define(Row{Code: "CallsRateLimited", SameAs: "GitHubRateLimited", Reason: v1alpha1.GitHubUnavailableReason, Message: "GitHub responded with 429 to requests made for pools{nextBy}"})
	ConnectionUnavailable   = define(Row{Code: "ConnectionUnavailable", Reason: v1alpha1.GitHubUnavailableReason, Message: `GitHubConnection "{connection}"`})
	ConnectionMissing       = define(Row{Code: "ConnectionMissing", Reason: v1alpha1.ConnectionNotReadyReason, Message: `GitHubConnection "{connection}" not found`, Remedy: createConnection})
	ConnectionFailed        = define(Row{Code: "ConnectionFailed", Reason: v1alpha1.ConnectionNotReadyReason, Message: `GitHubConnection "{connection}" is not ready: {reason}`})
	ConnectionStarting      = define(Row{Code: "ConnectionStarting", Reason: v1alpha1.ProgressingReason, Message: `the controller just started and has not verified GitHubConnection "{connection}" yet`})
	ConnectionUnverified    = define(Row{Code: "ConnectionUnverified", Reason: v1alpha1.ProgressingReason, Message: `GitHubConnection "{connection}" is being verified`})
	ConnectionDeleted       = define(Row{Code: "ConnectionDeleted", Reason: v1alpha1.ConnectionNotReadyReason, Message: `GitHubConnection "{connection}" not found: Corral keeps using its credentials for up to one hour, or until the controller restarts`, Remedy: createConnection})
	ConnectionGone          = define(Row{Code: "ConnectionGone", Reason: v1alpha1.ConnectionNotReadyReason, Message: `GitHubConnection "{connection}" was deleted`, Remedy: createConnection})
	ConnectionMoved         = define(Row{Code: "ConnectionMoved", Reason: v1alpha1.ConnectionNotReadyReason, Message: `GitHubConnection "{connection}" no longer points to {url}`})
	VerificationPaused      = define(Row{Code: "VerificationPaused", Reason: v1alpha1.SuspendedReason, Message: "verification is paused, and Corral has never verified these credentials, proxy and CA", Remedy: "Set spec.verification to Active once, so that Corral verifies the credentials."})
	TokenEnds               = define(Row{Code: "TokenEnds", Role: Fact, Message: "its token expires on {day}"})
	ClockDiffers            = define(Row{Code: "ClockDiffers", Role: Fact, Volatile: []string{"span"}, Message: "GitHub's clock differs from the API server's clock by {span}"})
	FeatureMissing          = define(Row{Code: "FeatureMissing", Role: Fact, Message: "without {feature}"})
	UsesFormerCredentials   = define(Row{Code: "UsesFormerCredentials", Role: Aside, Message: `using the previous credentials of GitHubConnection "{connection}": a restart of the controller would stop the pool`})
	FormerCredentials       = define(Row{Code: "FormerCredentials", Role: Fact, Message: "pools continue with the previous credentials: a restart of the controller would stop them"})
	WebhookSecretNotFound   = define(Row{Code: "WebhookSecretNotFound", Reason: v1alpha1.WebhookSecretMissingReason, Stalls: true, Message: "spec.webhook.secretRef: Secret {secret} not found: Corral refuses GitHub's events"})
	WebhookSecretForbidden  = define(Row{Code: "WebhookSecretForbidden", Reason: v1alpha1.WebhookSecretMissingReason, Stalls: true, Message: "spec.webhook.secretRef: the controller is not allowed to read Secret {secret}", Remedy: "Allow the controller's ServiceAccount to read the Secret. Until then, Corral refuses GitHub's events."})
	WebhookSecretTooLong    = define(Row{Code: "WebhookSecretTooLong", Reason: v1alpha1.WebhookSecretMissingReason, Stalls: true, Message: "spec.webhook.secretRef: the key {key} of Secret {secret} has more than {limit} bytes: Corral refuses GitHub's events"})
	WebhookSecretKeyMissing = define(Row{Code: "WebhookSecretKeyMissing", Reason: v1alpha1.WebhookSecretMissingReason, Stalls: true, Message: "spec.webhook.secretRef: Secret {secret} has no value for the key {key}: Corral refuses GitHub's events"})
)
