// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// quarantineAfter is the number of consecutive limit violations after which a policy is in quarantine.
	quarantineAfter = 3
	// minPause and maxPause bound the time until a policy in quarantine is evaluated again.
	minPause, maxPause = 5 * time.Minute, time.Hour
	// probeTimeout is how long a probe may have no outcome before another question may become the probe.
	probeTimeout = time.Minute
)

// Pause returns the time before a retry of a policy that exceeded its limits. The first attempt is 1. The time doubles
// with each attempt, up to maxPause.
func Pause(attempt int) time.Duration {
	pause := minPause
	for range attempt - 1 {
		if pause *= 2; pause >= maxPause {
			return maxPause
		}
	}
	return pause
}

// quarantine stops evaluations of a policy that repeatedly exceeds its time or memory. It counts separately for each
// namespace that asks: the input of one namespace must not make the policy unavailable for others.
//
// It works like a circuit breaker. After quarantineAfter consecutive violations, the policy is not evaluated during a
// pause. Then one question, the probe, is evaluated. A normal answer to the probe ends the quarantine, and another
// violation begins a longer pause.
type quarantine struct {
	mu sync.Mutex
	of map[string]excesses // by namespace
}

// excesses counts consecutive limit violations.
type excesses struct {
	count int
	// subject is the subject (decision and pool) of the last violation. Before a quarantine begins, only a normal answer
	// for the same subject resets the count. Otherwise a pool with cheap evaluations would hide a neighboring pool whose
	// evaluations always exceed the limits.
	subject string
	// until is when the next probe may run. probe is when the current probe was asked; zero if there is none.
	until, probe time.Time
}

func (e excesses) isQuarantined() bool { return e.count >= quarantineAfter }

// admit reports whether a question may be evaluated. The question may become the probe.
func (w *quarantine) admit(q *question) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of[q.Namespace]
	switch {
	case !e.isQuarantined():
		return true
	case q.asked.Before(e.until):
		return false
	}
	e.probe, e.until = q.asked, q.asked.Add(probeTimeout)
	w.of[q.Namespace] = e
	return true
}

// exceeded records that a question exceeded the limits. It reports whether the policy was already in quarantine.
func (w *quarantine) exceeded(q *question) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of[q.Namespace]
	before = e.isQuarantined()
	if before && !q.asked.Equal(e.probe) {
		return true // not the current probe: it was asked before the quarantine began, or is a probe that timed out
	}
	e.count++
	e.subject, e.probe = q.subject, time.Time{}
	e.until = q.asked.Add(Pause(e.count - quarantineAfter + 1))
	w.of[q.Namespace] = e
	return before
}

// answered records that a question was answered within the limits.
func (w *quarantine) answered(q *question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of[q.Namespace]
	if e.isQuarantined() && q.asked.Equal(e.probe) || !e.isQuarantined() && q.subject == e.subject {
		delete(w.of, q.Namespace)
	}
}

// namespaces returns the namespaces for which the policy is in quarantine.
func (w *quarantine) namespaces() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	quarantined := maps.Clone(w.of)
	maps.DeleteFunc(quarantined, func(_ string, e excesses) bool { return !e.isQuarantined() })
	return slices.Sorted(maps.Keys(quarantined))
}
