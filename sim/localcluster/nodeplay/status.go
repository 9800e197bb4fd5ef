// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostIP is the address of the node, from a range reserved for documentation, so that nothing answers there.
const hostIP = "192.0.2.1"

// podIP returns an address of the benchmark range 198.18.0.0/15 for the nth pod.
func podIP(n uint32) string {
	return fmt.Sprintf("198.%d.%d.%d", 18+n>>16&1, n>>8&255, n&255)
}

// statusWriter composes the status that the kubelet would report for one pod.
type statusWriter struct {
	pod     *corev1.Pod
	runner  *corev1.Container
	address string
	started metav1.Time // of the pod
	ran     metav1.Time // of the containers; zero before they run
	// restarts is the number of restarts of the runner's container, and last the state in which it ended before.
	restarts int32
	last     corev1.ContainerState
	// ahead is how far the node's clock is ahead.
	ahead time.Duration
}

// now is the time of the node's clock.
func (w *statusWriter) now() metav1.Time { return metav1.NewTime(time.Now().Add(w.ahead)) }

// unschedulable is the status that a scheduler reports for a pod that no node accepts.
func (w *statusWriter) unschedulable(why string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
		Message: "0/3 nodes are available: 3 " + why + ". preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
	}}}
}

// waiting is the status of a pod that is assigned to the node but whose runner is not running yet.
func (w *statusWriter) waiting(reason, message string) corev1.PodStatus {
	status := w.base(corev1.PodPending)
	status.Conditions = conditions(corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: ["+w.runner.Name+"]")
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	status.ContainerStatuses = w.containers(w.pod.Spec.Containers, state)
	return status
}

// failedLog is the end of the log of every failed runner.
const failedLog = "Connecting to GitHub\nAn error occurred: the runner ends.\n"

// initWaiting is the status of a pod whose first init container cannot be started.
func (w *statusWriter) initWaiting(reason, message string) corev1.PodStatus {
	status := w.waiting("PodInitializing", "")
	status.InitContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	return status
}

// initFailed is the status of a pod whose first init container failed, so that the other containers never started.
func (w *statusWriter) initFailed(end ending) corev1.PodStatus {
	status := w.initWaiting("PodInitializing", "")
	status.Phase = corev1.PodFailed
	status.InitContainerStatuses[0].State = w.ended(end)
	return status
}

// runnerEnded is the status of a pod whose runner ended and whose other containers are still running.
func (w *statusWriter) runnerEnded(end ending) corev1.PodStatus {
	status := w.terminated(end)
	status.Phase = corev1.PodRunning
	for i := range status.ContainerStatuses {
		if status.ContainerStatuses[i].Name != w.runner.Name {
			status.ContainerStatuses[i].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.ran}}
		}
	}
	return status
}

// running is the status of a pod all of whose containers run.
func (w *statusWriter) running() corev1.PodStatus {
	w.ran = w.now()
	status := w.base(corev1.PodRunning)
	status.PodIP = w.address
	status.PodIPs = []corev1.PodIP{{IP: w.address}}
	status.Conditions = conditions(corev1.ConditionTrue, "", "")
	status.ContainerStatuses = w.containers(w.pod.Spec.Containers, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.ran}})
	return status
}

// terminated is the status of a pod whose runner ended. The other containers end successfully.
func (w *statusWriter) terminated(end ending) corev1.PodStatus {
	phase, reason := corev1.PodSucceeded, "PodCompleted"
	if end.exitCode != 0 {
		phase, reason = corev1.PodFailed, "PodFailed"
	}
	status := w.base(phase)
	status.Conditions = conditions(corev1.ConditionFalse, reason, "")
	status.ContainerStatuses = w.containers(w.pod.Spec.Containers, w.ended(ending{}))
	for i := range status.ContainerStatuses {
		if status.ContainerStatuses[i].Name == w.runner.Name {
			status.ContainerStatuses[i].State = w.ended(end)
			if end.exitCode != 0 && w.runner.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
				status.ContainerStatuses[i].State.Terminated.Message = failedLog
			}
		}
	}
	return status
}

func (w *statusWriter) base(phase corev1.PodPhase) corev1.PodStatus {
	switch {
	case w.pod.Status.StartTime != nil:
		w.started = *w.pod.Status.StartTime
	case w.started.IsZero():
		w.started = w.now()
	}
	status := corev1.PodStatus{
		Phase: phase, StartTime: &w.started, HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}},
	}
	for i := range w.pod.Spec.InitContainers {
		container := &w.pod.Spec.InitContainers[i]
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(container, w.initState(container, phase)))
	}
	return status
}

// initState is the state of an init container. Unless it is a sidecar, it has ended when the pod is running.
func (w *statusWriter) initState(container *corev1.Container, phase corev1.PodPhase) corev1.ContainerState {
	sidecar := container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
	switch {
	case phase == corev1.PodPending:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	case phase == corev1.PodRunning && sidecar:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.ran}}
	}
	return w.ended(ending{})
}

func (w *statusWriter) containers(all []corev1.Container, state corev1.ContainerState) []corev1.ContainerStatus {
	statuses := make([]corev1.ContainerStatus, 0, len(all))
	for i := range all {
		status := containerStatus(&all[i], state)
		if all[i].Name == w.runner.Name {
			status.RestartCount, status.LastTerminationState = w.restarts, w.last
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func (w *statusWriter) ended(end ending) corev1.ContainerState {
	reason := end.reason
	switch {
	case reason != "":
	case end.exitCode == exitUnknown:
		reason = "Unknown" // containerd reports this for a container whose task is gone after a restart
	case end.exitCode != 0:
		reason = "Error"
	default:
		reason = "Completed"
	}
	started := w.ran
	if started.IsZero() {
		started = w.started
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(end.exitCode), Reason: reason, StartedAt: started, FinishedAt: w.now(),
	}}
}

func containerStatus(container *corev1.Container, state corev1.ContainerState) corev1.ContainerStatus {
	running := state.Running != nil
	return corev1.ContainerStatus{Name: container.Name, Image: container.Image, State: state, Started: &running, Ready: running}
}

// conditions are the conditions that a kubelet owns. The patch leaves others, such as PodScheduled, unchanged.
func conditions(ready corev1.ConditionStatus, reason, message string) []corev1.PodCondition {
	now := metav1.Now()
	return []corev1.PodCondition{
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: now, Reason: reason, Message: message},
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: now, Reason: reason, Message: message},
	}
}
