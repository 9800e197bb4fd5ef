// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobState is the state of a job according to the events that a pool received.
type JobState string

// States of a job in a pool's ledger, in the order in which a job reaches them.
const (
	// JobUnknown means that the ledger does not contain the job.
	JobUnknown JobState = "Unknown"
	// JobWaiting means that the job waits for an approval or another rule of its environment.
	JobWaiting JobState = "Waiting"
	// JobQueued means that the job waits for a runner.
	JobQueued JobState = "Queued"
	// JobElsewhere means that the job runs on a runner that does not belong to the pool.
	JobElsewhere JobState = "Elsewhere"
	// JobRunning means that the job runs on a runner of the pool, or on any runner if the pool only observes.
	JobRunning JobState = "Running"
	// JobDone means that the job has ended.
	JobDone JobState = "Done"
)

// JobEvents is what a pool knows about a job from GitHub's events.
type JobEvents struct {
	// Webhooks lists the GitHubConnections with spec.webhook in the pool's namespace for the same GitHub server.
	Webhooks []string `json:"webhooks,omitempty"`
	// Excluded is true if spec.demand.webhook.repositories excludes the repository.
	Excluded bool `json:"excluded,omitempty"`
	// Winner is the pool that counts such a job, as NAMESPACE/NAME; absent if there is none, or the labels of the job are
	// unknown. Over is the next best pool. Why explains why Winner is preferred to Over, or to the pool to which this
	// JobEvents belongs.
	Winner string `json:"winner,omitempty"`
	Over   string `json:"over,omitempty"`
	Why    string `json:"why,omitempty"`
	// State of the job in the pool's ledger; absent if the ledger cannot be read.
	State JobState `json:"state,omitempty"`
	// HoldFor is how long a queued job counts after its last event.
	HoldFor metav1.Duration `json:"holdFor"`
	// Until is the earliest time at which a queued job stops counting without another event; absent if unknown.
	Until *metav1.Time `json:"until,omitempty"`
}

// receives reports whether the pool receives GitHub's events.
func (e *JobEvents) receives() bool { return len(e.Webhooks) > 0 }

// loses reports whether another pool counts the job.
func (c *Candidate) loses() bool {
	return c.Events != nil && c.Events.Winner != "" && c.Events.Winner != c.Pool
}

// byEvents returns an answer based on the events that pools received; "" if they are not sufficient.
func (a *JobAnswer) byEvents() string {
	for _, state := range []JobState{JobDone, JobRunning, JobElsewhere, JobQueued, JobWaiting} {
		if c := a.poolWith(state); c != nil && (state != JobQueued || !c.Observes) {
			return phrase("by-events", c)
		}
	}
	return ""
}

// poolWith returns the first pool whose ledger has the job in a state; nil if there is none.
func (a *JobAnswer) poolWith(state JobState) *Candidate {
	for c := range pointers(a.Pools) {
		if c.Events != nil && c.Events.State == state {
			return c
		}
	}
	return nil
}

// isIn reports whether the ledger of any pool has the job in one of the states.
func (a *JobAnswer) isIn(states ...JobState) bool {
	return slices.ContainsFunc(states, func(s JobState) bool { return a.poolWith(s) != nil })
}

// isSettled reports whether, according to events, the job does not wait for a runner.
func (a *JobAnswer) isSettled() bool { return a.isIn(JobDone, JobRunning, JobElsewhere, JobWaiting) }
