// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/sim/githubsim"
)

// probe probes the features of a simulated GitHub, and returns the number of requests.
func probe(t *testing.T, path string, hook *v1alpha1.ConnectionWebhook, options githubsim.Options, faults ...githubsim.Fault) (map[string]string, map[githubsim.Endpoint]int, error) {
	t.Helper()
	sim, err := githubsim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddEnterprise("big", "acme")
	if err := sim.AddRepository(githubsim.Repository{FullName: "acme/app"}); err != nil {
		t.Fatal(err)
	}
	sim.AddToken("secret", "admin:org", "repo", "manage_runners:enterprise")
	for _, f := range faults {
		sim.AddFault(f)
	}
	known := github.NewConnections(time.Now)
	if err := known.Set(Key(key), github.Credentials{ConfigURL: sim.ConfigURL(path), Token: "secret"}); err != nil {
		t.Fatal(err)
	}
	conn := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       v1alpha1.GitHubConnectionSpec{Webhook: hook},
		Status:     v1alpha1.GitHubConnectionStatus{ServerVersion: options.ServerVersion},
	}
	network := github.Options{Timeout: 5 * time.Second}
	found, unknown := NewProber(scaleset.NewClients(known, network), rest.NewClients(known, network))(t.Context(), conn)
	missing := map[string]string{}
	for _, feature := range found {
		missing[feature.Name] = feature.Message
	}
	return missing, sim.Report().Requests, unknown
}

func TestMissingFeaturesAreFoundUnlessGitHubDoesNotAnswer(t *testing.T) {
	const (
		noReleases   = "pools do not report when GitHub will refuse their runners' version (listing the releases of the runner: GitHub answered 404: Not Found)"
		noService    = "pools get jobs only with registration: REST (looking for scale set \"corral\": GitHub answered 404)"
		noGroups     = "pools without a scale set can only be in the default group, and also start runners for jobs of repositories that cannot use this group (listing runner groups: GitHub answered 403)"
		noDeliveries = "Corral does not request lost events again "
		oneLabel     = "scale sets keep only one label, unless a feature flag of the server is on: pools that lose labels report LabelsDropped (the server has version 3.20.4; 3.21 keeps all)"
	)
	releases := []githubsim.Release{{Version: "2.331.0"}}
	hook := func(id int64) *v1alpha1.ConnectionWebhook { return &v1alpha1.ConnectionWebhook{HookID: id} }
	for name, tc := range map[string]struct {
		path    string
		hook    *v1alpha1.ConnectionWebhook
		options githubsim.Options
		fault   githubsim.Fault
		missing map[string]string
		unknown string
	}{
		"nothing":                  {options: githubsim.Options{Releases: releases}},
		"an Enterprise Server":     {options: githubsim.Options{Mode: githubsim.Acquire}, missing: map[string]string{v1alpha1.FeatureRunnerReleases: noReleases}},
		"a repository has no list": {path: "acme/app", options: githubsim.Options{Releases: releases}},
		"before several labels":    {options: githubsim.Options{Releases: releases, ServerVersion: "3.20.4"}, missing: map[string]string{v1alpha1.FeatureSeveralLabels: oneLabel}},
		"with several labels":      {options: githubsim.Options{Releases: releases, ServerVersion: "3.21.0"}},
		"a version of other form":  {options: githubsim.Options{Releases: releases, ServerVersion: "nightly"}},
		"before scale sets":        {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 404}, missing: map[string]string{v1alpha1.FeatureScaleSets: noService}},
		"the service is away":      {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 503}, unknown: `looking for scale set "corral": GitHub answered 503`},
		"the service doesn't answer": {options: githubsim.Options{}, fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Hang: true},
			missing: map[string]string{v1alpha1.FeatureRunnerReleases: noReleases}, unknown: `looking for scale set "corral": no answer in time`},
		// GitHub's replicas refuse a token that is seconds old.
		"the exchange is refused":   {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointRunnerRegistration, Status: 404}, unknown: `looking for scale set "corral": GitHub answered 404`},
		"releases aren't shown":     {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointReleases, Status: 404, Body: `{"message":"Not Found"}`}, missing: map[string]string{v1alpha1.FeatureRunnerReleases: noReleases}},
		"releases aren't answered":  {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointReleases, Status: 502}, unknown: "listing the releases of the runner: GitHub answered 502"},
		"a limit":                   {options: githubsim.Options{Releases: releases}, fault: githubsim.SecondaryLimit(githubsim.EndpointReleases, time.Minute), unknown: "listing the releases of the runner: GitHub answered 403: You have exceeded a secondary rate limit. Please wait a few minutes before you try again."},
		"groups aren't shown":       {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointRunnerGroups, Status: 403}, missing: map[string]string{v1alpha1.FeatureRunnerGroups: noGroups}},
		"groups that make no sense": {options: githubsim.Options{Releases: releases}, fault: githubsim.Fault{Endpoint: githubsim.EndpointRunnerGroups, Status: 422}, unknown: "listing runner groups: GitHub answered 422"},
		"a webhook without an id":   {hook: hook(0), options: githubsim.Options{Releases: releases}, missing: map[string]string{v1alpha1.FeatureDeliveries: noDeliveries + "(asking as an App: the connection has no App's credentials)"}},
		"a token without the right": {hook: hook(1), options: githubsim.Options{Releases: releases}, missing: map[string]string{v1alpha1.FeatureDeliveries: noDeliveries + "(listing deliveries: GitHub answered 403: You must have the manage_runners or admin scope of the orgs to do this.)"}},
		"an enterprise's webhook": {path: "enterprises/big", hook: hook(1), options: githubsim.Options{Releases: releases}, missing: map[string]string{
			v1alpha1.FeatureDeliveries: noDeliveries + "(listing deliveries: GitHub has no API for the deliveries of an enterprise's webhook: use an organization's, or an App's)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.path == "" {
				tc.path = "acme"
			}
			if tc.missing == nil {
				tc.missing = map[string]string{}
			}
			var faults []githubsim.Fault
			if tc.fault.Endpoint != "" {
				faults = append(faults, tc.fault)
			}
			missing, _, unknown := probe(t, tc.path, tc.hook, tc.options, faults...)
			if diff := cmp.Diff(tc.missing, missing); diff != "" {
				t.Errorf("missing: -want +got:\n%s", diff)
			}
			said := ""
			if unknown != nil {
				said = github.Summary(unknown)
			}
			if (said == "") != (tc.unknown == "") || !strings.HasPrefix(said, tc.unknown) { // a limit may prevent other requests
				t.Errorf("unknown: %q; want %q", said, tc.unknown)
			}
		})
	}
}

