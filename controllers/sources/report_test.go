// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/gitsource"
)

// commit returns the SHA-1 of a revision in these tests.
func commit(digit string) string { return strings.Repeat(digit, 40) }

// fakeGitHub records reports, as REPOSITORY STATE TITLE ANNOTATIONS.
type fakeGitHub struct {
	reports []string
	err     error
	last    rest.CommitReport
}

func (g *fakeGitHub) ReportCommit(_ context.Context, repository, sha string, r rest.CommitReport) error {
	if g.err != nil {
		return g.err
	}
	g.last = r
	g.reports = append(g.reports, fmt.Sprintf("%s %.3s %s %s %d", repository, sha, r.State, r.Title, len(r.Annotations)))
	return nil
}

// reportWorld is a world whose source reports to GitHub, with a clock.
type reportWorld struct {
	*world
	*fakeGitHub
	reporter *CommitStatusReporter
	now      time.Time
}

func newReportWorld(t *testing.T, objects ...client.Object) *reportWorld {
	t.Helper()
	connection := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}, Spec: v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme"},
	}
	x := &reportWorld{world: newWorld(t, append(objects, connection)...), fakeGitHub: &fakeGitHub{}, now: time.Unix(1_000_000, 0)}
	gitHub := func(key types.NamespacedName) (Commits, bool) { return x.fakeGitHub, key.String() == "ci/acme" }
	x.reporter = NewCommitStatusReporter(x.reconciler, gitHub, "4f9c1a52-7f0e-4d7a-9d3b-0c3f6a1e2b3c", time.Now)
	x.reporter.now = func() time.Time { return x.now }
	return x
}

// sync reconciles the source, and then reports its result.
func (x *reportWorld) sync() ctrl.Result {
	x.t.Helper()
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ci", Name: "us"}}
	_, _ = x.reconciler.Reconcile(x.t.Context(), request)
	result, err := x.reporter.Reconcile(x.t.Context(), request)
	if err != nil {
		x.t.Fatal(err)
	}
	return result
}

func onGitHub(s *v1alpha1.PoolSource) {
	s.Spec.Git.URL = "https://github.com/acme/pools.git"
	s.Spec.CommitStatus = &v1alpha1.CommitStatus{ConnectionRef: v1alpha1.LocalObjectReference{Name: "acme"}}
}

func wrong(n int) compile.Result {
	r := compile.Result{}
	for i := range n {
		r.Diagnostics = append(r.Diagnostics, v1alpha1.Diagnostic{File: "pools.cue", Line: int32(i + 1), Column: 1, Path: "pools.linux", Message: "conflicting values"})
	}
	return r
}

func TestGitHubIsToldOfEachRevisionOnce(t *testing.T) {
	x := newReportWorld(t, us(onGitHub))
	x.tip, x.results["main@sha1:"+commit("a")] = "main@sha1:"+commit("a"), wrong(30)
	x.sync()
	x.sync()
	x.push("main@sha1:" + commit("b"))
	x.tip = "main@sha1:" + commit("b")
	x.results[x.tip] = compile.Result{Objects: nil, Diagnostics: []v1alpha1.Diagnostic{{Message: "there are no pools"}}}
	x.sync()
	want := []string{
		"acme/pools aaa failure pools.cue:1:1: pools.linux: conflicting values 30",
		"acme/pools bbb failure there are no pools 0",
	}
	if diff := cmp.Diff(want, x.reports); diff != "" {
		t.Error(diff)
	}
	if x.last.Name != "corral/4f9c1a52/ci/us" || !strings.Contains(x.last.Summary, "Revision `main@sha1:"+commit("b")+"` of PoolSource `ci/us` was refused") {
		t.Errorf("reported %+v", x.last)
	}
}

