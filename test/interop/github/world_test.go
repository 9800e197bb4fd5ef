// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

const (
	// token has all permissions. stranger may not register anything.
	token, stranger = "ghp_all", "ghp_stranger"
	// secret signs all webhooks.
	secret = "s3cret"
	// appID and installation identify the App that is installed on acme.
	appID, installation = 7, 42
)

// exchange is a REST call and its answer.
type exchange struct {
	method       string
	url          *url.URL // without the prefix of a server's API
	header       http.Header
	body         []byte
	status       int
	answer       []byte
	answerHeader http.Header
	// route is the pattern in the simulated GitHub that matched; empty if none did.
	route string
	// isWrong marks a call that is invalid on purpose.
	isWrong bool
}

// request rebuilds the HTTP request for validation.
func (e exchange) request() *http.Request {
	return &http.Request{Method: e.method, URL: e.url, Header: e.header, Body: reader(e.body), ContentLength: int64(len(e.body))}
}

// world is a simulated GitHub with one object of every kind. It records all requests and answers.
type world struct {
	*githubsim.Server
	URL    string
	app    github.App
	key    *rsa.PublicKey
	routes *http.ServeMux
	hooks  struct{ org, repo int64 }

	mu        sync.Mutex
	seen      []exchange
	delivered []delivery // webhooks
}

// delivery is a webhook as the receiver got it.
type delivery struct {
	header http.Header
	body   []byte
}

func newWorld(t *testing.T, mode githubsim.Mode) *world {
	t.Helper()
	w := &world{routes: http.NewServeMux()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.URL = "http://" + server.Listener.Addr().String()
	w.Server = githubsim.New(githubsim.Options{
		Mode: mode, PublicURL: w.URL, Hold: 50 * time.Millisecond, SessionExpiry: 500 * time.Millisecond,
		OldestRunner: "2.320.0", Releases: []githubsim.Release{{Version: "2.331.0", Published: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
	})
	for _, pattern := range w.Routes() {
		w.routes.Handle(pattern, http.NotFoundHandler())
	}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(w.Close)
	w.populate(t)
	return w
}

// populate creates one object of every kind.
func (w *world) populate(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	w.key = &key.PublicKey
	w.app = github.App{ID: "Iv1", InstallationID: installation, PrivateKey: pem.EncodeToMemory(
		&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})}
	w.AddToken(token)
	w.AddToken(stranger, "metadata:read")
	w.AddEnterprise("corp", "acme")
	must(t, w.AddRepository(githubsim.Repository{FullName: "acme/app"}))
	must(t, w.AddRepository(githubsim.Repository{FullName: "acme/site", Public: true}))
	w.AddRunnerGroup("acme", githubsim.Group{Name: "team", Visibility: "selected", Repositories: []string{"acme/app"}})
	w.AddRunnerGroup("enterprises/corp", githubsim.Group{Name: "some", Visibility: "selected", Organizations: []string{"acme"}})
	w.install(false)
	to := w.receiver(t)
	for owner, id := range map[string]*int64{"acme": &w.hooks.org, "acme/app": &w.hooks.repo, "apps/7": new(int64)} {
		*id, err = w.AddHook(githubsim.Hook{Owner: owner, URL: to, Secret: secret})
		must(t, err)
	}
}

// install installs the App on acme, or suspends that installation.
func (w *world) install(suspended bool) {
	w.AddApp(githubsim.App{
		ID: appID, ClientID: w.app.ID, InstallationID: installation, PublicKey: w.key, Account: "acme", Suspended: suspended,
		Permissions: map[string]string{
			"organization_self_hosted_runners": "write", "administration": "write", "actions": "read", "checks": "write", "statuses": "write",
			"organization_hooks": "write", "metadata": "read",
		},
	})
}

// receiver starts a server that records webhooks, and returns its URL.
func (w *world) receiver(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delivered = append(w.delivered, delivery{header: r.Header, body: body})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// serve forwards a request to the simulated GitHub, and records it if it belongs to the REST API.
func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	address := *r.URL
	address.Path = strings.TrimPrefix(address.Path, "/api/v3")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	r.Body = reader(body)
	if strings.HasPrefix(address.Path, "/_") { // the Actions service and the runners' API, which GitHub does not describe
		w.ServeHTTP(out, r)
		return
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	_, route := w.routes.Handler(&http.Request{Method: r.Method, URL: &address, Host: r.Host})
	w.mu.Lock()
	w.seen = append(w.seen, exchange{
		method: r.Method, url: &address, header: r.Header, body: body, route: route,
		status: answer.Code, answer: answer.Body.Bytes(), answerHeader: answer.Header(),
	})
	w.mu.Unlock()
	for key, values := range answer.Header() {
		out.Header()[key] = values
	}
	out.WriteHeader(answer.Code)
	_, _ = out.Write(answer.Body.Bytes()) // the client may have disconnected
}

// runJob has a runner of acme complete a job, or start it if its duration exceeds a minute.
func (w *world) runJob(t *testing.T, jit string, job githubsim.Job) {
	t.Helper()
	id, err := w.AddJob(job)
	must(t, err)
	go func() { _, _ = simrunner.Run(t.Context(), jit) }() // ends with the test
	want := githubsim.JobCompleted
	if job.Duration > time.Minute {
		want = githubsim.JobRunning
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, w.WaitUntil(ctx, func() bool {
		return slices.ContainsFunc(w.Jobs(), func(j githubsim.JobTimeline) bool { return j.ID == id && j.State == want })
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reader(text []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(text)) }

// jitOf returns the configuration of the runner that an exchange registered.
func jitOf(t *testing.T, e exchange) string {
	t.Helper()
	var made struct {
		JIT string `json:"encoded_jit_config"`
	}
	must(t, json.Unmarshal(e.answer, &made))
	return made.JIT
}

// decoded converts JSON to the values that the validator expects.
func decoded(text []byte) (value any) {
	_ = json.Unmarshal(text, &value) // invalid JSON becomes null
	return value
}
