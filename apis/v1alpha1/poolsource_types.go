// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeletionPolicy says what becomes of the objects a PoolSource applied when it is deleted.
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
	// DefaultSourceTimeout bounds one fetch.
	DefaultSourceTimeout = time.Minute
	// DefaultSourcePath is the root of the repository.
	DefaultSourcePath = "."
)

// PoolSourceSpec says where pool definitions come from and how they are applied.
type PoolSourceSpec struct {
	// git is the repository that holds the definitions.
	// +required
	Git GitSource `json:"git"`

	// path of the folder to compile, relative to the root of the repository. Default: the root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// interval at which the repository is looked at again (with jitter).
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="interval must be at least 1s"
	Interval metav1.Duration `json:"interval"`

	// retryInterval after a failed attempt. Default: interval.
	// +optional
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// timeout of one fetch. Default: 1m.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// suspend stops fetching and applying; what was applied keeps running.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// prune deletes objects that left the source. Default: true. A revision that would
	// remove all pools or more than half of them is refused unless the annotation
	// corral.dev/allow-prune names it.
	// +optional
	Prune *bool `json:"prune,omitempty"`

	// deletionPolicy is Orphan (default) or Delete: what becomes of the applied objects
	// when this PoolSource is deleted.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// tags are injected into CUE fields marked @tag(NAME).
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Tags map[string]string `json:"tags,omitempty"`
}

// GitSource is a Git repository and what to check out of it.
type GitSource struct {
	// url of the repository, https:// or file:// (file only where the controller allows it).
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?|file)://\S+$`
	URL string `json:"url"`

	// ref to check out. Default: the branch main.
	// +optional
	Ref *GitReference `json:"ref,omitempty"`

	// secretRef names a Secret with username and password, or bearerToken, and
	// optionally ca.crt.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
}

// GitReference names one of a branch, a tag or a commit.
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.commit)].filter(x, x).size() == 1",message="exactly one of branch, tag and commit must be set"
type GitReference struct {
	// branch whose tip is followed.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	Branch string `json:"branch,omitempty"`

	// tag to check out.
	// +optional
	// +kubebuilder:validation:MaxLength=244
	Tag string `json:"tag,omitempty"`

	// commit to check out, 40 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{40}$`
	Commit string `json:"commit,omitempty"`
}

// DefaultGitBranch is followed when spec.git.ref is not set.
const DefaultGitBranch = "main"

// PoolSourceStatus is what was fetched, compiled and applied last.
type PoolSourceStatus struct {
	// observedGeneration is the last generation acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Ready, and Reconciling or Stalled while they hold.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastAttemptedRevision is the last revision tried, as REF@sha1:COMMIT.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// lastAppliedRevision is the last revision applied in full; it keeps running when a later one is refused.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// inventory lists the objects this source applied and holds.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// diagnostics of the last attempted revision, the first 20.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Diagnostics []Diagnostic `json:"diagnostics,omitempty"`

	meta.ReconcileRequestStatus `json:",inline"`
}

// Inventory lists applied objects.
type Inventory struct {
	// entries, sorted by id.
	// +required
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

// Diagnostic is one thing that is wrong with a definition.
type Diagnostic struct {
	// file, relative to the root of the compiled tree; empty when the whole tree is meant.
	// +optional
	File string `json:"file,omitempty"`
	// line in the file, from 1; 0 when unknown.
	// +optional
	Line int `json:"line,omitempty"`
	// column in the line, from 1; 0 when unknown.
	// +optional
	Column int `json:"column,omitempty"`
	// path of the field, as pools.linux.spec.scale.max.
	// +optional
	Path string `json:"path,omitempty"`
	// message says what is wrong and what to do.
	// +required
	Message string `json:"message"`
}

// PoolSource is where pool definitions come from.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=psrc,categories=corral
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.lastAppliedRevision`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PoolSource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PoolSourceSpec `json:"spec"`
	// +optional
	Status PoolSourceStatus `json:"status,omitempty"`
}

// GetConditions returns the status conditions.
func (s *PoolSource) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the status conditions.
func (s *PoolSource) SetConditions(conditions []metav1.Condition) { s.Status.Conditions = conditions }

// GetPath returns the folder to compile.
func (s *PoolSourceSpec) GetPath() string {
	if s.Path == "" {
		return DefaultSourcePath
	}
	return s.Path
}

// GetRetryInterval returns the time to the next attempt after a failed one.
func (s *PoolSourceSpec) GetRetryInterval() time.Duration {
	if s.RetryInterval == nil {
		return s.Interval.Duration
	}
	return s.RetryInterval.Duration
}

// GetTimeout returns the bound of one fetch.
func (s *PoolSourceSpec) GetTimeout() time.Duration {
	if s.Timeout == nil {
		return DefaultSourceTimeout
	}
	return s.Timeout.Duration
}

// GetPrune says whether objects that left the source are deleted.
func (s *PoolSourceSpec) GetPrune() bool { return s.Prune == nil || *s.Prune }

// GetDeletionPolicy returns what becomes of applied objects when the source is deleted.
func (s *PoolSourceSpec) GetDeletionPolicy() DeletionPolicy {
	if s.DeletionPolicy == "" {
		return DeletionOrphan
	}
	return s.DeletionPolicy
}

// GetRef returns the reference to check out.
func (g *GitSource) GetRef() GitReference {
	if g.Ref == nil {
		return GitReference{Branch: DefaultGitBranch}
	}
	return *g.Ref
}

// SetObservedGeneration records the generation that was acted on.
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