func TestDiagnosticsAreKeptAsLongAsSomebodyTellsOfThem(t *testing.T) {
	for name, change := range map[string]func(*reportWorld){
		"nobody does":          func(x *reportWorld) { x.reconciler.keepsDiagnoses = false },
		"the source is gone":   func(x *reportWorld) { _ = x.client.Delete(t.Context(), x.source()) },
		"another revision":     func(x *reportWorld) { x.push("main@sha1:"+commit("b"), pool("a")) },
		"not of this revision": func(x *reportWorld) { x.tip, x.results["main@sha1:"+commit("b")] = "main@sha1:"+commit("b"), wrong(1) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newReportWorld(t, us(onGitHub))
			x.tip, x.results["main@sha1:"+commit("a")] = "main@sha1:"+commit("a"), wrong(30)
			x.sync()
			key, first := client.ObjectKeyFromObject(us()), x.tip
			if kept := x.reconciler.diagnosticsOf(key, first); len(kept) != 30 {
				t.Fatalf("%d diagnostics are kept", len(kept))
			}
			change(x)
			x.sync()
			if kept := x.reconciler.diagnosticsOf(key, first); len(kept) != 0 {
				t.Errorf("%d stay", len(kept))
			}
		})
	}
}

// A namespace may have thousands of sources with a hundred long diagnostics each.
func TestDiagnosticsAreKeptInTheBoundedCacheOnly(t *testing.T) {
	x := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.CommitStatus = &v1alpha1.CommitStatus{} }))
	x.reconciler.keepsDiagnoses = true
	x.pushBroken("main@sha1:1", 30)
	x.reconcile()
	key := client.ObjectKeyFromObject(us())
	if kept := x.reconciler.diagnosticsOf(key, x.tip); len(kept) != 30 {
		t.Errorf("%d diagnostics are kept", len(kept))
	}
	x.reconciler.compiled = newCompileCache(CacheMemory)
	if kept := x.reconciler.diagnosticsOf(key, x.tip); len(kept) != 0 {
		t.Errorf("%d diagnostics are kept that count nowhere", len(kept))
	}
}

func TestWhatIsNoFaultOfACommitIsNotTold(t *testing.T) {
	x := newReportWorld(t, us(onGitHub))
	x.err0(gitsource.ErrTimeout)
	x.sync()
	if len(x.reports) > 0 {
		t.Errorf("reported %v", x.reports)
	}
}

// err0 makes the Git server fail.
func (x *reportWorld) err0(err error) { x.forge.err = err }