// One probe without an answer does not withdraw an earlier result.
func TestWhatWasLackingStaysUntilGitHubAnswers(t *testing.T) {
	known := v1alpha1.GitHubConnectionStatus{MissingFeatures: []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureRunnerReleases, Message: "before"}, {Name: v1alpha1.FeatureDeliveries}}}
	questions := []question{{of: v1alpha1.FeatureRunnerReleases}, {of: v1alpha1.FeatureRunnerGroups}}
	missing, unknown := judge(known, questions, []error{errors.New("502"), errors.New("502")})
	if diff := cmp.Diff([]v1alpha1.MissingFeature{{Name: v1alpha1.FeatureRunnerReleases, Message: "before"}}, missing); diff != "" || unknown == nil {
		t.Errorf("%v: -want +got:\n%s", unknown, diff)
	}
}

// A probe costs one read per feature, and two tokens that pools with a scale set need anyway.
func TestAProbeCostsAFewReads(t *testing.T) {
	_, requests, _ := probe(t, "acme", &v1alpha1.ConnectionWebhook{HookID: 1}, githubsim.Options{Mode: githubsim.Acquire})
	maps.DeleteFunc(requests, func(_ githubsim.Endpoint, n int) bool { return n == 0 })
	want := map[githubsim.Endpoint]int{
		githubsim.EndpointReleases: 1, githubsim.EndpointRunnerGroups: 1, githubsim.EndpointDeliveries: 1, githubsim.EndpointFindScaleSet: 1,
		githubsim.EndpointRegistrationToken: 1, githubsim.EndpointRunnerRegistration: 1,
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatIsLackingIsToldAndKeepsNoConnectionFromBeingReady(t *testing.T) {
	s := newStage(t)
	s.missing = []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureRunnerReleases, Message: "so"}, {Name: v1alpha1.FeatureScaleSets, Message: "thus"}}
	conn, _ := s.reconcile()
	s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
	want := "connected to organization https://github.com/acme as octocat; without RunnerReleases: so; without ScaleSets: thus"
	if message := conditions.GetMessage(conn, v1alpha1.ReadyCondition); message != want {
		t.Errorf("%q; want %q", message, want)
	}
	if diff := cmp.Diff(s.missing, conn.Status.MissingFeatures); diff != "" || s.token() != "one" {
		t.Errorf("serving %q; -want +got:\n%s", s.token(), diff)
	}
}

