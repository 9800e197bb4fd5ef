// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/test/recorder"
)

// A GitHub Enterprise Server offers jobs that runners have to acquire. The App's credentials come from a mounted
// folder and are rotated there.
func TestAnAppOnAnEnterpriseServer(t *testing.T) {
	w := newStory(t, "ghes")
	ctx := t.Context()
	server, err := githubsim.Start(githubsim.Options{Mode: githubsim.Acquire, SessionExpiry: 3 * time.Second})
	must(t, err)
	t.Cleanup(server.Close)
	server.AddOrg("acme")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	server.AddApp(githubsim.App{
		ID: 7, InstallationID: 70, Account: "acme", PublicKey: &private.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "read"},
	})
	mounts := t.TempDir()
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
	for name, value := range map[string]string{v1alpha1.AppIDKey: "7", v1alpha1.AppInstallationIDKey: "70", v1alpha1.AppPrivateKeyKey: string(text)} {
		must(t, os.MkdirAll(filepath.Join(mounts, "ghes", "ghes"), 0o700))
		must(t, os.WriteFile(filepath.Join(mounts, "ghes", "ghes", name), []byte(value), 0o600))
	}
	must(t, w.Cluster.CreateNamespace(ctx, "ghes"))
	connection := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ghes", Name: "ghes"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: server.ConfigURL("acme"), Mount: &v1alpha1.CredentialsMount{Name: "ghes"}},
	}
	must(t, w.Client.Create(ctx, connection))
	must(t, w.Client.Create(ctx, newPool("ghes", "linux", "ghes")))
	w.controller(t, "--credentials-dir="+mounts)

	ready := func(check func(status, reason, facts string) bool) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			must(t, w.Client.Get(ctx, key("ghes", "ghes"), connection))
			c := conditions.Get(connection, v1alpha1.ReadyCondition)
			if c == nil || !check(string(c.Status), c.Reason, recorder.Facts(connection, c.Type)) {
				return fmt.Errorf("ready is %+v", c)
			}
			return nil
		})
	}
	ready(func(_, reason, facts string) bool {
		return reason == v1alpha1.PermissionMissingReason && strings.Contains(facts, "organization_self_hosted_runners")
	})
	server.AddApp(githubsim.App{
		ID: 7, InstallationID: 70, Account: "acme", PublicKey: &private.PublicKey,
		Permissions: map[string]string{"organization_self_hosted_runners": "write"},
	})
	must(t, w.Client.Patch(ctx, connection, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`))))
	ready(func(status, _, _ string) bool { return status == "True" })

	for range 8 {
		_, err := server.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"linux"}, Duration: 20 * time.Millisecond})
		must(t, err)
	}
	within, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	must(t, server.WaitIdle(within))
	w.cleanUp(t, "ghes")
	if r := server.Report(); r.Results[githubsim.ResultSucceeded] != 8 || len(r.Broken) > 0 || len(server.Leftovers()) > 0 {
		t.Errorf("results %v, broken %v, left %v", r.Results, r.Broken, server.Leftovers())
	}
}

// Controllers write only the status of objects that users write.
func TestWhatAUserWroteStaysAsItIs(t *testing.T) {
	w := newStory(t, "mine")
	ctx := t.Context()
	must(t, w.Connect(ctx, "mine", "acme", "mine-org"))
	pool := newPool("mine", "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Annotations = map[string]string{"note": "ours"} })
	must(t, w.Client.Create(ctx, pool))
	connection := &v1alpha1.GitHubConnection{}
	must(t, w.Client.Get(ctx, key("mine", "acme"), connection))
	before := [][]byte{declared(t, pool), declared(t, connection)}
	w.controller(t)
	w.allDone(t, w.addJobs(t, "mine-org", "linux", 5, time.Millisecond))
	must(t, w.Client.Get(ctx, key("mine", "linux"), pool))
	must(t, w.Client.Get(ctx, key("mine", "acme"), connection))
	for i, obj := range []client.Object{pool, connection} {
		if after := declared(t, obj); !bytes.Equal(before[i], after) {
			t.Errorf("it was\n%s\nand is\n%s", before[i], after)
		}
	}
	w.cleanUp(t, "mine")
}

// declared returns an object without its status and the fields that the API server maintains.
func declared(t *testing.T, obj client.Object) []byte {
	t.Helper()
	text, err := json.Marshal(obj)
	must(t, err)
	var content map[string]any
	must(t, json.Unmarshal(text, &content))
	delete(content, "status")
	metadata, _ := content["metadata"].(map[string]any)
	delete(metadata, "resourceVersion")
	delete(metadata, "managedFields")
	text, err = json.Marshal(content)
	must(t, err)
	return text
}

// Profiles of a running process are served on the requested port of localhost.
func TestProfilesAreServedToLocalhost(t *testing.T) {
	w := newStory(t, "profiles")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	must(t, l.Close())
	w.controller(t, "--profiles-port="+port)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/debug/pprof/goroutine?debug=1", nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "goroutine profile: total") {
		t.Errorf("%s: %.200s", answer.Status, text)
	}
}

func TestTheLogLevelIsChangedAtRunTime(t *testing.T) {
	w := newStory(t, "loglevel")
	c := w.controller(t)
	url := strings.TrimSuffix(c.MetricsURL, "/metrics") + "/loglevel"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(`{"level":"error"}`))
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	var got struct{ Level string }
	must(t, json.NewDecoder(answer.Body).Decode(&got))
	if got.Level != "error" {
		t.Errorf("the level is %q", got.Level)
	}
	log, err := os.ReadFile(c.LogPath)
	must(t, err)
	for line := range strings.Lines(string(log)) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["version"] == "" {
			t.Errorf("not a line of JSON with the version: %s", line)
		}
	}
}
