// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxCauses is the maximum number of causes in a status.
const MaxCauses = 16

// MaxCauseText is the maximum length of a text in a cause, in bytes. Longer texts are cut. The message of the condition may
// be longer.
const MaxCauseText = 1024

// MaxCauseCode is the maximum length of a code, in bytes. A longer reason of another object's condition is cut.
const MaxCauseCode = 64

// Cause explains why a condition is not as it should be. Its code and parameters are part of the API; messages are rendered from them and may
// change with each release.
type Cause struct {
	// code identifies the kind of cause: see docs/reference/messages.md.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code"`

	// condition is the type of the condition that the cause explains.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Condition string `json:"condition"`

	// subject is the object that is at fault, if it is not this one.
	// +optional
	Subject *CauseSubject `json:"subject,omitempty"`

	// parameters are the facts that the message is rendered from.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Parameters []CauseParameter `json:"parameters,omitempty"`

	// detail is a text that another program wrote, such as GitHub or the API server. It is only displayed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Detail string `json:"detail,omitempty"`

	// since is when the cause was first seen.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// nextAttempt is the latest time of the next attempt, if it is known.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`
}

// CauseSubject identifies the object that is at fault.
type CauseSubject struct {
	// kind of the object.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Kind string `json:"kind"`

	// namespace of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CauseParameter is one fact about a cause.
type CauseParameter struct {
	// name of the parameter.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`

	// value of the parameter.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// Parameter returns the value of a parameter, or "" if the cause does not have it.
func (c *Cause) Parameter(name string) string {
	for _, p := range c.Parameters {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// CausesOf returns the causes of a condition.
func CausesOf(causes []Cause, condition string) []Cause {
	return slices.DeleteFunc(slices.Clone(causes), func(c Cause) bool { return c.Condition != condition })
}
