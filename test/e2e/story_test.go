// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e contains stories on a real node, where kubelet, containerd and runc run the pods of the controller and
// of the runners. It needs files that hack/e2e/run.sh prepares. Unit tests cover the rules, and test/suite contains all
// other stories.
package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/hack/helmchart"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// manifest is applied by a user.
const manifest = `
apiVersion: v1
kind: Secret
metadata: {name: github, namespace: ci}
stringData: {github_token: TOKEN}
---
apiVersion: corral.dev/v1alpha1
kind: GitHubConnection
metadata: {name: acme, namespace: ci}
spec:
  url: GITHUB
  secretRef: {name: github}
---
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux, namespace: ci}
spec:
  connectionRef: {name: acme}
  runnerLabels: [linux]
  scale: {max: 5}
  template:
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: runner
        image: corral.test/runner:1
        imagePullPolicy: Never
        command: [/home/runner/run.sh]
        resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 128Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// bed is shared by all stories. Each story has a namespace and an organization of its own.
type bed struct {
	world *world.World
	node  *node
}

func TestOnARealNode(t *testing.T) {
	log.SetLogger(logr.Discard())
	w := startWorld(t)
	b := &bed{world: w, node: startNode(t, w)}
	b.install(t, firstVersion)
	for _, story := range []struct {
		name string
		tell func(t *testing.T)
	}{
		{"jobs run in real containers", b.jobsRunInRealContainers},
		{"a job builds and runs containers with a real Docker daemon", b.aJobUsesDocker},
		{"the second job finds what the first left in the cache", b.theSecondJobFindsTheCache},
		{"a runner that stays does three jobs in one pod", b.aRunnerStays},
		{"the kubelet ends runners", b.theKubeletEndsRunners},
		{"the controller is drained and upgraded while jobs run", b.theControllerMoves},
	} {
		if !t.Run(story.name, story.tell) {
			b.showPods(t)
		}
	}
	eventually(t, func(context.Context) error {
		if left := w.GitHub.Leftovers(); len(left) > 0 {
			return fmt.Errorf("left on GitHub: %v", left)
		}
		return nil
	})
	kubectl(t, w, "", "scale", "deployment/"+helmchart.Release, "--namespace="+helmchart.Namespace, "--replicas=0")
	eventually(t, b.node.idle)
	if broken := w.GitHub.Invariants(); len(broken) > 0 {
		t.Errorf("broken promises: %v", broken)
	}
}

func (b *bed) jobsRunInRealContainers(t *testing.T) {
	const jobs = 2
	w := b.world
	w.GitHub.AddOrg("acme")
	must(t, w.Cluster.CreateNamespace(t.Context(), "ci"))
	kubectl(t, w, strings.NewReplacer("TOKEN", world.Token, "GITHUB", w.GitHub.ConfigURL("acme")).Replace(manifest), "apply", "-f", "-")
	for range jobs {
		_, err := w.GitHub.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"linux"}, Duration: 2 * time.Second})
		must(t, err)
	}

	containers := map[string]bool{}
	eventually(t, func(ctx context.Context) error {
		must(t, seeContainers(ctx, w, containers))
		return b.allSucceeded("acme")
	})
	t.Logf("%d jobs done in %d containers", jobs, len(containers))
	if len(containers) < jobs {
		t.Errorf("%d jobs ran in the containers %v, want one each", jobs, containers)
	}
	b.end(t, "ci", "linux")
}

// end deletes a pool, and waits until nothing of it is left.
func (b *bed) end(t *testing.T, namespace, pool string) {
	t.Helper()
	kubectl(t, b.world, "", "delete", "runnerpool", pool, "--namespace="+namespace)
	eventually(t, func(ctx context.Context) error { return b.nothingLeft(ctx, namespace) })
}

// pool applies a pool in its own namespace, whose organization sends webhooks to the controller.
func (b *bed) pool(t *testing.T, namespace, manifest string) {
	t.Helper()
	_, err := b.world.ConnectHook(t.Context(), namespace, "acme", namespace+"-org", b.leader(t).Status.PodIP+":8081")
	must(t, err)
	kubectl(t, b.world, manifest, "apply", "--namespace="+namespace, "-f", "-")
}

// job runs a script as a job of an organization, and returns the job once it is completed.
func (b *bed) job(t *testing.T, organization, label, script string) githubsim.JobTimeline {
	t.Helper()
	done := b.await(t, b.queue(t, organization, label, script), githubsim.JobCompleted)
	if done.Result != githubsim.ResultSucceeded {
		t.Fatalf("the job %s:\n%s", done.Result, done.Log)
	}
	return done
}

func (b *bed) queue(t *testing.T, organization, label, script string) (id string) {
	t.Helper()
	id, err := b.world.GitHub.AddJob(githubsim.Job{Repository: organization + "/app", Labels: []string{label}, Script: script})
	must(t, err)
	return id
}

// await waits until a job reaches a state.
func (b *bed) await(t *testing.T, id string, state githubsim.JobState) (job githubsim.JobTimeline) {
	t.Helper()
	eventually(t, func(context.Context) error {
		if job = b.timeline(id); job.State != state {
			return fmt.Errorf("job %s is %s, want %s", id, job.State, state)
		}
		return nil
	})
	return job
}

func (b *bed) timeline(id string) githubsim.JobTimeline {
	for _, j := range b.world.GitHub.Jobs() {
		if j.ID == id {
			return j
		}
	}
	return githubsim.JobTimeline{}
}

// showPods prints the state of the pods after a failure.
func (b *bed) showPods(t *testing.T) {
	kubectl(t, b.world, "", "get", "pods,pvc,pv,runners,runnerpools", "--all-namespaces", "-o", "wide")
	kubectl(t, b.world, "", "get", "events", "--all-namespaces", "-o", "wide")
}

// startWorld runs the control plane and a simulated GitHub at addresses that pods can reach.
func startWorld(t *testing.T) *world.World {
	t.Helper()
	w, err := world.Start(t.Context(), world.Options{
		NoNodes: true, Bare: true, APIServer: net.JoinHostPort(bridgeIP, apiServerPort),
		GitHub: githubsim.Options{Address: bridgeIP + ":0", SessionExpiry: 3 * time.Second},
	})
	must(t, err)
	t.Cleanup(func() { must(t, w.Stop()) })
	return w
}

// kubectl runs the real kubectl with cluster-admin rights.
func kubectl(t *testing.T, w *world.World, input string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Getenv("CORRAL_E2E_KUBECTL"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+w.Cluster.Kubeconfig())
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	must(t, err)
}

// seeContainers records which of containerd's containers run a runner.
func seeContainers(ctx context.Context, w *world.World, seen map[string]bool) error {
	pods := &corev1.PodList{}
	if err := w.Client.List(ctx, pods, client.InNamespace("ci")); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			if strings.HasPrefix(c.ContainerID, "containerd://") && pod.Spec.NodeName == nodeName {
				seen[c.ContainerID] = true
			}
		}
	}
	return nil
}

func (b *bed) allSucceeded(organization string) error {
	for _, j := range b.world.GitHub.Jobs() {
		if strings.HasPrefix(j.Repository, organization+"/") && (j.Result != githubsim.ResultSucceeded || j.Starts != 1) {
			return fmt.Errorf("job %s is %s %s after %d starts", j.ID, j.State, j.Result, j.Starts)
		}
	}
	return nil
}

// nothingLeft returns an error if objects of a namespace's pool are left.
func (b *bed) nothingLeft(ctx context.Context, namespace string) error {
	for _, list := range []client.ObjectList{
		&v1alpha1.RunnerList{}, &v1alpha1.RunnerScaleSetList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{},
	} {
		if err := b.world.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if left := meta.LenList(list); left > 0 {
			return fmt.Errorf("%d of %T are left", left, list)
		}
	}
	return nil
}

// patience is the deadline for each wait.
const patience = 3 * time.Minute

// eventually repeats check until it succeeds. After the deadline, the test fails with the last error.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s: %v", patience, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
