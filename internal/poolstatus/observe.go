// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// Observe collects the facts from a Runner and its Pod, which may be nil. deadline is the startup deadline that the pool declares.
func Observe(r *v1alpha1.Runner, pod *corev1.Pod, deadline time.Duration, now time.Time) Observation {
	o := Observation{
		CreatedAt: r.CreationTimestamp.Time, Deadline: r.Spec.StartsWithin(deadline),
		Expires:     r.CreationTimestamp.Add(RegistrationLife),
		Job:         r.Status.Job,
		Terminating: !r.DeletionTimestamp.IsZero(), Deregistered: r.Status.DeregisteredAt != nil,
		StartedAt: ptr.Deref(r.Status.StartedAt, metav1.Time{}).Time,
	}
	if o.Job == nil && pod != nil {
		o.Job = JobOf(pod)
	}
	if r.Persists() { // after a job, the runner is free for the next one
		o.Expires = o.CreatedAt.Add(TokenLife)
		if o.Job = LastJob(r, pod); o.Job.IsOver() {
			o.IdleSince, o.Job = o.Job.CompletedAt.Time, nil
		}
	}
	if r.Status.EndedAt != nil {
		o.EndedAt, o.EndReason, o.Cause = r.Status.EndedAt.Time, withoutNews(r.Status.Reason), r.Status.Cause
		o.EndedClean, o.Exit = r.Status.EndedClean, r.Status.Exit
		return o
	}
	if pod == nil {
		if !o.StartedAt.IsZero() {
			o.EndedAt, o.EndReason, o.Cause = now, "the pod is gone", v1alpha1.CauseRemoved
			o.Exit = &v1alpha1.RunnerExit{Actor: v1alpha1.ActorUnknown, Reason: ReasonDeleted}
		} else {
			o.EndReason, o.Cause = r.Status.Trouble()
		}
		return o
	}
	o.HasPod, o.PodCreatedAt = true, pod.CreationTimestamp.Time
	o.ScheduledAt = cmp.Or(conditionOf(pod, corev1.PodScheduled, corev1.ConditionTrue), &corev1.PodCondition{}).LastTransitionTime.Time
	observePod(&o, pod, r.Persists(), now)
	o.StartedAt = plausible(o.StartedAt, r.Status.StartedAt, latest(o.PodCreatedAt, o.ScheduledAt), now)
	o.EndedAt = plausible(o.EndedAt, nil, o.StartedAt, now)
	o.Removed = !pod.DeletionTimestamp.IsZero() && r.DeletionTimestamp.IsZero()
	return o
}

// plausible corrects the time of an event that a node reports, because a wrong clock would make Corral end runners too
// early or too late. A time that Corral has already recorded takes precedence. A time in the future, or before least, which
// is the time of an earlier step, is replaced by now.
func plausible(byNode time.Time, known *metav1.Time, least, now time.Time) time.Time {
	switch {
	case byNode.IsZero():
		return byNode
	case known != nil:
		return known.Time
	case byNode.Before(least), byNode.After(now):
		return now
	}
	return byNode
}

// mark is the content of the annotation that records a runner's job on its pod.
type mark struct {
	v1alpha1.JobReference
	RunnerUID types.UID `json:"runnerUID"`
	RunnerID  int64     `json:"runnerID"`
}

// Mark returns the annotation that records on a pod which job its runner has. runner is the UID of the Runner, and
// registration its ID on GitHub. The record survives the loss of the Runner's status.
func Mark(job *v1alpha1.JobReference, runner types.UID, registration int64) (string, error) {
	text, err := json.Marshal(mark{JobReference: *job, RunnerUID: runner, RunnerID: registration})
	if err != nil {
		return "", fmt.Errorf("encoding the job: %w", err)
	}
	return string(text), nil
}

