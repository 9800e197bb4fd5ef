// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// findJob asks GitHub whether an ended runner had a job that no event reported. Webhooks may be late, lost or not used, and
// scale-set messages arrive late after a crash. It returns the job, or nil if GitHub knows nothing new.
//
// GitHub removes an ephemeral runner after its job, but still counts a runner that was killed during its job as busy for a
// while. If GitHub does not know the runner, findJob therefore reports a completed job. This only changes how the pool
// counts the runner: its container has ended, and finalize handles the registration.
//
// For a runner without a scale set, findJob asks when the container has ended. For a runner with a scale set, it asks
// before a runner that ended without an error is treated as failed, because GitHub may need a moment.
//
// While the connection has no client, for example just after the controller restarted, findJob returns an outcome that
// waits, so that the runner is neither blamed nor deleted before GitHub was asked.
func (p pass) findJob(ctx context.Context, o observation, state poolstatus.Assessment) (*v1alpha1.JobReference, error) {
	id := p.registrationID()
	if id == 0 || !p.endedUnreported(o, state) {
		return nil, nil
	}
	gh, access := p.client(ctx)
	switch {
	case access == notReady && p.Now().Before(answerBy(o)):
		return nil, connections.NotReady(ctx, p.Client, p.connectionKey())
	case access != allowed:
		return nil, nil // GitHub cannot be asked about this registration
	}
	known, err := gh.find(ctx, id)
	if err != nil {
		return nil, p.githubOutcome(err)
	}
	switch {
	case p.isAbsent(known), known.id != id:
		return p.completeJob(o), nil
	case !known.busy, o.Job != nil:
		p.memory.hadNoJob = o.Job == nil && !state.Settling
		return nil, nil
	}
	return &v1alpha1.JobReference{ID: v1alpha1.UnknownJob}, nil
}

// completeJob records the completion of the job of a runner that GitHub does not know any more, and returns the job.
func (p pass) completeJob(o observation) *v1alpha1.JobReference {
	if p.runner.Spec.REST == nil {
		p.Event(p.runner, corev1.EventTypeNormal, string(v1alpha1.RunnerFinished), jobMissed)
	}
	// The registration of a runner without a scale set counts as removed. If it still exists, the collector removes it.
	p.Memory.recordCompletion(client.ObjectKeyFromObject(p.runner), p.runner.UID, completion{at: p.Now(), forgotten: p.runner.Spec.REST != nil})
	job := v1alpha1.JobReference{ID: v1alpha1.UnknownJob}
	if o.Job != nil {
		job = *o.Job
	}
	job.CompletedAt = &metav1.Time{Time: p.Now()}
	return &job
}

// jobMissed is the event message for a runner that apparently had an unreported job.
const jobMissed = "ended; Corral had no open session and missed the job's completion. GitHub no longer has the runner, as after a job"

// answerBy returns the time until which a runner that ended waits for GitHub's answer about its job. It counts from when
// Corral noticed the end, because Corral could not ask before.
func answerBy(o observation) time.Time {
	from := o.EndedAt
	if o.Noticed.After(from) {
		from = o.Noticed
	}
	return from.Add(poolstatus.JobLost)
}

// unsettled returns the state of a scale-set runner that ended without an error and without a known job, until GitHub has
// reported whether it had one. Without an answer for poolstatus.JobLost, the runner counts as failed. So a pool whose
// runners fail stops creating more of them even if GitHub never answers.
func (p pass) unsettled(o observation, state poolstatus.Assessment) (poolstatus.Assessment, bool) {
	isUnsettled := p.runner.Spec.REST == nil && !p.runner.Persists() && p.registrationID() != 0 && !p.memory.hadNoJob &&
		state.State == v1alpha1.RunnerFailed && !o.EndedAt.IsZero() && o.EndedClean && o.Job == nil && !o.Terminating && p.Now().Before(answerBy(o))
	return poolstatus.Unasked(o.Observation), isUnsettled
}

// endedUnreported reports whether a runner ended and no event reported its job, or how the job ended.
func (p pass) endedUnreported(o observation, state poolstatus.Assessment) bool {
	if _, isUnsettled := p.unsettled(o, state); isUnsettled {
		return !errors.As(o.startErr, new(*conflictError))
	}
	ended := !o.EndedAt.IsZero() && (state.Settling || state.State == v1alpha1.RunnerFailed)
	// The event source that named the job also reports its end.
	known := o.Job != nil && (o.Job.ID != v1alpha1.UnknownJob || o.Job.CompletedAt != nil)
	return p.runner.Spec.REST != nil && !p.runner.Persists() && ended && !known && !p.memory.hadNoJob && !errors.As(o.startErr, new(*conflictError))
}
