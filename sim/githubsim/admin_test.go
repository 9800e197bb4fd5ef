// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// tell calls the admin API.
func tell(t *testing.T, sim *githubsim.Running, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, sim.URL+"/_sim"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

func TestAdminAPI(t *testing.T) {
	sim := start(t, githubsim.Options{})
	newPool(t, sim)
	queued := addJob(t, sim, githubsim.Job{})
	for _, step := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/orgs", `{"name":"other"}`, 204},
		{"POST", "/orgs", `{}`, 400},
		{"POST", "/repositories", `{"fullName":"other/app","public":true}`, 204},
		{"POST", "/repositories", `{"fullName":"app"}`, 400},
		{"POST", "/groups", `{"owner":"other","name":"team","allowsPublic":true}`, 201},
		{"POST", "/groups", `{"name":"team"}`, 400},
		{"POST", "/tokens", `{"token":"new","grants":["repo"]}`, 204},
		{"POST", "/tokens", `{}`, 400},
		{"DELETE", "/tokens/new", ``, 204},
		{"POST", "/faults", `{"endpoint":"user","times":1,"status":503,"retryAfter":"2s","delay":"1ms"}`, 204},
		{"POST", "/faults", `{}`, 400},
		{"DELETE", "/faults", ``, 204},
		{"POST", "/jobs", `[{"repository":"acme/app","labels":["linux"],"duration":"1ms","count":2}]`, 201},
		{"POST", "/jobs", `[{"repository":"acme/app"}]`, 400},
		{"POST", "/jobs", `[{"repository":"acme/app","labels":["linux"],"duration":1}]`, 400},
		{"DELETE", "/jobs/none", ``, 404},
		{"POST", "/jobs/none/approve", ``, 404},
		{"POST", "/hooks", `{"owner":"acme","url":"http://127.0.0.1:1"}`, 201},
		{"POST", "/hooks", `{"owner":"none","url":"http://127.0.0.1:1"}`, 400},
		{"POST", "/hooks/1", `{"url":"http://127.0.0.1:2","secret":"s"}`, 204},
		{"POST", "/hooks/7", `{}`, 404},
		{"POST", "/delivery-faults", `{"event":"push","lose":true,"times":1,"delay":"1ms"}`, 204},
		{"POST", "/events", `{"event":"push","repository":"acme/app"}`, 204},
		{"POST", "/events", `{"event":"push","repository":"app"}`, 400},
		{"POST", "/events", `{}`, 400},
		{"GET", "/wait-delivered?timeout=1m", ``, 204},
		{"GET", "/deliveries?hook=1", ``, 200},
		{"POST", "/deliveries/1/again", ``, 204},
		{"POST", "/deliveries/99/again", ``, 404},
		{"DELETE", "/delivery-faults", ``, 204},
		{"DELETE", "/hooks/1", ``, 204},
		{"DELETE", "/jobs/" + queued, ``, 204},
		{"GET", "/wait-idle?timeout=1ms", ``, 408},
		{"POST", "/expire-admin-tokens", ``, 204},
		{"POST", "/expire-queue-tokens", ``, 204},
		{"POST", "/scale-sets/1/steal", `{"owner":"thief"}`, 204},
		{"POST", "/scale-sets/1/steal", `{}`, 400},
		{"POST", "/scale-sets/1/expire", ``, 204},
		{"POST", "/scale-sets/1/expire", ``, 404},
		{"POST", "/runners/1/purge", ``, 204},
		{"POST", "/scale-sets/1/forget", ``, 204},
		{"POST", "/reset-counters", ``, 204},
		{"GET", "/invariants", ``, 200},
		{"GET", "/leftovers", ``, 200},
		{"GET", "/none", ``, 404},
	} {
		if status, answer := tell(t, sim, step.method, step.path, step.body); status != step.want {
			t.Errorf("%s %s %s: %d %s, want %d", step.method, step.path, step.body, status, answer, step.want)
		}
	}
}

func TestAdminAPITellsWhatHappened(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	tell(t, sim, "POST", "/jobs", `[{"repository":"acme/app","labels":["linux"],"duration":"1ms","result":"failed"}]`)
	poll(t, p.session, 0, 1)
	if end := runToEnd(t, p.jit.EncodedJITConfig); end.code != simrunner.ExitOK {
		t.Fatalf("the runner ended with %+v", end)
	}
	if status, answer := tell(t, sim, "GET", "/wait-idle", ""); status != http.StatusNoContent {
		t.Errorf("waiting: %d %s", status, answer)
	}
	var report githubsim.Report
	_, answer := tell(t, sim, "GET", "/report", "")
	if err := json.Unmarshal([]byte(answer), &report); err != nil {
		t.Fatal(err)
	}
	if report.Jobs[githubsim.JobCompleted] != 1 || report.Results["failed"] != 1 || report.RunnersMade != 1 ||
		report.QueueWait.Max <= 0 || report.SessionsOpen != 1 || report.Requests[githubsim.EndpointRunnerComplete] != 1 {
		t.Errorf("report: %s", answer)
	}
	var jobs []githubsim.JobTimeline
	_, answer = tell(t, sim, "GET", "/jobs", "")
	if err := json.Unmarshal([]byte(answer), &jobs); err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 1 || jobs[0].Runner != "r1" || jobs[0].Finished.Before(jobs[0].Started) {
		t.Errorf("jobs: %s", answer)
	}
	if left := sim.Leftovers(); len(left) != 2 { // the scale set and its session
		t.Errorf("left over: %v", left)
	}
}
