// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Alteration is a fault in the content of a successful answer.
type Alteration string

const (
	// AlterEmptyQueueURL removes messageQueueUrl (create-session, refresh-session).
	AlterEmptyQueueURL Alteration = "empty-queue-url"
	// AlterSessionOwner replaces the session's owner (create-session, refresh-session).
	AlterSessionOwner Alteration = "session-owner"
	// AlterNoStatistics removes the statistics (sessions, get-scale-set, get-message).
	AlterNoStatistics Alteration = "no-statistics"
	// AlterZeroStatistics sends zeros together with real events (get-message).
	AlterZeroStatistics Alteration = "zero-statistics"
	// AlterUnknownOuterType gives the message an unknown type (get-message).
	AlterUnknownOuterType Alteration = "unknown-outer-type"
	// AlterUnknownInnerType adds an event of an unknown type (get-message).
	AlterUnknownInnerType Alteration = "unknown-inner-type"
	// AlterReorder reverses the order of a message's events (get-message).
	AlterReorder Alteration = "reorder"
	// AlterOutOfOrder moves the older half of the pending events into a separate message after the newer half
	// (get-message).
	AlterOutOfOrder Alteration = "out-of-order"
	// AlterRedeliver sends the oldest message that is not deleted, whatever the cursor is (get-message).
	AlterRedeliver Alteration = "redeliver"
	// AlterDuplicate repeats each event in a message (get-message), or restores a deleted message under a new id
	// (delete-message).
	AlterDuplicate Alteration = "duplicate"
	// AlterJobStillRunning refuses to delete a runner as if it had a job (delete-agent, delete-runner).
	AlterJobStillRunning Alteration = "job-still-running"
	// AlterByteOrderMark adds a byte order mark before the body (any).
	AlterByteOrderMark Alteration = "byte-order-mark"
)

// Fault happens instead of, or around, the handling of calls to an endpoint. Its parts happen in this order: Delay;
// Hang; the answer with Status, or the handling with Alter; HoldAnswer; DropAnswer.
type Fault struct {
	Endpoint Endpoint `json:"endpoint"`
	// ScaleSet is the name of the affected scale set; all if empty. The creation of a scale set and calls of the REST
	// API belong to none.
	ScaleSet string `json:"scaleSet,omitempty"`
	// Probability of the fault, 0 to 1; 0 means always. See [Options.Seed].
	Probability float64 `json:"probability,omitempty"`
	// Skip is how many calls succeed first.
	Skip int `json:"skip,omitempty"`
	// Times is how many calls are affected; 0 means all until [Server.ClearFaults].
	Times int `json:"times,omitempty"`
	// Delay before anything else, in real time.
	Delay time.Duration `json:"-"`
	// Hang never answers. The connection is cut when the caller leaves, the fault is removed or the server is closed.
	Hang bool `json:"hang,omitempty"`
	// Status answers with an error instead of handling the call. With DropAnswer the call is handled first, and its
	// answer is replaced.
	Status int `json:"status,omitempty"`
	// RetryAfter is sent with Status if it is not 0, in whole seconds.
	RetryAfter time.Duration `json:"-"`
	// Body is sent with Status, as JSON unless ContentType is set.
	Body        string `json:"body,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	// DropAnswer handles the call and then, without Status, cuts the connection. Go's HTTP client repeats a GET or
	// DELETE by itself if this happens on a reused connection.
	DropAnswer bool `json:"dropAnswer,omitempty"`
	// HoldAnswer handles the call at once, but holds the answer until the fault is removed.
	HoldAnswer bool `json:"holdAnswer,omitempty"`
	// Alter changes the content of the answer.
	Alter Alteration `json:"alter,omitempty"`

	removed chan struct{} // closed once the fault is removed
}

// String returns a short description.
func (f Fault) String() string {
	parts := []string{string(f.Endpoint)}
	say := func(when bool, format string, args ...any) {
		if when {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	say(f.ScaleSet != "", "of %s", f.ScaleSet)
	say(f.Delay > 0, "late by %s", f.Delay)
	say(f.Hang, "hangs")
	say(f.DropAnswer, "answer lost")
	say(f.HoldAnswer, "answer held back")
	say(f.Status != 0, "status %d", f.Status)
	say(f.RetryAfter > 0, "retry after %s", f.RetryAfter)
	say(f.Alter != "", "%s", f.Alter)
	say(f.Probability > 0, "p=%.2f", f.Probability)
	say(f.Skip > 0, "after %d", f.Skip)
	say(f.Times > 0, "%d times", f.Times)
	return strings.Join(parts, " ")
}

// SecondaryLimit returns GitHub's refusal of too many calls in a short time.
func SecondaryLimit(endpoint Endpoint, retryAfter time.Duration) Fault {
	return Fault{
		Endpoint: endpoint, Status: http.StatusForbidden, RetryAfter: retryAfter,
		Body: `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",` +
			`"documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`,
	}
}

// maxHits is how many hits are kept.
const maxHits = 50_000

// Hit is a call that a fault affected.
type Hit struct {
	At       time.Time
	ScaleSet string // empty if the call belongs to none
	Fault    string
}

// faultList holds the faults, oldest first.
type faultList struct {
	list   []*Fault
	all    []*Fault // including used-up ones, because calls may still hang because of them
	random *rand.Rand
	hits   []Hit
}