func TestARefusalOfGitHubIsSaidOnceAndBlocksNothing(t *testing.T) {
	x := newReportWorld(t, us(onGitHub))
	x.tip, x.results["main@sha1:"+commit("a")] = "main@sha1:"+commit("a"), wrong(1)
	refusal := func() error {
		e := github.NewError(github.KindForbidden, "reading the check runs of commit "+x.tip[len(x.tip)-7:]+" of acme/pools", 403, 0, "no", nil)
		e.RequestID = rand.Text() // another one each time
		return fmt.Errorf("writing check runs wants the permission checks: write: %w", e)
	}
	x.err = refusal()
	if after := x.sync().RequeueAfter; after != refusedRetry {
		t.Errorf("tried again after %s", after)
	}
	since := x.now
	x.now = x.now.Add(refusedRetry)
	x.reporter.last.Clear() // as in another process
	x.err = refusal()
	x.sync()
	x.tip, x.results["main@sha1:"+commit("b")] = "main@sha1:"+commit("b"), wrong(1)
	x.err = refusal()
	x.sync()
	if s := x.source().Status.CommitStatus; s == nil || !s.Since.Time.Equal(since) || !strings.HasSuffix(s.Message, "of commit bbbbbbb of acme/pools: GitHub answered 403: no") {
		t.Errorf("the status says %+v", s)
	}
	said := 0
	for len(x.events.Events) > 0 {
		if event := <-x.events.Events; strings.Contains(event, "CommitStatusFailed") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	x.err = github.NewError(github.KindUnavailable, "telling", 502, 0, "", nil)
	if after := x.sync().RequeueAfter; after < reportRetry {
		t.Errorf("tried again after %s", after)
	}
	if x.source().Status.CommitStatus == nil {
		t.Error("an outage ended the refusal")
	}
	x.err = nil
	x.sync()
	if s := x.source().Status.CommitStatus; len(x.reports) != 1 || s != nil {
		t.Errorf("reported %v, and the status says %+v", x.reports, s)
	}
}

func TestARefusalEndsWithTheWish(t *testing.T) {
	x := newReportWorld(t, us(onGitHub))
	x.tip, x.results["main@sha1:"+commit("a")] = "main@sha1:"+commit("a"), wrong(1)
	x.err = errors.New("no")
	x.sync()
	source := x.source()
	source.Spec.CommitStatus = nil
	if err := x.client.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	x.sync()
	if s := x.source().Status.CommitStatus; s != nil {
		t.Errorf("the status says %+v", s)
	}
}

func TestOutcomesThatGoToAndFroAreToldEverLessOften(t *testing.T) {
	last := lastReport{}
	now := time.Unix(0, 0)
	var waits []string
	for i := range 7 {
		v := revisionState{revision: "a", id: fmt.Sprint(i)}
		wait := last.wait(v, now)
		waits = append(waits, wait.String())
		now = now.Add(max(0, wait))
		last = last.next(v, now)
	}
	if diff := cmp.Diff([]string{"0s", "0s", "0s", "30s", "1m0s", "2m0s", "4m0s"}, waits); diff != "" {
		t.Error(diff)
	}
	if wait := last.wait(revisionState{revision: "b"}, now); wait != 0 {
		t.Errorf("another revision waits %s", wait)
	}
}

func TestVerdicts(t *testing.T) {
	revision := "main@sha1:" + commit("a")
	status := func(ready metav1.ConditionStatus, reason string, stalled bool, causes ...catalog.Cause) *v1alpha1.PoolSource {
		s := us(onGitHub)
		s.Status.ObservedGeneration, s.Status.LastAttemptedRevision = 1, revision
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: ready, Reason: reason}}
		for _, c := range causes {
			c.Condition = v1alpha1.ReadyCondition
			s.Status.Causes = append(s.Status.Causes, c.Cause)
		}
		if stalled {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: v1alpha1.StalledCondition, Status: metav1.ConditionTrue})
		}
		return s
	}
	applied := status(metav1.ConditionTrue, v1alpha1.SucceededReason, false)
	applied.Status.LastAppliedRevision = revision
	older := applied.DeepCopy()
	older.Status.LastAppliedRevision = "main@sha1:" + commit("b")
	edited := applied.DeepCopy()
	edited.Generation = 2
	oci := applied.DeepCopy()
	oci.Status.LastAttemptedRevision, oci.Status.LastAppliedRevision = "v1@sha256:"+commit("a"), "v1@sha256:"+commit("a")
	not := catalog.NothingOfRevisionApplied.With(revision)
	for name, tc := range map[string]struct {
		source *v1alpha1.PoolSource
		want   rest.CommitState
	}{
		"applied":                            {applied, rest.CommitSuccess},
		"of an older spec":                   {edited, ""},
		"another is applied":                 {older, ""},
		"no commit":                          {oci, ""},
		"nothing known":                      {us(onGitHub), ""},
		"under way":                          {status(metav1.ConditionUnknown, v1alpha1.ProgressingReason, false), ""},
		"broken":                             {status(metav1.ConditionFalse, v1alpha1.BuildFailedReason, true, catalog.DefinitionsInvalid.With("pools.cue:1"), not), rest.CommitFailure},
		"the compiler could not be run":      {status(metav1.ConditionFalse, v1alpha1.BuildFailedReason, false, catalog.CompilerFailed.With(revision)), rest.CommitError},
		"the same of a later revision":       {status(metav1.ConditionFalse, v1alpha1.BuildFailedReason, false, catalog.CompilerFailed.With("main@sha1:"+commit("c"))), ""},
		"not signed":                         {status(metav1.ConditionFalse, v1alpha1.VerificationFailedReason, true, catalog.RevisionUnsigned.With(), not), rest.CommitFailure},
		"too large":                          {status(metav1.ConditionFalse, v1alpha1.ArtifactFailedReason, true, catalog.RepositoryRefused.With("x"), not), rest.CommitFailure},
		"too large before it has a revision": {status(metav1.ConditionFalse, v1alpha1.ArtifactFailedReason, true, catalog.RepositoryRefused.With("x")), ""},
		"a server that is away":              {status(metav1.ConditionFalse, v1alpha1.ArtifactFailedReason, false, catalog.ServerUnanswered.With("x"), not), ""},
		"too many pools would go":            {status(metav1.ConditionFalse, v1alpha1.PruneRefusedReason, true), rest.CommitFailure},
		"refused by the API server":          {status(metav1.ConditionFalse, v1alpha1.ApplyFailedReason, true), rest.CommitFailure},
		"refused by the API server, for now": {status(metav1.ConditionFalse, v1alpha1.ApplyFailedReason, false), rest.CommitError},
		"credentials that are no good":       {status(metav1.ConditionFalse, v1alpha1.CredentialsMissingReason, false, not), ""},
		"a dependency that is not ready":     {status(metav1.ConditionFalse, v1alpha1.DependencyNotReadyReason, false, not), ""},
		"suspended":                          {status(metav1.ConditionFalse, v1alpha1.SuspendedReason, false, not), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, known := revisionStateOf(tc.source); got.state != tc.want || known != (tc.want != "") {
				t.Errorf("got %q, %t; want %q", got.state, known, tc.want)
			}
		})
	}
}

