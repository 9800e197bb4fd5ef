// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobState is where a job is, by the events that a pool has heard.
type JobState string

// States of a job in a pool's account, in the order in which a job comes to them.
const (
	// JobUnheard is a job that isn't in the account.
	JobUnheard JobState = "Unheard"
	// JobWaiting waits for an approval or another rule of its environment.
	JobWaiting JobState = "Waiting"
	// JobQueued waits for a runner.
	JobQueued JobState = "Queued"
	// JobElsewhere is on a runner that isn't the pool's.
	JobElsewhere JobState = "Elsewhere"
	// JobRunning is on a runner of the pool, or of anybody, if the pool only observes.
	JobRunning JobState = "Running"
	// JobDone has ended.
	JobDone JobState = "Done"
)

// JobEvents is what a pool that counts the jobs of GitHub's events makes of one.
type JobEvents struct {
	// Webhooks are the GitHubConnections of its namespace and its GitHub that take events in.
	Webhooks []string `json:"webhooks,omitempty"`
	// Excluded is true if spec.demand.webhook.repositories leaves the repository out.
	Excluded bool `json:"excluded,omitempty"`
	// Winner is the pool that events of such a job count at, as NAMESPACE/NAME; absent if none is, or
	// what the job asks for isn't known. Over is the next after it, and Why it comes before the pool
	// that this is about, or before Over.
	Winner string `json:"winner,omitempty"`
	Over   string `json:"over,omitempty"`
	Why    string `json:"why,omitempty"`
	// State of the job in the pool's account; absent if it isn't known.
	State JobState `json:"state,omitempty"`
	// HoldFor is how long a job that waits counts without any news of it.
	HoldFor metav1.Duration `json:"holdFor"`
	// Until is when a job that waits counts at least, if nothing more is heard of it; absent if that
	// isn't known.
	Until *metav1.Time `json:"until,omitempty"`
}

// hears says whether any event comes in.
func (e *JobEvents) hears() bool { return len(e.Webhooks) > 0 }

// loses says whether such a job counts at another pool.
func (c *Candidate) loses() bool {
	return c.Events != nil && c.Events.Winner != "" && c.Events.Winner != c.Pool
}

// told says how the pool is told of the job, in lines.
func (c *Candidate) told(p *page, repository string) []string {
	e := c.Events
	switch {
	case e == nil && c.sources == nil:
		return nil
	case e == nil:
		return []string{"no event tells it of a job: its runners are as many as " + strings.Join(c.sources, ", ") + " say"}
	case !e.hears():
		return []string{"no event of GitHub's reaches it: no GitHubConnection of its namespace and its GitHub has spec.webhook"}
	case e.Excluded:
		return []string{fmt.Sprintf("its spec.demand.webhook.repositories leaves %s out: the job doesn't count here", repository)}
	}
	var lines []string
	switch {
	case e.Winner == c.Pool && e.Over != "":
		lines = append(lines, fmt.Sprintf("GitHub's events of such a job count here, before %s: %s", e.Over, e.Why))
	case e.Winner == c.Pool:
		lines = append(lines, "GitHub's events of such a job count here")
	case e.Winner != "":
		lines = append(lines, fmt.Sprintf("GitHub's events of such a job count at %s: %s", e.Winner, e.Why))
	}
	if words := e.account(p, c.Observes); words != "" {
		lines = append(lines, words)
	}
	return lines
}

