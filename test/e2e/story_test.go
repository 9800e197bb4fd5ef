// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e tells one story on a real node: kubelet, containerd and runc run the runners' pods. It needs what
// hack/e2e/run.sh prepares; rules are tested in lower layers, and other stories in test/suite.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// manifest is what a user applies. The pods name the real node, as the world has a played one too.
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
  labels: [linux]
  scale: {max: 5}
  template:
    spec:
      nodeName: ` + nodeName + `
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: runner
        image: corral.test/runner:1
        imagePullPolicy: Never
        resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 128Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// jobs is how many jobs the story has.
const jobs = 2

func TestJobsRunInRealContainers(t *testing.T) {
	log.SetLogger(logr.Discard())
	w := startWorld(t)
	n := startNode(t, w)
	startController(t, w, filepath.Join(n.cache, "bin", "corral"))
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
		return allSucceeded(w)
	})
	t.Logf("%d jobs done in %d containers", jobs, len(containers))
	if len(containers) < jobs {
		t.Errorf("%d jobs ran in the containers %v, want one each", jobs, containers)
	}

	kubectl(t, w, "", "delete", "runnerpool", "linux", "--namespace=ci")
	eventually(t, func(ctx context.Context) error { return nothingLeft(ctx, w) })
	eventually(t, n.idle)
	if broken := w.GitHub.Invariants(); len(broken) > 0 {
		t.Errorf("broken promises: %v", broken)
	}
}

// startWorld runs the control plane, and GitHub where pods reach it.
func startWorld(t *testing.T) *world.World {
	t.Helper()
	w, err := world.Start(t.Context(), world.Options{GitHub: githubsim.Options{Address: bridgeIP + ":0", SessionExpiry: 3 * time.Second}})
	must(t, err)
	t.Cleanup(func() { must(t, w.Stop()) })
	return w
}

func startController(t *testing.T, w *world.World, binary string) {
	t.Helper()
	c, err := w.RunController(t.Context(), binary)
	must(t, err)
	t.Cleanup(func() {
		must(t, c.Stop())
		showLog(t, c.LogPath)
	})
}

// kubectl runs the real command as the administrator.
func kubectl(t *testing.T, w *world.World, input string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+w.Cluster.Kubeconfig())
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	must(t, err)
}

// seeContainers notes which containers of containerd are running a runner.
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

func allSucceeded(w *world.World) error {
	for _, j := range w.GitHub.Jobs() {
		if j.Result != githubsim.ResultSucceeded {
			return fmt.Errorf("job %s is %s %s", j.ID, j.State, j.Result)
		}
	}
	return nil
}

// nothingLeft complains about what should be gone with the pool, in the cluster and on GitHub.
func nothingLeft(ctx context.Context, w *world.World) error {
	for _, list := range []client.ObjectList{&v1alpha1.RunnerList{}, &v1alpha1.ScaleSetList{}, &corev1.PodList{}} {
		if err := w.Client.List(ctx, list, client.InNamespace("ci")); err != nil {
			return err
		}
		if left := meta.LenList(list); left > 0 {
			return fmt.Errorf("%d of %T are left", left, list)
		}
	}
	if left := w.GitHub.Leftovers(); len(left) > 0 {
		return fmt.Errorf("left on GitHub: %v", left)
	}
	return nil
}

// patience bounds the wait for anything that must come about.
const patience = 90 * time.Second

// eventually looks again and again until check is content; the last complaint is the failure.
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
