// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// findJob asks GitHub whether a runner without a scale set had a job, when it ended and no event told of
// one: webhooks may be late, lost, or not used at all. It returns the job; nil if nothing new is known. GitHub
// forgets an ephemeral runner with its job, and only then; one that was killed in its job it counts as busy for a while. It
// is asked when the container has ended and, as it may take GitHub a moment, once more before a runner that ended
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
	switch here := known != nil && known.id == id; {
	case !here:
		p.Memory.recordCompletion(client.ObjectKeyFromObject(p.runner), p.runner.UID, p.Now(), true)
		job.CompletedAt = &metav1.Time{Time: p.Now()}
	case !known.busy || o.Job != nil:
		p.memory.hadNoJob = o.Job == nil && !state.Settling
		return nil, nil
	}
	return &job, nil
}

// lacksJob reports whether a runner without a scale set ended, and no event told how its job ended, or that it had one.
func (p pass) lacksJob(o observation, state poolstatus.Assessment) bool {
	ended := !o.EndedAt.IsZero() && (state.Settling || state.State == v1alpha1.RunnerFailed)
	// Who named the job tells of its end, too.
	known := o.Job != nil && (o.Job.ID != v1alpha1.UnknownJob || o.Job.CompletedAt != nil)
	return p.runner.Spec.REST != nil && !p.runner.Persists() && ended && !known && !p.memory.hadNoJob && !errors.As(o.startErr, new(*conflictError))
}
