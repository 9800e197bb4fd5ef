// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

func TestScaleSetLivesFromCreateToDelete(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	group := int64(sim.AddRunnerGroup("acme", githubsim.Group{Name: "big ones"}))
	c, ctx := tokenClient(t, sim), testContext(t)

	created, err := c.Create(ctx, Set{Name: "linux", GroupID: github.DefaultRunnerGroupID, Labels: []string{"linux", "x64"}})
	if err != nil {
		t.Fatal(err)
	}
	updated, err := c.Update(ctx, created.ID, Set{Name: "a b&c#d+e", GroupID: group, Labels: []string{"arm"}})
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.Find(ctx, group, "a b&c#d+e")
	if err != nil {
		t.Fatal(err)
	}
	want := &Set{ID: created.ID, Name: "a b&c#d+e", GroupID: group, GroupName: "big ones", Labels: []string{"arm"}, Statistics: &Statistics{}}
	for name, got := range map[string]*Set{"updated": updated, "found": found} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	for range 2 { // the second call finds no scale set, which is not an error
		if err := c.Delete(ctx, created.ID); err != nil {
			t.Errorf("deleting: %v", err)
		}
	}
	if gone, err := c.Find(ctx, group, "a b&c#d+e"); gone != nil || err != nil {
		t.Errorf("found %v, %v; want nothing", gone, err)
	}
	if _, err := c.Get(ctx, created.ID); !github.IsNotFound(err) {
		t.Errorf("got %v; want NotFound", err)
	}
}

func TestRunnerGroupIsFoundByName(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	big := int64(sim.AddRunnerGroup("acme", githubsim.Group{Name: "big & odd"}))
	c, ctx := tokenClient(t, sim), testContext(t)

	for _, name := range []string{"", "default", "Default"} {
		if id, err := c.RunnerGroupID(ctx, name); id != github.DefaultRunnerGroupID || err != nil {
			t.Errorf("group %q: got %d, %v", name, id, err)
		}
	}
	if n := len(sim.Report().Requests); n != 0 {
		t.Errorf("the default group cost requests to %d endpoints", n)
	}
	if id, err := c.RunnerGroupID(ctx, "big & odd"); id != big || err != nil {
		t.Errorf("got %d, %v; want %d", id, err, big)
	}
	if _, err := c.RunnerGroupID(ctx, "absent"); !github.IsRunnerGroupNotFound(err) {
		t.Errorf("got %v; want RunnerGroupNotFound", err)
	}
}

func TestRunnerIsRegisteredAndRemoved(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	c, ctx := tokenClient(t, sim), testContext(t)
	set := createSet(t, c)

	jit, err := c.GenerateJIT(ctx, set.ID, "linux-1")
	if err != nil || jit.Encoded == "" {
		t.Fatalf("got %+v, %v", jit, err)
	}
	if config, err := runnerwire.Decode(jit.Encoded); err != nil || config.Settings.DisableUpdate != "true" {
		t.Errorf("the runner is told to update itself: %+v, %v", config.Settings, err)
	}
	if _, err := c.GenerateJIT(ctx, set.ID, "linux-1"); !github.IsRunnerExists(err) {
		t.Errorf("got %v; want RunnerExists", err)
	}
	runner, err := c.RunnerByName(ctx, "linux-1")
	if diff := cmp.Diff(&Runner{ID: jit.RunnerID, Name: "linux-1", SetID: set.ID}, runner); diff != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, diff)
	}
	known, err := c.Runner(ctx, jit.RunnerID)
	if diff := cmp.Diff(&Runner{ID: jit.RunnerID, Name: "linux-1", SetID: set.ID, Status: StatusOffline}, known); diff != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, diff)
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 1, Alter: githubsim.AlterJobStillRunning})
	if err := c.RemoveRunner(ctx, jit.RunnerID); !github.IsJobStillRunning(err) {
		t.Errorf("got %v; want JobStillRunning", err)
	}
	for range 2 {
		if err := c.RemoveRunner(ctx, jit.RunnerID); err != nil {
			t.Errorf("removing: %v", err)
		}
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 1, Status: http.StatusNotFound})
	if err := c.RemoveRunner(ctx, jit.RunnerID); !github.IsNotFound(err) {
		t.Errorf("got %v; want NotFound", err)
	}
	if runner, err := c.RunnerByName(ctx, "linux-1"); runner != nil || err != nil {
		t.Errorf("got %v, %v; want nothing", runner, err)
	}
	if runner, err := c.Runner(ctx, jit.RunnerID); runner != nil || err != nil {
		t.Errorf("got %v, %v; want nothing", runner, err)
	}
}

