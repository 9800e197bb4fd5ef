// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// longestRestart bounds the back-off between two runs of a container, like a kubelet's. The first back-off is the
	// same as for image pulls.
	longestRestart = 5 * time.Minute
	// recovered is how long a container must run to reset the back-off.
	recovered = time.Minute
)

// Kill kills the process of a pod's runner, as for using too much memory. It returns false if there is no such process.
func (n *Node) Kill(namespace, pod string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.actors {
		if a.pod.Namespace == namespace && a.pod.Name == pod && a.now != nil {
			a.struck(KilledInJob)
			a.now.crash(ending{exitCode: exitKilled, reason: "OOMKilled"})
			return true
		}
	}
	return false
}

// runAgain restarts the container each time it ends, until the pod is deleted: first immediately, and then with a
// back-off.
func (a *actor) runAgain(c Container, end ending, err error) (ending, error) {
	var backOff time.Duration
	for err == nil && a.term.Err() == nil {
		if time.Since(a.status.ran.Time) > recovered {
			backOff = 0
		}
		if err := a.report(a.status.restarting(end)); err != nil {
			return end, err
		}
		if pause(a.term, backOff) != nil {
			return end, nil
		}
		backOff = min(max(2*backOff, firstBackOff), longestRestart)
		end, err = a.run(c)
	}
	return end, err
}

// restarting is the status while the runner's container waits for its next run.
func (w *statusWriter) restarting(end ending) corev1.PodStatus {
	w.last, w.restarts = w.ended(end), w.restarts+1
	status := w.runnerEnded(end)
	status.Conditions = conditions(corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: ["+w.runner.Name+"]")
	for i := range status.ContainerStatuses {
		if status.ContainerStatuses[i].Name == w.runner.Name {
			status.ContainerStatuses[i].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: "back-off restarting failed container " + w.runner.Name,
			}}
		}
	}
	return status
}
