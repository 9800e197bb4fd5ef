// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// findJob asks GitHub whether a runner had a job, when it ended and no event told of one: webhooks may be late, lost, or not used at all, and
// messages of a scale set come late after a crash. It returns the job; nil if nothing new is known. GitHub
// forgets an ephemeral runner with its job; one that was killed in its job it counts as busy for a while. That GitHub doesn't know the runner
// only says how the pool counts it: the container has ended, and finalize sees to the registration. It
// is asked when the container of a runner without a scale set has ended and, as it may take GitHub a moment, before a runner that ended
// without an error is called failed.
func (p pass) findJob(ctx context.Context, o observation, state poolstatus.Assessment) (*v1alpha1.JobReference, error) {
	id := p.registrationID()
	if id == 0 || !p.lacksJob(o, state) {
		return nil, nil
	}
	gh, access := p.client(ctx)
	if access != allowed {
		return nil, nil // the next pass asks, or nobody can tell
	}
	known, err := gh.find(ctx, id)
	if err != nil {
		return nil, p.githubOutcome(err)
	}
	job := v1alpha1.JobReference{ID: v1alpha1.UnknownJob}
	if o.Job != nil {
		job = *o.Job
	}
	switch here := !p.isAbsent(known) && known.id == id; {
	case !here:
		if p.runner.Spec.REST == nil {
			p.Event(p.runner, corev1.EventTypeNormal, string(v1alpha1.RunnerFinished), jobMissed)
		}
		// What is left of a runner without a scale set, the collector removes.
		p.Memory.recordCompletion(client.ObjectKeyFromObject(p.runner), p.runner.UID, completion{at: p.Now(), forgotten: p.runner.Spec.REST != nil})
		job.CompletedAt = &metav1.Time{Time: p.Now()}
	case !known.busy || o.Job != nil:
		p.memory.hadNoJob = o.Job == nil && !state.Settling
		return nil, nil
	}
	return &job, nil
}

// jobMissed is told of a runner that had a job, by all that is known.
const jobMissed = "ended; GitHub's word on its job was missed while no session was open. GitHub has forgotten the runner, as it does after a job"

// unsettled is the state of a runner with a scale set that ended without an error and, as far as anybody was told, without a job, until GitHub
// was asked about it. If GitHub doesn't say so for long, it counts as failed: a pool whose runners fail stops, also while only these questions
// aren't answered.
func (p pass) unsettled(o observation, state poolstatus.Assessment) (poolstatus.Assessment, bool) {
	isIt := p.runner.Spec.REST == nil && !p.runner.Persists() && p.registrationID() != 0 && !p.memory.hadNoJob &&
		state.State == v1alpha1.RunnerFailed && !o.EndedAt.IsZero() && o.EndedClean && o.Job == nil && !o.Terminating && p.Now().Before(o.EndedAt.Add(poolstatus.JobLost))
	return poolstatus.Unasked(o.Observation), isIt
}

// lacksJob reports whether a runner ended, and no event told how its job ended, or that it had one.
func (p pass) lacksJob(o observation, state poolstatus.Assessment) bool {
	if _, isIt := p.unsettled(o, state); isIt {
		return !errors.As(o.startErr, new(*conflictError))
	}
	ended := !o.EndedAt.IsZero() && (state.Settling || state.State == v1alpha1.RunnerFailed)
	// Who named the job tells of its end, too.
	known := o.Job != nil && (o.Job.ID != v1alpha1.UnknownJob || o.Job.CompletedAt != nil)
	return p.runner.Spec.REST != nil && !p.runner.Persists() && ended && !known && !p.memory.hadNoJob && !errors.As(o.startErr, new(*conflictError))
}
