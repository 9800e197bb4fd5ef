// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// End describes how a pod ended, is ending, or was refused by its node. The zero value means that the pod continues.
type End struct {
	// Actor is who ended the pod.
	Actor v1alpha1.RunnerActor
	// Reason is the reason in the status of the pod, of its condition DisruptionTarget or of a container; ReasonDeleted or
	// reasonUnknown if there is none.
	Reason string
	// Message is the message of the pod or of its condition DisruptionTarget, on one line; "" if only a container reports the
	// end.
	Message string
	// Cause is the cause for which there is evidence, whether or not the runner had a job. It is "" if the container exited
	// with code 0, or if Corral ended the pod.
	Cause v1alpha1.RunnerCause
	// JobLost is true if the pod or the runner's container ended during a job.
	JobLost bool
}

// Witness holds the facts about a runner that its pod does not show.
type Witness struct {
	// Ending is true while Corral removes the runner. To stop the pod, Corral deletes it or sets its activeDeadlineSeconds.
	Ending bool
	// HasJob is true while the runner has a job that has not ended, according to GitHub.
	HasJob bool
}

// verdict is the actor that ended a pod and the cause, as concluded from a reason in the pod's status.
type verdict struct {
	actor v1alpha1.RunnerActor
	cause v1alpha1.RunnerCause
}

var (
	// byNode applies if a node ends a pod for its own reasons, byTemplate if the node cannot meet the requirements of the pod,
	// and byLimit if a container exceeds a limit or cannot be started. byRunner applies if the runner's program ends with an
	// error, byOutsider if another actor deletes or evicts the pod, and byUnknown if nothing shows who ended it.
	byNode     = verdict{v1alpha1.ActorNode, v1alpha1.CauseNode}
	byTemplate = verdict{v1alpha1.ActorNode, v1alpha1.CauseConfig}
	byLimit    = verdict{v1alpha1.ActorContainer, v1alpha1.CauseCrash}
	byRunner   = verdict{v1alpha1.ActorRunner, v1alpha1.CauseCrash}
	byOutsider = verdict{v1alpha1.ActorOutsider, v1alpha1.CauseRemoved}
	byUnknown  = verdict{v1alpha1.ActorUnknown, v1alpha1.CauseRemoved}
)

const (
	// ReasonDeleted is the reason of a deleted pod. Kubernetes does not record who deleted it.
	ReasonDeleted = "Deleted"
	// reasonUnknown is the reason of a pod that ended without a reason.
	reasonUnknown = "Unknown"
	// outOf is the prefix of a kubelet's reason for refusing a pod that needs more of a resource than the node has left. The
	// name of the resource follows.
	outOf = "OutOf"

	evicted          = "Evicted"
	deadlineExceeded = "DeadlineExceeded"
	outOfMemory      = "OOMKilled"
)

// podVerdicts lists the reasons that kubelets and controllers of Kubernetes 1.34 to 1.37 write into the status of a pod
// that they end or refuse, except reasons that begin with outOf. A test compares the list with the source code of
// Kubernetes.
var podVerdicts = map[string]verdict{
	// A kubelet ends the pod: pkg/kubelet/eviction, nodeshutdown, preemption, and active_deadline.go.
	evicted:          byNode,
	"Terminated":     byNode,
	"Preempting":     byNode,
	deadlineExceeded: {v1alpha1.ActorNode, v1alpha1.CauseDeadline},
	// A kubelet refuses the pod because of the state of the node: pkg/kubelet/lifecycle, cm, nodeshutdown, volumemanager.
	"NodeShutdown":                   byNode,
	"UnexpectedAdmissionError":       byNode,
	"InvalidNodeInfo":                byNode,
	"UnknownReason":                  byNode,
	"UnexpectedPredicateFailureType": byNode,
	"NodeAffinity":                   byNode,
	"NodeName":                       byNode,
	"NodePorts":                      byNode,
	"TaintToleration":                byNode,
	"TopologyAffinityError":          byNode,
	"SMTAlignmentError":              byNode,
	"VolumeAttachmentLimitExceeded":  byNode,
	// A kubelet refuses the pod because of its template.
	"SysctlForbidden":                      byTemplate,
	"AppArmor":                             byTemplate,
	"PodOSNotSupported":                    byTemplate,
	"PodOSSelectorNodeLabelDoesNotMatch":   byTemplate,
	"InitContainerRestartPolicyForbidden":  byTemplate,
	"SupplementalGroupsPolicyNotSupported": byTemplate,
	"PodLevelResourcesNotSupported":        byTemplate,
	"PodFeatureUnsupported":                byTemplate,
	"EmptyPodSharedPoolError":              byTemplate,
	// The node lifecycle controller marks the pods of a node that no longer reports: pkg/controller/util/node.
	"NodeLost": byNode,
}

