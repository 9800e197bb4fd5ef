// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the credentials, in a Secret or as file names in a mounted folder. All except ServerKey are the ones that ARC
// uses.
const (
	// TokenKey holds a personal access token.
	TokenKey = "github_token"
	// AppIDKey holds a GitHub App's id or client id.
	AppIDKey = "github_app_id"
	// AppInstallationIDKey holds the id of the App's installation.
	AppInstallationIDKey = "github_app_installation_id"
	// AppPrivateKeyKey holds the App's private key, PEM.
	AppPrivateKeyKey = "github_app_private_key"
	// ServerKey holds the only server that may receive the credentials, as a host or a URL. It is optional.
	ServerKey = "github_server"
)

// Keys of Secrets with credentials for proxies and Git servers, as in Flux.
const (
	// UsernameKey holds the user name for a proxy or a Git server.
	UsernameKey = "username"
	// PasswordKey holds the password.
	PasswordKey = "password"
	// AddressKey holds the URL of the proxy that may receive the password.
	AddressKey = "address"
	// CAKey holds certificates, PEM.
	CAKey = "ca.crt"
)

// Keys of the Secret with which GitHub signs a webhook's events.
const (
	// WebhookSecretKey holds the secret.
	WebhookSecretKey = "secret"
	// WebhookPreviousKey holds the previous secret during a rotation.
	WebhookPreviousKey = "previous"
)

// GitHubConnectionSpec is one GitHub identity: a URL and credentials.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.mount)",message="exactly one of secretRef and mount must be set"
type GitHubConnectionSpec struct {
	// url of the organization, repository or enterprise that runners serve, as a
	// browser shows it: https://github.com/ORG, https://HOST/OWNER/REPO or
	// https://HOST/enterprises/NAME. A host other than github.com and *.ghe.com is
	// treated as a GitHub Enterprise Server. The url is immutable, because runners and scale sets belong
	// to it. To use another url, create another connection and point the pools at it. You can also delete this connection
	// and create it again: its pools wait for it. If it ever worked, delete its pools before you create it with another
	// url, because their scale sets and runners stay at the previous url.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#\s]+/[^?#\s]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="url is immutable: create another GitHubConnection and point the pools at it; if this one never worked, delete it and create it again with the correct url, and its pools wait for it"
	URL string `json:"url,omitempty"`

	// secretRef names a Secret with either github_token, or github_app_id,
	// github_app_installation_id and github_app_private_key.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`

	// mount names a folder with the same keys as files, for credentials that a vault or a CSI driver mounts. The folder is
	// NAMESPACE/NAME below the controller's --credentials-dir, with the connection's namespace.
	// +optional
	Mount *CredentialsMount `json:"mount,omitempty"`

	// webhook accepts events that GitHub sends to /github/NAMESPACE/NAME of the webhook server.
	// +optional
	Webhook *ConnectionWebhook `json:"webhook,omitempty"`

	// proxy for calls to GitHub. Default: the proxy of the controller's environment, if it has one.
	// +optional
	Proxy *ConnectionProxy `json:"proxy,omitempty"`

	// ca of the server, or of a proxy that inspects traffic. The controller and runners trust it in addition to the system's CAs. Containers of
	// runners find it in /usr/local/share/ca-certificates/corral, and the image's run script adds it to the trusted CAs.
	// At most 64 KiB of certificates.
	// +optional
	CA *ConnectionCA `json:"ca,omitempty"`

	// allowedNamespaces lists other namespaces whose pools may use this connection: names, or patterns in which * matches
	// any characters, such as ci-* or *. The connection registers the runners of these pools. Its credentials for GitHub are
	// never copied to these namespaces. If proxy.scope is ControllerAndRunners, its proxy's credentials are copied.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$`
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`

	// verification is Active (default), or Paused to stop verifying the credentials. Pools on this connection continue with
	// the credentials that were verified last.
	// +optional
	// +kubebuilder:default=Active
	Verification VerificationState `json:"verification,omitempty"`
}

// VerificationState determines whether Corral verifies the credentials.
// +kubebuilder:validation:Enum=Active;Paused
type VerificationState string

const (
	// VerificationActive verifies credentials regularly.
	VerificationActive VerificationState = "Active"
	// VerificationPaused stops verification.
	VerificationPaused VerificationState = "Paused"
)

// GetVerification returns whether the credentials are verified.
func (s *GitHubConnectionSpec) GetVerification() VerificationState {
	return cmp.Or(s.Verification, VerificationActive)
}

// ConnectionWebhook has the secret that authenticates events, and the webhook on GitHub whose lost deliveries Corral requests again.
type ConnectionWebhook struct {
	// secretRef names a Secret with the webhook's secret under the key secret and, during a rotation, the previous secret
	// under the key previous.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`

	// hookID of the organization's or repository's webhook on GitHub. Corral uses it to find lost deliveries.
	// Default: the webhook of the App, with an App's credentials; none with a token.
	// +optional
	// +kubebuilder:validation:Minimum=1
	HookID int64 `json:"hookID,omitempty"`
}

