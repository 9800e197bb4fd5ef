// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// DeletionPolicy determines what happens to the objects that a PoolSource applied when it is deleted.
// +kubebuilder:validation:Enum=Orphan;Delete
type DeletionPolicy string

const (
	// DeletionOrphan leaves the objects as they are.
	DeletionOrphan DeletionPolicy = "Orphan"
	// DeletionDelete lets garbage collection delete the objects with their source.
	DeletionDelete DeletionPolicy = "Delete"
)

// Defaults of PoolSourceSpec.
const (
	// DefaultSourceTimeout limits one fetch.
	DefaultSourceTimeout = time.Minute
	// DefaultSourcePath is the root of the repository.
	DefaultSourcePath = "."
)

// PoolSourceSpec configures where pool definitions come from and how they are applied.
// +kubebuilder:validation:XValidation:rule="has(self.git) != has(self.sourceRef)",message="exactly one of git and sourceRef must be set"
type PoolSourceSpec struct {
	// git is the repository with the definitions. Corral itself fetches it.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// sourceRef names an object of Flux's source-controller whose artifact holds the definitions.
	// +optional
	SourceRef *SourceReference `json:"sourceRef,omitempty"`

	// dependsOn names PoolSources that must be ready, and have applied their current revision, before this one is applied.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	DependsOn []meta.NamespacedObjectReference `json:"dependsOn,omitempty"`

	// serviceAccountName in the source's namespace. Corral applies and prunes with its permissions instead of the controller's.
	// Default: the account of --default-service-account, or else the controller's own permissions.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// commitStatus reports the outcome of a revision to GitHub: a commit status, and a check run with the errors and their lines. It needs
	// the controller's flag --post-status.
	// +optional
	CommitStatus *CommitStatus `json:"commitStatus,omitempty"`

	// path of the folder to compile, relative to the root of the repository. Default: the root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default="."
	Path string `json:"path,omitempty"`

	// interval between two reads of the repository, with jitter.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	Interval metav1.Duration `json:"interval,omitzero"`

	// retryInterval after a failed attempt. Default: interval.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// timeout of one fetch. Default: 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^(\d{1,5}(\.\d{1,9})?h|\d{1,7}(\.\d{1,9})?(m|s|ms)){1,4}$') && duration(self) >= duration('1s')`,message="must be a duration of at least 1s, such as 10m or 168h"
	// +kubebuilder:default="1m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// suspend stops fetching and applying. Applied objects keep running.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// prune deletes objects that the source no longer contains. Default: true. A revision that would remove all pools or
	// more than half of them is refused unless the annotation corral.dev/allow-prune names it.
	// +optional
	// +kubebuilder:default=true
	Prune *bool `json:"prune,omitempty"`

	// deletionPolicy determines what happens to the applied objects when this PoolSource is deleted: Orphan (default) keeps
	// them, and Delete deletes them.
	// +optional
	// +kubebuilder:default=Orphan
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// tags are injected into CUE fields marked @tag(NAME).
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Tags map[string]string `json:"tags,omitempty"`
}

// Kinds of Flux that a PoolSource may name.
const (
	GitRepositoryKind    = "GitRepository"
	OCIRepositoryKind    = "OCIRepository"
	BucketKind           = "Bucket"
	ExternalArtifactKind = "ExternalArtifact"
)