func TestWhatIsLackingIsAskedOnceForWhatItIsAbout(t *testing.T) {
	s := newStage(t)
	s.missing = []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureRunnerReleases, Message: "so"}}
	s.reconcile()
	for _, tc := range []struct {
		name   string
		change func()
		probes int
	}{
		{"nothing changed", func() {}, 0},
		{"another verification", func() { s.now = s.now.Add(2 * verifyInterval) }, 0},
		{"a restart", s.restart, 0},
		{"other credentials", func() { s.setSecret(map[string]string{v1alpha1.TokenKey: "two"}) }, 1},
		{"another generation", func() { s.change(func(c *v1alpha1.GitHubConnection) { c.Generation++ }) }, 1},
		{"a new version of the server, by the next verification", func() { s.server, s.now = "3.21.0", s.now.Add(2*verifyInterval) }, 1},
		{"on request", func() {
			s.change(func(c *v1alpha1.GitHubConnection) {
				c.Annotations = map[string]string{meta.ReconcileRequestAnnotation: "now"}
			})
		}, 1},
		{"a restart after the request", s.restart, 0},
		{"a status that was lost", func() {
			conn := s.get()
			conn.Status = v1alpha1.GitHubConnectionStatus{}
			if err := s.cluster.Status().Update(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"a status that was lost while it is remembered", func() {
			conn := s.get()
			conn.Status = v1alpha1.GitHubConnectionStatus{}
			if err := s.cluster.Status().Update(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
		}, 0},
	} {
		before := s.probes
		tc.change()
		s.reconcile()
		conn, _ := s.reconcile()
		if n := s.probes - before; n != tc.probes {
			t.Errorf("%s: asked %d times; want %d", tc.name, n, tc.probes)
		}
		if len(conn.Status.MissingFeatures) != 1 || conn.Status.FeaturesProbe == "" {
			t.Errorf("%s: %+v", tc.name, conn.Status)
		}
	}
}

func TestWhatIsNotKnownIsAskedAgainWithTheNextVerification(t *testing.T) {
	s := newStage(t)
	s.missing, s.unknown = []v1alpha1.MissingFeature{{Name: v1alpha1.FeatureRunnerReleases, Message: "so"}}, errors.New("502")
	for range 3 {
		conn, _ := s.reconcile()
		s.wantReady(conn, metav1.ConditionTrue, v1alpha1.SucceededReason, false)
		if s.probes != 1 || len(conn.Status.MissingFeatures) != 1 || conn.Status.FeaturesProbe != "" {
			t.Fatalf("asked %d times, %+v", s.probes, conn.Status)
		}
		s.now = s.now.Add(time.Minute)
	}
	s.unknown, s.missing, s.now = nil, nil, s.now.Add(2*verifyInterval)
	if conn, _ := s.reconcile(); s.probes != 2 || len(conn.Status.MissingFeatures) != 0 || conn.Status.FeaturesProbe == "" {
		t.Errorf("asked %d times, %+v", s.probes, conn.Status)
	}
}

func TestARefusedConnectionIsNotProbed(t *testing.T) {
	s := newStage(t)
	s.answer = &rest.Error{Reason: v1alpha1.CredentialsRefusedReason}
	if s.reconcile(); s.probes != 0 {
		t.Errorf("asked %d times", s.probes)
	}
}
