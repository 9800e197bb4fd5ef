// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/conformance"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
)

// asker is one of Corral's connections to GitHub.
type asker struct {
	*rest.Client
	creds github.Credentials
	// hook is the ID of the connection's webhook; 0 selects the App's webhook. group is a runner group; it is
	// empty for repositories, which have none.
	hook  int64
	group string
}

// ask sends the requests of some methods of rest.Client.
type ask struct {
	methods string
	// skip reports whether a connection does not support these methods.
	skip func(asker) bool
	ask  func(context.Context, asker) error
}

var asks = []ask{
	{"GenerateJIT Runner RunnerByName Runners RemoveRunner", nil, askRunners},
	{"RegistrationToken", nil, func(ctx context.Context, a asker) error {
		_, err := a.RegistrationToken(ctx)
		return err
	}},
	{"AllowsPublic Groups GroupID Visible", asker.ofRepository, askGroups},
	{"Job Jobs Repositories", nil, askJobs},
	{"ReportCommit", nil, askReport},
	{"Deliveries Payload Redeliver", asker.ofEnterprise, askDeliveries},
	{"Releases", nil, func(ctx context.Context, a asker) error {
		_, err := a.Releases(ctx)
		return err
	}},
	{"Target Network Budget InstallationID", nil, func(context.Context, asker) error { return nil }}, // these methods send no requests
}

func (a asker) ofRepository() bool { return a.Target().Scope == github.Repository }
func (a asker) ofEnterprise() bool { return a.Target().Scope == github.Enterprise }

// letCorralAsk sends every request that Corral can send: with an App and with a token, for an organization, a
// repository and an enterprise.
func (w *world) letCorralAsk(t *testing.T) {
	t.Helper()
	app := w.app
	for _, a := range []asker{
		{creds: github.Credentials{ConfigURL: w.URL + "/acme", Token: token}, hook: w.hooks.org, group: "team"},
		{creds: github.Credentials{ConfigURL: w.URL + "/acme", App: &app}, group: "team"},
		{creds: github.Credentials{ConfigURL: w.URL + "/acme/app", Token: token}, hook: w.hooks.repo},
		{creds: github.Credentials{ConfigURL: w.URL + "/acme/app", App: &app}},
		{creds: github.Credentials{ConfigURL: w.URL + "/enterprises/corp", Token: token}, group: "some"},
	} {
		var err error
		a.Client, err = rest.NewClient(a.creds, github.Options{})
		must(t, err)
		for _, q := range asks {
			if q.skip != nil && q.skip(a) {
				continue
			}
			if err := q.ask(t.Context(), a); err != nil {
				t.Errorf("%s of %s: %v", q.methods, a.Target(), err)
			}
		}
		w.conform(t, a)
	}
}

// Every method of the client appears in asks. Without this test, the checks would silently skip a new method.
func TestEachMethodIsAsked(t *testing.T) {
	var asked, methods []string
	for _, q := range asks {
		asked = append(asked, strings.Fields(q.methods)...)
	}
	client := reflect.TypeFor[*rest.Client]()
	for i := range client.NumMethod() {
		methods = append(methods, client.Method(i).Name)
	}
	slices.Sort(asked)
	if !slices.Equal(asked, methods) {
		t.Errorf("called methods: %v, existing methods: %v", asked, methods)
	}
}

// conform runs what `corral conformance` runs, which verifies the credentials and uses a scale set.
func (w *world) conform(t *testing.T, a asker) {
	t.Helper()
	findings, err := conformance.Run(t.Context(), conformance.Config{
		Credentials: a.creds, Name: "corral-conformance-x", Retry: 10 * time.Millisecond, Patience: 5 * time.Second, LeastHold: 20 * time.Millisecond,
		HookID: a.hook, OnFinding: func(conformance.Finding) {},
	})
	must(t, err)
	for _, f := range findings {
		if f.Verdict == conformance.Differs {
			t.Errorf("%s: %+v", a.Target(), f)
		}
	}
}