func TestLostAnswerIsAConflictWithOneself(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	c, ctx := tokenClient(t, sim), testContext(t)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateScaleSet, Times: 1, DropAnswer: true})
	want := Set{Name: "linux", GroupID: github.DefaultRunnerGroupID, Labels: []string{"linux"}}

	if _, err := c.Create(ctx, want); !github.IsUnavailable(err) {
		t.Errorf("got %v; want Unavailable", err)
	}
	if _, err := c.Create(ctx, want); github.KindOf(err) != github.KindExists {
		t.Errorf("got %v; want Exists", err)
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateScaleSet, Times: 1, Status: 400, Body: `{"typeName": "X", "message": "A runner scale set named linux already exists."}`})
	if _, err := c.Create(ctx, want); github.KindOf(err) != github.KindExists {
		t.Errorf("got %v; want Exists, also of 400", err)
	}
	if set, err := c.Find(ctx, github.DefaultRunnerGroupID, "linux"); set == nil || err != nil {
		t.Errorf("got %v, %v; want the scale set", set, err)
	}
}

func TestAllClientsShareOneSetOfTokens(t *testing.T) {
	key, encoded := appKey()
	for name, tc := range map[string]struct {
		creds github.Credentials
		want  map[githubsim.Endpoint]int
	}{
		"token": {
			creds: github.Credentials{Token: "secret"},
			want:  map[githubsim.Endpoint]int{githubsim.EndpointRegistrationToken: 1, githubsim.EndpointRunnerRegistration: 1},
		},
		"app": {
			creds: github.Credentials{App: &github.App{ID: "7", InstallationID: 70, PrivateKey: encoded}},
			want: map[githubsim.Endpoint]int{
				githubsim.EndpointAccessToken: 1, githubsim.EndpointRegistrationToken: 1, githubsim.EndpointRunnerRegistration: 1,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim := startSim(t, githubsim.Options{})
			sim.AddApp(githubsim.App{
				ID: 7, InstallationID: 70, PublicKey: &key.PublicKey, Account: "acme",
				Permissions: map[string]string{"organization_self_hosted_runners": "write"},
			})
			tc.creds.ConfigURL = sim.ConfigURL("acme")
			c := startClient(t, tc.creds, github.Options{})
			set := createSet(t, c)
			registerMany(t, c, set.ID, "a", 40)
			if diff := cmp.Diff(tc.want, tokenCalls(sim)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func registerMany(t *testing.T, c *Client, setID int64, prefix string, n int) {
	t.Helper()
	all, ctx := errgroup.WithContext(testContext(t))
	for i := range n {
		all.Go(func() error {
			_, err := c.GenerateJIT(ctx, setID, fmt.Sprintf("%s-%d", prefix, i))
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

func tokenCalls(sim *githubsim.Running) map[githubsim.Endpoint]int {
	calls := map[githubsim.Endpoint]int{}
	for _, name := range []githubsim.Endpoint{githubsim.EndpointAccessToken, githubsim.EndpointRegistrationToken, githubsim.EndpointRunnerRegistration} {
		if n := sim.Report().Requests[name]; n > 0 {
			calls[name] = n
		}
	}
	return calls
}

func TestTokensRevokedEarlyAreRenewedOnce(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	c := tokenClient(t, sim)
	set := createSet(t, c)
	registerMany(t, c, set.ID, "before", 20) // every client of the pool has the token now
	sim.ExpireAdminTokens()
	sim.ResetCounters()
	registerMany(t, c, set.ID, "after", 40)
	want := map[githubsim.Endpoint]int{githubsim.EndpointRegistrationToken: 1, githubsim.EndpointRunnerRegistration: 1}
	if diff := cmp.Diff(want, tokenCalls(sim)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestShortLivedAdminTokensWork(t *testing.T) {
	sim := startSim(t, githubsim.Options{AdminTokenTTL: 30 * time.Second})
	c := tokenClient(t, sim)
	registerMany(t, c, createSet(t, c).ID, "a", 20)
	if calls := tokenCalls(sim); calls[githubsim.EndpointRunnerRegistration] != 1 {
		t.Errorf("%d registrations, though one token was good for all", calls[githubsim.EndpointRunnerRegistration])
	}
}

func TestCallsThatFailAreTyped(t *testing.T) {
	for name, tc := range map[string]struct {
		fault githubsim.Fault
		path  string
		token string
		want  github.Kind
	}{
		"server error":               {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 503}, want: github.KindUnavailable},
		"connection cut":             {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, DropAnswer: true}, want: github.KindUnavailable},
		"no answer":                  {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Hang: true}, want: github.KindUnavailable},
		"forbidden":                  {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 403}, want: github.KindForbidden},
		"unauthorized for good":      {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 401}, want: github.KindUnauthorized},
		"too many requests":          {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 429}, want: github.KindRateLimited},
		"garbage":                    {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 200, Body: "[", ContentType: "text/html"}, want: github.KindUnavailable},
		"byte order mark":            {fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Alter: githubsim.AlterByteOrderMark}},
		"token refused":              {token: "wrong", want: github.KindUnauthorized},
		"organization absent":        {path: "absent", want: github.KindForbidden},
		"replicas lag":               {fault: githubsim.Fault{Endpoint: githubsim.EndpointRunnerRegistration, Status: 403}, want: github.KindUnavailable},
		"secondary rate limit":       {fault: githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 403, RetryAfter: time.Minute}, want: github.KindRateLimited},
		"rest down":                  {fault: githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: 502}, want: github.KindUnavailable},
		"registration without sense": {fault: githubsim.Fault{Endpoint: githubsim.EndpointRunnerRegistration, Status: 200, Body: "{}"}, want: github.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			sim := startSim(t, githubsim.Options{})
			if tc.fault.Endpoint != "" {
				sim.AddFault(tc.fault)
			}
			creds := github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: "secret"}
			if tc.path != "" {
				creds.ConfigURL = sim.ConfigURL(tc.path)
			}
			if tc.token != "" {
				creds.Token = tc.token
			}
			timeout := patience
			if tc.fault.Hang {
				timeout = 200 * time.Millisecond
			}
			c := startClient(t, creds, github.Options{Timeout: timeout})
			_, err := c.Find(testContext(t), github.DefaultRunnerGroupID, "linux")
			if got := github.KindOf(err); got != tc.want {
				t.Errorf("got %q (%v); want %q", got, err, tc.want)
			}
		})
	}
}

