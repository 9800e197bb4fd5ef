// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerScaleSetSpec is the scale set that the pool requires on GitHub, with all data that its deletion needs.
type RunnerScaleSetSpec struct {
	// poolRef names the RunnerPool.
	// +required
	PoolRef LocalObjectReference `json:"poolRef"`
	// poolUID is the RunnerPool's UID, the second half of the session owner's name.
	// +required
	// +kubebuilder:validation:MaxLength=64
	PoolUID string `json:"poolUID"`
	// connectionRef names the GitHubConnection.
	// +required
	ConnectionRef ConnectionReference `json:"connectionRef"`
	// name on GitHub, unique in its runner group.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// runnerGroup on GitHub.
	// +required
	// +kubebuilder:validation:MaxLength=128
	RunnerGroup string `json:"runnerGroup"`
	// labels that jobs request.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=255
	Labels []string `json:"labels"`
}

// RunnerScaleSetStatus describes what exists on GitHub.
type RunnerScaleSetStatus struct {
	// observedGeneration is the last reconciled generation.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready, Listening, LabelsAccepted, and Reconciling or Stalled while they apply.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// causes explain the conditions in machine-readable form, beginning with the causes of Ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Causes []Cause `json:"causes,omitempty"`
	// id on GitHub; 0 until it exists.
	// +optional
	ID int64 `json:"id,omitempty"`
	// name on GitHub, as last observed.
	// +optional
	Name string `json:"name,omitempty"`
	// runnerGroup on GitHub, as last observed.
	// +optional
	RunnerGroup string `json:"runnerGroup,omitempty"`
	// labels on GitHub, as last observed.
	// +optional
	// +listType=atomic
	Labels []string `json:"labels,omitempty"`
	// outage is set while GitHub is unavailable for this scale set.
	// +optional
	Outage *GitHubOutage `json:"outage,omitempty"`
	// sessionID of the current or last message session, with a seal. A controller that takes over after a crash continues with
	// this session.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	SessionID string `json:"sessionID,omitempty"`
}

// RunnerScaleSet records what exists on GitHub for a pool. Corral creates it. Its finalizer deletes the scale set on GitHub.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rss,categories=corral
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.status.runnerGroup`
// +kubebuilder:printcolumn:name="Listening",type=string,JSONPath=`.status.conditions[?(@.type=="Listening")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RunnerScaleSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerScaleSetSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status RunnerScaleSetStatus `json:"status,omitzero"`
	Unread `json:"-"`
}

// GetConditions returns the status conditions.
func (s *RunnerScaleSet) GetConditions() []metav1.Condition { return s.Status.Conditions }

// Causes returns the list of causes in its status.
func (s *RunnerScaleSet) Causes() *[]Cause { return &s.Status.Causes }

// SetConditions replaces the status conditions.
func (s *RunnerScaleSet) SetConditions(conditions []metav1.Condition) {
	s.Status.Conditions = conditions
}

// SetObservedGeneration records the reconciled generation.
func (s *RunnerScaleSet) SetObservedGeneration(generation int64) {
	s.Status.ObservedGeneration = generation
}

// RunnerScaleSetList is a list of RunnerScaleSets.
// +kubebuilder:object:root=true
type RunnerScaleSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerScaleSet `json:"items"`
}
