// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Alteration is a fault in the content of an otherwise good answer.
type Alteration string

const (
	// AlterEmptyQueueURL leaves messageQueueUrl out (create-session, refresh-session).
	AlterEmptyQueueURL Alteration = "empty-queue-url"
	// AlterNoStatistics leaves statistics out (sessions, get-message).
	AlterNoStatistics Alteration = "no-statistics"
	// AlterZeroStatistics tells zeros beside real events (get-message).
	AlterZeroStatistics Alteration = "zero-statistics"
	// AlterUnknownOuterType gives the message a type that no client knows (get-message).
	AlterUnknownOuterType Alteration = "unknown-outer-type"
	// AlterUnknownInnerType adds an event of an unknown type (get-message).
	AlterUnknownInnerType Alteration = "unknown-inner-type"
	// AlterReorder turns the order of a message's events round (get-message).
	AlterReorder Alteration = "reorder"
	// AlterDuplicate has each event twice in a message (get-message), or lets a
	// deleted message come back under a new id (delete-message).
	AlterDuplicate Alteration = "duplicate"
	// AlterJobStillRunning refuses to delete a runner as if it had a job
	// (delete-agent, delete-runner).
	AlterJobStillRunning Alteration = "job-still-running"
	// AlterByteOrderMark puts a byte order mark before the body (any).
	AlterByteOrderMark Alteration = "byte-order-mark"
)

// Fault goes wrong in place of, or around, the handling of calls to an endpoint.
// What it names happens in this order: Delay; Hang; the answer with Status, or the
// handling with Alter; DropAnswer.
type Fault struct {
	Endpoint Endpoint `json:"endpoint"`
	// Skip lets so many calls through first.
	Skip int `json:"skip,omitempty"`
	// Times is how many calls it hits; 0 means all until [Server.ClearFaults].
	Times int `json:"times,omitempty"`
	// Delay before anything else, real time.
	Delay time.Duration `json:"-"`
	// Hang never answers: it ends when the caller leaves or the server is closed.
	Hang bool `json:"hang,omitempty"`
	// Status answers with an error instead of handling the call. With
	// DropAnswer the call is handled first and its answer replaced.
	Status int `json:"status,omitempty"`
	// RetryAfter is sent with Status when it is not 0, in whole seconds.
	RetryAfter time.Duration `json:"-"`
	// Body sent with Status; as JSON unless ContentType says otherwise.
	Body        string `json:"body,omitempty"`
	ContentType string `json:"contentType,omitempty"`
	// DropAnswer handles the call and then, without Status, cuts the connection.
	// Go's HTTP client repeats a GET or DELETE by itself when that happens on a
	// connection that it used before.
	DropAnswer bool `json:"dropAnswer,omitempty"`
	// Alter changes the content of the answer.
	Alter Alteration `json:"alter,omitempty"`
}

// AddFault lets an endpoint go wrong from the next call on. Of several faults
// for an endpoint the oldest goes first.
func (s *Server) AddFault(f Fault) {
	s.lock()
	defer s.unlock()
	s.faults = append(s.faults, &f)
}

// ClearFaults lets everything go right again. Calls that hang stay hanging.
func (s *Server) ClearFaults() {
	s.lock()
	defer s.unlock()
	s.faults = nil
}

// takeFault uses up one hit of the endpoint's oldest fault.
func (s *Server) takeFault(name Endpoint) *Fault {
	at := slices.IndexFunc(s.faults, func(f *Fault) bool { return f.Endpoint == name })
	if at < 0 {
		return nil
	}
	f := s.faults[at]
	if f.Skip > 0 {
		f.Skip--
		return nil
	}
	if f.Times == 1 {
		s.faults = slices.Delete(s.faults, at, at+1)
	} else if f.Times > 1 {
		f.Times--
	}
	hit := *f
	return &hit
}

type alterationKey struct{}

// alteration is what a fault wants changed in the answer to r.
func alteration(r *http.Request) Alteration {
	how, _ := r.Context().Value(alterationKey{}).(Alteration)
	return how
}

func (s *Server) serveFault(f *Fault, h handler, w http.ResponseWriter, r *http.Request) {
	if f.Delay > 0 && !s.pause(r.Context(), f.Delay) {
		return
	}
	if f.Hang {
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
		panic(http.ErrAbortHandler) // cuts the connection
	}
	if f.Status != 0 && !f.DropAnswer {
		f.answer().write(w)
		return
	}
	a := h(r.WithContext(context.WithValue(r.Context(), alterationKey{}, f.Alter)))
	a.bom = f.Alter == AlterByteOrderMark
	switch {
	case f.DropAnswer && f.Status != 0:
		f.answer().write(w)
	case f.DropAnswer:
		panic(http.ErrAbortHandler)
	default:
		a.write(w)
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
