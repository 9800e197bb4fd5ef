// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// Kinds of outcomes.
const (
	stalled     = "stalled"
	waiting     = "waiting"
	progressing = "progressing"
	starting    = "starting"
)

// outcome is the result of a reconciliation that did not reach its goal.
type outcome struct {
	kind   string
	after  time.Duration
	causes []catalog.Cause
}

func (o *outcome) Error() string { return messageOf(o.causes) }

func (o *outcome) Unwrap() []error {
	var errs []error
	for _, c := range o.causes {
		if c.Err != nil {
			errs = append(errs, c.Err)
		}
	}
	return errs
}

// Stall ends a reconciliation as Stalled: nothing is retried until the object, its revision or a watched object changes. The
// first cause is the most important one. This also applies to the functions below.
func Stall(causes ...catalog.Cause) error { return &outcome{stalled, 0, causes} }

// Wait ends a reconciliation as "not ready yet" and retries after the given time. The work queue does not count it as a
// failure, so the delay does not grow.
func Wait(after time.Duration, causes ...catalog.Cause) error {
	return &outcome{waiting, after, causes}
}

// Progress ends a reconciliation as in progress. Nothing is wrong. The next reconciliation starts when a watch triggers it,
// or after the given time unless that is 0.
func Progress(after time.Duration, causes ...catalog.Cause) error {
	return &outcome{progressing, after, causes}
}

// Starting ends a reconciliation that does not know the object's state yet because the process has just started. The status
// keeps its conditions if they describe the current generation. Otherwise Starting is the same as Progress.
func Starting(after time.Duration, causes ...catalog.Cause) error {
	return &outcome{starting, after, causes}
}

// With adds causes to an outcome. It returns a plain error unchanged, because such an error has no causes.
func With(err error, more ...catalog.Cause) error {
	o := new(outcome)
	if !errors.As(err, &o) {
		return err
	}
	return &outcome{o.kind, o.after, append(slices.Clip(o.causes), more...)}
}

// CausesOf returns the causes of an error. For a plain error, it returns the cause ProgressingWithRetry.
func CausesOf(err error) []catalog.Cause {
	if o := new(outcome); errors.As(err, &o) {
		return o.causes
	}
	return []catalog.Cause{catalog.ProgressingWithRetry.With().Wrap(err)}
}

// Has reports whether the catalog row is a cause of the error.
func Has(err error, row *catalog.Row) bool {
	return err != nil && slices.ContainsFunc(CausesOf(err), func(c catalog.Cause) bool { return c.Code == row.Code })
}

// CausesAt returns the causes of an object's condition, to report them for another object. If the condition has no causes,
// because an older release wrote it, CausesAt converts its reason and message into a cause.
func CausesAt(obj Object, condition string) []catalog.Cause {
	var all []catalog.Cause
	for _, c := range v1alpha1.CausesOf(*obj.Causes(), condition) {
		c.Since = nil
		all = append(all, catalog.Cause{Cause: c})
	}
	if is := conditions.Get(obj, condition); is != nil && len(all) == 0 {
		all = append(all, catalog.Text(is.Reason, is.Message))
	}
	return all
}

// State is a condition with its causes.
type State struct {
	metav1.Condition
	Causes []catalog.Cause
}

// NewState returns a condition with the reason and the message of its causes.
func NewState(condition string, status metav1.ConditionStatus, causes ...catalog.Cause) *State {
	return &State{metav1.Condition{Type: condition, Status: status, Reason: catalog.Reason(catalog.Plain(causes)), Message: messageOf(causes)}, causes}
}

// SetOn sets the condition of an object and the causes of this condition. It does nothing if the state is nil.
func (s *State) SetOn(obj Object) {
	if s == nil {
		return
	}
	conditions.Set(obj, &s.Condition)
	list := obj.Causes()
	*list = slices.DeleteFunc(slices.Clone(*list), func(c v1alpha1.Cause) bool { return c.Condition == s.Type })
	for _, c := range catalog.Plain(s.Causes) {
		c.Condition = s.Type
		*list = append(*list, c)
	}
}

// Mark sets a condition of an object to False, with the given causes.
func Mark(obj Object, condition string, causes ...catalog.Cause) {
	NewState(condition, metav1.ConditionFalse, causes...).SetOn(obj)
}

func messageOf(causes []catalog.Cause) string {
	return wording.Truncate(catalog.Messages(catalog.Plain(causes)), maxConditionMessage)
}

// ReasonOf returns the condition reason of a Stall or a Wait. For every other outcome and for a plain error, it returns
// fallback.
func ReasonOf(err error, fallback string) string {
	if o := new(outcome); errors.As(err, &o) && (o.kind == stalled || o.kind == waiting) {
		return catalog.Reason(catalog.Plain(o.causes))
	}
	return fallback
}

// IsStalled reports whether the outcome is a Stall.
func IsStalled(err error) bool { return isKind(err, stalled) }

// IsProgress reports whether the outcome is a Progress or a Starting.
func IsProgress(err error) bool { return isKind(err, progressing, starting) }

// IsStarting reports whether the outcome is a Starting.
func IsStarting(err error) bool { return isKind(err, starting) }

func isKind(err error, kinds ...string) bool {
	o := new(outcome)
	return errors.As(err, &o) && slices.Contains(kinds, o.kind)
}

// isCalm reports whether the outcome is a wait that is part of normal operation.
func isCalm(err error) bool {
	return slices.Contains([]string{v1alpha1.DrainingReason, v1alpha1.SessionRefusedReason}, ReasonOf(err, ""))
}
