// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
	"github.com/corral-dev/corral/sim/githubsim"
)

const sha = "0123456789abcdef0123456789abcdef01234567"

// reporter returns a client for an App with the given permissions.
func (w *world) reporter(permissions map[string]string) *Client {
	w.t.Helper()
	public, private := appKeys()
	w.AddApp(githubsim.App{ID: 8, InstallationID: 80, PublicKey: public, Account: "acme", Permissions: permissions})
	return w.client("acme", github.Credentials{App: &github.App{ID: "8", InstallationID: 80, PrivateKey: private}})
}

var mayReport = map[string]string{"statuses": "write", "checks": "write"}

func refusal(annotations int) CommitReport {
	r := CommitReport{Name: "corral/runners/pools", ID: "a", State: CommitFailure, Title: "pools.cue:3: conflicting values", Summary: "It does not compile."}
	for i := range annotations {
		r.Annotations = append(r.Annotations, Annotation{Path: "pools.cue", Line: i + 1, Column: 2, Title: "pools.linux", Message: fmt.Sprintf("wrong %d", i)})
	}
	return r
}

func TestACommitIsTold(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.reporter(mayReport)
	report := refusal(1)
	report.Annotations = append(report.Annotations, Annotation{Path: "cue.mod/module.cue", Message: "no line is known"})
	if err := c.ReportCommit(t.Context(), "acme/app", sha, report); err != nil {
		t.Fatal(err)
	}
	statuses := []githubsim.CommitStatus{{State: "failure", Context: "corral/runners/pools", Description: "pools.cue:3: conflicting values"}}
	if diff := cmp.Diff(statuses, w.CommitStatuses("acme/app", sha)); diff != "" {
		t.Error(diff)
	}
	runs := []githubsim.CheckRun{{
		ID: 1, Name: "corral/runners/pools", HeadSHA: sha, ExternalID: "a", Status: "completed", Conclusion: "failure",
		Output: githubsim.CheckRunOutput{Title: "pools.cue:3: conflicting values", Summary: "It does not compile.", AnnotationsCount: 2, Annotations: []githubsim.CheckAnnotation{
			{Path: "pools.cue", StartLine: 1, EndLine: 1, StartColumn: 2, EndColumn: 2, Level: "failure", Title: "pools.linux", Message: "wrong 0"},
			{Path: "cue.mod/module.cue", StartLine: 1, EndLine: 1, Level: "failure", Message: "no line is known"},
		}},
	}}
	if diff := cmp.Diff(runs, w.CheckRuns("acme/app", sha)); diff != "" {
		t.Error(diff)
	}
}

// A restarted controller does not know what it has reported; GitHub does.
func TestACommitIsToldOnceForEachOutcome(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	fixed := CommitReport{Name: "corral/runners/pools", ID: "b", State: CommitSuccess, Title: "Applied", Summary: "Applied"}
	for _, report := range []CommitReport{refusal(1), refusal(1), fixed, fixed, refusal(1)} {
		if err := w.reporter(mayReport).ReportCommit(t.Context(), "acme/app", sha, report); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	for _, s := range w.CommitStatuses("acme/app", sha) {
		told = append(told, s.State)
	}
	for _, r := range w.CheckRuns("acme/app", sha) {
		told = append(told, r.Conclusion)
	}
	if diff := cmp.Diff([]string{"failure", "success", "failure", "failure", "success", "failure"}, told); diff != "" {
		t.Error(diff)
	}
}

func TestManyAnnotationsAreSentByTheFifty(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.reporter(mayReport)
	// The second request fails. The next attempt continues where this one ended.
	w.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointUpdateCheckRun, Status: 502, Times: 1})
	if err := c.ReportCommit(t.Context(), "acme/app", sha, refusal(80)); !github.IsUnavailable(err) {
		t.Fatalf("got %v", err)
	}
	if err := c.ReportCommit(t.Context(), "acme/app", sha, refusal(80)); err != nil {
		t.Fatal(err)
	}
	runs := w.CheckRuns("acme/app", sha)
	if len(runs) != 1 || len(runs[0].Output.Annotations) != 80 {
		t.Fatalf("%d runs with %d annotations", len(runs), runs[0].Output.AnnotationsCount)
	}
	for i, a := range runs[0].Output.Annotations {
		if a.StartLine != i+1 {
			t.Fatalf("annotation %d is of line %d", i, a.StartLine)
		}
	}
	if err := c.ReportCommit(t.Context(), "acme/lib", sha, refusal(500)); err != nil {
		t.Fatal(err)
	}
	if got := w.CheckRuns("acme/lib", sha)[0].Output.AnnotationsCount; got != 100 {
		t.Errorf("%d annotations of 500", got)
	}
}

func TestATokenSetsTheStatusAlone(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	long := refusal(1)
	long.Title = strings.Repeat("ö", 200)
	if err := w.token("acme").ReportCommit(t.Context(), "acme/app", sha, long); err != nil {
		t.Fatal(err)
	}
	got := w.CommitStatuses("acme/app", sha)
	if len(got) != 1 || got[0].Description != strings.Repeat("ö", 139)+"…" || len(w.CheckRuns("acme/app", sha)) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestWhatIsMissingToTellACommitIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		permissions      map[string]string
		repository, want string
	}{
		"checks":            {map[string]string{"statuses": "write"}, "acme/app", `may not write check runs: let the App have the permission "checks" with write access`},
		"statuses":          {map[string]string{"checks": "write"}, "acme/app", `may not write commit statuses: let the App have the permission "statuses" with write access`},
		"only read":         {map[string]string{"checks": "read", "statuses": "read"}, "acme/app", `may not write check runs: let the App have the permission "checks" with write access`},
		"no such repo":      {mayReport, "acme/none", "and among its repositories this one: "},
		"not a name at all": {mayReport, "acme", "is no OWNER/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			err := w.reporter(tc.permissions).ReportCommit(t.Context(), tc.repository, sha, refusal(1))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Reports stop first when GitHub's limits come near, and cost as much as any write.
func TestReportsLeaveTheLimitsToRunners(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, true, "")
	told := 0
	for {
		if _, err := b.spend(kindReport, "telling"); err != nil {
			break
		}
		told++
	}
	if most := int((1 - reserve[turns.Listing]) * pointsAtOnce / pointsToWrite); told != most {
		t.Errorf("%d reports at once, not %d", told, most)
	}
	if _, err := b.spend(kindJIT, "registering"); err != nil {
		t.Errorf("a runner had to wait: %v", err)
	}
}