// ConnectionProxy configures the proxies for GitHub, as in ARC.
// +kubebuilder:validation:XValidation:rule="has(self.http) || has(self.https)",message="one of http and https must be set"
type ConnectionProxy struct {
	// http is the proxy for http:// URLs. If only http is set, https:// URLs use no proxy, and the controller's environment
	// is ignored.
	// +optional
	HTTP *ProxyServer `json:"http,omitempty"`

	// https is the proxy for https:// URLs.
	// +optional
	HTTPS *ProxyServer `json:"https,omitempty"`

	// noProxy lists destinations without a proxy: hosts with their subdomains, .DOMAIN for subdomains alone, addresses and CIDR
	// ranges, each with an optional :PORT.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^,\s]+$`
	NoProxy []string `json:"noProxy,omitempty"`

	// scope is Controller (default), or ControllerAndRunners to set HTTP_PROXY, HTTPS_PROXY and NO_PROXY in all containers
	// of runners too. The proxy's password is then in the Secret of each runner, in each of allowedNamespaces: jobs can read
	// it, and so can anyone with permission to read Secrets there.
	// +optional
	// +kubebuilder:default=Controller
	Scope ProxyScope `json:"scope,omitempty"`
}

// ProxyScope determines who uses a proxy.
// +kubebuilder:validation:Enum=Controller;ControllerAndRunners
type ProxyScope string

const (
	// ProxyController is for the controller only.
	ProxyController ProxyScope = "Controller"
	// ProxyControllerAndRunners is for the controller and for runners.
	ProxyControllerAndRunners ProxyScope = "ControllerAndRunners"
)

// GetScope returns who uses the proxy.
func (p *ConnectionProxy) GetScope() ProxyScope { return cmp.Or(p.Scope, ProxyController) }

// ProxyServer is an HTTP proxy.
type ProxyServer struct {
	// url of the proxy, for example http://proxy.example.com:3128.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+/?$`
	URL string `json:"url,omitempty"`

	// secretRef names a Secret with the keys username, password and address. The address must be the same URL as url, so
	// that Corral sends the password to no other server. The Secret in a PoolSource's proxySecretRef has the same format.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
}

