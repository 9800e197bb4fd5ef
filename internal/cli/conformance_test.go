// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/conformance"
	"github.com/corral-dev/corral/sim/githubsim"
)

// credentialFiles creates a folder with credentials, laid out as spec.mount of a connection expects.
func credentialFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(folder, name), text+"\n")
	}
	return folder
}

// conformanceArgs starts a simulated GitHub, and returns the arguments to test it.
func conformanceArgs(t *testing.T, o githubsim.Options) (*githubsim.Running, []string) {
	t.Helper()
	o.Hold, o.OldestRunner = 1100*time.Millisecond, "2.320.0"
	sim, err := githubsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken("ghp_secret")
	folder := credentialFiles(t, map[string]string{"github_token": "ghp_secret"})
	return sim, []string{"conformance", "--url", sim.ConfigURL("acme"), "--credentials", folder, "--retry", "10ms"}
}

func TestConformanceWritesAReportWithoutNames(t *testing.T) {
	sim, args := conformanceArgs(t, githubsim.Options{LabelsFixed: true, SessionExpiry: 2 * time.Second})
	got := corral(t, t.TempDir(), append(args, "-o", "json")...)
	report := conformanceReport{}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitChanged {
		t.Fatalf("%v: %+v", err, got)
	}
	last := report.Findings[len(report.Findings)-1]
	if report.Scope != "organization" || report.Server != "GitHub Enterprise Server" || last.Check != "cleaned up" || last.Verdict != conformance.AsExpected {
		t.Errorf("report %+v", report)
	}
	text := corral(t, t.TempDir(), args...)
	if want := "differs      labels changed in place: GitHub kept the previous labels\n"; !strings.Contains(text.stdout, want) {
		t.Errorf("%q isn't in:\n%s", want, text.stdout)
	}
	if want := "Error: 1 of 27 findings differ from what Corral requires, or were not verified\n"; text.stderr != want {
		t.Errorf("got %q", text.stderr)
	}
	for _, secret := range []string{"acme", "ghp_secret", strings.TrimPrefix(sim.URL, "http://")} {
		if strings.Contains(got.stdout+text.stdout+text.stderr, secret) {
			t.Errorf("the report contains %q", secret)
		}
	}
}

func TestConformanceThatIsInterruptedCleansUp(t *testing.T) {
	sim, args := conformanceArgs(t, githubsim.Options{})
	go func() {
		// The previous session still blocks a new one for 91 s.
		if err := sim.WaitUntil(t.Context(), func() bool { return sim.Report().Requests[githubsim.EndpointCreateSession] > 5 }); err == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		}
	}()
	got := corral(t, t.TempDir(), args...)
	if left := sim.Leftovers(); len(left) > 0 || got.code != exitChanged || !strings.Contains(got.stdout, "as expected  cleaned up: nothing is left\n") {
		t.Errorf("left on GitHub: %v: %+v", left, got)
	}
}

func TestConformanceMindsWhomCredentialsAreFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was called") }))
	t.Cleanup(server.Close)
	for folder, want := range map[string]string{
		credentialFiles(t, map[string]string{"github_token": "ghp_secret", "github_server": "github.com"}): "the key github_server restricts the credentials to https://github.com: Corral does not send them to " + server.URL,
		"nowhere": "cannot open the mounted folder nowhere: ",
	} {
		got := corral(t, t.TempDir(), "conformance", "--url", server.URL+"/acme", "--credentials", folder)
		if got.code != exitError || !strings.HasPrefix(got.stderr, "Error: --credentials: "+want) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestReportsHideWhoAndWhereWeAre(t *testing.T) {
	for _, tc := range []struct{ address, group, text, want string }{
		{"https://ghes.acme.example/Acme/app", "", "ghes.acme.example: no repository acme/app", "NAME: no repository NAME/NAME"},
		{"https://github.com/acme", "big ones", "group Big Ones", "group NAME"},
		{"https://github.com/app", "", "by github.com, token ghs_abc.DEF-1 and eyJhbGciOiJSUzI1NiJ9.x_y", "by github.com, token *** and ***"},
		{"https://github.com/acme", "Team (GPU)", "no runner group Team (GPU)", "no runner group NAME"},
		{"https://github.com/acme", "Büro Ü", "no runner group Büro Ü is visible", "no runner group NAME is visible"},
		{"https://github.com/acme/secret-", "", "session corral_acme_1 of secret-", "session corral_NAME_1 of NAME"},
		{"https://github.com/acme", "", "the `acme` organization has an IP allow list, and your IP address 203.0.113.9 is not permitted", "the NAME organization has an IP allow list, and your IP address NAME is not permitted"},
		{"https://github.com/acme", "", "See https://github.com/enterprises/holding/sso", "See NAME"},
		{"https://ghes.corp.example/acme", "", `Get "https://ghes.corp.example/api/v3/": proxyconnect tcp: dial tcp: lookup proxy.corp.example on [fe80::1]:53: no such host`, "Get NAME: proxyconnect tcp: dial tcp: lookup NAME on NAME: no such host"},
		{"https://github.com/a", "", "a scale set of github.com/a", "a scale set of github.com/a"},
		{"https://github.com/acme", "", "409: The actions runner scaleset corral-conformance-x1 already has an active session.", "409: The actions runner scaleset corral-conformance-x1 already has an active session."},
	} {
		if got := redactor(tc.address, tc.group)(tc.text); got != tc.want {
			t.Errorf("%q became %q, not %q", tc.text, got, tc.want)
		}
	}
}
