// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// account finds out whether a runner without a scale set had a job, when it ended and nothing tells of
// one: webhooks may be late, lost, or not used at all. GitHub forgets an ephemeral runner with its job, and
// only then; one that was killed in its job it takes for busy for a while. It is asked when the container has
// ended and, as it may take GitHub a moment, once more before a runner that ended in peace is taken
// for one that failed.
func (x *run) account(ctx context.Context) error {
	if !x.isUnaccounted() {
		return nil
	}
	gh, ok := x.client(ctx)
	if !ok {
		return nil // it is asked by the next pass, or nobody can tell
	}
	known, err := gh.find(ctx, x.runner.Status.RunnerID)
	if err != nil {
		return x.githubOutcome(err)
	}
	s := &x.runner.Status
	job := v1alpha1.JobReference{ID: v1alpha1.UnknownJob}
	if s.Job != nil {
		job = *s.Job
	}
	switch here := known != nil && known.id == s.RunnerID; {
	case !here:
		x.Notes.complete(client.ObjectKeyFromObject(x.runner), x.runner.UID, x.Now(), true)
		job.CompletedAt = &metav1.Time{Time: x.Now()}
	case !known.busy || s.Job != nil:
		x.note.jobless = s.Job == nil && !x.verdict.Settling
		return nil
	}
	s.Job = &job
	return x.observe(ctx)
}

// isUnaccounted says whether a runner without a scale set ended, and nobody told how it was with its job.
func (x *run) isUnaccounted() bool {
	s := &x.runner.Status
	ended := s.EndedAt != nil && (x.verdict.Settling || x.verdict.State == v1alpha1.RunnerFailed)
	// Who named the job tells of its end, too.
	told := s.Job != nil && (s.Job.ID != v1alpha1.UnknownJob || s.Job.CompletedAt != nil)
	return x.runner.Spec.REST != nil && s.RunnerID != 0 && ended && !told && !x.note.jobless && x.taken == nil
}
