// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/controllers"
	"github.com/corral-dev/corral/hack/helmchart"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/sim/githubsim"
)

// hack/e2e/run.sh builds these versions of the controller's image from the same source.
const firstVersion, secondVersion = "v1", "v2"

const (
	replicas          = 2
	apiServerPort     = "6443" // free, because the tests have a network namespace of their own
	movedOrganization = "moves-org"
)

// movedPool runs jobs that the test ends by creating files in a folder of the node.
const movedPool = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: plain}
spec:
  connectionRef: {name: acme}
  scale: {max: 3}
  template:
    spec:
      containers:
      - name: runner
        image: corral.test/runner:1
        command: [/home/runner/run.sh]
        volumeMounts: [{name: gate, mountPath: /gate, readOnly: true}]
      volumes: [{name: gate, hostPath: {path: GATE}}]
`

// install installs the chart with a version of the controller, or upgrades to it, and waits until all replicas run.
// Without kube-proxy, pods cannot use the API server's Service, so they get its own address.
func (b *bed) install(t *testing.T, version string) {
	t.Helper()
	root, err := fs.Sub(charts.Corral, "corral")
	must(t, err)
	chart, err := helmchart.Load(root)
	must(t, err)
	namespace := "{apiVersion: v1, kind: Namespace, metadata: {name: " + helmchart.Namespace + "}}\n"
	rendered, err := helmchart.Render(t.Context(), chart, helmchart.Release, helmchart.Namespace, map[string]any{
		"image":          map[string]any{"repository": "corral.test/corral", "tag": version, "pullPolicy": "Never"},
		"replicas":       replicas,
		"leaderElection": map[string]any{"leaseDuration": "40s", "renewDeadline": "35s"}, // a busy machine must not cost the lease
		"webhook":        map[string]any{"enabled": true},
		"env": []any{
			map[string]any{"name": "KUBERNETES_SERVICE_HOST", "value": bridgeIP},
			map[string]any{"name": "KUBERNETES_SERVICE_PORT", "value": apiServerPort},
		},
	})
	must(t, err)
	kubectl(t, b.world, namespace+rendered.Manifest(), "apply", "--server-side", "-f", "-")
	b.allReplicasRun(t)
}

func (b *bed) allReplicasRun(t *testing.T) {
	t.Helper()
	kubectl(t, b.world, "", "rollout", "status", "deployment/"+helmchart.Release, "--namespace="+helmchart.Namespace, "--timeout="+patience.String())
}

// leader returns the controller's pod that holds the lease.
func (b *bed) leader(t *testing.T) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		lease, of := &coordinationv1.Lease{}, controllers.ManagerOptions{LeaderElectionNamespace: helmchart.Namespace}
		if err := b.world.Client.Get(ctx, of.Lease(), lease); err != nil {
			return err
		}
		pod = &corev1.Pod{}
		return b.world.Client.Get(ctx, client.ObjectKey{Namespace: lease.Namespace, Name: ptr.Deref(lease.Spec.HolderIdentity, "")}, pod)
	})
	return pod
}

// While jobs run, a drain evicts the leader, and then an upgrade replaces all replicas. Each job runs once, and each
// pod of the controller ends gracefully.
func (b *bed) theControllerMoves(t *testing.T) {
	must(t, os.MkdirAll(b.gate(), 0o755))
	must(t, b.world.Connect(t.Context(), "moves", "acme", movedOrganization))
	kubectl(t, b.world, strings.ReplaceAll(movedPool, "GATE", b.gate()), "apply", "--namespace=moves", "-f", "-")
	pods := b.watchController(t)
	b.whileJobsRun(t, "drain", b.drainLeader)
	b.whileJobsRun(t, "upgrade", func(t *testing.T) { b.install(t, secondVersion) })
	endWell(t, pods, 1+replicas)
	b.statusShows(t, secondVersion)
	must(t, b.allSucceeded(movedOrganization))
	b.end(t, "moves", "plain")
}

func (b *bed) gate() string { return b.node.path("gate") }

// whileJobsRun moves the controller while one job runs and others arrive. The running job ends only after later ones.
func (b *bed) whileJobsRun(t *testing.T, name string, move func(*testing.T)) {
	t.Helper()
	running := b.queue(t, movedOrganization, "plain", "until [ -e /gate/"+name+" ]; do sleep 0.1; done")
	b.await(t, running, githubsim.JobRunning)
	early := b.queue(t, movedOrganization, "plain", "true")
	move(t)
	b.await(t, early, githubsim.JobCompleted)
	b.await(t, b.queue(t, movedOrganization, "plain", "true"), githubsim.JobCompleted)
	if state := b.timeline(running).State; state != githubsim.JobRunning {
		t.Errorf("after the %s, the job that ran before it is %s", name, state)
	}
	must(t, os.WriteFile(filepath.Join(b.gate(), name), nil, 0o644))
	b.await(t, running, githubsim.JobCompleted)
}

// drainLeader drains the node of the controller's leader only, because runners and the replacement have no other
// node. Another replica becomes the leader before the node accepts pods again.
func (b *bed) drainLeader(t *testing.T) {
	t.Helper()
	old := b.leader(t).Name
	kubectl(t, b.world, "", "label", "pod", old, "--namespace="+helmchart.Namespace, "corral.test/drained=")
	kubectl(t, b.world, "", "drain", nodeName, "--pod-selector=corral.test/drained", "--delete-emptydir-data", "--timeout="+patience.String())
	b.leader(t)
	kubectl(t, b.world, "", "uncordon", nodeName)
	b.allReplicasRun(t)
}

// statusShows checks the version of the leader in the output of `corral status`, which finds no problem.
func (b *bed) statusShows(t *testing.T, version string) {
	t.Helper()
	leader := b.leader(t).Name
	binary := filepath.Join(b.node.cache, "images", version, "corral-linux-"+runtime.GOARCH)
	command := exec.CommandContext(t.Context(), binary, "status", "--namespace=moves", "--output=json")
	command.Env = append(os.Environ(), "KUBECONFIG="+b.world.Cluster.Kubeconfig())
	out, err := command.Output()
	page := explain.Page{}
	must(t, errors.Join(err, json.Unmarshal(out, &page)))
	leaders := page.Totals.Leaders
	if len(leaders) != 1 || leaders[0].Holder != leader || leaders[0].Version != version {
		t.Errorf("the status shows the leaders %+v, want %s of version %s", leaders, leader, version)
	}
}

// watchController watches the pods of the controller until the test ends.
func (b *bed) watchController(t *testing.T) watch.Interface {
	t.Helper()
	c, err := client.NewWithWatch(b.world.Cluster.Config, client.Options{})
	must(t, err)
	pods, err := c.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(helmchart.Namespace))
	must(t, err)
	t.Cleanup(pods.Stop)
	return pods
}

// endWell waits until a number of pods have been deleted. Each must have run without a restart, and ended with exit
// code 0 after the signal of the kubelet.
func endWell(t *testing.T, pods watch.Interface, want int) {
	t.Helper()
	deadline := time.After(patience)
	for ended := 0; ended < want; {
		select {
		case event := <-pods.ResultChan():
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("the watch of the controller's pods ended: %+v", event)
			}
			if event.Type != watch.Deleted {
				continue
			}
			ended++
			container := pod.Status.ContainerStatuses[0]
			if end := container.State.Terminated; container.RestartCount > 0 || end == nil || end.ExitCode != 0 {
				t.Errorf("the controller in pod %s ended badly after %d restarts: %+v", pod.Name, container.RestartCount, end)
			}
		case <-deadline:
			t.Fatalf("%d of %d pods ended in %s", ended, want, patience)
		}
	}
}