// account says what the pool's account has of the job.
func (e *JobEvents) account(p *page, observes bool) string {
	switch e.State {
	case JobUnheard:
		return fmt.Sprintf("it has not heard of the job: no event of it came in, it counts at another pool, or there was no news of it for %s", length(e.HoldFor.Duration))
	case JobWaiting:
		return "it has heard that the job waits for an approval or another rule of its environment: it doesn't count until it is queued"
	case JobQueued:
		words := "it has heard of the job, which counts "
		if e.Until != nil && e.Until.After(p.now) {
			words += fmt.Sprintf("until %s at least", p.when(e.Until.Time))
		} else {
			words += fmt.Sprintf("for %s after the last news of it", length(e.HoldFor.Duration))
		}
		return words + ", unless there is other news; while the pool is at its max, that time stands still"
	case JobElsewhere:
		return "it has heard that a runner has the job which isn't its own: it doesn't count here"
	case JobRunning:
		if observes {
			return "it has heard that a runner has the job: it counts until it ends"
		}
		return "it has heard that a runner of it has the job: it counts until it ends"
	case JobDone:
		return "it has heard that the job has ended"
	}
	return ""
}

// length writes a duration without parts that are zero.
func length(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// unheard say what would let a pool hear of a job.
func (c *Candidate) unheard(namespace string) []string {
	e := c.Events
	switch {
	case e == nil || e.Excluded || c.loses():
		return nil
	case !e.hears():
		return []string{deafWords(namespace)}
	case e.State == JobUnheard:
		return []string{fmt.Sprintf("If the job is queued, look at the recent deliveries of GitHub's webhook for GitHubConnection %s.", strings.Join(e.Webhooks, ", "))}
	}
	return nil
}

// heard answers by what pools have heard of the job; "" if none has.
func (a *JobAnswer) heard() string {
	at := a.hearer
	if c := at(JobDone); c != nil {
		return fmt.Sprintf("It isn't waiting: it has ended, as RunnerPool %s has heard.", c.Pool)
	}
	if c := at(JobRunning); c != nil && c.Observes {
		return fmt.Sprintf("It isn't waiting: a runner has it, as RunnerPool %s has heard, which only observes.", c.Pool)
	} else if c != nil {
		return fmt.Sprintf("It isn't waiting: a runner of RunnerPool %s has it.", c.Pool)
	}
	if c := at(JobElsewhere); c != nil {
		return fmt.Sprintf("It isn't waiting: a runner has it that isn't of RunnerPool %s, as that has heard.", c.Pool)
	}
	if c := at(JobQueued); c != nil && !c.Observes {
		return fmt.Sprintf("It waits for RunnerPool %s, which has heard of it: it %s.", c.Pool, c.Situation)
	}
	if c := at(JobWaiting); c != nil {
		return fmt.Sprintf("It waits for an approval or another rule of its environment, and not for a runner, as RunnerPool %s has heard.", c.Pool)
	}
	return ""
}

// hearer is the first pool that has a job in a state; nil if none has.
func (a *JobAnswer) hearer(state JobState) *Candidate {
	i := slices.IndexFunc(a.Pools, func(c Candidate) bool { return c.Events != nil && c.Events.State == state })
	if i < 0 {
		return nil
	}
	return &a.Pools[i]
}

// isHeard says whether a pool has the job in one of some states.
func (a *JobAnswer) isHeard(states ...JobState) bool {
	return slices.ContainsFunc(states, func(s JobState) bool { return a.hearer(s) != nil })
}

// isSettled says whether pools have heard that the job doesn't wait for a runner.
func (a *JobAnswer) isSettled() bool { return a.isHeard(JobDone, JobRunning, JobElsewhere, JobWaiting) }

// missed answers if the pool that would have the job isn't told of it; "" if that isn't so.
func (c *Candidate) missed() string {
	e := c.Events
	switch {
	case !c.isREST || e == nil || c.loses():
		return ""
	case !e.hears():
		return fmt.Sprintf("RunnerPool %s would do, and isn't told of it: no event of GitHub's reaches it.", c.Pool)
	case e.Excluded:
		return fmt.Sprintf("RunnerPool %s would do, and doesn't count it: its spec.demand.webhook.repositories leaves the repository out.", c.Pool)
	case e.State == JobUnheard:
		return fmt.Sprintf("RunnerPool %s would do, and has not heard of it: it %s.", c.Pool, c.Situation)
	}
	return ""
}
