// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube contains the Kubernetes code that all controllers share: it converts the outcome of a reconciliation into
// conditions, one status write, one event and one log line; and it contains server-side apply, cache indexes and work
// queues.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// maxConditionMessage and maxEventNote limit messages, in bytes. The API server accepts 32 KiB in a condition and 1 KiB in
// an event's note.
const (
	maxConditionMessage = v1alpha1.MaxStatusText
	maxEventNote        = 1000
)

// Object is one of Corral's kinds: it has conditions and an observed generation.
type Object interface {
	client.Object
	conditions.Setter
	SetObservedGeneration(int64)
	Unreadable() error
	LostStatus() string
	// Causes returns the list of causes in its status.
	Causes() *[]v1alpha1.Cause
}

// Notifier forwards events to another system.
type Notifier interface {
	// Notify must not block. The type is one of corev1.EventType…. The metadata describes the event and may be nil.
	Notify(object client.Object, eventType, reason, message string, metadata map[string]string)
}

// Reporter writes the outcome of reconciliations.
type Reporter struct {
	Client client.Client
	Events events.EventRecorder
	// Notifier, if set, also receives each event, except events of Runners, because there are too many of them.
	Notifier Notifier
	// Quiet omits the events about changes of Ready. Set it for kinds with many short-lived objects, whose controllers emit
	// the important events with Event. With Gathered, only problems are written at once.
	Quiet bool
	// Mirrored omits events and log lines of objects whose Ready condition another object repeats, so that each cause is
	// reported once. While such an object is being deleted, Reporter reports problems nevertheless.
	Mirrored bool
	// Gathered delays status writes that are not urgent. If it is nil, each change is written at once.
	Gathered *Gathered
	// Written contains objects whose status was written but may not be in the cache yet; nil if objects are read without a
	// cache.
	Written *Written
	// Now is the clock for conditions; nil for the system clock.
	Now func() time.Time
}

// Attempt is one reconciliation of an object in progress.
type Attempt struct {
	reporter *Reporter
	obj      Object
	before   Object // as read, to detect changes worth reporting
	saved    Object // as last written, to compute the next patch
	about    map[string]string
}

// Done is the result of a successful reconciliation.
type Done struct {
	// Message is the message of the Ready condition. Notes are appended to the message, and are causes of the condition
	// although it is True.
	Message string
	Notes   []catalog.Cause
	// After is the delay until the next reconciliation; 0 for none. It also applies to a Stalled outcome.
	After time.Duration
	// Urgent writes the status at once, even if writes are gathered.
	Urgent bool
	// Elsewhere omits the event and the log line, because another object caused the outcome and reports it.
	Elsewhere bool
	// News emits an event and a log line even if the status, the reason and the causes of Ready did not change. This is
	// needed if the object that should have reported the outcome did not, or if something else changed, such as the
	// revision.
	News bool
	// Unready, if set, contains the causes for Ready=False although nothing failed, for example because the object is
	// suspended.
	Unready []catalog.Cause
}

// Begin remembers the object as it was read. If Written contains a newer version, because the cache is late, Begin replaces
// the contents of obj with it. Call Begin before reading or changing obj.
func (r *Reporter) Begin(obj Object) *Attempt {
	r.Written.renew(obj)
	before := obj.DeepCopyObject().(Object)
	return &Attempt{reporter: r, obj: obj, before: before, saved: before}
}

// Unreadable returns a Stall for an object with fields that cannot be decoded; otherwise nil. The controller then changes
// neither this object nor the objects that it created for it.
func Unreadable(obj Object) error {
	if err := obj.Unreadable(); err != nil {
		return Stall(catalog.InvalidSpec.With().Wrap(err))
	}
	return nil
}

// About adds metadata to the event that Finish may emit. Only the Notifier receives it.
func (a *Attempt) About(metadata map[string]string) { a.about = metadata }

// Finish converts the outcome into conditions and writes the status once if it changed. Then it emits an event and a log
// line if Ready changed. If Gathered delays the write, a later call does both. It returns an outcome that is a plain error,
// so that the work queue retries with back-off.
func (a *Attempt) Finish(ctx context.Context, done Done, outcome error) (ctrl.Result, error) {
	a.obj.SetObservedGeneration(a.obj.GetGeneration())
	result, retry := a.summarize(done, outcome)
	a.settle()
	a.keepBeginnings()
	a.logResult(ctx, result, outcome)
	if wait := a.putOff(done, outcome); wait > 0 {
		if retry != nil {
			return ctrl.Result{}, retry
		}
		if result.RequeueAfter == 0 || wait < result.RequeueAfter {
			result.RequeueAfter = wait
		}
		return result, retry
	}
	if err := a.Save(ctx); err != nil {
		return ctrl.Result{}, errors.Join(retry, err)
	}
	if !done.Elsewhere {
		a.emitReadyChange(ctx, done.News, outcome)
	}
	return result, retry
}