// SourceReference names an object of Flux's source-controller (group source.toolkit.fluxcd.io).
type SourceReference struct {
	// kind: GitRepository, OCIRepository, Bucket or ExternalArtifact.
	// +required
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;Bucket;ExternalArtifact
	Kind string `json:"kind"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the object. Default: the namespace of the PoolSource. Another namespace needs the controller's flag
	// --no-cross-namespace-refs=false.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// CommitStatus names the identity that reports the outcome of a revision to GitHub.
type CommitStatus struct {
	// connectionRef names a GitHubConnection in the same namespace with a GitHub App (or token) that may write commit statuses and, for an
	// App, check runs of the repository.
	// +required
	ConnectionRef LocalObjectReference `json:"connectionRef"`
}

// GitSource is a Git repository and the reference to check out.
type GitSource struct {
	// url of the repository: https://, ssh://, or file:// if the controller allows it.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?|ssh|file)://\S+$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/:]+:/?[^/]')",message="write ssh://git@HOST/PATH instead of git@HOST:PATH",messageExpression="'write ssh://' + self.replace(':/', '/', 1).replace(':', '/', 1)"
	URL string `json:"url"`

	// ref to check out. Default: the branch main.
	// +optional
	Ref *GitReference `json:"ref,omitempty"`

	// secretRef names a Secret. For https://: username and password, or bearerToken, and optionally ca.crt. For ssh://: identity (a
	// private key), known_hosts, and password if the key has one.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`

	// proxySecretRef names a Secret with the address of a proxy for https://, and optionally the username and password for
	// it. Default: the proxy of the controller's environment, if it has one.
	// +optional
	ProxySecretRef *LocalObjectReference `json:"proxySecretRef,omitempty"`

	// verify accepts only revisions that are signed by a known key.
	// +optional
	Verify *GitVerification `json:"verify,omitempty"`
}

// GitVerifyMode determines what must be signed.
// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
type GitVerifyMode string

// Modes of verification, as in Flux.
const (
	// VerifyHEAD requires a signed commit.
	VerifyHEAD GitVerifyMode = "HEAD"
	// VerifyTag requires a signed annotated tag.
	VerifyTag GitVerifyMode = "Tag"
	// VerifyTagAndHEAD requires both.
	VerifyTagAndHEAD GitVerifyMode = "TagAndHEAD"
)

// GitVerification configures which signatures are accepted.
type GitVerification struct {
	// mode: HEAD (default), Tag or TagAndHEAD.
	// +optional
	Mode GitVerifyMode `json:"mode,omitempty"`

	// secretRef names a Secret with the public keys that are trusted: armored OpenPGP keys under any names that end in .asc, and
	// SSH keys, one per line as in authorized_keys, under any names that end in .pub.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`
}

// GitReference names one of a branch, a tag, a range of versions or a commit.
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.semver), has(self.commit)].filter(x, x).size() == 1",message="exactly one of branch, tag, semver and commit must be set"
type GitReference struct {
	// branch whose tip is followed.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	Branch string `json:"branch,omitempty"`

	// tag to check out.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	Tag string `json:"tag,omitempty"`

	// semver is a range of versions, such as >=1.2.0 <2.0.0 or ~1.4. Corral follows the highest tag in it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	SemVer string `json:"semver,omitempty"`

	// commit to check out, 40 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{40}$`
	Commit string `json:"commit,omitempty"`
}

// DefaultGitBranch is followed when spec.git.ref is not set.
const DefaultGitBranch = "main"

// PoolSourceStatus describes what was last fetched, compiled and applied.
type PoolSourceStatus struct {
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

	// lastAttemptedRevision is the last revision that Corral tried to apply, as REF@sha1:COMMIT, or in the form of
	// sourceRef's artifact.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// lastAppliedRevision is the last revision that was applied completely. It stays in force when a later revision is
	// refused.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// inventory lists the objects that this source applied and holds.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// diagnostics of the last attempted revision, the first 20.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Diagnostics []Diagnostic `json:"diagnostics,omitempty"`

	// commitStatus has the reason why Corral cannot report outcomes to GitHub (spec.commitStatus). It is absent while reports succeed.
	// +optional
	CommitStatus *CommitStatusFailure `json:"commitStatus,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
}

// CommitStatusFailure is the reason why Corral cannot report outcomes to GitHub.
type CommitStatusFailure struct {
	// message contains GitHub's refusal, or the missing setting.
	// +required
	Message string `json:"message"`
	// since is when the failure began.
	// +required
	Since metav1.Time `json:"since"`
}

// Inventory lists applied objects.
type Inventory struct {
	// entries, sorted by id.
	// +required
	// +listType=atomic
	Entries []InventoryEntry `json:"entries"`
}

// InventoryEntry is one applied object, in Flux's form.
type InventoryEntry struct {
	// id is NAMESPACE_NAME_GROUP_KIND.
	// +required
	ID string `json:"id"`
	// v is the API version.
	// +required
	Version string `json:"v"`
}

// Diagnostic is one problem of a definition.
type Diagnostic struct {
	// file, relative to the root of the compiled tree; empty if the problem concerns the whole tree.
	// +optional
	File string `json:"file,omitempty"`
	// line in the file, from 1; 0 when unknown.
	// +optional
	Line int32 `json:"line,omitempty"`
	// column in the line, from 1; 0 when unknown.
	// +optional
	Column int32 `json:"column,omitempty"`
	// path of the field, for example pools.linux.spec.scale.max.
	// +optional
	Path string `json:"path,omitempty"`
	// message contains the problem and the remedy.
	// +required
	Message string `json:"message"`
	// code identifies the problem, if it has a specific remedy.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code,omitempty"`
}

