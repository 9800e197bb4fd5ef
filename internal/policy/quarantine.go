// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"sync"
	"time"
)

const (
	// quarantineAfter is how many excesses in a row put a policy into quarantine.
	quarantineAfter = 3
	// minPause and maxPause bound the time until a policy that took too much is tried again.
	minPause, maxPause = 5 * time.Minute, time.Hour
	// probeTimeout is how long a probe may stay without an outcome before another question may be one.
	probeTimeout = time.Minute
)

// Pause returns the time until a policy is tried again that took too much time or memory: it doubles with each attempt, from 1.
func Pause(attempt int) time.Duration {
	pause := minPause
	for range attempt - 1 {
		if pause *= 2; pause >= maxPause {
			return maxPause
		}
	}
	return pause
}

// quarantine keeps a policy from being asked that repeatedly takes too much time or memory. It counts for each asking
// namespace: what one namespace gives a policy to read must not take the policy away from others.
//
// It works like a circuit breaker. After quarantineAfter excesses in a row, the policy isn't asked for a pause. Then one
// question, the probe, is asked. A normal answer ends the quarantine, and another excess begins a longer pause.
type quarantine struct {
	mu sync.Mutex
	of map[string]*excesses // by namespace
}

// excesses are what a policy took too much for, in a row.
type excesses struct {
	count int
	// subject of the last one. Until there is a quarantine, only a normal answer about the same subject ends the row: otherwise a
	// pool whose questions are cheap would hide that those of the pool next to it never are.
	subject string
	// until is when the policy may be asked again, and probe when the question was asked that is the probe; zero for none.
	until, probe time.Time
}

func (e *excesses) isQuarantined() bool { return e != nil && e.count >= quarantineAfter }

// admit reports whether the policy may be asked a question, which may make that the probe.
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
	return true
}

// exceeded notes that a question took too much. It reports whether the policy was in quarantine already.
func (w *quarantine) exceeded(q *question) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of[q.Namespace]
	if e == nil {
		e = &excesses{}
		if w.of == nil {
			w.of = map[string]*excesses{}
		}
		w.of[q.Namespace] = e
	}
	before = e.isQuarantined()
	if before && !q.asked.Equal(e.probe) {
		return true // it was asked before the quarantine began
	}
	e.count++
	e.subject, e.probe = q.subject, time.Time{}
	e.until = q.asked.Add(Pause(e.count - quarantineAfter + 1))
	return before
}

// answered notes that a question was answered within the limits.
func (w *quarantine) answered(q *question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of[q.Namespace]
	switch {
	case e == nil:
	case e.isQuarantined() && q.asked.Equal(e.probe), !e.isQuarantined() && q.subject == e.subject:
		delete(w.of, q.Namespace)
	}
}

// namespaces lists those whose questions put the policy into quarantine.
func (w *quarantine) namespaces() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for namespace, e := range w.of {
		if e.isQuarantined() {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	return all
}
