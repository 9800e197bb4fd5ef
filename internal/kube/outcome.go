// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// stalling is an outcome that no retry helps until something outside changes.
type stalling struct {
	reason string
	err    error
}

func (s *stalling) Error() string { return s.err.Error() }
func (s *stalling) Unwrap() error { return s.err }

// Stall ends a reconciliation as Stalled: nothing is retried until the object,
// its revision or something that is watched changes. The format may wrap with %w.
func Stall(reason, format string, args ...any) error {
	return &stalling{reason: reason, err: fmt.Errorf(format, args...)}
}

// waiting is an outcome that is tried again after a known time.
type waiting struct {
	reason string
	after  time.Duration
	err    error
}

func (w *waiting) Error() string { return w.err.Error() }
func (w *waiting) Unwrap() error { return w.err }

// Wait ends a reconciliation as "not ready yet" and tries again after the given
// time, without counting it as a failure. The format may wrap with %w.
func Wait(reason string, after time.Duration, format string, args ...any) error {
	return &waiting{reason: reason, after: after, err: fmt.Errorf(format, args...)}
}

// progressing is an outcome that is neither ready nor amiss.
type progressing struct {
	message string
	after   time.Duration
	// starting leaves what is said of the object's generation as it is.
	starting bool
}

func (p *progressing) Error() string { return p.message }

// Progress ends a reconciliation as under way: nothing is amiss, and a watch or, at
// the latest, the given time brings the next look; 0 leaves it to the watch.
func Progress(after time.Duration, format string, args ...any) error {
	return &progressing{message: fmt.Sprintf(format, args...), after: after}
}

// Starting ends a reconciliation that can't say yet how the object is, as this process has only begun: what the status
// says of this generation holds until more is known. Of another generation it is as Progress.
func Starting(after time.Duration, format string, args ...any) error {
	return &progressing{message: fmt.Sprintf(format, args...), after: after, starting: true}
}

// ReasonOf returns the condition reason an outcome carries, or fallback for a
// plain error.
func ReasonOf(err error, fallback string) string {
	if s := new(stalling); errors.As(err, &s) {
		return s.reason
	}
	if w := new(waiting); errors.As(err, &w) {
		return w.reason
	}
	return fallback
}

// IsStalled says whether the outcome is a Stall.
func IsStalled(err error) bool {
	s := new(stalling)
	return errors.As(err, &s)
}

// IsProgress says whether the outcome is a Progress or a Starting.
func IsProgress(err error) bool {
	p := new(progressing)
	return errors.As(err, &p)
}

// IsStarting says whether the outcome is a Starting.
func IsStarting(err error) bool {
	p := new(progressing)
	return errors.As(err, &p) && p.starting
}

// isCalm says whether the outcome is a wait that belongs to the course of things, and no trouble.
func isCalm(err error) bool {
	return slices.Contains([]string{v1alpha1.DrainingReason, v1alpha1.SessionRefusedReason}, ReasonOf(err, ""))
}