// Save writes the status if it differs from the status that was read or last saved. It ignores objects that no longer exist,
// and truncates texts that are too long for the API server.
func (a *Attempt) Save(ctx context.Context) error {
	a.settle()
	status := reflect.ValueOf(a.obj).Elem().FieldByName("Status").Addr().Interface()
	wording.Texts(status, func(text reflect.Value, _ reflect.StructField) {
		text.SetString(wording.Truncate(text.String(), v1alpha1.MaxStatusText))
	})
	if equality.Semantic.DeepEqual(a.saved, a.obj) {
		return nil
	}
	patch, err := a.patch()
	if err != nil {
		return err
	}
	if lost := a.saved.LostStatus(); lost != "" {
		Warn(ctx, "Cannot decode the status; rewriting it", "error", lost)
	}
	written := a.obj.DeepCopyObject().(Object)
	answer := written.DeepCopyObject().(Object)
	switch err := a.reporter.Client.Status().Patch(ctx, answer, patch); {
	case err == nil:
		a.reporter.Written.keep(answer)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("writing status: %w", err)
	}
	a.saved = written
	return nil
}

// patch returns a patch with the changes. The first status is written completely: otherwise, numbers that are zero would be
// missing, and kubectl would print nothing for them.
func (a *Attempt) patch() (client.Patch, error) {
	if len(a.saved.GetConditions()) > 0 {
		return client.MergeFrom(a.saved), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a.obj)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	kind, patch := types.MergePatchType, any(map[string]any{"status": content["status"]})
	if a.saved.LostStatus() != "" { // replace the complete status
		kind, patch = types.JSONPatchType, []any{map[string]any{"op": "add", "path": "/status", "value": content["status"]}}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return client.RawPatch(kind, data), nil
}

func (a *Attempt) summarize(done Done, err error) (ctrl.Result, error) {
	o := &outcome{}
	switch isOutcome := errors.As(err, &o); {
	case err == nil:
		return a.succeed(done)
	case !isOutcome:
		a.retrying(v1alpha1.ProgressingWithRetryReason, CausesOf(err))
		return ctrl.Result{}, err
	case o.kind == stalled:
		Mark(a.obj, v1alpha1.ReadyCondition, o.causes...)
		conditions.MarkStalled(a.obj, catalog.Reason(catalog.Plain(o.causes)), "%s", messageOf(o.causes))
		return ctrl.Result{RequeueAfter: done.After}, nil
	case o.kind == waiting && isCalm(err):
		a.retrying(v1alpha1.ProgressingReason, o.causes)
	case o.kind == waiting:
		a.retrying(v1alpha1.ProgressingWithRetryReason, o.causes)
	case o.kind == progressing, !a.isCurrent():
		a.underWay(o.causes)
	}
	return ctrl.Result{RequeueAfter: o.after}, nil
}

func (a *Attempt) succeed(done Done) (ctrl.Result, error) {
	conditions.Delete(a.obj, v1alpha1.StalledCondition)
	conditions.Delete(a.obj, v1alpha1.ReconcilingCondition)
	if len(done.Unready) > 0 {
		Mark(a.obj, v1alpha1.ReadyCondition, done.Unready...)
	} else {
		message := messageOf(append([]catalog.Cause{catalog.Text(v1alpha1.SucceededReason, done.Message)}, done.Notes...))
		ready := conditions.TrueCondition(v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "%s", message)
		(&State{*ready, done.Notes}).SetOn(a.obj)
	}
	return ctrl.Result{RequeueAfter: done.After}, nil
}

func (a *Attempt) retrying(reason string, causes []catalog.Cause) {
	Mark(a.obj, v1alpha1.ReadyCondition, causes...)
	conditions.MarkReconciling(a.obj, reason, "%s", messageOf(causes))
}

func (a *Attempt) underWay(causes []catalog.Cause) {
	ready := conditions.UnknownCondition(v1alpha1.ReadyCondition, v1alpha1.ProgressingReason, "%s", messageOf(causes))
	(&State{*ready, causes}).SetOn(a.obj)
	conditions.MarkReconciling(a.obj, v1alpha1.ProgressingReason, "%s", ready.Message)
}

// settle removes the causes of conditions that no longer exist or that have another reason now. It sorts the other causes by
// condition, with Ready first, and limits their number.
func (a *Attempt) settle() {
	list := a.obj.Causes()
	now := time.Now
	if a.reporter.Now != nil {
		now = a.reporter.Now
	}
	var all []v1alpha1.Cause
	for _, c := range a.obj.GetConditions() {
		of := v1alpha1.CausesOf(*list, c.Type)
		if len(of) > 0 && (catalog.Of(of[0].Code).Reason == "" || catalog.Reason(of) == c.Reason || c.Status == metav1.ConditionUnknown) {
			all = append(all, of...)
		}
	}
	*list = catalog.Settle(all, *a.before.Causes(), now())
}

// keepBeginnings keeps the transition time of conditions with an unchanged status and reason. A different message is not a
// transition: the time must show when the problem began. Other conditions changed now.
func (a *Attempt) keepBeginnings() {
	is := slices.Clone(a.obj.GetConditions())
	for i := range is {
		was := conditions.Get(a.before, is[i].Type)
		switch {
		case was != nil && was.Status == is[i].Status && was.Reason == is[i].Reason:
			is[i].LastTransitionTime = was.LastTransitionTime
		case a.reporter.Now != nil:
			is[i].LastTransitionTime = metav1.NewTime(a.reporter.Now().UTC().Truncate(time.Second))
		}
	}
	a.obj.SetConditions(is)
}

// isCurrent reports whether the condition Ready describes the current generation.
func (a *Attempt) isCurrent() bool {
	ready := conditions.Get(a.obj, v1alpha1.ReadyCondition)
	return ready != nil && ready.ObservedGeneration == a.obj.GetGeneration()
}

// isMirrored reports whether another object reports the outcome.
func (a *Attempt) isMirrored(outcome error) bool {
	return a.reporter.Mirrored && (a.obj.GetDeletionTimestamp().IsZero() || isCalm(outcome))
}

// isKnown reports whether Ready has the same status, reason and causes as before and, if the spec changed, the same details.
// It also returns true for a calm wait, and if an older release recorded no causes.
func (a *Attempt) isKnown(was, is *metav1.Condition, outcome error) bool {
	if was == nil || was.Status != is.Status || was.Reason != is.Reason {
		return false
	}
	before, now := v1alpha1.CausesOf(*a.before.Causes(), is.Type), v1alpha1.CausesOf(*a.obj.Causes(), is.Type)
	isSame := catalog.Same(before, now) && (was.ObservedGeneration == is.ObservedGeneration || catalog.SameDetails(before, now))
	return isSame || isCalm(outcome) || len(before) == 0
}

// emitReadyChange emits one event and one log line when Ready changes. Retries are not reported. A calm wait is reported
// once, when it begins, because its message changes with every step.
func (a *Attempt) emitReadyChange(ctx context.Context, isNews bool, outcome error) {
	was, is := conditions.Get(a.before, v1alpha1.ReadyCondition), conditions.Get(a.obj, v1alpha1.ReadyCondition)
	if is == nil || a.isMirrored(outcome) || !isNews && a.isKnown(was, is, outcome) {
		return
	}
	if is.Status == metav1.ConditionUnknown && !a.reporter.Quiet { // in progress; the result is reported later
		return
	}
	kind, say := corev1.EventTypeNormal, log.FromContext(ctx).Info
	if is.Status == metav1.ConditionFalse && outcome != nil && !isCalm(outcome) {
		kind, say = corev1.EventTypeWarning, func(msg string, about ...any) { Warn(ctx, msg, about...) }
	}
	if !a.reporter.Quiet {
		a.reporter.EventAbout(a.obj, a.about, kind, is.Reason, is.Message)
	}
	say("Ready changed", "status", is.Status, "reason", is.Reason, "message", is.Message)
}

// Event emits an event about an object. The reason is a condition reason or a similar identifier.
func (r *Reporter) Event(obj runtime.Object, kind, reason, message string) {
	r.EventAbout(obj, nil, kind, reason, message)
}

// EventAbout is Event with metadata for the Notifier.
func (r *Reporter) EventAbout(obj runtime.Object, metadata map[string]string, kind, reason, message string) {
	r.Events.Eventf(obj, nil, kind, reason, "Reconcile", "%s", wording.Truncate(message, maxEventNote))
	if r.Notifier == nil {
		return
	}
	if _, brief := obj.(*v1alpha1.Runner); brief {
		return
	}
	if object, ok := obj.(client.Object); ok {
		r.Notifier.Notify(object, kind, reason, message, metadata)
	}
}
