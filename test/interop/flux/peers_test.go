// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package flux

import (
	"encoding/json"
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"cuelabs.dev/go/oci/ociregistry/ociserver"

	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// tool builds a Flux controller from its nested module and returns the path of the binary. The go command rebuilds
// it only if the module has changed.
func tool(name string) (string, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, ".cache", "interop", "flux")
	build := exec.Command("go", "build", "-C", filepath.Join(root, "test", "interop", "flux", name), "-ldflags", "-s -w", "-o", folder+"/", "github.com/fluxcd/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return filepath.Join(folder, name), nil
}

// definitions returns the CustomResourceDefinitions that a Flux controller ships.
func definitions(name string) ([][]byte, error) {
	// "go list" would fail on a new machine, where the module has not been downloaded yet.
	out, err := exec.Command("go", "mod", "download", "-C", name, "-json", "github.com/fluxcd/"+name).Output()
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w\n%s", name, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, fmt.Errorf("fetching %s: %w", name, err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no definitions in %s: %w", module.Dir, err)
	}
	var manifests [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, text)
	}
	return manifests, nil
}

// run starts a Flux controller with cluster-admin rights until the test ends. If the test fails, it prints the
// controller's log.
func run(t *testing.T, w *harness.World, name string, args ...string) {
	t.Helper()
	binary, err := tool(name)
	harness.Must(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	harness.Must(t, err)
	health, err := world.FreeAddress()
	harness.Must(t, err)
	c := exec.Command(binary, append([]string{
		"--metrics-addr=0", "--health-addr=" + health, "--enable-leader-election=false", "--watch-all-namespaces=true", "--log-encoding=json",
	}, args...)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+w.Cluster.Kubeconfig(), "RUNTIME_NAMESPACE=flux-system", "TMPDIR="+t.TempDir())
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	harness.Must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s's log ends with:\n%s", name, text[max(0, len(text)-10_000):])
		}
	})
}

// gitServer serves a folder of bare repositories through git-http-backend, and returns its URL.
func gitServer(t *testing.T, root string) string {
	t.Helper()
	where, err := exec.Command("git", "--exec-path").Output()
	harness.Must(t, err)
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(where)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(server.Close)
	return server.URL
}

// registry serves an empty OCI registry and returns its host and port.
func registry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(ociserver.New(ocimem.New(), nil))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
