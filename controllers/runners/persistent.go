// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// persistentMemory is what this process knows about a persistent runner.
type persistentMemory struct {
	hasToken bool // its Secret contains a registration token
	// id is the ID of its registration, job the last job that this process recorded, and done the number of completed jobs
	// at that time. Guarded by Memory.
	id   int64
	job  *v1alpha1.JobReference
	done int32
}

// LastJob returns the last job of a runner and how many jobs it has completed, according to its status and this process's
// memory.
func (m *Memory) LastJob(r *v1alpha1.Runner) (job *v1alpha1.JobReference, done int32) {
	if !r.Persists() {
		return r.Status.Job, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.runners[client.ObjectKeyFromObject(r)]
	if known == nil || known.uid != r.UID {
		return r.Status.Job, r.Status.JobsDone
	}
	return poolstatus.Later(r.Status.Job, known.persistent.job), max(r.Status.JobsDone, known.persistent.done)
}

func (m *Memory) setLastJob(key types.NamespacedName, uid types.UID, job *v1alpha1.JobReference, done int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.outside(key, uid)
	known.persistent.job, known.persistent.done = job, done
}

// learnRegistration records the GitHub ID of a runner that registered itself, and wakes its controller.
func (m *Memory) learnRegistration(key types.NamespacedName, uid types.UID, id int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.outside(key, uid)
	if known.persistent.id == id {
		return
	}
	known.persistent.id = id
	m.wakes.Wake(key)
}

// hasToken reports whether a persistent runner has a registration token, or needs none because its pod was created.
func (p pass) hasToken() bool {
	return p.memory.persistent.hasToken || !p.memory.pod.created.IsZero() || p.pod != nil || p.runner.Status.StartedAt != nil
}

// clearName removes a registration that already has the name of a persistent runner, before the runner registers itself and
// would replace that registration. It returns an error or waits if the registration belongs to another process or has a
// job.
func (p pass) clearName(ctx context.Context, gh registrar) error {
	if !p.runner.Persists() {
		return nil
	}
	known, err := gh.find(ctx, 0)
	if err != nil {
		return p.githubOutcome(err)
	}
	if known == nil {
		return nil
	}
	if known.foreign != "" {
		return &conflictError{v1alpha1.CauseGitHub, fmt.Sprintf("a runner named %q is registered %s", p.runner.Name, known.foreign)}
	}
	if err := gh.remove(ctx, known.id); github.IsJobStillRunning(err) {
		return kube.Wait(busyRetry, catalog.FormerRunnerBusy.With())
	} else if err != nil && !github.IsNotFound(err) {
		return p.githubOutcome(err)
	}
	return nil
}

// isDown reports whether the pod's runner container ended and is not running again yet. pod may be nil.
func isDown(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		again := s.State.Waiting != nil && (s.LastTerminationState.Terminated != nil || s.State.Waiting.Reason == "CrashLoopBackOff")
		return s.Name == v1alpha1.RunnerContainerName && (s.State.Terminated != nil || again)
	})
}

// free removes the job mark from the pod of a persistent runner that has no job any more. With the mark, the pod could
// never be evicted.
func (p pass) free(ctx context.Context, o observation) error {
	if !p.runner.Persists() || p.pod == nil || o.Job != nil || p.pod.Annotations[v1alpha1.JobAnnotation] == "" {
		return nil
	}
	err := unmark(ctx, p.Client, p.pod)
	if apierrors.IsConflict(err) {
		return kube.Progress(time.Second, catalog.MarkChanging.With())
	}
	return err
}

// unmark removes the job mark from a pod. It returns a conflict error if the pod changed since it was read, because the pod
// may have the mark of the next job by then.
func unmark(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	annotations := podspec.IdleAnnotations(pod)
	annotations[v1alpha1.JobAnnotation] = nil
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
		"labels":      map[string]any{v1alpha1.JobRepositoryLabel: nil, v1alpha1.JobRunIDLabel: nil, v1alpha1.JobIDLabel: nil},
		"annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the pod's marks: %w", err)
	}
	of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := c.Patch(ctx, of, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the mark of a job from the pod of runner %s: %w", pod.Name, err)
	}
	return nil
}

