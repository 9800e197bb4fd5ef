// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/githubsim"
)

// call is a REST call that the simulated GitHub must answer as GitHub's published description requires.
type call struct {
	// as is the identity that makes the call. It is either a literal token, or "app" for the App itself,
	// "installation" for an installation token of the App, or "registration" for a runner registration token.
	as, method, path, body string
	want                   int
	// unpublished explains a correct answer that GitHub's description of the call does not list.
	unpublished string
	// before runs before the call, to set up its precondition.
	before func(*world)
}

// Explanations for answers that GitHub does not list for individual calls. Its page "Troubleshooting the REST API"
// describes them for all calls.
const (
	unauthorized = "every call answers 401 to bad credentials"
	forbidden    = "every call answers 403 without the required permission"
	limited      = "every call answers 403 above the rate limit"
	absent       = "every call answers 404 for a resource that does not exist or is not visible"
	invalid      = "every call answers 422 to an invalid value"
)

// calls returns the calls in the order in which they are sent. {id} in a path stands for the ID in the latest
// answer that had one.
func (w *world) calls() []call {
	all := []call{
		{as: token, method: "GET", path: "/user", want: 200},
		{as: "wrong", method: "GET", path: "/user", want: 401},
		{as: "installation", method: "GET", path: "/user", want: 403},
		{as: token, method: "GET", path: "/rate_limit", want: 200},
		{as: token, method: "GET", path: "/orgs/acme", want: 200},
		{as: token, method: "GET", path: "/orgs/none", want: 404},
		{as: token, method: "GET", path: "/orgs/acme", want: 403, unpublished: limited, before: func(w *world) {
			f := githubsim.SecondaryLimit(githubsim.EndpointOrg, time.Minute)
			f.Times = 1
			w.AddFault(f)
		}},
		{as: token, method: "GET", path: "/orgs/acme/repos?per_page=1&page=2", want: 200},
		{as: token, method: "GET", path: "/repos/acme/app", want: 200},
		{as: token, method: "GET", path: "/repos/acme/site", want: 200},
		{as: token, method: "GET", path: "/repos/acme/none", want: 404},
		{as: token, method: "GET", path: "/repos/actions/runner/releases?per_page=30", want: 200},
		{as: "installation", method: "GET", path: "/installation/repositories", want: 200},
		{as: "wrong", method: "GET", path: "/installation/repositories", want: 401},
		{as: token, method: "GET", path: "/installation/repositories", want: 403},
		{method: "GET", path: "/meta", want: 200},
	}
	all = append(appCalls(), all...)
	all = append(all, workflowCalls()...)
	all = append(all, commitCalls()...)
	for _, scope := range []string{"/orgs/acme", "/repos/acme/app", "/enterprises/corp"} {
		all = append(all, runnerCalls(scope)...)
	}
	all = append(all, call{
		as: "registration", method: "POST", path: "/actions/runner-registration", want: 200,
		body:        fmt.Sprintf(`{"url":"%s/enterprises/corp","runner_event":"register"}`, w.URL),
		unpublished: "GitHub publishes nothing of this call; github.com/actions/scaleset makes it",
	})
	all = append(all, groupCalls("/orgs/acme", "visible_to_repository=app")...)
	all = append(all, groupCalls("/enterprises/corp", "visible_to_organization=acme")...)
	all = append(all, call{as: token, method: "GET", path: "/orgs/acme/actions/runner-groups/2/repositories", want: 200})
	for _, hook := range []string{fmt.Sprintf("/orgs/acme/hooks/%d", w.hooks.org), fmt.Sprintf("/repos/acme/app/hooks/%d", w.hooks.repo)} {
		all = append(all, call{as: token, method: "GET", path: hook, want: 200}, call{as: token, method: "GET", path: hook + "9", want: 404})
		all = append(all, deliveryCalls(token, hook)...)
	}
	return append(all, deliveryCalls("app", "/app/hook")...)
}

// appCalls returns the calls that an App makes about itself.
func appCalls() []call {
	return []call{
		{as: "app", method: "GET", path: "/app", want: 200},
		{as: "wrong", method: "GET", path: "/app", want: 401, unpublished: unauthorized},
		{as: "app", method: "GET", path: "/app/hook/config", want: 200},
		{as: "app", method: "GET", path: "/app/installations/42", want: 200},
		{as: "app", method: "GET", path: "/app/installations/43", want: 404},
		{as: "app", method: "POST", path: "/app/installations/43/access_tokens", want: 404},
		{as: "wrong", method: "POST", path: "/app/installations/42/access_tokens", want: 401},
		{as: "app", method: "POST", path: "/app/installations/42/access_tokens", want: 403, before: func(w *world) { w.install(true) }},
		{as: "app", method: "GET", path: "/app/installations/42", want: 200},
		{as: "app", method: "POST", path: "/app/installations/42/access_tokens", want: 201, before: func(w *world) { w.install(false) }},
	}
}

