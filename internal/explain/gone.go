// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// GoneFacts is what is known of a pool that isn't there any more.
type GoneFacts struct {
	Namespace, Name string
	// Runners that it left, at least one.
	Runners []Runner
	// Unknown says what could not be read, and why.
	Unknown []string
	Now     time.Time
}

// GoneAnswer says which runners a pool left that was deleted.
type GoneAnswer struct {
	// Pool as NAMESPACE/NAME.
	Pool string `json:"pool"`
	// Deleted is when its deletion reached its runners; absent if it didn't.
	Deleted *metav1.Time `json:"deleted,omitempty"`
	// Runners that are left. Those with a job finish it.
	Runners []LeftRunner `json:"runners"`
	// Unknown says what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	// Leaving says what becomes of the runners.
	Leaving string `json:"-"`

	now time.Time
}

// LeftRunner is a runner whose pool is gone.
type LeftRunner struct {
	Name  string                 `json:"name"`
	State v1alpha1.RunnerState   `json:"state"`
	Job   *v1alpha1.JobReference `json:"job,omitempty"`
}

// Gone explains a pool that was deleted while runners of it are there.
func Gone(f GoneFacts) GoneAnswer {
	a := GoneAnswer{Pool: f.Namespace + "/" + f.Name, Unknown: f.Unknown, now: f.Now}
	working := 0
	for _, r := range f.Runners {
		if r.State == v1alpha1.RunnerBusy {
			working++
		}
		if at := r.Object.DeletionTimestamp; at != nil && (a.Deleted == nil || at.Before(a.Deleted)) {
			a.Deleted = at
		}
		a.Runners = append(a.Runners, LeftRunner{Name: r.Object.Name, State: r.State, Job: r.Object.CurrentJob()})
	}
	if a.Deleted != nil {
		a.Leaving = wording.Leaving(a.Deleted.Time, working, len(a.Runners)-working)
	}
	return a
}

// Text writes the answer for people.
func (a GoneAnswer) Text() string { return answerText("gone", a.now, &a) }
