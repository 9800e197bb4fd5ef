// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/webhook"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// receiver records webhook deliveries.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []*http.Request
	bodies [][]byte
	status int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusAccepted}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got, r.bodies = append(r.got, req), append(r.bodies, body)
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// texts returns the events' actions, or their names if they have none, in the order of arrival.
func (r *receiver) texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []string{}
	for i, req := range r.got {
		var body struct{ Action string }
		_ = json.Unmarshal(r.bodies[i], &body) // none has no action
		if body.Action == "" {
			body.Action = req.Header.Get("X-GitHub-Event")
		}
		out = append(out, body.Action)
	}
	return out
}

func newHook(t *testing.T, sim *githubsim.Running, h githubsim.Hook) int64 {
	t.Helper()
	id, err := sim.AddHook(h)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func waitDelivered(t *testing.T, sim *githubsim.Running) {
	t.Helper()
	if err := sim.WaitDelivered(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestWebhooksTellOfAJob(t *testing.T) {
	sim, to := start(t, githubsim.Options{}), newReceiver(t)
	newHook(t, sim, githubsim.Hook{Owner: "acme", URL: to.URL, Secret: "s3cret", Events: []string{"workflow_job"}})
	id := addJob(t, sim, githubsim.Job{Labels: []string{"self-hosted", "linux"}, Waiting: true, Duration: time.Millisecond})
	if !sim.ApproveJob(id) || sim.ApproveJob(id) {
		t.Error("a job is approved once")
	}
	if err := sim.Send(githubsim.Event{Event: "push", Repository: "acme/app"}); err != nil { // not subscribed
		t.Fatal(err)
	}
	runToEnd(t, newSolo(t, sim, "r1", 1, "self-hosted", "linux").GetEncodedJITConfig())
	waitDelivered(t, sim)
	if diff := cmp.Diff([]string{"waiting", "queued", "in_progress", "completed"}, to.texts()); diff != "" {
		t.Fatal(diff)
	}
	for i, req := range to.got {
		if err := github.ValidateSignature(req.Header.Get("X-Hub-Signature-256"), to.bodies[i], []byte("s3cret")); err != nil {
			t.Error(err)
		}
		event, err := github.ParseWebHook(req.Header.Get("X-GitHub-Event"), to.bodies[i])
		if err != nil {
			t.Fatal(err)
		}
		job := event.(*github.WorkflowJobEvent)
		if job.GetRepo().GetFullName() != "acme/app" || job.GetWorkflowJob().GetID() != sim.Jobs()[0].Number ||
			cmp.Diff([]string{"self-hosted", "linux"}, job.GetWorkflowJob().Labels) != "" {
			t.Errorf("%+v", job)
		}
		if named := job.GetWorkflowJob().GetRunnerName() == "r1"; named != (i >= 2) {
			t.Errorf("%s names the runner %q", job.GetAction(), job.GetWorkflowJob().GetRunnerName())
		}
		if got := job.GetWorkflowJob().GetConclusion(); (got == "success") != (i == 3) {
			t.Errorf("%s with the conclusion %q", job.GetAction(), got)
		}
	}
}

func TestWebhooksOfWhoOwnsTheRepository(t *testing.T) {
	sim, to := start(t, githubsim.Options{}), newReceiver(t)
	sim.AddEnterprise("corp", "acme")
	for _, name := range []string{"acme/app", "acme/lib", "other/app"} {
		if err := sim.AddRepository(githubsim.Repository{FullName: name}); err != nil {
			t.Fatal(err)
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	sim.AddApp(githubsim.App{ID: 7, ClientID: "Iv1", InstallationID: 42, PublicKey: &key.PublicKey, Account: "other"})
	hooks := map[int64]string{}
	for _, owner := range []string{"acme", "acme/app", "enterprises/corp", "apps/7", "other"} {
		hooks[newHook(t, sim, githubsim.Hook{Owner: owner, URL: to.URL})] = owner
	}
	if _, err := sim.AddHook(githubsim.Hook{Owner: "nobody", URL: to.URL}); err == nil {
		t.Error("nobody has a webhook")
	}
	for repository, want := range map[string]string{
		"acme/app": "acme acme/app enterprises/corp", "acme/lib": "acme enterprises/corp", "other/app": "apps/7 other",
	} {
		before := len(sim.Deliveries(0))
		if err := sim.Send(githubsim.Event{Event: "push", Repository: repository, Branch: "main"}); err != nil {
			t.Fatal(err)
		}
		waitDelivered(t, sim)
		got := map[string]bool{}
		for _, d := range sim.Deliveries(0)[before:] {
			got[hooks[d.Hook]] = true
		}
		for _, owner := range []string{"acme", "acme/app", "enterprises/corp", "apps/7", "other"} {
			if wanted := strings.Contains(" "+want+" ", " "+owner+" "); wanted != got[owner] {
				t.Errorf("%s: the webhook of %s got it: %v", repository, owner, got[owner])
			}
		}
	}
}

func TestEventsForBoosts(t *testing.T) {
	sim, to := start(t, githubsim.Options{}), newReceiver(t)
	newHook(t, sim, githubsim.Hook{Owner: "acme", URL: to.URL, Form: true})
	for _, e := range []githubsim.Event{
		{Event: "check_run", Action: "created", Name: "lint", Status: "queued"},
		{Event: "pull_request", Action: "opened", Branch: "release"},
		{Event: "push", Tag: "v1"},
	} {
		e.Repository = "acme/app"
		if err := sim.Send(e); err != nil {
			t.Fatal(err)
		}
	}
	waitDelivered(t, sim)
	var got []any
	for i, req := range to.got {
		form, err := url.ParseQuery(string(to.bodies[i]))
		if err != nil {
			t.Fatal(err)
		}
		event, err := github.ParseWebHook(req.Header.Get("X-GitHub-Event"), []byte(form.Get("payload")))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event)
	}
	check, pull, push := got[0].(*github.CheckRunEvent), got[1].(*github.PullRequestEvent), got[2].(*github.PushEvent)
	if check.GetCheckRun().GetName() != "lint" || check.GetCheckRun().GetStatus() != "queued" ||
		pull.GetPullRequest().GetBase().GetRef() != "release" || push.GetRef() != "refs/tags/v1" {
		t.Errorf("%+v\n%+v\n%+v", check, pull, push)
	}
}

// Corral identifies events by their content, because GUIDs are not signed.
func TestEventsAlikeAreToldApart(t *testing.T) {
	sim, to := start(t, githubsim.Options{}), newReceiver(t)
	newHook(t, sim, githubsim.Hook{Owner: "acme", URL: to.URL})
	events := []githubsim.Event{
		{Event: "check_run", Action: "created", Name: "lint", Status: "queued"}, {Event: "pull_request", Action: "opened"}, {Event: "push"},
	}
	for _, e := range append(events, events...) {
		e.Repository = "acme/app"
		if err := sim.Send(e); err != nil {
			t.Fatal(err)
		}
	}
	waitDelivered(t, sim)
	identities := map[string]bool{}
	for i, body := range to.bodies {
		d, err := webhook.Parse(to.got[i].Header.Get("X-GitHub-Event"), body)
		if err != nil {
			t.Fatal(err)
		}
		identities[d.Identity] = true
	}
	if len(identities) != 6 || identities[""] {
		t.Errorf("%v", identities)
	}
}

func TestDeliveriesGoWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		fault githubsim.DeliveryFault
		want  []string
		codes []int
	}{
		"lost":       {githubsim.DeliveryFault{Action: "b", Lose: true}, []string{"a", "c"}, []int{202, 502, 202}},
		"swallowed":  {githubsim.DeliveryFault{Action: "b", Swallow: true}, []string{"a", "c"}, []int{202, 200, 202}},
		"duplicated": {githubsim.DeliveryFault{Action: "b", Duplicate: 1}, []string{"a", "b", "b", "c"}, []int{202, 202, 202}},
		"reordered":  {githubsim.DeliveryFault{Action: "a", Behind: 2}, []string{"b", "c", "a"}, []int{202, 202, 202}},
		"behind nothing is late": {
			githubsim.DeliveryFault{Action: "c", Behind: 1}, []string{"a", "b", "c"}, []int{202, 202, 202},
		},
		"late":        {githubsim.DeliveryFault{Skip: 1, Times: 1, Delay: 300 * time.Millisecond}, []string{"a", "c", "b"}, []int{202, 202, 202}},
		"another one": {githubsim.DeliveryFault{Hook: 9, Lose: true}, []string{"a", "b", "c"}, []int{202, 202, 202}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, to := start(t, githubsim.Options{}), newReceiver(t)
			newHook(t, sim, githubsim.Hook{Owner: "acme", URL: to.URL})
			remove := sim.AddDeliveryFault(tc.fault)
			for _, action := range []string{"a", "b", "c"} {
				if err := sim.Send(githubsim.Event{Event: "check_run", Repository: "acme/app", Action: action}); err != nil {
					t.Fatal(err)
				}
				if tc.fault.Behind == 0 && tc.fault.Delay == 0 {
					waitDelivered(t, sim)
				}
			}
			waitDelivered(t, sim)
			remove()
			if diff := cmp.Diff(tc.want, to.texts()); diff != "" {
				t.Error(diff)
			}
			var codes []int
			for _, d := range sim.Deliveries(0) {
				codes = append(codes, d.Code)
			}
			if diff := cmp.Diff(tc.codes, codes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeliveriesThatFailedAreFoundAndAskedForAgain(t *testing.T) {
	sim, to := start(t, githubsim.Options{}), newReceiver(t)
	id := newHook(t, sim, githubsim.Hook{Owner: "acme", URL: to.URL, Secret: "s"})
	for range 5 {
		addJob(t, sim, githubsim.Job{})
		waitDelivered(t, sim)
		to.answer(http.StatusServiceUnavailable)
	}
	to.answer(http.StatusAccepted)
	orgs := newREST(t, sim, "secret").Organizations
	opts := &github.ListCursorOptions{PerPage: 2}
	var all []*github.HookDelivery
	for {
		page, resp, err := orgs.ListHookDeliveries(testContext(t), "acme", id, opts)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if opts.Cursor = resp.Cursor; resp.Cursor == "" {
			break
		}
	}
	if len(all) != 5 || all[0].GetID() < all[4].GetID() || all[0].GetStatusCode() != 503 || all[4].GetStatusCode() != 202 ||
		all[0].GetEvent() != "workflow_job" || all[0].GetAction() != "queued" {
		t.Fatalf("deliveries: %+v", all)
	}
	one, _, err := orgs.GetHookDelivery(testContext(t), "acme", id, all[0].GetID())
	if err != nil {
		t.Fatal(err)
	}
	var payload github.WorkflowJobEvent
	if err := json.Unmarshal(*one.Request.RawPayload, &payload); err != nil || payload.GetWorkflowJob().GetID() != sim.Jobs()[4].Number ||
		one.Request.GetHeader("X-GitHub-Delivery") != all[0].GetGUID() {
		t.Errorf("%+v, %v", one, err)
	}
	if _, resp, err := orgs.RedeliverHookDelivery(testContext(t), "acme", id, all[0].GetID()); err != nil && resp.StatusCode != http.StatusAccepted {
		t.Error(err)
	}
	waitDelivered(t, sim)
	last := sim.Deliveries(id)[5]
	if !last.Redelivery || last.GUID != all[0].GetGUID() || last.Code != http.StatusAccepted {
		t.Errorf("redelivery: %+v", last)
	}
}

func TestDeliveriesOfAnAppAskForItsOwnToken(t *testing.T) {
	sim, to := start(t, githubsim.Options{}), newReceiver(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	sim.AddApp(githubsim.App{ID: 7, ClientID: "Iv1", InstallationID: 42, PublicKey: &key.PublicKey, Account: "acme"})
	newHook(t, sim, githubsim.Hook{Owner: "apps/7", URL: to.URL})
	addJob(t, sim, githubsim.Job{})
	waitDelivered(t, sim)
	token, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: "Iv1", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Minute)),
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	listed, _, err := newREST(t, sim, token).Apps.ListHookDeliveries(testContext(t), nil)
	if err != nil || len(listed) != 1 || listed[0].GetInstallationID() != 42 {
		t.Errorf("%+v, %v", listed, err)
	}
	if _, _, err := newREST(t, sim, "secret").Apps.ListHookDeliveries(testContext(t), nil); err == nil {
		t.Error("another token lists deliveries")
	}
}

func TestSecretAndURLOfAWebhookChange(t *testing.T) {
	sim, old, to := start(t, githubsim.Options{}), newReceiver(t), newReceiver(t)
	id := newHook(t, sim, githubsim.Hook{Owner: "acme", URL: old.URL, Secret: "one"})
	old.Close()
	if !sim.Ping(id) || sim.Ping(id+1) {
		t.Error("a webhook that is there is pinged")
	}
	waitDelivered(t, sim)
	sim.ChangeHook(id, func(h *githubsim.Hook) { h.URL, h.Secret = to.URL, "two" })
	sim.SendRaw(id, "anything", []byte(`not JSON`))
	waitDelivered(t, sim)
	deliveries := sim.Deliveries(id)
	if deliveries[0].Code != http.StatusBadGateway || deliveries[1].Code != http.StatusAccepted {
		t.Errorf("%+v", deliveries)
	}
	if err := github.ValidateSignature(to.got[0].Header.Get("X-Hub-Signature-256"), to.bodies[0], []byte("two")); err != nil {
		t.Error(err)
	}
	sim.RemoveHook(id)
	addJob(t, sim, githubsim.Job{})
	waitDelivered(t, sim)
	if got := len(to.texts()); got != 1 {
		t.Errorf("%d deliveries, want 1", got)
	}
}

func TestWorkflowRunsAndTheirJobs(t *testing.T) {
	sim := start(t, githubsim.Options{})
	addJob(t, sim, githubsim.Job{RunID: 1})
	addJob(t, sim, githubsim.Job{RunID: 2, Duration: time.Hour, Labels: []string{"big"}})
	addJob(t, sim, githubsim.Job{RunID: 2})
	addJob(t, sim, githubsim.Job{RunID: 3, Waiting: true})
	sim.CancelJob(addJob(t, sim, githubsim.Job{RunID: 4}))
	addJob(t, sim, githubsim.Job{RunID: 5, Repository: "acme/lib"})
	ended, _ := run(t, newSolo(t, sim, "r1", 1, "big").GetEncodedJITConfig())
	waitUntil(t, sim, func() bool { return sim.Jobs()[1].State == githubsim.JobRunning })
	rest := newREST(t, sim, "secret").Actions
	for status, want := range map[string][]int64{
		"": {4, 3, 2, 1}, "queued": {1}, "in_progress": {2}, "waiting": {3}, "completed": {4}, "cancelled": {4}, "failure": {},
	} {
		runs, _, err := rest.ListRepositoryWorkflowRuns(testContext(t), "acme", "app", &github.ListWorkflowRunsOptions{Status: status})
		if err != nil {
			t.Fatal(err)
		}
		got := []int64{}
		for _, r := range runs.WorkflowRuns {
			got = append(got, r.GetID())
		}
		if diff := cmp.Diff(want, got); diff != "" || runs.GetTotalCount() != len(want) {
			t.Errorf("%q: %s", status, diff)
		}
	}
	jobs, _, err := rest.ListWorkflowJobs(testContext(t), "acme", "app", 2, nil)
	if err != nil || len(jobs.Jobs) != 2 || jobs.Jobs[0].GetStatus() != "in_progress" || jobs.Jobs[0].GetRunnerName() != "r1" ||
		jobs.Jobs[1].GetStatus() != "queued" || jobs.Jobs[1].Labels[0] != "linux" {
		t.Errorf("%+v, %v", jobs, err)
	}
	if one, _, err := rest.GetWorkflowJobByID(testContext(t), "acme", "app", sim.Jobs()[1].Number); err != nil || one.GetRunID() != 2 {
		t.Errorf("%+v, %v", one, err)
	}
	if _, _, err := rest.GetWorkflowJobByID(testContext(t), "acme", "lib", sim.Jobs()[1].Number); err == nil {
		t.Error("another repository has the job")
	}
	sim.CancelJob(sim.Jobs()[1].ID)
	if end := <-ended; end.code != simrunner.ExitOK {
		t.Errorf("%+v", end)
	}
}

func TestRepositoriesOfAGroup(t *testing.T) {
	sim := start(t, githubsim.Options{})
	for _, name := range []string{"acme/app", "acme/lib", "other/app"} {
		if err := sim.AddRepository(githubsim.Repository{FullName: name}); err != nil {
			t.Fatal(err)
		}
	}
	id := sim.AddRunnerGroup("acme", githubsim.Group{Name: "lib", Visibility: "selected", Repositories: []string{"acme/LIB"}})
	client := newREST(t, sim, "secret")
	in, _, err := client.Actions.ListRepositoryAccessRunnerGroup(testContext(t), "acme", int64(id), nil)
	if err != nil || len(in.Repositories) != 1 || in.Repositories[0].GetFullName() != "acme/lib" {
		t.Errorf("%+v, %v", in, err)
	}
	all, _, err := client.Repositories.ListByOrg(testContext(t), "acme", nil)
	if err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestWhatDidNotChangeCostsNothing(t *testing.T) {
	sim := start(t, githubsim.Options{RateLimit: 3})
	sim.AddToken("other")
	get := func(token, tag string) (int, http.Header) {
		req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, sim.URL+"/orgs/acme/actions/runners", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("If-None-Match", tag)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	_, first := get("secret", "")
	for range 5 {
		if code, header := get("secret", first.Get("ETag")); code != http.StatusNotModified || header.Get("x-ratelimit-used") != "1" {
			t.Fatalf("%d, %v", code, header)
		}
	}
	if code, _ := get("other", first.Get("ETag")); code != http.StatusOK {
		t.Errorf("with another token: %d", code)
	}
	newSolo(t, sim, "r1", 1, "linux")
	if code, header := get("secret", first.Get("ETag")); code != http.StatusOK || header.Get("x-ratelimit-used") != "3" {
		t.Errorf("after a change: %d, %v", code, header)
	}
	if code, _ := get("secret", first.Get("ETag")); code != http.StatusForbidden {
		t.Errorf("with nothing left: %d", code)
	}
}

func TestSecondaryLimit(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, SecondaryPoints: 6})
	newSolo(t, sim, "r1", 1, "linux") // five points
	for i, want := range []int{200, 403} {
		code, header, _ := ask(t, sim, "GET", "/user", "secret")
		if code != want || (header.Get("Retry-After") == "") != (want == 200) || header.Get("x-ratelimit-remaining") == "0" {
			t.Errorf("call %d: %d, %v", i, code, header)
		}
	}
	clock.advance(time.Minute)
	if code, _, body := ask(t, sim, "GET", "/rate_limit", "secret"); code != 200 || body["rate"].(map[string]any)["used"] != 2.0 {
		t.Errorf("%d %v", code, body)
	}
	if code, _, _ := ask(t, sim, "GET", "/user", "secret"); code != 200 {
		t.Errorf("a minute later: %d", code)
	}
}