// workflowCalls returns the calls about the four jobs of [world.work]: one completed, one running, one waiting for
// approval and one queued.
func workflowCalls() []call {
	const actions = "/repos/acme/app/actions"
	all := []call{
		{as: token, method: "GET", path: actions + "/runs", want: 200},
		{as: token, method: "GET", path: actions + "/runs?status=completed&exclude_pull_requests=true", want: 200},
		{as: token, method: "GET", path: actions + "/runs/9999/jobs", want: 404, unpublished: absent},
		{as: token, method: "GET", path: actions + "/jobs/9999", want: 404, unpublished: absent},
	}
	for i := range 4 {
		all = append(all, call{as: token, method: "GET", path: fmt.Sprintf("%s/runs/%d/jobs?filter=latest", actions, 5001+i), want: 200},
			call{as: token, method: "GET", path: fmt.Sprintf("%s/jobs/%d", actions, 7_000_001+i), want: 200})
	}
	return all
}

const (
	commit = "ffac537e6cbbf934b08745a378932722df287a53"
	output = `{"title":"2 pools are wrong","summary":"They are.","annotations":[` +
		`{"path":"pools.cue","start_line":3,"end_line":3,"annotation_level":"failure","message":"max is negative"}]}`
)

// commitCalls returns the calls that read and write the statuses and checks of a commit.
func commitCalls() []call {
	const (
		repository = "/repos/acme/app"
		status     = `{"state":"failure","context":"corral","description":"2 pools are wrong","target_url":"https://ci.example/1"}`
		check      = `{"name":"corral","head_sha":"` + commit + `","external_id":"x","status":"completed","conclusion":"failure","output":` + output + `}`
	)
	return []call{
		{as: token, method: "GET", path: repository + "/commits/" + commit + "/status", want: 200},
		{as: token, method: "POST", path: repository + "/statuses/" + commit, body: status, want: 201},
		{as: token, method: "POST", path: repository + "/statuses/" + commit, body: `{"state":"success","context":"other"}`, want: 201},
		{as: token, method: "POST", path: repository + "/statuses/" + commit, body: `{"state":"fine"}`, want: 422, unpublished: invalid},
		{as: token, method: "GET", path: repository + "/commits/" + commit + "/status", want: 200},
		{as: token, method: "POST", path: repository + "/check-runs", body: check, want: 403,
			unpublished: "GitHub's page of check runs says that only Apps may write them"},
		{as: "installation", method: "POST", path: repository + "/check-runs", body: check, want: 201},
		{as: "installation", method: "PATCH", path: repository + "/check-runs/{id}", body: `{"output":` + output + `}`, want: 200},
		{as: "installation", method: "GET", path: repository + "/commits/" + commit + "/check-runs?check_name=corral&filter=all", want: 200},
	}
}

// runnerCalls returns the calls about the runners of an organization, a repository or an enterprise.
func runnerCalls(scope string) []call {
	const runner = `{"name":"r1","runner_group_id":1,"labels":["self-hosted","gpu"],"work_folder":"_work"}`
	runners := scope + "/actions/runners"
	register := runners + "/generate-jitconfig"
	return []call{
		{as: token, method: "POST", path: register, body: runner, want: 201},
		{as: token, method: "POST", path: register, body: runner, want: 409},
		{as: token, method: "POST", path: register, body: `{"name":"r2","runner_group_id":1,"labels":[]}`, want: 422},
		{as: token, method: "POST", path: register, body: `{"name":"r2","runner_group_id":99,"labels":["gpu"]}`, want: 404},
		{as: token, method: "GET", path: runners + "?per_page=1", want: 200},
		{as: token, method: "GET", path: runners + "?name=r1", want: 200},
		{as: token, method: "GET", path: runners + "/{id}", want: 200},
		{as: token, method: "DELETE", path: runners + "/{id}", want: 422, before: func(w *world) {
			w.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteRunner, Alter: githubsim.AlterJobStillRunning, Times: 1})
		}},
		{as: token, method: "DELETE", path: runners + "/{id}", want: 204},
		{as: token, method: "DELETE", path: runners + "/{id}", want: 404, unpublished: absent},
		{as: token, method: "GET", path: runners + "/{id}", want: 404, unpublished: absent},
		{as: "wrong", method: "POST", path: runners + "/registration-token", want: 401, unpublished: unauthorized},
		{as: stranger, method: "POST", path: runners + "/registration-token", want: 403, unpublished: forbidden},
		{as: token, method: "POST", path: scope + "x/actions/runners/registration-token", want: 404, unpublished: absent},
		{as: token, method: "POST", path: runners + "/registration-token", want: 201},
	}
}

