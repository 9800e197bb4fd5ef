// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// A container of a pod with a restart policy runs again in place: first immediately, then with a back-off. The files
// that it kept are still there.
func TestAContainerRunsAgain(t *testing.T) {
	namespace := newNamespace(t)
	createSecret(t, namespace, "r", "token")
	kept := make(chan string, 10)
	node, _ := playWith(t, nodeplay.Options{Run: func(ctx context.Context, c nodeplay.Container, _ func(nodeplay.Stage)) int {
		kept <- string(c.Kept["registration"]) + c.Env[nodeplay.TokenEnv] + c.Args[0]
		c.Kept["registration"] = append(c.Kept["registration"], 'x')
		<-ctx.Done()
		return 0
	}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "runner", Image: "runner", Args: []string{"--url"}, Env: []corev1.EnvVar{{
				Name: nodeplay.TokenEnv,
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "r"}, Key: "config",
				}},
			}}}},
		},
	}
	pod, err := api.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var ends []int32
	for i, want := range []string{"token--url", "xtoken--url", "xxtoken--url"} {
		select {
		case got := <-kept:
			if got != want {
				t.Errorf("run %d has %q", i, got)
			}
		case <-time.After(limit):
			t.Fatal("it doesn't run")
		}
		follow(t, pod, func(p *corev1.Pod, _ bool) bool {
			s := p.Status.ContainerStatuses
			if len(s) == 1 && s[0].State.Running != nil && s[0].RestartCount == int32(i) && p.Status.Phase == corev1.PodRunning {
				if last := s[0].LastTerminationState.Terminated; last != nil {
					ends = append(ends, last.ExitCode)
				}
				return true
			}
			return false
		})
		if i < 2 && !node.Kill(namespace, "r") {
			t.Fatal("there is no process to kill")
		}
	}
	if len(ends) != 2 || ends[0] != 137 || ends[1] != 137 {
		t.Errorf("it ended with %v", ends)
	}
	if node.Kill(namespace, "nobody") {
		t.Error("it killed nobody's process")
	}
	if err := api.CoreV1().Pods(namespace).Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, pod, func(_ *corev1.Pod, deleted bool) bool { return deleted })
}
