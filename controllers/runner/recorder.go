// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	actions "github.com/corral-dev/corral/internal/scaleset"
)

// recordParallel bounds how many runners of one message are written at once.
const recordParallel = 16

// Recorder makes what GitHub says of jobs durable: on the Runner's status, and the
// identity of the job on its Pod. It serves one namespace.
type Recorder struct {
	Client    client.Client
	Namespace string
}

// RecordJobs writes started and completed jobs to their runners. A runner that is
// not there any more is passed over; repeated events write nothing.
func (r *Recorder) RecordJobs(ctx context.Context, events []actions.JobEvent) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(recordParallel)
	for name, list := range byRunner(events) {
		g.Go(func() error { return r.record(ctx, name, list) })
	}
	return g.Wait()
}

// byRunner groups events in their order; those without a runner are of jobs that never ran.
func byRunner(events []actions.JobEvent) map[string][]actions.JobEvent {
	groups := map[string][]actions.JobEvent{}
	for _, e := range events {
		if e.RunnerName != "" && (e.Type == actions.JobStarted || e.Type == actions.JobCompleted) {
			groups[e.RunnerName] = append(groups[e.RunnerName], e)
		}
	}
	return groups
}

func (r *Recorder) record(ctx context.Context, name string, events []actions.JobEvent) error {
	runner := &v1alpha1.Runner{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, runner); err != nil {
		return client.IgnoreNotFound(err)
	}
	base := runner.DeepCopy()
	for _, e := range events {
		runner.Status.Job = Merge(runner.Status.Job, e)
	}
	if sameJob(base.Status.Job, runner.Status.Job) {
		return nil
	}
	if started(base.Status.Job, runner.Status.Job) {
		if err := r.mark(ctx, runner); err != nil {
			return err
		}
	}
	if err := r.Client.Status().Patch(ctx, runner, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the job of runner %s: %w", name, err)
	}
	log.FromContext(ctx).Info("Job "+what(runner.Status.Job), "runner", name, "namespace", r.Namespace, "job", runner.Status.Job.ID,
		"repository", runner.Status.Job.Repository, "runID", runner.Status.Job.RunID, "result", runner.Status.Job.Result)
	return nil
}

// Merge adds an event to what is known of a runner's job. Events may come twice
// and in any order; what is known is never taken back.
func Merge(known *v1alpha1.JobReference, e actions.JobEvent) *v1alpha1.JobReference {
	job := &v1alpha1.JobReference{
		ID: e.JobID, Repository: e.Repository, Workflow: e.Workflow, RunID: e.RunID, Name: e.Name,
	}
	if known != nil {
		if known.ID != e.JobID {
			return known
		}
		job.StartedAt, job.CompletedAt, job.Result = known.StartedAt, known.CompletedAt, known.Result
	}
	at := &metav1.Time{Time: e.At}
	switch e.Type {
	case actions.JobStarted:
		if job.StartedAt == nil {
			job.StartedAt = at
		}
	case actions.JobCompleted:
		if job.CompletedAt == nil {
			job.CompletedAt, job.Result = at, e.Result
		}
	}
	return job
}

func sameJob(a, b *v1alpha1.JobReference) bool {
	return a != nil && b != nil && a.ID == b.ID && (a.StartedAt == nil) == (b.StartedAt == nil) && (a.CompletedAt == nil) == (b.CompletedAt == nil)
}

// started says whether the job's start is news and its end has not come yet.
func started(before, after *v1alpha1.JobReference) bool {
	return after.CompletedAt == nil && after.StartedAt != nil && (before == nil || before.StartedAt == nil)
}

func what(job *v1alpha1.JobReference) string {
	if job.CompletedAt != nil {
		return "completed"
	}
	return "started"
}

// mark puts the job's identity on the runner's pod, for whoever looks at pods,
// logs or costs.
func (r *Recorder) mark(ctx context.Context, runner *v1alpha1.Runner) error {
	job := runner.Status.Job
	text, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("encoding the job: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{
			v1alpha1.JobRepositoryLabel: labelValue(job.Repository),
			v1alpha1.JobRunIDLabel:      strconv.FormatInt(job.RunID, 10),
			v1alpha1.JobIDLabel:         labelValue(job.ID),
		},
		"annotations": map[string]string{v1alpha1.JobAnnotation: string(text)},
	}})
	if err != nil {
		return fmt.Errorf("encoding the pod's marks: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: runner.Namespace, Name: runner.Name}}
	if err := r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking the pod of runner %s: %w", runner.Name, err)
	}
	return nil
}

// labelValue makes text fit a label's value: OWNER/NAME becomes OWNER_NAME, at
// most 63 characters, with a letter or digit at both ends.
func labelValue(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '_'
	}, s)
	return strings.Trim(clean[:min(len(clean), 63)], "-._")
}