// An incomplete answer, or a 404 in place of an empty list, is an error. The official client would read most of these
// as "there is none".
func TestPartialAnswersAreErrors(t *testing.T) {
	type call func(context.Context, *Client) error
	ask := func(of func(context.Context, *Client) (any, error)) call {
		return func(ctx context.Context, c *Client) error {
			_, err := of(ctx, c)
			return err
		}
	}
	lists := map[githubsim.Endpoint]call{
		githubsim.EndpointFindAgent: ask(func(ctx context.Context, c *Client) (any, error) { return c.RunnerByName(ctx, "linux-1") }),
		githubsim.EndpointFindScaleSet: ask(func(ctx context.Context, c *Client) (any, error) {
			return c.Find(ctx, github.DefaultRunnerGroupID, "linux")
		}),
		githubsim.EndpointFindGroup: ask(func(ctx context.Context, c *Client) (any, error) { return c.RunnerGroupID(ctx, "big") }),
	}
	objects := map[githubsim.Endpoint]call{
		githubsim.EndpointGetAgent:       ask(func(ctx context.Context, c *Client) (any, error) { return c.Runner(ctx, 1) }),
		githubsim.EndpointGetScaleSet:    ask(func(ctx context.Context, c *Client) (any, error) { return c.Get(ctx, 1) }),
		githubsim.EndpointCreateScaleSet: ask(func(ctx context.Context, c *Client) (any, error) { return c.Create(ctx, Set{Name: "other"}) }),
		githubsim.EndpointUpdateScaleSet: ask(func(ctx context.Context, c *Client) (any, error) { return c.Update(ctx, 1, Set{Name: "linux"}) }),
	}
	faults := func(e githubsim.Endpoint, bodies ...string) (list []githubsim.Fault) {
		for _, body := range bodies {
			list = append(list, githubsim.Fault{Endpoint: e, Status: http.StatusOK, Body: body})
		}
		return list
	}
	fails := func(do call, fault githubsim.Fault, kinds ...github.Kind) {
		t.Helper()
		sim := startSim(t, githubsim.Options{})
		c := tokenClient(t, sim)
		createSet(t, c)
		sim.AddFault(fault)
		if err := do(testContext(t), c); !slices.Contains(append(kinds, github.KindUnavailable), github.KindOf(err)) {
			t.Errorf("%s %q: got %v", fault, fault.Body, err)
		}
	}
	for e, do := range lists {
		for _, f := range faults(e, "", "null", "{}", "[]", `{"count":0}`, `{"value":[]}`, `{"count":0,"value":null}`, `{"count":1,"value":[]}`, `{"count":1,"value":[{}]}`) {
			fails(do, f)
		}
		fails(do, githubsim.Fault{Endpoint: e, Status: http.StatusNotFound}, github.KindUnexpected, github.KindNotFound) // the last one is the answer of a server without scale sets
	}
	for e, do := range objects {
		for _, f := range faults(e, "", "null", "{}", "[]", `{"id":1}`, `{"id":0,"name":"linux"}`, `{"name":"linux"}`) {
			fails(do, f)
		}
	}
}

