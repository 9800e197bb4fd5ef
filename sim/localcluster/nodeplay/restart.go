// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// longestRestart bounds the back-off between two runs of a container, as a kubelet's is; the first is as short as that of pulls.
	longestRestart = 5 * time.Minute
	// recovered is how long a container has to run for the back-off to begin anew.
	recovered = time.Minute
)

// Kill kills the process of a pod's runner, as one that takes too much memory is. It says false if there is none.
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

// runAgain runs the container as often as it ends, until the pod is deleted: at once first, and then with a back-off.
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

// restarting is while the runner's container waits to run again.
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