func askRunners(ctx context.Context, a asker) error {
	jit, err := a.GenerateJIT(ctx, rest.Registration{Name: "asker", Group: a.group, Labels: []string{"linux"}})
	if err != nil {
		return err
	}
	_, taken := a.GenerateJIT(ctx, rest.Registration{Name: "asker", Group: a.group, Labels: []string{"linux"}})
	if github.KindOf(taken) != github.KindRunnerExists {
		return fmt.Errorf("registering the same name again: %w", taken)
	}
	byID, err := a.Runner(ctx, jit.RunnerID)
	byName, err2 := a.RunnerByName(ctx, "asker")
	all, err3 := a.Runners(ctx, 0)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if !reflect.DeepEqual(byID, byName) || !slices.ContainsFunc(all.Runners, func(r rest.Runner) bool { return r.ID == byID.ID }) {
		return fmt.Errorf("%+v and %+v, among %+v", byID, byName, all)
	}
	if err := a.RemoveRunner(ctx, jit.RunnerID); err != nil {
		return err
	}
	if again := a.RemoveRunner(ctx, jit.RunnerID); !github.IsNotFound(again) {
		return fmt.Errorf("removing a runner twice: %w", again)
	}
	gone, err := a.Runner(ctx, jit.RunnerID)
	if gone != nil {
		return fmt.Errorf("%+v is still there", gone)
	}
	return err
}

func askGroups(ctx context.Context, a asker) error {
	groups, err := a.Groups(ctx)
	_, err2 := a.GroupID(ctx, a.group)
	seen, err3 := a.Visible(ctx, a.group, "acme/app")
	_, err4 := a.AllowsPublic(ctx, a.group)
	if len(groups) != 2 || !seen {
		return fmt.Errorf("groups %+v; %q is visible: %v", groups, a.group, seen)
	}
	return errors.Join(err, err2, err3, err4)
}

func askJobs(ctx context.Context, a asker) error {
	list, err := a.Jobs(ctx, "acme/app", 0)
	if err != nil || len(list.Jobs) != 3 {
		return fmt.Errorf("%d jobs are unfinished: %w", len(list.Jobs), err)
	}
	for _, known := range list.Jobs {
		job, err := a.Job(ctx, "acme/app", known.ID)
		if err != nil || !reflect.DeepEqual(*job, known) {
			return fmt.Errorf("job %+v, listed %+v: %w", job, known, err)
		}
	}
	none, err := a.Job(ctx, "acme/app", 1)
	repositories, err2 := a.Repositories(ctx, []string{"acme/*"})
	if none != nil || len(repositories) == 0 {
		return fmt.Errorf("job %+v; repositories %v", none, repositories)
	}
	return errors.Join(err, err2)
}

func askReport(ctx context.Context, a asker) error {
	report := rest.CommitReport{Name: "corral/" + string(a.Target().Scope), ID: "1", State: rest.CommitFailure, Title: "60 pools are wrong", Summary: "They are."}
	for line := range 60 {
		report.Annotations = append(report.Annotations, rest.Annotation{Path: "pools.cue", Line: line + 1, Column: 3, Title: "max", Message: "negative"})
	}
	for range 2 { // the second report updates the existing one
		if err := a.ReportCommit(ctx, "acme/app", commit, report); err != nil {
			return err
		}
	}
	return nil
}

func askDeliveries(ctx context.Context, a asker) error {
	page, _, err := a.Deliveries(ctx, a.hook, "")
	if err != nil || len(page) == 0 {
		return fmt.Errorf("%d deliveries: %w", len(page), err)
	}
	if _, _, err := a.Deliveries(ctx, a.hook, fmt.Sprintf("v1_%d", page[0].ID)); err != nil {
		return err
	}
	event, payload, err := a.Payload(ctx, a.hook, page[0].ID)
	if err != nil || event != "workflow_job" || len(payload) == 0 {
		return fmt.Errorf("a delivery of %q, %d bytes: %w", event, len(payload), err)
	}
	return a.Redeliver(ctx, a.hook, page[0].ID)
}