// disruptionVerdicts lists the reasons of the condition DisruptionTarget. An actor sets this condition on a pod that it
// ends although the pod is not at fault.
var disruptionVerdicts = map[string]verdict{
	corev1.PodReasonTerminationByKubelet:  byNode,
	corev1.PodReasonPreemptionByScheduler: {v1alpha1.ActorScheduler, v1alpha1.CauseRemoved},
	"EvictionByEvictionAPI":               byOutsider,
	"DeletionByTaintManager":              byNode,
	"DeletionByDeviceTaintManager":        byNode,
	"DeletionByPodGC":                     byNode,
}

// containerVerdicts lists the reasons of a terminated container that are more specific than its exit code. containerd
// uses "Unknown" for a container that it lost when the node restarted.
var containerVerdicts = map[string]verdict{
	outOfMemory:               byLimit,
	"StartError":              byLimit,
	"ContainerCannotRun":      byLimit,
	"RestartingAllContainers": byLimit,
	"ContainerStatusUnknown":  byNode,
	"Unknown":                 byNode,
}

// EndOf classifies the end of a pod. The pod's status takes precedence over the status of its containers, because a kubelet
// that ends a pod kills its containers.
func EndOf(pod *corev1.Pod, w Witness) End {
	e := cmp.Or(endByCorral(pod, w), endOfPod(pod), endByDisruption(pod), endByDeletion(pod), endOfContainers(pod), endForUnknownReason(pod))
	e.Message = wording.Truncate(line(e.Message), maxLog) // a node or another controller wrote it
	e.JobLost = w.HasJob && (HasEnded(pod) || runnerStatus(pod).State.Terminated != nil)
	return e
}

// Gone returns the last known state of a missing pod, changed to a state that has ended. If the pod had not ended, it must
// have been deleted, so the result has a deletion time.
func Gone(last *corev1.Pod, now time.Time) *corev1.Pod {
	if HasEnded(last) {
		return last
	}
	pod := last.DeepCopy()
	pod.Status.Phase, pod.DeletionTimestamp = corev1.PodFailed, cmp.Or(pod.DeletionTimestamp, &metav1.Time{Time: now})
	return pod
}

// end returns an End with the actor and the cause of the verdict.
func (v verdict) end(reason, message string) End {
	return End{Actor: v.actor, Cause: v.cause, Reason: reason, Message: message}
}

// isOver reports whether a pod has ended or is being deleted. Until then, a reason or a condition does not prove that the
// pod will end.
func isOver(pod *corev1.Pod) bool { return HasEnded(pod) || !pod.DeletionTimestamp.IsZero() }

func endByCorral(pod *corev1.Pod, w Witness) End {
	if w.Ending && (!pod.DeletionTimestamp.IsZero() || pod.Status.Reason == deadlineExceeded) {
		return End{Actor: v1alpha1.ActorCorral, Reason: ReasonDeleted}
	}
	return End{}
}

func endOfPod(pod *corev1.Pod) End {
	reason := pod.Status.Reason
	v := cmp.Or(podVerdicts[reason], byUnknown)
	switch {
	case reason == "" || !isOver(pod):
		return End{}
	case reason == evicted && disruptionOf(pod) == nil && len(pod.Status.ContainerStatuses) > 0:
		// A container exceeded its limit of ephemeral storage: a kubelet evicts for no other reason without setting the
		// condition. A pod that a kubelet refused has no container statuses.
		v = byLimit
	case reason == deadlineExceeded && !isLong(pod):
		v = byTemplate
	case strings.HasPrefix(reason, outOf):
		v = byNode
	case v == byUnknown && disruptionOf(pod) != nil:
		return End{}
	}
	return v.end(reason, pod.Status.Message)
}

// isLong reports whether the runner's container had enough time to start and to take a job.
func isLong(pod *corev1.Pod) bool {
	t := runnerStatus(pod).State.Terminated
	return t != nil && t.FinishedAt.Sub(t.StartedAt.Time) >= StuckDeadline
}

func endByDisruption(pod *corev1.Pod) End {
	c := disruptionOf(pod)
	if c == nil || !isOver(pod) {
		return End{}
	}
	return cmp.Or(disruptionVerdicts[c.Reason], byOutsider).end(c.Reason, c.Message)
}

