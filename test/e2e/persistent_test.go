// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
)

const persistentPool = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: stay}
spec:
  connectionRef: {name: acme}
  registration: REST
  lifetime: Persistent
  trust: internal
  demand: {webhook: {}}
  scale: {min: 1, max: 1}
  template:
    spec:
      containers: [{name: runner, image: "corral.test/runner:1"}]
`

// A persistent runner runs several jobs in its pod, survives a restart of its process, and is removed only after
// its current job.
func (b *bed) aRunnerStays(t *testing.T) {
	const organization = "persistent-org"
	b.pool(t, "persistent", persistentPool)
	first := b.job(t, organization, "stay", "echo of the first job >left")
	b.idle(t, 1)
	pod := b.onlyPod(t, "persistent")
	second := b.job(t, organization, "stay", "cat left; env")
	b.idle(t, 2)
	if !strings.HasPrefix(second.Log, "of the first job\n") {
		t.Errorf("the second job found %q", second.Log)
	}
	if strings.Contains(second.Log, "ACTIONS_RUNNER_INPUT_TOKEN") {
		t.Error("a job can read the registration token")
	}

	b.kill(t, pod)
	third := b.queue(t, organization, "stay", "sleep 5")
	b.await(t, third, githubsim.JobRunning)
	same := b.onlyPod(t, "persistent")
	t.Logf("three jobs in pod %s, restarted %d time", same.Name, same.Status.ContainerStatuses[0].RestartCount)
	if same.UID != pod.UID || same.Status.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("pod %s with a killed process is now %s, %+v", pod.UID, same.UID, same.Status.ContainerStatuses)
	}
	b.end(t, "persistent", "stay")
	last := b.timeline(third)
	if last.Result != githubsim.ResultSucceeded || last.Runner != first.Runner || last.Runner != second.Runner {
		t.Errorf("the third job %s on %s; the others were on %s and %s", last.Result, last.Runner, first.Runner, second.Runner)
	}
}

// idle waits until the only runner is idle after the given number of jobs.
func (b *bed) idle(t *testing.T, jobs int32) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerList{}
		if err := b.world.Client.List(ctx, list, client.InNamespace("persistent")); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Status.State != v1alpha1.RunnerIdle || list.Items[0].Status.JobsDone != jobs {
			return fmt.Errorf("no runner is idle after %d jobs: %+v", jobs, list.Items)
		}
		return nil
	})
}

func (b *bed) onlyPod(t *testing.T, namespace string) *corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	must(t, b.world.Client.List(t.Context(), pods, client.InNamespace(namespace)))
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods, want one", len(pods.Items))
	}
	return &pods.Items[0]
}

// kill kills the runner's process, and waits until its container runs again.
func (b *bed) kill(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	killed := pod.Status.ContainerStatuses[0].ContainerID
	out, err := b.node.ctr(t.Context(), "tasks", "kill", "--signal", "SIGKILL", strings.TrimPrefix(killed, "containerd://")).CombinedOutput()
	if err != nil {
		t.Fatalf("killing the runner: %v\n%s", err, out)
	}
	eventually(t, func(ctx context.Context) error {
		if err := b.world.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if s := pod.Status.ContainerStatuses[0]; s.ContainerID == killed || s.State.Running == nil {
			return errors.New("the container has not restarted")
		}
		return nil
	})
}