// String formats the diagnostic as file:line:col: path: message, and omits empty parts.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(d.File)
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
		}
		b.WriteString(": ")
	}
	if d.Path != "" {
		b.WriteString(d.Path + ": ")
	}
	b.WriteString(d.Message)
	return b.String()
}

// LineNumber converts a line or column, counted from 1, to the type used in statuses.
func LineNumber(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // it was just bounded

// PoolSource is where pool definitions come from.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=psource,categories=corral
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.lastAppliedRevision`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 63",optionalOldSelf=true,message="a source's name must have at most 63 characters: it is the value of a label on each object that the source applies"
type PoolSource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PoolSourceSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status PoolSourceStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// Secrets returns the names of the Secrets with credentials that the source reads. Runners may not read them.
func (s *PoolSource) Secrets() []string {
	if s.Spec.Git == nil {
		return nil
	}
	return names([]*LocalObjectReference{s.Spec.Git.SecretRef, s.Spec.Git.ProxySecretRef})
}

// GetConditions returns the status conditions.
func (s *PoolSource) GetConditions() []metav1.Condition { return s.Status.Conditions }

// Causes returns the list of causes in its status.
func (s *PoolSource) Causes() *[]Cause { return &s.Status.Causes }

// SetConditions replaces the status conditions.
func (s *PoolSource) SetConditions(conditions []metav1.Condition) { s.Status.Conditions = conditions }

// GetPath returns the folder to compile.
func (s *PoolSourceSpec) GetPath() string { return cmp.Or(s.Path, DefaultSourcePath) }

// GetRetryInterval returns the time to the next attempt after a failed one.
func (s *PoolSourceSpec) GetRetryInterval() time.Duration {
	if s.RetryInterval == nil {
		return s.Interval.Duration
	}
	return s.RetryInterval.Duration
}

// GetTimeout returns the time limit of one fetch.
func (s *PoolSourceSpec) GetTimeout() time.Duration {
	if s.Timeout == nil {
		return DefaultSourceTimeout
	}
	return s.Timeout.Duration
}

// GetPrune reports whether Corral deletes objects that the source no longer declares.
func (s *PoolSourceSpec) GetPrune() bool { return s.Prune == nil || *s.Prune }

// GetDeletionPolicy returns what happens to applied objects when the source is deleted.
func (s *PoolSourceSpec) GetDeletionPolicy() DeletionPolicy {
	return cmp.Or(s.DeletionPolicy, DeletionOrphan)
}

// GetMode returns what must be signed.
func (v *GitVerification) GetMode() GitVerifyMode { return cmp.Or(v.Mode, VerifyHEAD) }

// GetRef returns the reference to check out.
func (g *GitSource) GetRef() GitReference {
	return ptr.Deref(g.Ref, GitReference{Branch: DefaultGitBranch})
}

// SetObservedGeneration records the reconciled generation.
func (s *PoolSource) SetObservedGeneration(generation int64) {
	s.Status.ObservedGeneration = generation
}

// PoolSourceList is a list of PoolSources.
// +kubebuilder:object:root=true
type PoolSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PoolSource `json:"items"`
}
