// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

// recordFor is how long it is tried to record what a runner's job is. Looks at GitHub's runners find it out too.
const recordFor = 10 * time.Minute

// record is what is to be made durable of a runner's job.
type record struct {
	pool   types.NamespacedName
	events []scaleset.JobEvent // the start and the completion, as they came
	since  time.Time
	next   time.Time
	failed int
	busy   bool
}

// recordLater has the job of a runner without a scale set recorded: nobody else tells of it at once.
func (k *Desk) recordLater(d webhook.Delivery, job jobmatch.Job, owner *pool, now time.Time) {
	if k.Record == nil || owner == nil || !owner.rest || !owner.serves(job) {
		return
	}
	e, ok := jobEvent(d)
	if !ok {
		return
	}
	key := types.NamespacedName{Namespace: owner.key.Namespace, Name: d.Job.RunnerName}
	r := k.records[key]
	if r == nil {
		r = &record{pool: owner.key, since: now}
		k.records[key] = r
	}
	for _, known := range r.events {
		if known.Type == e.Type && known.JobID == e.JobID {
			return
		}
	}
	if len(r.events) < 8 { // a runner has one job
		r.events = append(r.events, e)
	}
	k.poke()
}

// jobEvent is what a delivery tells of a runner's job; false if it tells nothing of it.
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

// resultOf is a conclusion in the words of scale sets.
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

// attendRecords has due records made.
func (k *Desk) attendRecords(ctx context.Context, now time.Time) {
	for key, r := range k.records {
		if r.busy || now.Before(r.next) {
			continue
		}
		r.busy = true
		events := append([]scaleset.JobEvent(nil), r.events...)
		k.work.Go(func() { k.make(ctx, key, r, events) })
	}
}

// make makes a record. The recorder bounds how many are made at once.
func (k *Desk) make(ctx context.Context, key types.NamespacedName, r *record, events []scaleset.JobEvent) {
	err := k.Record(ctx, key.Namespace, events)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Now()
	r.busy = false
	switch {
	case err == nil:
		r.events = r.events[len(events):]
	case now.Sub(r.since) >= recordFor:
		ctrl.Log.WithName("demand").Error(err, "A runner's job is not recorded", "runner", key)
		r.events = nil
	default:
		r.failed++
		r.next = now.Add(backoff(r.failed))
	}
	if len(r.events) == 0 {
		delete(k.records, key)
	}
	if p := k.pools[r.pool]; p != nil && err == nil {
		k.wake(p, now)
	}
}
