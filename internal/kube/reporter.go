// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube holds what every controller needs of Kubernetes and no controller
// should write again: the outcome of a reconciliation turned into conditions,
// one status write, one event and one log line; and server-side apply.
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

// maxMessage bounds condition and event messages, in bytes: the API server takes
// 32 KiB in a condition and 1 KiB in an event's note.
const (
	maxConditionMessage = v1alpha1.MaxStatusText
	maxEventNote        = 1000
)

// Object is one of our kinds: it has conditions and an observed generation.
type Object interface {
	client.Object
	conditions.Setter
	SetObservedGeneration(int64)
	Unreadable() error
	LostStatus() string
	// Causes returns the list of causes in its status.
	Causes() *[]v1alpha1.Cause
}

// Notifier passes events on to somewhere else.
type Notifier interface {
	// Notify returns at once. The type is one of corev1.EventType…; metadata is about the event and may be nil.
	Notify(object client.Object, eventType, reason, message string, metadata map[string]string)
}

// Reporter writes the outcome of reconciliations.
type Reporter struct {
	Client client.Client
	Events events.EventRecorder
	// Notifier, if set, is told of each event too, except of those of Runners: they live briefly and are many.
	Notifier Notifier
	// Quiet leaves out events, for kinds that live briefly and are many: what is worth an
	// event of theirs is told by Event. With Gathered, only their troubles are news.
	Quiet bool
	// Mirrored leaves out events and lines of objects whose Ready another object repeats, until they are deleted and can't go: one cause is
	// told once.
	Mirrored bool
	// Gathered puts off writes that bring no news; nil writes each change at once.
	Gathered *Gathered
	// Written is what was written and the cache may not show yet; nil where objects are read without a cache.
	Written *Written
	// Now is the clock that conditions change by; this machine's if nil.
	Now func() time.Time
}

// Attempt is one reconciliation of an object under way.
type Attempt struct {
	reporter *Reporter
	obj      Object
	before   Object // as read: what a change is told against
	saved    Object // as last written: what a write is made against
	about    map[string]string
}

// Done is what a reconciliation that went well reports.
type Done struct {
	// Message of the Ready condition. Notes follow it, and are causes of the condition although it is True.
	Message string
	Notes   []catalog.Cause
	// After is the time to the next look; 0 for none. It also holds for a Stalled outcome.
	After time.Duration
	// Urgent writes the status at once, also if its writes are gathered.
	Urgent bool
	// Elsewhere is true of an outcome that another object tells of, as it is its cause: it is neither an event nor a line.
	Elsewhere bool
	// News emits an event and a line although Ready has the status, the reason and the causes that it had: the outcome was left for another object
	// to report, which did not, or something else of it changed, such as the revision.
	News bool
	// Unready, when set, are the causes for Ready=False although nothing failed (as when
	// suspended).
	Unready []catalog.Cause
}

// Begin remembers the object as it was read. If its status was written since, obj becomes what was written: call it before anything
// of obj is looked at or changed.
func (r *Reporter) Begin(obj Object) *Attempt {
	r.Written.renew(obj)
	before := obj.DeepCopyObject().(Object)
	return &Attempt{reporter: r, obj: obj, before: before, saved: before}
}

// Unreadable stalls an object with fields that Go can't read. Such an object stays as it is, and so does what it made.
func Unreadable(obj Object) error {
	if err := obj.Unreadable(); err != nil {
		return Stall(catalog.InvalidSpec.With().Wrap(err))
	}
	return nil
}

// About adds metadata to the event that Finish may make: it is the Notifier's alone.
func (a *Attempt) About(metadata map[string]string) { a.about = metadata }

// Finish turns the outcome into conditions, writes the status once if anything in
// it changed, and only then tells of a change of Ready in an event and a log line.
// A plain error is returned for the work queue's back-off.
func (a *Attempt) Finish(ctx context.Context, done Done, outcome error) (ctrl.Result, error) {
	a.obj.SetObservedGeneration(a.obj.GetGeneration())
	result, retry := a.summarize(done, outcome)
	a.settle()
	a.keepBeginnings()
	a.note(ctx, result, outcome)
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
		a.tell(ctx, done.News, outcome)
	}
	return result, retry
}

// Save writes the status if it differs from the one read or last saved. An object
// that is gone is not an error. Texts beyond the maximum that the API server takes are cut.
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

// patch holds what changed; of a first status it holds everything, or numbers that
// are zero would stay absent and kubectl would show a blank for them.
func (a *Attempt) patch() (client.Patch, error) {
	if len(a.saved.GetConditions()) > 0 {
		return client.MergeFrom(a.saved), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a.obj)
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	kind, patch := types.MergePatchType, any(map[string]any{"status": content["status"]})
	if a.saved.LostStatus() != "" { // nothing of it may stay
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
	case o.kind == progressing, !a.isSaid():
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

// settle leaves the causes that explain a condition as it is now, bounded, in the order of conditions: those of Ready are the first.
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

// keepBeginnings leaves the time of a condition that has the status and reason that it had: another message is no transition, and since when
// it is wrong must not be lost by it. Others changed now.
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

// isSaid reports whether the status says how the object's generation is.
func (a *Attempt) isSaid() bool {
	ready := conditions.Get(a.obj, v1alpha1.ReadyCondition)
	return ready != nil && ready.ObservedGeneration == a.obj.GetGeneration()
}

// isMirrored reports whether another object tells of the outcome.
func (a *Attempt) isMirrored(outcome error) bool {
	return a.reporter.Mirrored && (a.obj.GetDeletionTimestamp().IsZero() || isCalm(outcome))
}

// isKnown reports whether Ready has the status, the reason and the causes that it had; of another spec, also their details. Causes that an
// older release did not record are known.
func (a *Attempt) isKnown(was, is *metav1.Condition, outcome error) bool {
	if was == nil || was.Status != is.Status || was.Reason != is.Reason {
		return false
	}
	before, now := v1alpha1.CausesOf(*a.before.Causes(), is.Type), v1alpha1.CausesOf(*a.obj.Causes(), is.Type)
	isSame := catalog.Same(before, now) && (was.ObservedGeneration == is.ObservedGeneration || catalog.SameDetails(before, now))
	return isSame || isCalm(outcome) || len(before) == 0
}

// tell speaks of a change of Ready, once; that it was tried again in vain is none. Of a calm wait, whose message counts what is left, it speaks
// when it begins.
func (a *Attempt) tell(ctx context.Context, isNews bool, outcome error) {
	was, is := conditions.Get(a.before, v1alpha1.ReadyCondition), conditions.Get(a.obj, v1alpha1.ReadyCondition)
	if is == nil || a.isMirrored(outcome) || !isNews && a.isKnown(was, is, outcome) {
		return
	}
	if is.Status == metav1.ConditionUnknown && !a.reporter.Quiet { // under way, as at each start: no news until it's known how it ended
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

// Event records an event about an object; the reason is a condition reason or a
// word of the same kind.
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
