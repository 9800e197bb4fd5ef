// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// A pod with huge texts in its status takes little memory in the cache. Texts of a kubelet's size are kept.
func TestAPodOfAnySizeIsCachedSmall(t *testing.T) {
	long := strings.Repeat("x", 1<<18)
	state := func(text string) corev1.ContainerState {
		return corev1.ContainerState{
			Waiting:    &corev1.ContainerStateWaiting{Reason: "ErrImagePull" + text, Message: "pull" + text},
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error" + text, Message: text + "the end", ContainerID: "c" + text},
		}
	}
	pod := func(text string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "p", Annotations: map[string]string{"corral.dev/runner-id": "7", "example.com/x": text}, Labels: map[string]string{"team": "x"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: text}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: v1alpha1.RunnerContainerName, Image: text}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodFailed, Reason: "Evicted" + text, Message: "node" + text,
				ContainerStatuses: []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: state(text), LastTerminationState: state(text), ImageID: text}},
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Message: text}, {Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", Message: text},
				},
			},
		}
		for i := range 100 {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(fmt.Sprint("x-", i)), Message: text})
		}
		return p
	}
	trim := func(p *corev1.Pod) *corev1.Pod {
		trimmed, err := Trim(p)
		if err != nil {
			t.Fatal(err)
		}
		return trimmed.(*corev1.Pod)
	}
	if size := trim(pod(long)).Size(); size > 16*maxMessage {
		t.Errorf("it takes %d bytes", size)
	}
	got := trim(pod(""))
	want := pod("").Status
	want.Conditions = want.Conditions[:2]
	if diff := cmp.Diff(want, got.Status, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if message := trim(pod(long)).Status.ContainerStatuses[0].State.Terminated.Message; !strings.HasSuffix(message, "xthe end") {
		t.Error("the end of a log is gone")
	}
}
