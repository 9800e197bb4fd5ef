// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/hack/helmchart"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// version is a chart and the controller built from the same commit.
type version struct {
	chart  *chartv2.Chart
	binary string
}

// present returns the version in the working tree.
func present(t *testing.T) version {
	t.Helper()
	root, err := fs.Sub(charts.Corral, "corral")
	must(t, err)
	chart, err := helmchart.Load(root)
	must(t, err)
	return version{chart: chart, binary: w.Binary}
}

// from is the environment variable with the revision to upgrade from, such as a release's tag.
const from = "CORRAL_UPGRADE_FROM"

// former builds the version to upgrade from in a separate folder. This is the revision in CORRAL_UPGRADE_FROM, by
// default the parent of HEAD, or HEAD if it has no parent. Outside a Git repository, it returns the working tree's
// version.
func former(t *testing.T) version {
	t.Helper()
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		t.Logf("upgrading from the tree itself: %v", err)
		return present(t)
	}
	asked := os.Getenv(from)
	commit, err := git("rev-parse", "--verify", "--quiet", cmp.Or(asked, "HEAD^")+"^{commit}")
	if err != nil && asked == "" {
		commit, err = git("rev-parse", "HEAD")
	}
	must(t, err)
	t.Logf("upgrading from commit %.10s", commit)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree.tar")
	_, err = git("-C", top, "archive", "--format=tar", "--output="+tree, commit)
	must(t, err)
	must(t, run("", "tar", "-xf", tree, "-C", dir))
	binary := filepath.Join(dir, "corral-former")
	must(t, run(dir, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/corral"))
	chart, err := helmchart.Load(os.DirFS(filepath.Join(dir, "charts", "corral")))
	must(t, err)
	return version{chart: chart, binary: binary}
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func run(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// helm returns the configuration that all Helm commands share, with cluster-admin rights.
func helm(t *testing.T) *action.Configuration {
	t.Helper()
	kubeconfig, namespace := w.Cluster.Kubeconfig(), helmchart.Namespace
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	c := action.NewConfiguration()
	must(t, c.Init(flags, namespace, "secret"))
	return c
}

// install runs `helm install --create-namespace`. It does not wait for pods, because the test cluster has no
// kubelet.
func install(t *testing.T, v version, values map[string]any) {
	t.Helper()
	i := action.NewInstall(helm(t))
	i.ReleaseName, i.Namespace, i.CreateNamespace = helmchart.Release, helmchart.Namespace, true
	i.WaitStrategy = kube.HookOnlyStrategy
	_, err := i.RunWithContext(t.Context(), v.chart, values)
	must(t, err)
}

// refusal returns the error of `helm install --dry-run=server` for another release name in another namespace.
func refusal(t *testing.T, v version, values map[string]any, takeOwnership bool) error {
	t.Helper()
	i := action.NewInstall(helm(t))
	i.ReleaseName, i.Namespace, i.TakeOwnership = "another", "another", takeOwnership
	i.DryRunStrategy, i.WaitStrategy = action.DryRunServer, kube.HookOnlyStrategy
	_, err := i.RunWithContext(t.Context(), v.chart, values)
	return err
}

// upgrade runs `helm upgrade`.
func upgrade(t *testing.T, v version, values map[string]any) {
	t.Helper()
	u := action.NewUpgrade(helm(t))
	u.Namespace, u.ServerSideApply = helmchart.Namespace, "auto"
	u.WaitStrategy = kube.HookOnlyStrategy
	_, err := u.RunWithContext(t.Context(), helmchart.Release, v.chart, values)
	must(t, err)
}

// uninstall runs `helm uninstall --wait`.
func uninstall(t *testing.T) {
	t.Helper()
	u := action.NewUninstall(helm(t))
	u.WaitStrategy, u.Timeout, u.DeletionPropagation = kube.StatusWatcherStrategy, harness.Patience, "background"
	_, err := u.Run(helmchart.Release)
	must(t, err)
}

// deployed runs the controller with the arguments and the ServiceAccount of the Deployment in the cluster. Only
// the listen addresses differ, so that they do not conflict with other processes on this machine.
func deployed(t *testing.T, v version) *world.Controller {
	t.Helper()
	deployment := &appsv1.Deployment{}
	must(t, w.Client.Get(t.Context(), harness.Key(helmchart.Namespace, helmchart.Release), deployment))
	pod := deployment.Spec.Template.Spec
	if pod.ServiceAccountName != world.ServiceAccount || deployment.Namespace != world.SystemNamespace {
		t.Fatalf("the Deployment runs as %s/%s", deployment.Namespace, pod.ServiceAccountName)
	}
	var args []string
	for _, arg := range pod.Containers[0].Args[1:] {
		if !strings.HasPrefix(arg, "--metrics-addr=") && !strings.HasPrefix(arg, "--health-addr=") {
			args = append(args, arg)
		}
	}
	c, err := w.RunController(t.Context(), v.binary, args...)
	must(t, err)
	t.Cleanup(func() {
		c.Kill()
		harness.ShowLog(t, c)
	})
	return c
}
