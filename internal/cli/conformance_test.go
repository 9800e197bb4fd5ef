// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/conformance"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

func TestConformanceWritesAReportWithoutNames(t *testing.T) {
	sim, err := githubsim.Start(githubsim.Options{LabelsFixed: true, OldestRunner: "2.320.0", Hold: 50 * time.Millisecond, SessionExpiry: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken("ghp_secret")
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "github_token"), []byte("ghp_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"conformance", "--url", sim.ConfigURL("acme"), "--credentials", folder, "--retry", "10ms"}
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
	if want := "differs      labels changed in place: the former labels are kept\n"; !strings.Contains(text.stdout, want) {
		t.Errorf("%q isn't in:\n%s", want, text.stdout)
	}
	if want := "Error: 1 of 26 findings differ from what Corral relies on, or weren't shown\n"; text.stderr != want {
		t.Errorf("got %q", text.stderr)
	}
	for _, secret := range []string{"acme", "ghp_secret", strings.TrimPrefix(sim.URL, "http://")} {
		if strings.Contains(got.stdout+text.stdout+text.stderr, secret) {
			t.Errorf("%q is in the report", secret)
		}
	}
	if got := corral(t, t.TempDir(), "conformance", "--url", sim.ConfigURL("acme"), "--credentials", "nowhere"); got.code != exitError || !strings.HasPrefix(got.stderr, "Error: --credentials: ") {
		t.Errorf("without credentials: %+v", got)
	}
}

func TestReportsHideWhoAndWhereWeAre(t *testing.T) {
	hide := redactor(github.Credentials{ConfigURL: "https://ghes.acme.example/Acme/app"}, "big ones")
	for text, want := range map[string]string{
		"ghes.acme.example: no repository acme/app": "NAME: no repository NAME/NAME", "group Big Ones": "group NAME",
		"appointed by github.com": "appointed by github.com", "token ghs_abc.DEF-1 and eyJhbGciOi.x_y": "token TOKEN and TOKEN",
	} {
		if got := hide(text); got != want {
			t.Errorf("%q became %q, not %q", text, got, want)
		}
	}
}
