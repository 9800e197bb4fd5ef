// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// recordTimeout is the timeout of one record, because other records wait for their turn.
const recordTimeout = 15 * time.Second

// Recorder stores job events from GitHub durably: the start of a job as a mark on the runner's pod, and the completion by
// deleting the Runner. It serves one namespace.
type Recorder struct {
	Client    client.Client
	Namespace string
	Memory    *Memory
}

// RecordJobs records the starts and completions of jobs. It skips events of runners that no longer exist. Repeated events
// cause no writes.
func (r *Recorder) RecordJobs(ctx context.Context, events []scaleset.JobEvent) error {
	var g errgroup.Group // one failed record does not stop the others
	g.SetLimit(recordParallel)
	for name, list := range byRunner(events) {
		g.Go(func() error {
			release, err := r.Memory.acquireRecord(ctx, r.Namespace)
			if err != nil {
				return err
			}
			defer release()
			ctx, cancel := context.WithTimeout(ctx, recordTimeout)
			defer cancel()
			return r.record(ctx, name, list)
		})
	}
	return g.Wait()
}

// byRunner groups the starts and completions of jobs by runner and keeps their order. It drops events without a runner,
// because their jobs never ran.
func byRunner(events []scaleset.JobEvent) map[string][]scaleset.JobEvent {
	groups := map[string][]scaleset.JobEvent{}
	for _, e := range events {
		if e.RunnerName != "" && (e.Type == scaleset.JobStarted || e.Type == scaleset.JobCompleted) {
			groups[e.RunnerName] = append(groups[e.RunnerName], e)
		}
	}
	return groups
}

func (r *Recorder) record(ctx context.Context, name string, events []scaleset.JobEvent) error {
	runner := &v1alpha1.Runner{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, runner); err != nil {
		return client.IgnoreNotFound(err)
	}
	if runner.Persists() {
		return r.follow(ctx, runner, events)
	}
	known := runner.Status.Job
	var job *v1alpha1.JobReference
	id := cmp.Or(runner.Status.RunnerID, r.Memory.registration(client.ObjectKeyFromObject(runner), runner.UID))
	for _, e := range events {
		if e.IsAbout(id) { // not about an earlier runner with this name
			job, id = Merge(cmp.Or(job, known), e), cmp.Or(id, e.RunnerID)
		}
	}
	runner.Status.RunnerID = id
	if job == nil || sameJob(known, job) {
		return nil
	}
	if err := r.store(ctx, runner, job); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Job "+jobPhase(job), "runner", name, "namespace", r.Namespace, "job", job.ID,
		"repository", job.Repository, "runID", job.RunID, "result", job.Result)
	return nil
}

// store records the start of a job, or deletes the Runner if the job is completed.
func (r *Recorder) store(ctx context.Context, runner *v1alpha1.Runner, job *v1alpha1.JobReference) error {
	if job.CompletedAt == nil {
		return r.start(ctx, runner, job)
	}
	key := client.ObjectKeyFromObject(runner)
	r.Memory.recordCompletion(key, runner.UID, completion{job.CompletedAt.Time, reported(job.Result), job.Result})
	if !runner.DeletionTimestamp.IsZero() || r.Memory.isDeleted(key, runner.UID) {
		r.Memory.wakes.WakeAfter(key, 0) // its worker may be waiting for the completion
		return nil
	}
	err := r.Memory.end(ctx, r.Client, runner, "its job is over: "+job.Result)
	if !kube.IsRefused(err) {
		return err
	}
	r.Memory.wakes.WakeAfter(key, 0) // the Runner's controller retries the deletion
	return r.note(ctx, runner, job)
}

// reported reports whether the runner itself reported the end of its job to GitHub. A runner that was killed or
// deregistered during its job reports nothing, and GitHub fails the job.
func reported(result string) bool { return strings.EqualFold(result, "succeeded") }

// start marks the runner's pod with its job. If the API server refuses that, for example because of an admission policy, it
// records the job in the Runner's status.
func (r *Recorder) start(ctx context.Context, runner *v1alpha1.Runner, job *v1alpha1.JobReference) error {
	err := r.mark(ctx, runner, job)
	if !kube.IsRefused(err) {
		return err
	}
	return r.note(ctx, runner, job)
}

// note writes a job into the Runner's status.
func (r *Recorder) note(ctx context.Context, runner *v1alpha1.Runner, job *v1alpha1.JobReference) error {
	base := runner.DeepCopy()
	runner.Status.Job = job
	if err := r.Client.Status().Patch(ctx, runner, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the job of runner %s: %w", runner.Name, err)
	}
	return nil
}

// Merge adds an event to the known state of a runner's job. Events may arrive twice and in any order, and known facts are
// never removed. A job with an unknown ID gets its ID from a later event.
func Merge(known *v1alpha1.JobReference, e scaleset.JobEvent) *v1alpha1.JobReference {
	job := &v1alpha1.JobReference{
		ID: e.JobID, Repository: e.Repository, Workflow: e.Workflow, RunID: e.RunID, Name: e.Name,
	}
	if known != nil {
		if known.ID != e.JobID && known.ID != v1alpha1.UnknownJob {
			return known
		}
		job.StartedAt, job.CompletedAt, job.Result = known.StartedAt, known.CompletedAt, known.Result
	}
	at := &metav1.Time{Time: e.At}
	switch e.Type {
	case scaleset.JobStarted:
		if job.StartedAt == nil {
			job.StartedAt = at
		}
	case scaleset.JobCompleted:
		if job.CompletedAt == nil {
			job.CompletedAt, job.Result = at, e.Result
		}
	}
	return job
}

func sameJob(a, b *v1alpha1.JobReference) bool {
	return a != nil && b != nil && a.ID == b.ID && (a.StartedAt == nil) == (b.StartedAt == nil) && (a.CompletedAt == nil) == (b.CompletedAt == nil)
}

func jobPhase(job *v1alpha1.JobReference) string {
	if job.CompletedAt != nil {
		return "completed"
	}
	return "started"
}

// mark sets labels and annotations on the runner's pod that identify the job and ask autoscalers not to evict the pod. They
// serve users of kubectl, logging and cost tools, and the Runner's controller.
func (r *Recorder) mark(ctx context.Context, runner *v1alpha1.Runner, job *v1alpha1.JobReference) error {
	text, err := poolstatus.Mark(job, runner.UID, runner.Status.RunnerID)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{
			v1alpha1.JobRepositoryLabel: labelValue(job.Repository),
			v1alpha1.JobRunIDLabel:      strconv.FormatInt(job.RunID, 10),
			v1alpha1.JobIDLabel:         labelValue(job.ID),
		},
		"annotations": map[string]string{
			v1alpha1.JobAnnotation: text, v1alpha1.RunnerIDAnnotation: strconv.FormatInt(runner.Status.RunnerID, 10), podspec.SafeToEvictAnnotation: "false", podspec.DoNotDisruptAnnotation: "true",
		},
	}})
	if err != nil {
		return fmt.Errorf("encoding the pod's marks: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: runner.Name}}
	if err := r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking the pod of runner %s: %w", runner.Name, err)
	}
	return nil
}

// labelValue converts text to a valid label value: OWNER/NAME becomes OWNER_NAME, with at most 63 characters and a letter
// or digit at both ends.
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
