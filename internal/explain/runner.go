// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// RunnerFacts contains what is known about a runner.
type RunnerFacts struct {
	Runner Runner
	// Pool of the runner; nil if it was deleted or cannot be read. PoolGone is true if it was deleted.
	Pool     *v1alpha1.RunnerPool
	PoolGone bool
	// Unknown lists what could not be read, and why.
	Unknown []string
	Now     time.Time
}

// RunnerAnswer describes the state of a runner, and what it waits for.
type RunnerAnswer struct {
	// Runner and Pool as NAMESPACE/NAME.
	Runner string `json:"runner"`
	Pool   string `json:"pool"`
	// PoolGone is true once the pool was deleted.
	PoolGone bool `json:"poolGone,omitempty"`
	RunnerProgress
	// Revision of its template. Current reports whether the pool creates runners of that revision; absent if unknown.
	Revision string `json:"revision"`
	Current  *bool  `json:"current,omitempty"`
	// Node on which its pod runs; empty if it is not scheduled, or unknown.
	Node string `json:"node,omitempty"`
	RunnerRegistration
	// Exit describes how its container ended, unless with exit code 0.
	Exit *v1alpha1.RunnerExit `json:"exit,omitempty"`
	// Job that it has or had.
	Job *v1alpha1.JobReference `json:"job,omitempty"`
	// Changes describe what would change the answer.
	Changes []string `json:"changes,omitempty"`
	// Unknown lists what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`

	now time.Time
}

// RunnerProgress is the state of a runner, and what it waits for.
type RunnerProgress struct {
	// State with its reason and its beginning.
	State  v1alpha1.RunnerState `json:"state"`
	Reason string               `json:"reason,omitempty"`
	Cause  v1alpha1.RunnerCause `json:"cause,omitempty"`
	Since  *metav1.Time         `json:"since,omitempty"`
	// WaitsFor describes the next expected event.
	WaitsFor string `json:"waitsFor"`
	// Deadline is when the state changes without that event.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// EndingSince is when its deletion was requested.
	EndingSince *metav1.Time `json:"endingSince,omitempty"`
}

// RunnerRegistration is a runner's registration on GitHub.
type RunnerRegistration struct {
	// REST contains the runner group and labels of a runner without a scale set. Outdated names the pool's fields that have
	// changed since the registration.
	REST     *v1alpha1.RESTRegistration `json:"rest,omitempty"`
	Outdated []string                   `json:"outdated,omitempty"`
	// RunnerID on GitHub; 0 for none.
	RunnerID int64 `json:"runnerID,omitempty"`
	// JobsDone is the number of jobs that a persistent runner has completed.
	JobsDone int32 `json:"jobsDone,omitempty"`
}

// OfRunner explains a runner.
func OfRunner(f RunnerFacts) RunnerAnswer {
	r := f.Runner.Object
	a := RunnerAnswer{
		Runner: r.Namespace + "/" + r.Name, Pool: r.Namespace + "/" + r.Spec.PoolRef.Name, PoolGone: f.PoolGone,
		RunnerProgress: RunnerProgress{
			State: f.Runner.State, Reason: f.Runner.Reason, Cause: f.Runner.Cause, Since: earlier(nil, f.Runner.Since),
			WaitsFor: f.Runner.waitsFor(), Deadline: earlier(nil, f.Runner.Until), EndingSince: r.DeletionTimestamp,
		},
		RunnerRegistration: RunnerRegistration{REST: r.Spec.REST, RunnerID: r.Status.RunnerID, JobsDone: r.Status.JobsDone},
		Revision:           r.Spec.Revision, Node: f.Runner.Node, Exit: r.Status.Exit, Job: r.Status.Job, Changes: book.Sentences("runner-changes", &f.Runner),
		Unknown: f.Unknown, now: f.Now,
	}
	if f.Pool != nil {
		a.Current = new(f.Pool.Status.Revision == r.Spec.Revision)
		a.Outdated = outdated(r, f.Pool)
	}
	if why := NeverStarts(r); why != nil {
		a.Reason, a.WaitsFor, a.Deadline = why.Message, "nothing: Corral does not start it", nil
	}
	return a
}

// NeverStarts returns the condition of a runner that will never start, because no pool created it or because it cannot be
// read. It returns nil for other runners.
func NeverStarts(r *v1alpha1.Runner) *Condition {
	ready := ConditionOf(r, v1alpha1.ReadyCondition)
	if !ready.isFalse() || ready.Reason != v1alpha1.InvalidSpecReason || r.Status.Cause != "" || r.DeletionTimestamp != nil {
		return nil
	}
	return ready
}

// outdated names the pool's fields that have changed since a runner without a scale set was registered.
func outdated(r *v1alpha1.Runner, pool *v1alpha1.RunnerPool) []string {
	rest := r.Spec.REST
	if rest == nil {
		return nil
	}
	differs := map[string]bool{
		"connectionRef": r.Spec.ConnectionRef.From(r.Namespace) != pool.Spec.ConnectionRef.From(pool.Namespace),
		"runnerGroup":   rest.RunnerGroup != pool.Spec.GetRunnerGroup(),
		"labels":        !slices.Equal(slices.DeleteFunc(slices.Clone(rest.Labels), v1alpha1.IsOwnerLabel), pool.GetRegisteredLabels()),
	}
	return slices.DeleteFunc([]string{"connectionRef", "runnerGroup", "labels"}, func(field string) bool { return !differs[field] })
}

// waitsFor describes the next expected event.
func (r *Runner) waitsFor() string {
	o := r.Object
	ready := ConditionOf(o, v1alpha1.ReadyCondition)
	if o.DeletionTimestamp == nil || !isNotTrue(ready) || o.Status.ObservedGeneration != o.Generation {
		return phrase("waits", r)
	}
	problem := slices.DeleteFunc(slices.Clone(ready.Causes), func(c v1alpha1.Cause) bool { return c.Code == catalog.Deregistering.Code })
	return cmp.Or(catalog.Awaited(problem), "its deregistration on GitHub: "+cmp.Or(catalog.Messages(problem), ready.Message))
}

// Text renders the answer for people.
func (a RunnerAnswer) Text() string { return answerText("runner", a.now, &a) }