// ConnectionCA refers to CA certificates.
// +kubebuilder:validation:XValidation:rule="has(self.configMapRef) != has(self.secretRef)",message="exactly one of configMapRef and secretRef must be set"
type ConnectionCA struct {
	// configMapRef names a ConfigMap with the certificates, PEM.
	// +optional
	ConfigMapRef *LocalObjectReference `json:"configMapRef,omitempty"`

	// secretRef names a Secret with the certificates.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`

	// key of the certificates. Default: ca.crt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// GetKey returns the key of the certificates.
func (c *ConnectionCA) GetKey() string { return cmp.Or(c.Key, CAKey) }

// CredentialsMount names a folder of mounted credentials.
type CredentialsMount struct {
	// name of the folder, without a path.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// GitHubConnectionStatus contains the results of the last verification.
type GitHubConnectionStatus struct {
	// observedGeneration is the last reconciled generation.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, and Reconciling or Stalled while they apply.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// causes explain the conditions in machine-readable form, beginning with the causes of Ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Causes []Cause `json:"causes,omitempty"`

	// scope is organization, repository or enterprise.
	// +optional
	Scope string `json:"scope,omitempty"`

	// identity is the authenticated user: app/SLUG, or the token's login.
	// +optional
	Identity string `json:"identity,omitempty"`

	// serverVersion is the version of GitHub Enterprise Server; empty for github.com.
	// +optional
	ServerVersion string `json:"serverVersion,omitempty"`

	// credentialsHash identifies the credentials that were verified, without revealing them.
	// +optional
	CredentialsHash string `json:"credentialsHash,omitempty"`

	// networkHash identifies the proxy and CA with which Corral verified the credentials, without revealing them; empty
	// without a proxy and CA.
	// +optional
	NetworkHash string `json:"networkHash,omitempty"`

	// formerCredentials is true while pools continue with previously verified credentials, because the current ones are missing or refused. A
	// restart of the controller stops these pools.
	// +optional
	FormerCredentials bool `json:"formerCredentials,omitempty"`

	// tokenExpires is when GitHub expires the token; absent for an App, and for a token that does not expire.
	// +optional
	TokenExpires *metav1.Time `json:"tokenExpires,omitempty"`

	// outage is set while GitHub is unavailable through this connection.
	// +optional
	Outage *GitHubOutage `json:"outage,omitempty"`

	// missingFeatures are features that Corral uses, but that the GitHub server does not have or does not let these
	// credentials use. The connection is ready without them.
	// +optional
	// +listType=map
	// +listMapKey=name
	MissingFeatures []MissingFeature `json:"missingFeatures,omitempty"`

	// featuresProbe identifies the inputs of the last probe for missingFeatures: credentials, generation, server version and
	// request. It is empty while some features are still unknown.
	// +optional
	FeaturesProbe string `json:"featuresProbe,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
}

// GitHubOutage describes how GitHub fails: with 5xx, a rate limit, or no answer.
type GitHubOutage struct {
	// code of the answer, such as 500 or 429; 0 if there is none.
	// +optional
	Code int32 `json:"code"`

	// nextAttempt is the latest time of the next attempt; absent if unknown.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`
}

// String describes GitHub's failure.
func (o *GitHubOutage) String() string {
	switch {
	case o.Code == 0:
		return "GitHub doesn't answer"
	case o.Code < 300:
		return "GitHub's answer can't be used"
	}
	return fmt.Sprintf("GitHub answers %d", o.Code)
}

// ExpiryNotice is how long before a token expires the message of Ready announces it.
const ExpiryNotice = 14 * 24 * time.Hour

// TokenEnds returns when the connection's token expires, if that is soon; otherwise nil.
func (c *GitHubConnection) TokenEnds(now time.Time) *metav1.Time {
	if end := c.Status.TokenExpires; end != nil && end.Sub(now) < ExpiryNotice {
		return end
	}
	return nil
}

// EventsRefused returns the problem with the connection's events, or "".
func (c *GitHubConnection) EventsRefused() string {
	if i := slices.IndexFunc(c.Status.MissingFeatures, func(m MissingFeature) bool { return m.Name == FeatureEvents }); i >= 0 {
		return c.Status.MissingFeatures[i].Message
	}
	return ""
}

// MissingFeature is a feature that GitHub does not have, or does not let the credentials use.
type MissingFeature struct {
	// name of the feature: ScaleSets, SeveralLabels, RunnerReleases, RunnerGroups, Deliveries or Events.
	// +required
	Name string `json:"name"`

	// message describes the consequence for pools, and contains GitHub's answer.
	// +required
	Message string `json:"message"`
}

// Names of features that may be missing.
const (
	FeatureScaleSets      = "ScaleSets"
	FeatureSeveralLabels  = "SeveralLabels"  // several labels on a scale set
	FeatureRunnerReleases = "RunnerReleases" // the list of releases of the runner program
	FeatureRunnerGroups   = "RunnerGroups"   // the list of runner groups in the REST API
	FeatureDeliveries     = "Deliveries"     // the list of deliveries to the webhook
	FeatureEvents         = "Events"         // events with a valid signature
)

// GitHubConnection is one GitHub identity that pools use.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ghconn,categories=corral
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.status.identity`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GitHubConnection struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GitHubConnectionSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status GitHubConnectionStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// AllNamespaces in allowedNamespaces lets every namespace use a connection.
const AllNamespaces = "*"

// Allows reports whether pools of a namespace may use the connection.
func (c *GitHubConnection) Allows(namespace string) bool {
	return namespace == c.Namespace || slices.ContainsFunc(c.Spec.AllowedNamespaces, func(pattern string) bool {
		return MatchesNamespace(pattern, namespace)
	})
}

// MatchesNamespace reports whether a pattern matches a namespace. * matches any characters. An invalid pattern matches
// nothing.
func MatchesNamespace(pattern, namespace string) bool {
	ok, err := path.Match(pattern, namespace)
	return err == nil && ok
}

// NoConsent returns the message that pools of a namespace may not use a connection, NAMESPACE/NAME. It is the same if the
// connection does not exist.
func NoConsent(connection, namespace string) string {
	return fmt.Sprintf("there is no GitHubConnection %s that namespace %s may use: its owner has to add %[2]s to its spec.allowedNamespaces", connection, namespace)
}

// Secrets returns the names of the Secrets that the connection reads. Runners may not read them.
func (c *GitHubConnection) Secrets() []string {
	refs := []*LocalObjectReference{c.Spec.SecretRef}
	if c.Spec.Webhook != nil {
		refs = append(refs, &c.Spec.Webhook.SecretRef)
	}
	if p := c.Spec.Proxy; p != nil {
		for _, server := range []*ProxyServer{p.HTTP, p.HTTPS} {
			if server != nil {
				refs = append(refs, server.SecretRef)
			}
		}
	}
	if c.Spec.CA != nil {
		refs = append(refs, c.Spec.CA.SecretRef)
	}
	return names(refs)
}

// names returns the names of the references that are set.
func names(refs []*LocalObjectReference) []string {
	var names []string
	for _, ref := range refs {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}

// GetConditions returns the status conditions.
func (c *GitHubConnection) GetConditions() []metav1.Condition { return c.Status.Conditions }

// Causes returns the list of causes in its status.
func (c *GitHubConnection) Causes() *[]Cause { return &c.Status.Causes }

// SetConditions replaces the status conditions.
func (c *GitHubConnection) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// SetObservedGeneration records the reconciled generation.
func (c *GitHubConnection) SetObservedGeneration(generation int64) {
	c.Status.ObservedGeneration = generation
}

// GitHubConnectionList is a list of GitHubConnections.
// +kubebuilder:object:root=true
type GitHubConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GitHubConnection `json:"items"`
}