func TestRateLimitIsObeyedWithoutCalling(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	clock := newTestClock()
	c := startClient(t, github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: "secret"}, github.Options{Now: clock.now})
	set := createSet(t, c)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Times: 1, Status: 429, RetryAfter: 30 * time.Second})
	ctx := testContext(t)

	_, err := c.GenerateJIT(ctx, set.ID, "a")
	if after, limited := github.IsRateLimited(err); !limited || after != 30*time.Second {
		t.Fatalf("got %v, limited %v after %s", err, limited, after)
	}
	said := github.Summary(err)
	clock.advance(20 * time.Second)
	_, err = c.GenerateJIT(ctx, set.ID, "a")
	if github.Summary(err) != said || github.CodeOf(err) != http.StatusTooManyRequests {
		t.Errorf("it says %q of the same limit, at first %q", github.Summary(err), said)
	}
	if after, limited := github.IsRateLimited(err); !limited || after != 10*time.Second {
		t.Errorf("got %v, limited %v after %s", err, limited, after)
	}
	if n := sim.Report().Requests[githubsim.EndpointJITConfig]; n != 1 {
		t.Errorf("%d requests; want 1", n)
	}
	if _, err := c.Get(ctx, set.ID); err != nil {
		t.Errorf("another endpoint is limited too: %v", err)
	}
	clock.advance(10 * time.Second)
	if _, err = c.GenerateJIT(ctx, set.ID, "a"); err != nil {
		t.Errorf("after the limit: %v", err)
	}
}

func TestErrorTellsSupportIDsAndSummaryDoesNot(t *testing.T) {
	sim := startSim(t, githubsim.Options{})
	_, err := tokenClient(t, sim).Get(testContext(t), 4711)
	e := new(github.Error)
	if !errors.As(err, &e) || e.ActivityID == "" || e.RequestID == "" {
		t.Fatalf("got %#v", err)
	}
	if text := err.Error(); !strings.Contains(text, "ActivityId "+e.ActivityID) || !strings.Contains(text, "X-GitHub-Request-Id "+e.RequestID) {
		t.Errorf("%q lacks an id", text)
	}
	if text := github.Summary(fmt.Errorf("outer: %w", err)); strings.Contains(text, e.ActivityID) || strings.Contains(text, e.RequestID) || !strings.HasPrefix(text, "outer: reading scale set 4711") {
		t.Errorf("summary is %q", text)
	}
}

// roundTripper is a network implemented by a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestCancelledCallEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(testContext(t))
	answer := make(chan struct{})
	network := roundTripper(func(*http.Request) (*http.Response, error) {
		cancel()
		<-answer
		return nil, errors.New("too late")
	})
	c, err := NewClient(github.Credentials{ConfigURL: "https://github.com/acme", Token: "secret"}, github.Options{Transport: network})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(answer) // the token call outlives its caller, because others may wait for it
}
