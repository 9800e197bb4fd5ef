// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxFailures is the maximum number of failed runners in the status of a pool.
const MaxFailures = 5

// RunnerFailure describes a failed runner of a pool. Corral has deleted the runner or is deleting it.
type RunnerFailure struct {
	// runner that failed.
	Runner string `json:"runner"`

	// time at which Corral observed the failure.
	Time metav1.Time `json:"time"`

	// revision of its template.
	// +optional
	Revision string `json:"revision,omitempty"`

	// cause; absent if the runner had a job.
	// +optional
	Cause RunnerCause `json:"cause,omitempty"`

	// reason in one sentence, at most 300 bytes.
	// +optional
	Reason string `json:"reason,omitempty"`

	// node on which its pod was.
	// +optional
	Node string `json:"node,omitempty"`

	// exit describes how its container ended, unless with exit code 0. It contains at most 500 bytes of the message and 3
	// taints, and no node.
	// +optional
	Exit *RunnerExit `json:"exit,omitempty"`
}

// String returns a description in one line, without the time.
func (f *RunnerFailure) String() string {
	text := f.Runner
	if f.Node != "" {
		text += " on node " + f.Node
	}
	switch {
	case f.Cause != "":
		text += ": " + string(f.Cause) + ": " + f.Reason
	case f.Reason != "":
		text += ": " + f.Reason
	}
	return text + f.Exit.After(f.Reason)
}
