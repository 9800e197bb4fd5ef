// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// GoneFacts contains what is known about a deleted pool.
type GoneFacts struct {
	Namespace, Name string
	// Runners that still exist, at least one.
	Runners []Runner
	// Unknown lists what could not be read, and why.
	Unknown []string
	Now     time.Time
}

// GoneAnswer lists the runners of a deleted pool that still exist.
type GoneAnswer struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Deleted is when the deletion of its first runner was requested; absent if no runner is being
	// deleted.
	Deleted *metav1.Time `json:"deleted,omitempty"`
	// Runners that still exist. Runners with a job finish it.
	Runners []LeftRunner `json:"runners"`
	// Unknown lists what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	// Leaving describes what happens to the runners.
	Leaving string `json:"-"`

	now time.Time
}

// LeftRunner is a runner whose pool was deleted.
type LeftRunner struct {
	Name  string                 `json:"name"`
	State v1alpha1.RunnerState   `json:"state"`
	Job   *v1alpha1.JobReference `json:"job,omitempty"`
}

// Gone explains a deleted pool that still has runners.
func Gone(f GoneFacts) GoneAnswer {
	a := GoneAnswer{Pool: f.Namespace + "/" + f.Name, Unknown: f.Unknown, now: f.Now}
	working := 0
	for _, r := range f.Runners {
		if r.State == v1alpha1.RunnerBusy {
			working++
		}
		a.Deleted = earlier(a.Deleted, timeOf(r.Object.DeletionTimestamp))
		a.Runners = append(a.Runners, LeftRunner{Name: r.Object.Name, State: r.State, Job: r.Object.CurrentJob()})
	}
	if a.Deleted != nil {
		a.Leaving = wording.Leaving(a.Deleted.Time, working, len(a.Runners)-working)
	}
	return a
}

// Text renders the answer for people.
func (a GoneAnswer) Text() string { return answerText("gone", a.now, &a) }
