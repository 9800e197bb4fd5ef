// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestOnlyUpdatesThatTellOfARunnerWakeIt(t *testing.T) {
	now := metav1.Time{Time: time.Unix(1000, 0)}
	container := func(state corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: state}}
		}
	}
	cases := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":         {change: func(*corev1.Pod) {}},
		"another version": {change: func(p *corev1.Pod) { p.ResourceVersion = "2" }},
		"bound to a node": {change: func(p *corev1.Pod) { p.Spec.NodeName = "n" }},
		"unschedulable": {change: func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
		}, want: true},
		"being created":     {change: container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})},
		"image refused":     {change: container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}), want: true},
		"running":           {change: container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}), want: true},
		"ended":             {change: container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: now}}), want: true},
		"evicted":           {change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, want: true},
		"has a job":         {change: func(p *corev1.Pod) { p.Annotations[v1alpha1.JobAnnotation] = `{"id":"j","runnerUID":"u","runnerID":7}` }, want: true},
		"is being deleted":  {change: func(p *corev1.Pod) { p.DeletionTimestamp = &now }, want: true},
		"another pod of it": {change: func(p *corev1.Pod) { p.UID = "2" }, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Annotations: map[string]string{
				v1alpha1.RunnerUIDAnnotation: "u", v1alpha1.RunnerIDAnnotation: "7",
			}}}
			after := before.DeepCopy()
			tc.change(after)
			if got := PodChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("wakes: %v", got)
			}
		})
	}
}
