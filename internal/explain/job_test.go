// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

const jobPage = "https://github.com/acme/app/actions/runs/123/job/456"

// jobFacts returns the facts of a job in acme/app and of two pools: linux of its organization, and arm of an
// enterprise.
func jobFacts(t *testing.T, url string, change ...func(*JobFacts)) JobFacts {
	t.Helper()
	parsed, err := ParseJobURL(url)
	if err != nil {
		t.Fatal(err)
	}
	arm := facts(func(f *PoolFacts) {
		f.Pool.Name, f.Pool.Spec.RunnerLabels, f.Pool.Spec.ConnectionRef.Name, f.Pool.Spec.RunnerGroup = "arm", []string{"linux", "arm64"}, "big", "shared"
	})
	f := JobFacts{
		URL: parsed, Now: noon, Pools: []PoolFacts{arm, facts(bounded)},
		Connections: map[string]Connection{
			"ci/acme": {Namespace: "ci", Name: "acme", Host: "github.com", Scope: "organization", Owner: "Acme"},
			"ci/big":  {Namespace: "ci", Name: "big", Host: "github.com", Scope: "enterprise", Path: "big"},
		},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func TestJob(t *testing.T) {
	full := func(f *JobFacts) {
		p := f.Pools[1].Pool
		p.Status.Jobs, p.Status.Runners = new(int32(60)), v1alpha1.RunnerCounts{Total: 60, Busy: 60}
	}
	tests := map[string]struct {
		url    string
		change func(*JobFacts)
	}{
		"job-found": {jobPage, func(f *JobFacts) {
			job := v1alpha1.JobReference{ID: "456", Repository: "acme/app", RunID: 123, Name: "build", StartedAt: new(ago(60e9))}
			f.Pods = []JobPod{{Namespace: "ci", Runner: "linux-7", Pool: "linux", Job: job}}
		}},
		"job-run-found": {jobPage, func(f *JobFacts) {
			job := v1alpha1.JobReference{ID: "9b1f", Repository: "ACME/app", RunID: 123, Name: "build", StartedAt: new(ago(60e9))}
			other := job
			other.Repository = "acme/other"
			f.Pods = []JobPod{{Namespace: "ci", Runner: "linux-7", Pool: "linux", Job: job}, {Namespace: "ci", Runner: "linux-8", Pool: "linux", Job: other}}
		}},
		"job-ended": {jobPage, func(f *JobFacts) {
			job := v1alpha1.JobReference{ID: "456", Repository: "acme/app", RunID: 123, Name: "build", StartedAt: new(ago(60e9)), CompletedAt: new(ago(5e9)), Result: "succeeded"}
			f.Pods = []JobPod{{Namespace: "ci", Runner: "linux-7", Pool: "linux", Job: job}}
		}},
		"job-run-ended": {"https://github.com/acme/app/actions/runs/123", func(f *JobFacts) {
			job := v1alpha1.JobReference{ID: "9b1f", Repository: "acme/app", RunID: 123, Name: "build", StartedAt: new(ago(60e9))}
			ended := job
			ended.Name, ended.CompletedAt, ended.Result = "test", new(ago(5e9)), "failed"
			f.Pods = []JobPod{{Namespace: "ci", Runner: "linux-7", Pool: "linux", Job: job}, {Namespace: "ci", Runner: "linux-8", Pool: "linux", Job: ended}}
		}},
		"job-unseen": {jobPage, func(f *JobFacts) {
			full(f)
			f.RunsOn, f.Unseen, f.Unknown = []string{"linux", "x64"}, true, []string{"Runners: forbidden"}
		}},
		"job-labels-unknown": {jobPage, func(*JobFacts) {}},
		"job-room":           {jobPage, func(f *JobFacts) { f.RunsOn = []string{"Linux", "x64"} }},
		"job-full":           {jobPage, func(f *JobFacts) { full(f); f.RunsOn = []string{"linux", "x64"} }},
		"job-no-labels":      {jobPage, func(f *JobFacts) { f.RunsOn = []string{"windows"} }},
		"job-closed": {jobPage, func(f *JobFacts) {
			f.RunsOn = []string{"x64"}
			p := &f.Pools[1]
			p.Pool.Spec.StopPolicy, p.Pool.Status.Decision.Announced = v1alpha1.StopDrain, 0
			p.causes(v1alpha1.ReadyCondition, catalog.PoolDrained.With())
		}},
		"job-group-missing": {jobPage, func(f *JobFacts) {
			f.RunsOn = []string{"x64"}
			f.Pools[1].Pool.Status.Decision.Announced = 0
			f.Pools[1].ready(metav1.ConditionFalse, v1alpha1.RunnerGroupNotFoundReason, `runner group "default" not found`)
		}},
		"job-stuck": {jobPage, func(f *JobFacts) {
			f.RunsOn = []string{"x64"}
			p := &f.Pools[1]
			p.Runners = []Runner{runnerOf("linux-2", v1alpha1.RunnerPending, v1alpha1.CauseGitHub, "registering runner: GitHub answered 429")}
			p.Runners[0].Object.Status.Outage = &v1alpha1.GitHubOutage{Code: 429}
			p.ScaleSet = &v1alpha1.RunnerScaleSet{Status: v1alpha1.RunnerScaleSetStatus{Outage: &v1alpha1.GitHubOutage{Code: 429}, Conditions: []metav1.Condition{
				{Type: v1alpha1.ListeningCondition, Status: metav1.ConditionTrue},
			}}}
			p.ready(metav1.ConditionFalse, v1alpha1.GitHubUnavailableReason, "runner linux-2: registering runner: GitHub answered 429")
		}},
		"job-failing": {jobPage, func(f *JobFacts) {
			f.RunsOn = []string{"x64"}
			p := &f.Pools[1]
			p.Pool.Status.Decision.Announced = 0
			p.ready(metav1.ConditionFalse, v1alpha1.RunnersFailingReason, "3 runners in a row failed (Crash: Error (exit code 1))")
		}},
		"job-session-closed": {jobPage, func(f *JobFacts) {
			f.RunsOn = []string{"x64"}
			f.Pools[1].ScaleSet = &v1alpha1.RunnerScaleSet{}
		}},
		"job-denied": {jobPage, func(f *JobFacts) {
			f.RunsOn = []string{"x64"}
			f.Pools[1] = facts(denied)
		}},
		"job-no-pool": {"https://ghes.example:8443/acme/app/actions/runs/123", func(f *JobFacts) {
			f.Unknown = []string{"pools of other namespaces than ci: forbidden"}
			delete(f.Connections, "ci/big")
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { compare(t, Job(jobFacts(t, tc.url, tc.change)).Text()) })
	}
}

func TestParseJobURL(t *testing.T) {
	job := JobURL{Host: "github.com", Owner: "acme", Name: "app", RunID: 123, JobID: 456}
	run := job
	run.JobID = 0
	server := job
	server.Host = "ghes.example:8443"
	for url, want := range map[string]JobURL{
		"https://github.com/acme/app/actions/runs/123/job/456":                   job,
		"https://www.GitHub.com/acme/app/actions/runs/123/job/456?pr=7#step:3:1": job,
		"https://github.com/acme/app/actions/runs/123/attempts/2/job/456":        job,
		"https://github.com/acme/app/actions/runs/123/":                          run,
		"https://github.com/acme/app/actions/runs/123/attempts/2":                run,
		"http://ghes.example:8443/acme/app/actions/runs/123/job/456":             server,
	} {
		got, err := ParseJobURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", url, diff)
		}
	}
	for _, url := range []string{
		"", "acme/app", "https://github.com/acme/app", "https://github.com/acme/app/actions/runs/x", "https://github.com/acme/app/actions/runs/-1",
		"https://github.com/acme/app/actions/runs/123/job", "https://github.com/acme/app/actions/runs/123/step/1", "ftp://github.com/acme/app/actions/runs/123",
		"https://github.com/a b/app/actions/runs/1", "https://github.com/acme/app/pull/123/job/4", "https://github.com/%zz",
		"https://github.com/acme/app/actions/runs/99999999999999999999", strings.Repeat("x", 100_000),
	} {
		if got, err := ParseJobURL(url); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.50s: %+v, %v", url, got, err)
		}
	}
}

func TestCovers(t *testing.T) {
	job := JobURL{Host: "github.com", Owner: "Acme", Name: "App"}
	for name, tc := range map[string]struct {
		connection      Connection
		covers, certain bool
	}{
		"its organization":     {Connection{Host: "GitHub.com", Scope: "organization", Owner: "acme"}, true, true},
		"another organization": {Connection{Host: "github.com", Scope: "organization", Owner: "acme2"}, false, true},
		"its repository":       {Connection{Host: "github.com", Scope: "repository", Owner: "acme", Path: "app"}, true, true},
		"another repository":   {Connection{Host: "github.com", Scope: "repository", Owner: "acme", Path: "app2"}, false, true},
		"an enterprise":        {Connection{Host: "github.com", Scope: "enterprise", Path: "big"}, true, false},
		"another host":         {Connection{Host: "ghes.example", Scope: "enterprise", Path: "big"}, false, true},
	} {
		if covers, certain := tc.connection.covers(job); covers != tc.covers || certain != tc.certain {
			t.Errorf("%s: %t, %t", name, covers, certain)
		}
	}
}