// JobOf returns the job that Mark recorded on a pod; nil if there is none. It ignores an annotation without the UID and the
// registration ID of the pod's own runner: the author of a template, for example, cannot know them.
func JobOf(pod *corev1.Pod) *v1alpha1.JobReference {
	m := &mark{}
	if json.Unmarshal([]byte(pod.Annotations[v1alpha1.JobAnnotation]), m) != nil || m.ID == "" || m.RunnerUID == "" || m.RunnerID == 0 {
		return nil
	}
	if string(m.RunnerUID) != pod.Annotations[v1alpha1.RunnerUIDAnnotation] || strconv.FormatInt(m.RunnerID, 10) != pod.Annotations[v1alpha1.RunnerIDAnnotation] {
		return nil
	}
	return &m.JobReference
}

func observePod(o *Observation, pod *corev1.Pod, persists bool, now time.Time) {
	status := runnerStatus(pod)
	observeContainer(o, status.State)
	if persists && !HasEnded(pod) {
		observeAgain(o, pod, status)
	}
	if o.EndedAt.IsZero() && HasEnded(pod) { // the runner's container never started, or the node lost it
		o.EndedAt, o.EndedClean = now, pod.Status.Phase == corev1.PodSucceeded
	}
	t := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
	if o.StartedAt.IsZero() {
		t = cmp.Or(observeInit(o, pod), t)
	}
	observeEnd(o, pod, t)
	if o.StartedAt.IsZero() && o.EndedAt.IsZero() && o.EndReason == "" {
		observeSchedule(o, pod)
	}
}

// observeEnd records who ended the pod, or is about to end it, and why. t describes how a container ended; nil if none did.
func observeEnd(o *Observation, pod *corev1.Pod, t *corev1.ContainerStateTerminated) {
	e := EndOf(pod, Witness{Ending: o.Terminating, HasJob: o.Job != nil && !o.Job.IsOver()})
	hasEnded := !o.EndedAt.IsZero()
	isOfContainer := t != nil && e.Reason == t.Reason // EndReason already includes the reason, with the exit code
	if e.Message != "" || e.Cause.IsExternal() && !isOfContainer {
		o.EndReason = describe(e.Reason, e.Message)
	}
	switch {
	case e.JobLost: // the job may have caused the end
		o.Cause = ""
	case hasEnded || isOver(pod):
		o.Cause = cmp.Or(e.Cause, o.Cause)
	}
	if t != nil || hasEnded || isOver(pod) && o.Job == nil {
		o.Exit = exitOf(pod, t, e)
	}
}

// observeSchedule records why the scheduler has not assigned the pod to a node.
func observeSchedule(o *Observation, pod *corev1.Pod) {
	c := conditionOf(pod, corev1.PodScheduled, corev1.ConditionFalse)
	if c == nil { // the scheduler has not tried yet
		return
	}
	o.EndReason, o.Cause = describe(c.Reason, c.Message), v1alpha1.CauseUnschedulable
	if isForClaim(pod, o.EndReason) {
		o.Cause, o.StuckSince = v1alpha1.CauseCache, latest(c.LastTransitionTime.Time, o.PodCreatedAt) // the scheduler's clock may be behind
	}
}

// observeInit records what keeps the runner's container from starting: an init container or sidecar whose image cannot be
// pulled, that cannot be created, or that ends with an error. It returns how that container ended; nil if it has not ended.
func observeInit(o *Observation, pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, s := range pod.Status.InitContainerStatuses {
		one := Observation{}
		observeContainer(&one, s.State)
		if s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 || isLooping(s) {
			one.Cause = v1alpha1.CauseCrash
		}
		if one.Cause != "" {
			o.EndReason, o.Cause = fmt.Sprintf("container %s: %s", s.Name, one.EndReason), one.Cause
			return cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		}
	}
	return nil
}

// isLooping reports whether a container waits for a restart after it ended.
func isLooping(s corev1.ContainerStatus) bool {
	return s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
}

// exitOutdated is the exit code of a runner whose version GitHub refuses. podspec.ReturnOutdatedEnv enables it.
const exitOutdated = 7

