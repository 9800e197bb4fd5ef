// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// patience is the timeout of tests.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startSim starts a GitHub with the organization "acme" and the token "secret".
func startSim(t *testing.T, options githubsim.Options) *githubsim.Running {
	t.Helper()
	sim, err := githubsim.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken("secret")
	return sim
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func startClient(t *testing.T, creds github.Credentials, options github.Options) *Client {
	t.Helper()
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	options.Transport = network
	c, err := NewClient(creds, options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tokenClient(t *testing.T, sim *githubsim.Running) *Client {
	t.Helper()
	return startClient(t, github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: "secret"}, github.Options{Timeout: 30 * time.Second})
}

func createSet(t *testing.T, c *Client) *Set {
	t.Helper()
	set, err := c.Create(testContext(t), Set{Name: "linux", GroupID: github.DefaultRunnerGroupID, Labels: []string{"linux"}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var appKey = sync.OnceValues(func() (*rsa.PrivateKey, []byte) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
})

// testClock is a clock that the test sets.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func newTestClock() *testClock { return &testClock{at: time.Now()} }

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// memoryClient returns a client of a GitHub like startSim's. It uses no network, for tests in simulated time.
func memoryClient(t *testing.T, options githubsim.Options) (*githubsim.Server, *Client) {
	t.Helper()
	sim := githubsim.New(options)
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken("secret")
	c, err := NewClient(github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}, github.Options{Transport: inMemory(sim)})
	if err != nil {
		t.Fatal(err)
	}
	return sim, c
}

// inMemory is a network that calls a handler directly, for tests in simulated time.
func inMemory(server http.Handler) http.RoundTripper {
	return roundTripper(func(req *http.Request) (resp *http.Response, err error) {
		defer func() {
			if recover() != nil { // http.ErrAbortHandler: the connection is cut
				resp, err = nil, io.ErrUnexpectedEOF
			}
			if req.Context().Err() != nil {
				resp, err = nil, req.Context().Err()
			}
		}()
		in := req.Clone(req.Context())
		in.Host = req.URL.Host
		if in.Body == nil {
			in.Body = http.NoBody
		}
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, in)
		return recorder.Result(), nil
	})
}