// groupCalls returns the calls about the runner groups of an organization or an enterprise.
func groupCalls(scope, visibleTo string) []call {
	groups := scope + "/actions/runner-groups"
	return []call{
		{as: token, method: "GET", path: groups, want: 200},
		{as: token, method: "GET", path: groups + "?" + visibleTo, want: 200},
		{as: token, method: "GET", path: groups + "/1", want: 200},
		{as: token, method: "GET", path: groups + "/99", want: 404, unpublished: absent},
	}
}

// deliveryCalls returns the calls about a webhook's deliveries.
func deliveryCalls(as, hook string) []call {
	return []call{
		{as: as, method: "GET", path: hook + "/deliveries?per_page=100&status=failure", want: 200},
		{as: as, method: "GET", path: hook + "/deliveries?cursor=none", want: 422},
		{as: as, method: "GET", path: hook + "/deliveries?per_page=2", want: 200},
		{as: as, method: "GET", path: hook + "/deliveries/{id}", want: 200},
		{as: as, method: "POST", path: hook + "/deliveries/{id}/attempts", want: 202},
		{as: as, method: "GET", path: hook + "/deliveries/99999", want: 404, unpublished: absent},
		{as: as, method: "POST", path: hook + "/deliveries/99999/attempts", want: 404, unpublished: absent},
	}
}

// makeCalls sends all calls, and returns the explanations of the answers that GitHub does not publish.
func (w *world) makeCalls(t *testing.T, prefix string) reasons {
	t.Helper()
	assertion, err := w.app.Assertion(time.Now())
	must(t, err)
	unpublished, id := reasons{}, ""
	authorization := map[string]string{
		"": "", token: "Bearer " + token, stranger: "Bearer " + stranger, "wrong": "Bearer wrong", "app": "Bearer " + assertion,
	}
	for _, c := range w.calls() {
		if c.before != nil {
			c.before(w)
		}
		e := w.ask(t, c, prefix+strings.ReplaceAll(c.path, "{id}", id), authorization[c.as])
		if e.status != c.want {
			t.Errorf("%s %s as %q: %d %s, want %d", c.method, c.path, c.as, e.status, e.answer, c.want)
		}
		if c.unpublished != "" {
			unpublished[e.key()] = c.unpublished
		}
		answer := readAnswer(e.answer)
		id = cmp.Or(answer.id(), id)
		switch {
		case strings.HasSuffix(c.path, "/access_tokens") && answer.Token != "":
			authorization["installation"] = "Bearer " + answer.Token
		case strings.HasSuffix(c.path, "/registration-token"):
			authorization["registration"] = "RemoteAuth " + answer.Token
		}
	}
	return unpublished
}

// ask sends a call, and returns the exchange that the simulated GitHub recorded.
func (w *world) ask(t *testing.T, c call, path, authorization string) exchange {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, w.URL+path, strings.NewReader(c.body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &w.seen[len(w.seen)-1]
	e.isWrong = c.want >= http.StatusBadRequest
	return *e
}

// answered holds the fields of an answer that later calls need.
type answered struct {
	ID     int64  `json:"id"`
	Token  string `json:"token"`
	Runner struct {
		ID int64 `json:"id"`
	} `json:"runner"`
}

// id returns the ID of the object in the answer, or of the runner inside it. It is empty if there is neither.
func (t answered) id() string {
	if id := cmp.Or(t.ID, t.Runner.ID); id != 0 {
		return fmt.Sprint(id)
	}
	return ""
}

// readAnswer decodes an answer. For a list, it returns the first element.
func readAnswer(answer []byte) (t answered) {
	var list []answered
	if json.Unmarshal(answer, &list) == nil && len(list) > 0 {
		return list[0]
	}
	_ = json.Unmarshal(answer, &t) // other answers have no ID
	return t
}
