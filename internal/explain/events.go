// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobState is the state of a job by the events that a pool received.
type JobState string

// States of a job in a pool's account, in the order in which a job reaches them.
const (
	// JobUnknown is a job that the account doesn't have.
	JobUnknown JobState = "Unknown"
	// JobWaiting waits for an approval or another rule of its environment.
	JobWaiting JobState = "Waiting"
	// JobQueued waits for a runner.
	JobQueued JobState = "Queued"
	// JobElsewhere runs on a runner of somebody else.
	JobElsewhere JobState = "Elsewhere"
	// JobRunning runs on a runner of the pool, or on any runner if the pool only observes.
	JobRunning JobState = "Running"
	// JobDone has ended.
	JobDone JobState = "Done"
)

// JobEvents is what a pool knows of a job by GitHub's events.
type JobEvents struct {
	// Webhooks are the GitHubConnections with spec.webhook in its namespace, for its GitHub.
	Webhooks []string `json:"webhooks,omitempty"`
	// Excluded is true if spec.demand.webhook.repositories leaves the repository out.
	Excluded bool `json:"excluded,omitempty"`
	// Winner is the pool that such a job counts at, as NAMESPACE/NAME; absent if there is none, or the job's
	// labels aren't known. Over is the next best pool. Why says why Winner comes before Over, or before the pool
	// that this is about.
	Winner string `json:"winner,omitempty"`
	Over   string `json:"over,omitempty"`
	Why    string `json:"why,omitempty"`
	// State of the job in the pool's account; absent if the account can't be read.
	State JobState `json:"state,omitempty"`
	// HoldFor is how long a queued job counts after its last event.
	HoldFor metav1.Duration `json:"holdFor"`
	// Until is the earliest time at which a queued job stops counting without another event; absent if it isn't
	// known.
	Until *metav1.Time `json:"until,omitempty"`
}

// receives reports whether the pool receives GitHub's events.
func (e *JobEvents) receives() bool { return len(e.Webhooks) > 0 }

// loses reports whether such a job counts at another pool.
func (c *Candidate) loses() bool {
	return c.Events != nil && c.Events.Winner != "" && c.Events.Winner != c.Pool
}

// byEvents answers by the events that pools received; "" if those don't answer.
func (a *JobAnswer) byEvents() string {
	for _, state := range []JobState{JobDone, JobRunning, JobElsewhere, JobQueued, JobWaiting} {
		if c := a.poolWith(state); c != nil && (state != JobQueued || !c.Observes) {
			return phrase("by-events", c)
		}
	}
	return ""
}

// poolWith returns the first pool whose account has the job in a state; nil if none has.
func (a *JobAnswer) poolWith(state JobState) *Candidate {
	for c := range pointers(a.Pools) {
		if c.Events != nil && c.Events.State == state {
			return c
		}
	}
	return nil
}

// isIn reports whether a pool's account has the job in one of the states.
func (a *JobAnswer) isIn(states ...JobState) bool {
	return slices.ContainsFunc(states, func(s JobState) bool { return a.poolWith(s) != nil })
}

// isSettled reports whether, by events, the job doesn't wait for a runner.
func (a *JobAnswer) isSettled() bool { return a.isIn(JobDone, JobRunning, JobElsewhere, JobWaiting) }
