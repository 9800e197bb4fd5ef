// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxFailures is how many failed runners the status of a pool has.
const MaxFailures = 5

// RunnerFailure is a runner of a pool that failed. It is gone by now, or soon.
type RunnerFailure struct {
	// runner that failed.
	Runner string `json:"runner"`

	// time at which that was seen.
	Time metav1.Time `json:"time"`

	// revision of its template.
	// +optional
	Revision string `json:"revision,omitempty"`

	// cause; absent of a runner that failed with a job.
	// +optional
	Cause RunnerCause `json:"cause,omitempty"`

	// reason in one sentence, at most 300 bytes.
	// +optional
	Reason string `json:"reason,omitempty"`

	// node that its pod was on.
	// +optional
	Node string `json:"node,omitempty"`

	// exit is how its container ended, unless with exit code 0: at most 500 bytes of its message and 3 taints, and without the node.
	// +optional
	Exit *RunnerExit `json:"exit,omitempty"`
}

// String says all of it but the time in one line.
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
