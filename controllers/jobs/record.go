// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

// recordFor is how long the JobTracker keeps trying to record a runner's job. After that, only the collector of runners can
// find the job.
const recordFor = 10 * time.Minute

// record holds the job events of a runner that are not stored yet.
type record struct {
	pool   types.NamespacedName
	events []scaleset.JobEvent // the start and the completion, as they arrived
	since  time.Time
}

// recordLater queues an event of a job that a pool's runner has.
func (k *JobTracker) recordLater(pool types.NamespacedName, event scaleset.JobEvent, now time.Time) {
	if k.Record == nil {
		return
	}
	key := types.NamespacedName{Namespace: pool.Namespace, Name: event.RunnerName}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[key]
	if r == nil {
		r = &record{pool: pool, since: now}
		k.records[key] = r
	}
	isKnown := slices.ContainsFunc(r.events, func(e scaleset.JobEvent) bool { return e.Type == event.Type && e.JobID == event.JobID })
	if isKnown || len(r.events) >= 8 { // a repeated event, or more events than a runner can have before they are stored
		return
	}
	r.events = append(r.events, event)
	k.workers.runners.add(key)
}

// jobEvent converts a delivery to an event of a runner's job; false if the job neither runs nor has ended.
func jobEvent(d webhook.Delivery) (scaleset.JobEvent, bool) {
	j := d.Job
	e := scaleset.JobEvent{
		JobID: strconv.FormatInt(j.ID, 10), Repository: d.Repository.FullName, Workflow: j.Workflow, Name: j.Name, RunID: j.RunID,
		RunnerID: j.RunnerID, RunnerName: j.RunnerName, QueuedAt: j.CreatedAt,
	}
	switch stateOf(d.Action, j.Status) {
	case reservation.Elsewhere:
		e.Type, e.At = scaleset.JobStarted, j.StartedAt
	case reservation.Done:
		e.Type, e.At, e.Result = scaleset.JobCompleted, j.CompletedAt, resultOf(j.Conclusion)
	default:
		return e, false
	}
	if e.At.IsZero() {
		e.At = d.At
	}
	return e, true
}

// resultOf converts the conclusion in a webhook event to the result that a scale set would report.
func resultOf(conclusion string) string {
	switch conclusion {
	case "success":
		return "succeeded"
	case "failure":
		return "failed"
	case "cancelled":
		return "canceled"
	}
	return conclusion
}

// reconcileRunner records a runner's job. The recorder limits how many records are written concurrently.
func (k *JobTracker) reconcileRunner(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	k.mu.Lock()
	r := k.records[key]
	var events []scaleset.JobEvent
	if r != nil {
		events = slices.Clone(r.events)
	}
	k.mu.Unlock()
	if len(events) == 0 {
		return reconcile.Result{}, nil
	}
	err := k.Record(ctx, key.Namespace, events)
	if err != nil && k.Now().Sub(r.since) < recordFor {
		return reconcile.Result{}, fmt.Errorf("recording the job of a runner: %w", err)
	}
	k.mu.Lock()
	if r.events = r.events[len(events):]; len(r.events) == 0 {
		delete(k.records, key)
	}
	k.mu.Unlock()
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("gave up recording the job of a runner: %w", err))
	}
	if p := k.lock(r.pool); p != nil {
		p.space.wake(p, k.Now())
		p.space.mu.Unlock()
	}
	return reconcile.Result{}, nil
}