// AddFault adds a fault from the next call on, until the returned function is called. If several faults match a call,
// the oldest goes first; if its probability spares the call, the next one is tried.
func (s *Server) AddFault(f Fault) (remove func()) {
	s.lock()
	defer s.unlock()
	f.removed = make(chan struct{})
	s.faults.list = append(s.faults.list, &f)
	s.faults.all = append(s.faults.all, &f)
	return func() {
		s.lock()
		defer s.unlock()
		s.faults.list = slices.DeleteFunc(s.faults.list, func(other *Fault) bool { return other == &f })
		f.end()
	}
}

// end cuts the calls that hang because of the fault.
func (f *Fault) end() {
	select {
	case <-f.removed:
	default:
		close(f.removed)
	}
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.lock()
	defer s.unlock()
	for _, f := range s.faults.all {
		f.end()
	}
	s.faults.list, s.faults.all = nil, nil
}

// FaultsHit returns the affected calls, oldest first, 50,000 at most.
func (s *Server) FaultsHit() []Hit {
	s.rlock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults.hits)
}

// useFault uses one hit of the oldest fault that matches the call.
func (s *Server) useFault(name Endpoint, r *http.Request) *Fault {
	owner := ""
	for at, f := range s.faults.list {
		if f.Endpoint != name {
			continue
		}
		if owner == "" {
			owner = s.scaleSetOf(r)
		}
		if f.ScaleSet != "" && f.ScaleSet != owner {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			return nil
		}
		if f.Probability > 0 && s.faults.random.Float64() >= f.Probability {
			continue
		}
		hit := *f
		if f.Times == 1 {
			s.faults.list = slices.Delete(s.faults.list, at, at+1)
		} else if f.Times > 1 {
			f.Times--
		}
		if len(s.faults.hits) < maxHits {
			s.faults.hits = append(s.faults.hits, Hit{At: s.now(), ScaleSet: owner, Fault: hit.String()})
		}
		return &hit
	}
	return nil
}

// scaleSetOf returns the name of the call's scale set.
func (s *Server) scaleSetOf(r *http.Request) string {
	var rn *runner
	switch path, query := r.URL.Path, r.URL.Query(); {
	case strings.Contains(path, "/runnerscalesets/"), query.Has("scaleSetId"):
		id := pathID(r, "id")
		if id == 0 {
			id, _ = strconv.Atoi(query.Get("scaleSetId")) // 0 is no scale set
		}
		if ss := s.scaleSets.byID[id]; ss != nil {
			return ss.name
		}
	case strings.HasSuffix(path, "/runnerscalesets"):
		return query.Get("name")
	case strings.Contains(path, "/agents/"):
		rn = s.runners.byID[pathID(r, "id")]
	case strings.HasSuffix(path, "/agents"):
		for _, other := range s.runners.byID {
			if other.name == query.Get("agentName") {
				rn = other
			}
		}
	default:
		rn = s.runners.byCredential[bearer(r)]
	}
	if rn == nil {
		return ""
	}
	return rn.scaleSet.name
}

// Excuse declares that a fault is responsible for whatever happens to a runner's process from now on: neither its end
// nor the loss of its job is a broken invariant. It does not apply to the next process of a persistent runner.
func (s *Server) Excuse(runnerName string) {
	s.lock()
	defer s.unlock()
	s.excused[runnerName] = true
}

// blame records a broken invariant, unless the runner's end with the job is excused.
func (s *Server) blame(rn *runner, j *job, format string, args ...any) {
	if j.excused = j.excused || s.excused[rn.name]; !j.excused {
		s.breach(format, args...)
	}
}

type alterationKey struct{}

// alteration returns the alteration of the answer to r.
func alteration(r *http.Request) Alteration {
	how, _ := r.Context().Value(alterationKey{}).(Alteration)
	return how
}

func (s *Server) serveFault(f *Fault, h handler, w http.ResponseWriter, r *http.Request) {
	if f.Delay > 0 && !s.pause(r.Context(), f.Delay) {
		return
	}
	if f.Hang {
		s.awaitRemoval(r, f)
		panic(http.ErrAbortHandler) // cuts the connection
	}
	if f.Status != 0 && !f.DropAnswer {
		f.answer().write(w)
		return
	}
	a := h(r.WithContext(context.WithValue(r.Context(), alterationKey{}, f.Alter)))
	a.bom = f.Alter == AlterByteOrderMark
	if f.HoldAnswer {
		s.awaitRemoval(r, f)
	}
	switch {
	case f.DropAnswer && f.Status != 0:
		f.answer().write(w)
	case f.DropAnswer:
		panic(http.ErrAbortHandler)
	default:
		a.write(w)
	}
}

// awaitRemoval waits until a fault is removed, the caller leaves, or the server is closed.
func (s *Server) awaitRemoval(r *http.Request, f *Fault) {
	select {
	case <-r.Context().Done():
	case <-f.removed:
	case <-s.done:
	}
}

func (f *Fault) answer() answer {
	a := answer{status: f.Status}
	if f.Body != "" {
		contentType := f.ContentType
		if contentType == "" {
			contentType = "application/json; charset=utf-8"
		}
		a.body = f.Body
		a = a.with("Content-Type", contentType)
	}
	if f.RetryAfter > 0 {
		a = a.with("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())))
	}
	return a
}