// disruptionOf returns the true condition that reports a disruption of the pod; nil if there is none.
func disruptionOf(pod *corev1.Pod) *corev1.PodCondition {
	return conditionOf(pod, corev1.DisruptionTarget, corev1.ConditionTrue)
}

// endByDeletion attributes the end of a pod that is being deleted to another actor. Its container may have crashed just
// before the deletion, but the times do not prove the order, because the clocks of nodes differ.
func endByDeletion(pod *corev1.Pod) End {
	if pod.DeletionTimestamp.IsZero() {
		return End{}
	}
	return byOutsider.end(ReasonDeleted, "")
}

func endOfContainers(pod *corev1.Pod) End {
	state := runnerStatus(pod).State
	switch {
	case state.Terminated != nil:
		return endOfRunner(pod, state.Terminated)
	case state.Running != nil:
		return End{}
	}
	for _, s := range pod.Status.InitContainerStatuses {
		switch t := s.State.Terminated; {
		case isLooping(s): // only a sidecar restarts
			return verdict{v1alpha1.ActorSidecar, v1alpha1.CauseCrash}.end(s.State.Waiting.Reason, "")
		case t != nil && t.ExitCode != 0:
			return verdict{v1alpha1.ActorInitContainer, v1alpha1.CauseCrash}.end(t.Reason, "")
		}
	}
	return End{}
}

// endOfRunner classifies the end of the runner's own container.
func endOfRunner(pod *corev1.Pod, t *corev1.ContainerStateTerminated) End {
	v := cmp.Or(containerVerdicts[t.Reason], byRunner)
	switch {
	case t.ExitCode == exitOutdated:
		v = verdict{v1alpha1.ActorRunner, v1alpha1.CauseOutdated}
	case t.ExitCode == 0:
		v = verdict{actor: v1alpha1.ActorRunner}
	case t.Reason == outOfMemory && isUnlimited(pod):
		v = byNode // only the node's own memory can have been exhausted
	}
	return v.end(t.Reason, "")
}

// isUnlimited reports whether the pod is known to set no limit on the memory of the runner's container.
func isUnlimited(pod *corev1.Pod) bool {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.RunnerContainerName })
	return i >= 0 && pod.Spec.Resources == nil && pod.Spec.Containers[i].Resources.Limits.Memory().IsZero()
}

func endForUnknownReason(pod *corev1.Pod) End {
	if !HasEnded(pod) {
		return End{}
	}
	return byUnknown.end(reasonUnknown, pod.Status.Message)
}

// runnerStatus returns the status of the runner's container; the zero value if there is none.
func runnerStatus(pod *corev1.Pod) corev1.ContainerStatus {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == v1alpha1.RunnerContainerName {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

const (
	// maxLog limits the kept end of a container's log, and the message of a pod, in bytes.
	maxLog = 1000
	// kubeletCut is the maximum size in bytes of the end of a log that a kubelet reports:
	// https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/#customizing-the-termination-message
	kubeletCut = 2048
)

// exitOf returns how a pod and its container ended. t describes the end of the container; nil if it has not ended. exitOf
// returns nil if the pod continues, and if the exit code is 0 and only the runner itself or Corral caused the end.
func exitOf(pod *corev1.Pod, t *corev1.ContainerStateTerminated, e End) *v1alpha1.RunnerExit {
	if e.Actor == "" && t != nil { // the container has restarted
		e = endOfRunner(pod, t)
	}
	t = cmp.Or(t, &corev1.ContainerStateTerminated{})
	if t.ExitCode == 0 && e.Cause == "" {
		return nil
	}
	message := t.Message
	if len(message) >= kubeletCut {
		// Redact does not recognize the rest of a truncated credential.
		message = strings.TrimLeftFunc(message, func(c rune) bool { return !unicode.IsSpace(c) })
	}
	text := line(message)
	return &v1alpha1.RunnerExit{
		Actor: e.Actor, Code: t.ExitCode, Reason: cmp.Or(e.Reason, t.Reason), Signal: t.Signal, Node: pod.Spec.NodeName,
		Message: strings.ToValidUTF8(text[max(0, len(text)-maxLog):], ""),
	}
}

// line returns a text on one line, without credentials and without terminal control characters.
func line(text string) string {
	return strings.Join(strings.Fields(wording.Safe(wording.Redact(text))), " ")
}