func TestRepositoriesThatAConnectionCovers(t *testing.T) {
	for name, tc := range map[string]struct{ repository, connection, want, says string }{
		"of the organization":        {"https://github.com/acme/pools", "https://github.com/acme", "acme/pools", ""},
		"with .git, over ssh":        {"ssh://git@github.com/Acme/pools.git", "https://github.com/acme", "Acme/pools", ""},
		"ssh over the port of https": {"ssh://git@ssh.github.com:443/acme/pools.git", "https://github.com/acme/", "acme/pools", ""},
		"the repository itself":      {"https://github.com/acme/pools", "https://github.com/acme/pools", "acme/pools", ""},
		"a server of one's own":      {"https://ghe.example.com/acme/pools", "https://ghe.example.com:8443/acme", "acme/pools", ""},
		"another repository":         {"https://github.com/acme/other", "https://github.com/acme/pools", "", "acme/other is not covered by the connection, which is to the repository acme/pools"},
		"another organization":       {"https://github.com/evil/pools", "https://github.com/acme", "", "evil/pools is not covered by the connection, which is to the organization acme"},
		"another host":               {"https://gitlab.com/acme/pools", "https://github.com/acme", "", `the repository is at "gitlab.com", and the connection is to github.com`},
		"a host that ends like it":   {"https://evilgithub.com/acme/pools", "https://github.com/acme", "", "the repository is at"},
		"a file":                     {"file:///acme/pools", "https://github.com/acme", "", "the repository is at"},
		"deeper":                     {"https://github.com/acme/pools/more", "https://github.com/acme", "", "is not the path of a GitHub repository"},
		"an enterprise":              {"https://github.com/acme/pools", "https://github.com/enterprises/big", "", "name one to the organization acme"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := repositoryOf(tc.repository, tc.connection)
			if err == nil && got != tc.want || (err == nil) == (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestTheRepositoryOfAGitRepositoryOfFlux(t *testing.T) {
	x := newReportWorld(t, &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "pools"}, Spec: sourcev1.GitRepositorySpec{URL: "ssh://git@github.com/acme/pools"},
	})
	named := func(kind string) *v1alpha1.PoolSource {
		return us(func(s *v1alpha1.PoolSource) {
			s.Spec.Git, s.Spec.SourceRef = nil, &v1alpha1.SourceReference{Kind: kind, Name: "pools"}
		})
	}
	if got, err := x.reporter.repository(t.Context(), named(v1alpha1.GitRepositoryKind)); err != nil || got != "ssh://git@github.com/acme/pools" {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := x.reporter.repository(t.Context(), named(v1alpha1.BucketKind)); err == nil || !strings.Contains(err.Error(), "no Git repository whose URL is known") {
		t.Errorf("got %v", err)
	}
}

func TestMessagesAreQuotedWhateverStandsInThem(t *testing.T) {
	if got, want := quoted("a ``` b"), "````text\na ``` b\n````"; got != want {
		t.Errorf("got %s", got)
	}
	if got := quoted(strings.Repeat("a", maxReported+1)); len(got) > maxReported+20 {
		t.Errorf("%d bytes", len(got))
	}
}
