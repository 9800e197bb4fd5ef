// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package flux

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"cuelabs.dev/go/oci/ociregistry/ociserver"
	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"

	"github.com/corral-dev/corral/internal/world"
	"github.com/corral-dev/corral/test/harness"
)

// tool builds a controller of Flux from its nested module, once for each state of the module, and returns its path.
func tool(name string) (string, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, ".cache", "interop", "flux")
	build := exec.Command("go", "build", "-C", filepath.Join(root, "test", "interop", "flux", name), "-ldflags", "-s -w", "-o", folder+"/", "github.com/fluxcd/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return filepath.Join(folder, name), nil
}

// definitions returns the CustomResourceDefinitions that a controller of Flux comes with.
func definitions(name string) ([][]byte, error) {
	out, err := exec.Command("go", "list", "-C", name, "-m", "-f", "{{.Dir}}", "github.com/fluxcd/"+name).Output()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", name, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no definitions in %s: %w", out, err)
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

// run starts a controller of Flux as the cluster's administrator until the test ends; its log is shown if the test fails.
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

// gitServer serves a folder of bare repositories by Git's own http-backend, and returns its URL.
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

// receiver stands in for notification-controller: it takes events in the form that its server documents, and answers as it does.
type receiver struct {
	URL string

	mu     sync.Mutex
	events []eventv1.Event
	wrong  []string // what it couldn't take
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(r)
	r.URL = server.URL
	t.Cleanup(func() {
		server.Close()
		for _, complaint := range r.wrong {
			t.Error(complaint)
		}
	})
	return r
}

// ServeHTTP takes one event.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, 1<<20))
	r.mu.Lock()
	defer r.mu.Unlock()
	event, err := decode(body, err)
	if err != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("an event can't be taken: %v\n%s", err, body))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.events = append(r.events, event)
	w.WriteHeader(http.StatusAccepted)
}

func decode(body []byte, err error) (event eventv1.Event, _ error) {
	if err != nil {
		return event, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&event); err != nil {
		return event, err
	}
	o := event.InvolvedObject
	required := map[string]string{
		"involvedObject.kind": o.Kind, "involvedObject.name": o.Name, "involvedObject.namespace": o.Namespace, "involvedObject.apiVersion": o.APIVersion,
		"severity": event.Severity, "message": event.Message, "reason": event.Reason, "reportingController": event.ReportingController,
	}
	for _, field := range slices.Sorted(maps.Keys(required)) {
		if required[field] == "" {
			return event, fmt.Errorf("%s is missing", field)
		}
	}
	group, _, _ := strings.Cut(o.APIVersion, "/")
	for k := range event.Metadata {
		if !strings.HasPrefix(k, group+"/") {
			return event, fmt.Errorf("the key %s of the metadata is not of the group %s", k, group)
		}
	}
	if len(event.Message) > 39_000 || event.Timestamp.IsZero() || !slices.Contains([]string{"trace", "info", "error"}, event.Severity) {
		return event, fmt.Errorf("the message, timestamp or severity is none")
	}
	return event, nil
}

// of returns the events of an object, oldest first.
func (r *receiver) of(kind, namespace, name string) (events []eventv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if o := e.InvolvedObject; o.Kind == kind && o.Namespace == namespace && o.Name == name {
			events = append(events, e)
		}
	}
	return events
}
