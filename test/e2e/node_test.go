// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/sim/world"
)

const (
	nodeName = "node-1"
	bridgeIP = "10.99.0.1"
)

//go:embed testdata
var nodeFiles embed.FS

// node is a real node, with containerd and a kubelet that has joined the cluster.
type node struct {
	cache string // files that hack/e2e/run.sh prepared
	dir   string // folder of all files that the node writes
	world *world.World
}

// startNode runs a node until the test ends. If the test fails, it prints the node's logs.
func startNode(t *testing.T, w *world.World) *node {
	t.Helper()
	// Not t.TempDir, because a kubelet leaves mounts behind until the mount namespace ends.
	n := &node{cache: os.Getenv("CORRAL_E2E_CACHE"), dir: filepath.Join(os.TempDir(), nodeName), world: w}
	if n.cache == "" {
		t.Fatal("CORRAL_E2E_CACHE is not set: run hack/e2e/run.sh")
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "bridge.conflist": "cni/bridge.conflist",
	} {
		n.configure(t, name, target)
	}
	n.start(t, "containerd", "--config", n.path("containerd.toml"))
	n.importImages(t)
	n.startControlPlane(t)
	n.start(t, nodeProgram("kubelet"),
		"--config="+n.path("kubelet.yaml"), "--kubeconfig="+w.Cluster.Kubeconfig(), "--root-dir="+n.path("kubelet"),
		"--cert-dir="+n.path("certificates"), "--hostname-override="+nodeName, "--node-ip="+bridgeIP)
	t.Cleanup(func() {
		logs, err := filepath.Glob(n.path("podlogs/*/*/*.log"))
		must(t, err)
		for _, path := range logs {
			showLog(t, path)
		}
	})
	eventually(t, n.ready)
	return n
}

// startControlPlane runs the components that a cluster with real nodes needs in addition to the world's: the
// scheduler, and the controllers for nodes, volumes and Deployments.
func (n *node) startControlPlane(t *testing.T) {
	t.Helper()
	kubeconfig := "--kubeconfig=" + n.world.Cluster.Kubeconfig()
	n.start(t, nodeProgram("kube-scheduler"), kubeconfig, "--leader-elect=false", "--secure-port=0")
	n.start(t, nodeProgram("kube-controller-manager"), kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers="+strings.Join([]string{
			"node-lifecycle-controller", "persistentvolume-binder-controller",
			"deployment-controller", "replicaset-controller", "disruption-controller",
		}, ","))
}

// nodeProgram returns the path of a program that hack/e2e/run.sh built for the node.
func nodeProgram(name string) string { return filepath.Join(os.Getenv("CORRAL_E2E_NODE"), name) }

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// configure writes a configuration file with the paths of this run.
func (n *node) configure(t *testing.T, name, target string) {
	t.Helper()
	text, err := nodeFiles.ReadFile("testdata/" + name)
	must(t, err)
	filled := strings.NewReplacer("${DIR}", n.dir, "${CACHE}", n.cache).Replace(string(text))
	must(t, os.MkdirAll(filepath.Dir(n.path(target)), 0o755))
	must(t, os.WriteFile(n.path(target), []byte(filled), 0o644))
}

// start runs a daemon until the test ends. Daemons stop in the reverse order.
func (n *node) start(t *testing.T, path string, args ...string) {
	t.Helper()
	name := filepath.Base(path)
	log, err := os.Create(n.path(name + ".log"))
	must(t, err)
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr = log, log
	must(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		insist := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait() // the exit code after a signal does not matter
		insist.Stop()
		must(t, log.Close())
		showLog(t, log.Name())
	})
}

// showLog prints the end of a log if the test failed.
func showLog(t *testing.T, path string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	text, err := os.ReadFile(path)
	t.Logf("%s ends with:\n%s", path, text[max(0, len(text)-10_000):])
	must(t, err)
}

func (n *node) importImages(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) error { return n.ctr(ctx, "version").Run() })
	for _, image := range []string{"pause", "runner", "dind", firstVersion + "/corral", secondVersion + "/corral"} {
		out, err := n.ctr(t.Context(), "images", "import", filepath.Join(n.cache, "images", image+".tar")).CombinedOutput()
		if err != nil {
			t.Fatalf("importing image %s: %v\n%s", image, err, out)
		}
	}
}

// ctr runs containerd's client in the namespace that Kubernetes uses.
func (n *node) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ctr", append([]string{"--address", n.path("containerd.sock"), "--namespace", "k8s.io"}, args...)...)
}

func (n *node) ready(ctx context.Context) error {
	object := &corev1.Node{}
	if err := n.world.Client.Get(ctx, client.ObjectKey{Name: nodeName}, object); err != nil {
		return err
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("the node is not ready: %+v", object.Status.Conditions)
}

// idle returns an error if containers are still running. The kubelet removes exited containers once a minute.
func (n *node) idle(ctx context.Context) error {
	out, err := n.ctr(ctx, "tasks", "list", "--quiet").Output()
	if err != nil {
		return fmt.Errorf("listing running containers: %w", err)
	}
	if left := strings.Fields(string(out)); len(left) > 0 {
		return fmt.Errorf("%d containers still run", len(left))
	}
	return nil
}
