// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actions/scaleset"

	"github.com/corral-dev/corral/sim/githubsim"
)

// wire is a proxy between the official client and a simulated GitHub. Before it forwards a call to the Actions service, it
// sends the call once with each fault, and expects the service to reject it.
type wire struct {
	t   *testing.T
	sim *githubsim.Server
	mu  sync.Mutex
	// service and queue are the tokens for the Actions service and for its message queue. expired is an expired token for
	// the queue.
	service, queue, expired string
}

// fault is a mistake that the official client does not make.
type fault struct {
	apply func(*http.Request)
	want  int // the status code with which the service rejects it
}

func (w *wire) faults() map[string]fault {
	authorization := func(format string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", strings.Replace(format, "*", token(r), 1)) }
	}
	version := func(value string) func(*http.Request) {
		return func(r *http.Request) {
			query := r.URL.Query()
			query.Set("api-version", value)
			r.URL.RawQuery = query.Encode()
			r.Header.Del("Accept")
		}
	}
	body := func(text string) func(*http.Request) {
		return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(text)) }
	}
	return map[string]fault{
		"no authorization":           {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"a personal token":           {authorization("Bearer secret"), 401},
		"the token of the service":   {authorization("Bearer " + w.service), 401},
		"the token of the queue":     {authorization("Bearer " + w.queue), 401},
		"the scheme token":           {authorization("token *"), 401},
		"the scheme RemoteAuth":      {authorization("RemoteAuth *"), 401},
		"no version":                 {version(""), 400},
		"another version":            {version("5.1-preview"), 400},
		"a version without -preview": {version("6.0"), 400},
		"another method":             {func(r *http.Request) { r.Method = http.MethodPut }, 404},
		"an empty object":            {body("{}"), 400},
		"invalid JSON":               {body("name: x"), 400},
	}
}

func token(r *http.Request) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token
}

// applies reports whether a fault can be applied to a call.
func (w *wire) applies(name string, f fault, r *http.Request, body []byte) bool {
	onQueue := strings.HasPrefix(r.URL.Path, "/_broker") || strings.HasSuffix(r.URL.Path, "/acquirejobs")
	switch {
	case f.want != 401 && token(r) == w.expired:
		return false
	case name == "the token of the service":
		return onQueue
	case name == "the token of the queue":
		return !onQueue
	case name == "an empty object": // the service accepts an empty PATCH
		return len(body) > 0 && r.Method == http.MethodPost
	case name == "invalid JSON":
		return len(body) > 0
	case strings.Contains(name, "version"): // the call that deletes a message has no version
		return r.Method != http.MethodDelete || !strings.HasPrefix(r.URL.Path, "/_broker")
	}
	return true
}

func (w *wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/_services") && w.service == "":
		w.service = token(r)
	case strings.HasPrefix(r.URL.Path, "/_broker"):
		w.queue = token(r)
	}
	for name, f := range w.faults() {
		if !strings.HasPrefix(r.URL.Path, "/_") || !w.applies(name, f, r, body) {
			continue
		}
		faulty, answer := r.Clone(r.Context()), httptest.NewRecorder()
		faulty.Body = io.NopCloser(bytes.NewReader(body))
		f.apply(faulty)
		if w.sim.ServeHTTP(answer, faulty); answer.Code != f.want {
			w.t.Errorf("%s %s with %s: %d %s, want %d", r.Method, r.URL.Path, name, answer.Code, answer.Body, f.want)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.sim.ServeHTTP(out, r)
}

// The calls of the official client succeed. The same calls with another token, scheme, version, method or body fail.
func TestServesOnlyCallsOfTheOfficialClient(t *testing.T) {
	w := &wire{t: t}
	server := httptest.NewUnstartedServer(w)
	sim := &githubsim.Running{URL: "http://" + server.Listener.Addr().String()}
	sim.Server = githubsim.New(githubsim.Options{Mode: githubsim.Acquire, PublicURL: sim.URL, Hold: 10 * time.Millisecond})
	w.sim = sim.Server
	t.Cleanup(w.sim.Close)
	server.Start()
	t.Cleanup(server.Close)
	sim.AddOrg("acme")
	sim.AddToken("secret")
	ctx, client := testContext(t), newClient(t, sim, "acme")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set := newSet(t, client)
	_, err := client.GetRunnerScaleSet(ctx, 1, "pool")
	must(err)
	_, err = client.GetRunnerScaleSetByID(ctx, set.ID)
	must(err)
	_, err = client.UpdateRunnerScaleSet(ctx, set.ID, &scaleset.RunnerScaleSet{Name: "pool"})
	must(err)
	_, err = client.GetRunnerGroupByName(ctx, "Default")
	must(err)
	session := openSession(t, client, set.ID)
	addJob(t, sim, githubsim.Job{})
	m, err := session.GetMessage(ctx, 0, 1)
	must(err)
	_, err = session.AcquireJobs(ctx, []int64{m.JobAvailableMessages[0].RunnerRequestID})
	must(err)
	must(session.DeleteMessage(ctx, m.MessageID))
	sim.ExpireQueueTokens()
	w.expired = w.queue
	_, err = session.GetMessage(ctx, 0, 1)
	must(err)
	jit, err := client.GenerateJitRunnerConfig(ctx, &scaleset.RunnerScaleSetJitRunnerSetting{Name: "r1"}, set.ID)
	must(err)
	_, err = client.GetRunner(ctx, jit.Runner.ID)
	must(err)
	_, err = client.GetRunnerByName(ctx, "r1")
	must(err)
	must(client.RemoveRunner(ctx, int64(jit.Runner.ID)))
	must(session.Close(ctx))
	must(client.DeleteRunnerScaleSet(ctx, set.ID))
	for _, endpoint := range []githubsim.Endpoint{
		githubsim.EndpointFindScaleSet, githubsim.EndpointGetScaleSet, githubsim.EndpointCreateScaleSet, githubsim.EndpointUpdateScaleSet,
		githubsim.EndpointDeleteScaleSet, githubsim.EndpointFindGroup, githubsim.EndpointCreateSession, githubsim.EndpointRefreshSession,
		githubsim.EndpointDeleteSession, githubsim.EndpointGetMessage, githubsim.EndpointDeleteMessage, githubsim.EndpointAcquireJobs,
		githubsim.EndpointJITConfig, githubsim.EndpointGetAgent, githubsim.EndpointFindAgent, githubsim.EndpointDeleteAgent,
	} {
		if calls := sim.Report().Requests[endpoint]; calls < 5 {
			t.Errorf("%s was called %d times, want at least 5", endpoint, calls)
		}
	}
}
