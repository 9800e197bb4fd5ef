// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/internal/catalog"
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

// eventLines say what the pool knows of the job by events.
func (c *Candidate) eventLines(now time.Time, repository string) []string {
	e := c.Events
	switch {
	case c.isOut(), e == nil && c.sources == nil:
		return nil
	case e == nil:
		return []string{"it counts no events: the number of its runners follows " + strings.Join(c.sources, ", ")}
	case !e.receives():
		return []string{"it receives no events: " + noWebhook}
	case e.Excluded:
		return []string{fmt.Sprintf("its spec.demand.webhook.repositories excludes %s: the job doesn't count here", repository)}
	}
	var lines []string
	switch {
	case e.Winner == c.Pool && e.Over != "":
		lines = append(lines, fmt.Sprintf("such a job counts here, before %s: %s", e.Over, e.Why))
	case e.Winner == c.Pool:
		lines = append(lines, "such a job counts here")
	case e.Winner != "":
		lines = append(lines, fmt.Sprintf("such a job counts at %s: %s", e.Winner, e.Why))
	}
	if text := e.account(now, c.Observes); text != "" {
		lines = append(lines, text)
	}
	return lines
}

// account says what the pool knows of the job, and until when the job counts; "" if that isn't known.
func (e *JobEvents) account(now time.Time, observes bool) string {
	switch e.State {
	case JobUnknown:
		return fmt.Sprintf("it doesn't know the job: it received no event of it, the job counts at another pool, or the last event is older than %s", length(e.HoldFor.Duration))
	case JobWaiting:
		return "the job waits for an approval or another rule of its environment: it counts once it is queued"
	case JobQueued:
		text := "it knows the job, which counts "
		if e.Until != nil && e.Until.After(now) {
			text += fmt.Sprintf("at least until %s", when(now, e.Until))
		} else {
			text += fmt.Sprintf("for %s after its last event", length(e.HoldFor.Duration))
		}
		return text + "; that time doesn't run while the pool is at its max"
	case JobElsewhere:
		return "a runner of somebody else has the job: it doesn't count here"
	case JobRunning:
		if observes {
			return "a runner has the job: it counts until it ends"
		}
		return "a runner of this pool has the job: it counts until it ends"
	case JobDone:
		return "the job has ended"
	}
	return ""
}

// length writes a duration without parts that are zero.
func length(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// eventChanges say what would let a pool know of the job.
func (c *Candidate) eventChanges(namespace string) []string {
	e := c.Events
	switch {
	case e == nil || e.Excluded || c.loses():
		return nil
	case !e.receives():
		return []string{catalog.WebhookMissing.Advice(namespace)}
	case e.State == JobUnknown:
		return []string{catalog.DeliveriesMissing.Advice(strings.Join(e.Webhooks, ", "))}
	}
	return nil
}

// byEvents answers by the events that pools received; "" if those don't answer.
func (a *JobAnswer) byEvents() string {
	at := a.poolWith
	if c := at(JobDone); c != nil {
		return fmt.Sprintf("It isn't waiting: it has ended, by the events of RunnerPool %s.", c.Pool)
	}
	if c := at(JobRunning); c != nil && c.Observes {
		return fmt.Sprintf("It isn't waiting: a runner has it, by the events of RunnerPool %s, which only observes.", c.Pool)
	} else if c != nil {
		return fmt.Sprintf("It isn't waiting: a runner of RunnerPool %s has it.", c.Pool)
	}
	if c := at(JobElsewhere); c != nil {
		return fmt.Sprintf("It isn't waiting: a runner has it that isn't of RunnerPool %s, by the events of that pool.", c.Pool)
	}
	if c := at(JobQueued); c != nil && !c.Observes {
		return fmt.Sprintf("It waits for RunnerPool %s, which knows of it: it %s.", c.Pool, c.Situation)
	}
	if c := at(JobWaiting); c != nil {
		return fmt.Sprintf("It waits for an approval or another rule of its environment, not for a runner, by the events of RunnerPool %s.", c.Pool)
	}
	return ""
}

// poolWith returns the first pool whose account has the job in a state; nil if none has.
func (a *JobAnswer) poolWith(state JobState) *Candidate {
	i := slices.IndexFunc(a.Pools, func(c Candidate) bool { return c.Events != nil && c.Events.State == state })
	if i < 0 {
		return nil
	}
	return &a.Pools[i]
}

// isIn reports whether a pool's account has the job in one of the states.
func (a *JobAnswer) isIn(states ...JobState) bool {
	return slices.ContainsFunc(states, func(s JobState) bool { return a.poolWith(s) != nil })
}

// isSettled reports whether, by events, the job doesn't wait for a runner.
func (a *JobAnswer) isSettled() bool { return a.isIn(JobDone, JobRunning, JobElsewhere, JobWaiting) }

// missed answers if the pool that the job counts at doesn't know it; "" if it does.
func (c *Candidate) missed() string {
	e := c.Events
	switch {
	case !c.isREST() || e == nil || c.loses():
		return ""
	case !e.receives():
		return fmt.Sprintf("RunnerPool %s fits but doesn't know of it: it receives no events.", c.Pool)
	case e.Excluded:
		return fmt.Sprintf("RunnerPool %s fits but doesn't count it: its spec.demand.webhook.repositories excludes the repository.", c.Pool)
	case e.State == JobUnknown:
		return fmt.Sprintf("RunnerPool %s fits but doesn't know of it: it %s.", c.Pool, c.Situation)
	}
	return ""
}