// pullFailed is a kubelet's reason after a failed attempt to pull an image. The message for ImagePullBackOff repeats it
// until the next attempt.
const pullFailed = "ErrImagePull"

func observeContainer(o *Observation, s corev1.ContainerState) {
	switch {
	case s.Terminated != nil:
		t := s.Terminated
		o.StartedAt, o.EndedAt = t.StartedAt.Time, t.FinishedAt.Time
		o.EndedClean = t.ExitCode == 0
		o.EndReason = fmt.Sprintf("%s (exit code %d)", cmp.Or(t.Reason, "ended"), t.ExitCode)
		if t.ExitCode == exitOutdated {
			o.Cause, o.EndReason = v1alpha1.CauseOutdated, fmt.Sprintf("GitHub refuses this runner version: update the image (exit code %d)", t.ExitCode)
		}
	case s.Running != nil:
		o.StartedAt = s.Running.StartedAt.Time
	case s.Waiting != nil && s.Waiting.Reason != "ContainerCreating" && s.Waiting.Reason != "PodInitializing":
		reason, message := s.Waiting.Reason, s.Waiting.Message
		if _, why, ok := strings.Cut(message, pullFailed); ok && reason == "ImagePullBackOff" {
			reason, message = pullFailed, strings.TrimPrefix(why, ": ") // the reason then stays the same between two attempts
		}
		o.EndReason, o.Cause = describe(reason, wording.Redact(message)), waitingCauses[reason]
	}
}

// waitingCauses classifies the kubelet's reasons for a container that waits
// (k8s.io/kubernetes pkg/kubelet/images/types.go and container/sync_result.go).
var waitingCauses = map[string]v1alpha1.RunnerCause{
	pullFailed:                   v1alpha1.CauseImagePull,
	"ImagePullBackOff":           v1alpha1.CauseImagePull,
	"InvalidImageName":           v1alpha1.CauseImagePull,
	"ErrImageNeverPull":          v1alpha1.CauseImagePull,
	"ImageInspectError":          v1alpha1.CauseImagePull,
	"RegistryUnavailable":        v1alpha1.CauseImagePull,
	"SignatureValidationFailed":  v1alpha1.CauseImagePull,
	"CreateContainerConfigError": v1alpha1.CauseConfig,
	"CreateContainerError":       v1alpha1.CauseConfig,
	"RunContainerError":          v1alpha1.CauseConfig,
	"StartError":                 v1alpha1.CauseConfig,
	"ContainerCannotRun":         v1alpha1.CauseConfig,
}

// claimTexts are parts of kube-scheduler's messages about claims and their volumes
// (pkg/scheduler/framework/plugins/volumebinding and volumezone). For a volume in another zone, the scheduler uses the
// first one, or since kubernetes/kubernetes#129887 "node(s) didn't match PersistentVolume's node affinity".
var claimTexts = []string{
	"volume node affinity conflict", "persistentvolume", "storageclass", "persistent volumes to bind", "volume zone", "free storage", "pvc(s)",
}

// isForClaim reports whether the claim of its cache prevents the scheduling of a pod. The scheduler mentions the zone of a
// volume only if a node would otherwise have had room. Its message rarely names the claim, so it proves nothing about a pod
// that has other claims or ephemeral volumes.
func isForClaim(pod *corev1.Pod, reason string) bool {
	claim := pod.Annotations[v1alpha1.CacheClaimAnnotation]
	if claim == "" || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName != claim
	}) {
		return false
	}
	reason = strings.ToLower(reason)
	return slices.ContainsFunc(claimTexts, func(text string) bool { return strings.Contains(reason, text) })
}

// conditionOf returns the condition of a pod that has a status; nil if there is none.
func conditionOf(pod *corev1.Pod, name corev1.PodConditionType, status corev1.ConditionStatus) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == name && c.Status == status })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// describe joins a reason and a message. Either may be empty.
func describe(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	}
	return reason + ": " + message
}

// HasEnded reports whether all containers of a pod have ended for good.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