// follow records the events of a persistent runner's jobs. It writes the last job and the number of completed jobs into the
// Runner's status, and marks the pod while a job runs.
func (r *Recorder) follow(ctx context.Context, runner *v1alpha1.Runner, events []scaleset.JobEvent) error {
	key, base := client.ObjectKeyFromObject(runner), runner.DeepCopy()
	before, done := r.Memory.LastJob(runner)
	last, id := before, max(runner.Status.RunnerID, r.Memory.registration(key, runner.UID))
	for _, e := range events {
		if !e.IsAbout(id) { // the event is about an earlier runner with this name
			continue
		}
		var over int32
		last, over = poolstatus.Follow(last, Merge(nil, e))
		done, id = done+over, max(id, e.RunnerID)
	}
	if last == nil {
		return nil
	}
	runner.Status.Job, runner.Status.JobsDone, runner.Status.RunnerID = last, done, id
	if !equality.Semantic.DeepEqual(base.Status, runner.Status) {
		if err := r.Client.Status().Patch(ctx, runner.DeepCopy(), client.MergeFrom(base)); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("recording the job of runner %s: %w", runner.Name, err)
		}
	}
	r.Memory.setLastJob(key, runner.UID, last, done)
	r.Memory.learnRegistration(key, runner.UID, id)
	if !sameJob(before, last) {
		log.FromContext(ctx).Info("Job "+jobPhase(last), "runner", runner.Name, "namespace", runner.Namespace, "job", last.ID,
			"repository", last.Repository, "runID", last.RunID, "result", last.Result, "jobsDone", done)
	}
	return r.markLast(ctx, runner)
}

// markLast sets or removes the job mark on the pod of a persistent runner.
func (r *Recorder) markLast(ctx context.Context, runner *v1alpha1.Runner) error {
	if !runner.Status.Job.IsOver() {
		err := r.mark(ctx, runner, runner.Status.Job)
		if kube.IsRefused(err) {
			return nil // the status has the job
		}
		return err
	}
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(runner), pod); err != nil || !podspec.BelongsTo(pod, runner) {
		return client.IgnoreNotFound(err)
	}
	err := unmark(ctx, r.Client, pod)
	if apierrors.IsConflict(err) {
		r.Memory.wakes.WakeAfter(client.ObjectKeyFromObject(runner), time.Second) // the Runner's controller removes the mark
		return nil
	}
	return err
}

// idOf returns the ID of a Runner's registration. For a persistent runner that has registered itself, it finds the ID by
// name; before that it returns 0.
func (v *visit) idOf(r *v1alpha1.Runner) int64 {
	key := client.ObjectKeyFromObject(r)
	id := max(r.Status.RunnerID, v.Memory.registration(key, r.UID))
	if id != 0 || !r.Persists() || !leadsTo(v.gh, r.Spec.REST) {
		return id
	}
	mark := r.Spec.REST.Mark()
	for _, known := range v.byID {
		if known.Name == r.Name && mark != "" && slices.Contains(known.Labels, mark) {
			v.Memory.learnRegistration(key, r.UID, known.ID)
			return known.ID
		}
	}
	return 0
}

// followJob records the start or end of a persistent runner's job that no event reported. It reports whether the runner has
// a job.
func (v *visit) followJob(ctx context.Context, r *v1alpha1.Runner, known rest.Runner, pod *corev1.Pod) (busy bool) {
	seen := *r
	seen.Status.Job, _ = v.Memory.LastJob(r)
	last := poolstatus.LastJob(&seen, pod)
	busy = last != nil && !last.IsOver()
	if known.ID == 0 || known.Busy == busy || last != nil && v.at.Before(changedAt(last).Add(poolstatus.Settle)) {
		return busy || known.Busy // GitHub's lists lag behind
	}
	e := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: v1alpha1.UnknownJob, RunnerID: known.ID, RunnerName: r.Name, At: v.at}
	if !known.Busy {
		e.Type = scaleset.JobCompleted
	}
	v.record(ctx, r, e)
	return known.Busy
}

// changedAt returns when a job ended, or when it began if it has not ended.
func changedAt(j *v1alpha1.JobReference) time.Time {
	switch {
	case j.CompletedAt != nil:
		return j.CompletedAt.Time
	case j.StartedAt != nil:
		return j.StartedAt.Time
	}
	return time.Time{}
}
