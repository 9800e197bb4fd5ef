// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// clock is set by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is a simulated GitHub with the organization "acme" in the enterprise "big", its repositories "app" and "lib", a
// group that is visible to "lib" only, the token "secret" and the App 7.
type world struct {
	*githubsim.Running
	t *testing.T
	clock
	group int
}

func newWorld(t *testing.T, o githubsim.Options) *world {
	t.Helper()
	w := &world{t: t, clock: clock{now: time.Now().Truncate(time.Second)}}
	o.Clock = w.Now
	sim, err := githubsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	w.Running = sim
	sim.AddEnterprise("big", "acme")
	for _, name := range []string{"acme/app", "acme/lib"} {
		if err := sim.AddRepository(githubsim.Repository{FullName: name}); err != nil {
			t.Fatal(err)
		}
	}
	w.group = sim.AddRunnerGroup("acme", githubsim.Group{Name: "GPU", Visibility: "selected", Repositories: []string{"acme/lib"}})
	sim.AddToken("secret")
	public, _ := appKeys()
	sim.AddApp(githubsim.App{ID: 7, InstallationID: 70, PublicKey: public, Account: "acme", Permissions: map[string]string{
		"organization_self_hosted_runners": "write", "administration": "write", "actions": "read", "organization_hooks": "write",
	}})
	return w
}

func (w *world) client(path string, creds github.Credentials) *Client {
	w.t.Helper()
	network := github.NewTransport()
	w.t.Cleanup(network.CloseIdleConnections)
	creds.ConfigURL = w.ConfigURL(path)
	c, err := NewClient(creds, github.Options{Transport: network, Now: w.Now, Timeout: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) token(path string) *Client {
	w.t.Helper()
	return w.client(path, github.Credentials{Token: "secret"})
}

func (w *world) app() *Client {
	w.t.Helper()
	_, private := appKeys()
	return w.client("acme", github.Credentials{App: &github.App{ID: "7", InstallationID: 70, PrivateKey: private}})
}

func (w *world) called(e githubsim.Endpoint) int { return w.Report().Requests[e] }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestARunnerIsRegisteredFoundAndRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		path, group string
	}{
		"organization":         {"acme", "default"},
		"organization's group": {"acme", "gpu"},
		"repository":           {"acme/app", ""},
		"enterprise":           {"enterprises/big", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			c := w.token(tc.path)
			r := Registration{Name: "r1", Group: tc.group, Labels: []string{"linux", "corral-owner-1"}}
			jit, err := c.GenerateJIT(t.Context(), r)
			if err != nil || jit.RunnerID == 0 || jit.Encoded == "" {
				t.Fatalf("registering: %+v, %v", jit, err)
			}
			want := &Runner{ID: jit.RunnerID, Name: "r1", Labels: r.Labels, GroupID: 1}
			if tc.group == "gpu" {
				want.GroupID = int64(w.group)
			}
			byName := must[*Runner](t)(c.RunnerByName(t.Context(), "r1"))
			byID := must[*Runner](t)(c.Runner(t.Context(), jit.RunnerID))
			list := must[RunnerList](t)(c.Runners(t.Context(), 0))
			if diff := cmp.Diff([]*Runner{want, want}, []*Runner{byName, byID}); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]Runner{*want}, list.Runners); diff != "" {
				t.Error(diff)
			}
			if _, err := c.GenerateJIT(t.Context(), r); !github.IsRunnerExists(err) {
				t.Errorf("registering again: %v", err)
			}
			for _, want := range []github.Kind{"", github.KindNotFound} {
				if err := c.RemoveRunner(t.Context(), jit.RunnerID); github.KindOf(err) != want {
					t.Errorf("removing: %v; want %q", err, want)
				}
			}
			byName, byID = must[*Runner](t)(c.RunnerByName(t.Context(), "r1")), must[*Runner](t)(c.Runner(t.Context(), jit.RunnerID))
			if byName != nil || byID != nil {
				t.Errorf("still there: %v, %v", byName, byID)
			}
		})
	}
}

func TestATokenRegistersARunner(t *testing.T) {
	for name, path := range map[string]string{"organization": "acme", "repository": "acme/app", "enterprise": "enterprises/big"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			c := w.token(path)
			token := must[string](t)(c.RegistrationToken(t.Context()))
			args := []string{"--url", w.ConfigURL(path), "--name", "r1", "--labels", "linux,gpu"}
			must[string](t)(simrunner.Hooks{}.Configure(t.Context(), token, args))
			found := must[*Runner](t)(c.RunnerByName(t.Context(), "r1"))
			if diff := cmp.Diff(&Runner{ID: found.ID, Name: "r1", Labels: []string{"linux", "gpu"}, GroupID: 1}, found); diff != "" {
				t.Error(diff)
			}
		})
	}
	w := newWorld(t, githubsim.Options{})
	w.AddToken("reader", "organization_self_hosted_runners:read")
	if _, err := w.client("acme", github.Credentials{Token: "reader"}).RegistrationToken(t.Context()); !github.IsForbidden(err) {
		t.Errorf("who may only read: %v", err)
	}
}

func TestWhatKeepsARunnerFromBeingRegisteredIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		path, group, token string
		want               github.Kind
	}{
		"no such group":         {"acme", "none", "secret", github.KindRunnerGroupNotFound},
		"a repository's group":  {"acme/app", "gpu", "secret", github.KindRunnerGroupNotFound},
		"a token of nobody":     {"acme", "", "other", github.KindUnauthorized},
		"a token that may not":  {"acme", "", "reader", github.KindForbidden},
		"no such organization":  {"nobody", "", "secret", github.KindNotFound},
		"no such group, reader": {"acme", "none", "reader", github.KindRunnerGroupNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			w.AddToken("reader", "organization_self_hosted_runners:read")
			c := w.client(tc.path, github.Credentials{Token: tc.token})
			_, err := c.GenerateJIT(t.Context(), Registration{Name: "r1", Group: tc.group, Labels: []string{"linux"}})
			if github.KindOf(err) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestARunnerWithAJobIsBusyAndStays(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.token("acme")
	jit := must[github.JIT](t)(c.GenerateJIT(t.Context(), Registration{Name: "r1", Labels: []string{"linux"}}))
	if _, err := w.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"linux"}, Duration: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = simrunner.Run(ctx, jit.Encoded)
	}()
	waiting, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := w.WaitUntil(waiting, func() bool { return w.Jobs()[0].State == githubsim.JobRunning }); err != nil {
		t.Fatal(err)
	}
	if r := must[*Runner](t)(c.Runner(t.Context(), jit.RunnerID)); !r.Busy || !r.Online {
		t.Errorf("runner %+v", r)
	}
	if err := c.RemoveRunner(t.Context(), jit.RunnerID); !github.IsJobStillRunning(err) {
		t.Errorf("removing: %v", err)
	}
	stop()
	<-ended
}

func TestManyListAtOnceAndGitHubIsAskedOnce(t *testing.T) {
	w := newWorld(t, githubsim.Options{Latency: 20 * time.Millisecond})
	c := w.token("acme")
	for i := range 130 { // two pages
		must[github.JIT](t)(c.GenerateJIT(t.Context(), Registration{Name: fmt.Sprintf("r%d", i), Labels: []string{"linux"}}))
	}
	var g errgroup.Group
	for range 10 {
		g.Go(func() error {
			list, err := c.Runners(t.Context(), time.Minute)
			if err == nil && len(list.Runners) != 130 {
				return fmt.Errorf("%d runners", len(list.Runners))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := w.called(githubsim.EndpointRunners); n != 2 {
		t.Errorf("%d requests for two pages", n)
	}
}

// If a listing takes longer than its maximum age, the next caller still gets it.
func TestAListThatTakesLongIsSharedWhenItIsThere(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	s := shared[int]{options: github.Options{}.WithDefaults(1).For(github.Credentials{})}
	fetched := 0
	for range 2 {
		got := must[int](t)(s.get(t.Context(), c.Now, "", time.Minute, func(context.Context) (int, error) {
			fetched++
			c.pass(5 * time.Minute)
			return fetched, nil
		}))
		if got != 1 {
			t.Errorf("got list %d", got)
		}
	}
}

// Every pool of a connection asks for releases, and a server without a copy of the repository has none for any of them.
func TestReleasesThatAServerLacksAreAskedForOnceInAWhile(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.token("acme")
	for range 3 {
		if _, err := c.Releases(t.Context()); !github.IsNotFound(err) {
			t.Fatalf("got %v", err)
		}
	}
	w.pass(sharedLife + time.Second)
	if _, err := c.Releases(t.Context()); !github.IsNotFound(err) || w.called(githubsim.EndpointReleases) != 2 {
		t.Errorf("got %v; GitHub was asked %d times, want 2", err, w.called(githubsim.EndpointReleases))
	}
}

func TestWhatDidNotChangeCostsNothing(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.token("acme")
	must[github.JIT](t)(c.GenerateJIT(t.Context(), Registration{Name: "r1", Labels: []string{"linux"}}))
	must[RunnerList](t)(c.Runners(t.Context(), 0))
	before := c.regular.budget.hours[core].remaining
	for range 3 {
		w.pass(time.Minute)
		if list := must[RunnerList](t)(c.Runners(t.Context(), 0)); len(list.Runners) != 1 || list.Runners[0].Name != "r1" {
			t.Errorf("runners %+v", list.Runners)
		}
	}
	c.regular.budget.mu.Lock()
	defer c.regular.budget.mu.Unlock()
	if asked := w.called(githubsim.EndpointRunners); asked != 4 || c.regular.budget.hours[core].remaining != before || c.regular.budget.underWay != 0 {
		t.Errorf("GitHub was asked %d times: %d calls left, %d before; %d under way", asked, c.regular.budget.hours[core].remaining, before, c.regular.budget.underWay)
	}
}

func TestANewTokenIsGotOnceForAllAndWhenTheOldIsRevoked(t *testing.T) {
	w := newWorld(t, githubsim.Options{Latency: 10 * time.Millisecond})
	c := w.app()
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error {
			_, err := c.GenerateJIT(t.Context(), Registration{Name: fmt.Sprintf("r%d", i), Labels: []string{"linux"}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := w.called(githubsim.EndpointAccessToken); n != 1 {
		t.Errorf("%d tokens for 20 calls", n)
	}
	token, _ := c.tokens.kept(w.Now())
	w.RevokeToken(token)
	must[RunnerList](t)(c.Runners(t.Context(), 0))
	w.pass(58 * time.Minute) // shortly before it expires
	must[*Runner](t)(c.RunnerByName(t.Context(), "r1"))
	if n := w.called(githubsim.EndpointAccessToken); n != 3 {
		t.Errorf("%d tokens; want one more for the revoked, and one for that which ends", n)
	}
}

func TestAnAppThatIsSuspendedIsToldSo(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	public, _ := appKeys()
	w.AddApp(githubsim.App{ID: 7, InstallationID: 70, PublicKey: public, Account: "acme", Suspended: true})
	if _, err := w.app().Runners(t.Context(), 0); !github.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

func TestTheSecondaryLimitIsObeyed(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.token("acme")
	w.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGenerateJITConfig, Times: 1, Status: 403, RetryAfter: 90 * time.Second, Body: `{"message":"You have exceeded a secondary rate limit."}`})
	register := func() error {
		_, err := c.GenerateJIT(t.Context(), Registration{Name: "r1", Labels: []string{"linux"}})
		return err
	}
	if after, limited := github.IsRateLimited(register()); !limited || after != 90*time.Second {
		t.Errorf("limited %v, after %s", limited, after)
	}
	w.pass(30 * time.Second)
	if after, limited := github.IsRateLimited(register()); !limited || after != time.Minute {
		t.Errorf("30 s later: limited %v, after %s", limited, after)
	}
	if n := w.called(githubsim.EndpointGenerateJITConfig); n != 1 {
		t.Errorf("GitHub was called %d times", n)
	}
	w.pass(time.Minute)
	if err := register(); err != nil {
		t.Error(err)
	}
}

func TestListsStopBeforeTheHourIsUsedUp(t *testing.T) {
	w := newWorld(t, githubsim.Options{RateLimit: 10})
	c := w.token("acme")
	register := func() error {
		_, err := c.GenerateJIT(t.Context(), Registration{Name: fmt.Sprintf("r%d", w.called(githubsim.EndpointGenerateJITConfig)), Labels: []string{"linux"}})
		return err
	}
	for range 8 {
		if err := register(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Runners(t.Context(), 0); github.KindOf(err) != github.KindRateLimited || w.called(githubsim.EndpointRunners) != 0 {
		t.Errorf("listing with a fifth left: %v", err)
	}
	for range 2 {
		if err := register(); err != nil {
			t.Errorf("registering with a fifth left: %v", err)
		}
	}
	after, limited := github.IsRateLimited(register())
	if !limited || after <= 50*time.Minute || after > time.Hour || w.called(githubsim.EndpointGenerateJITConfig) != 10 {
		t.Errorf("limited %v, after %s", limited, after)
	}
	w.pass(after)
	if err := register(); err != nil {
		t.Errorf("in the next hour: %v", err)
	}
	must[RunnerList](t)(c.Runners(t.Context(), 0))
}

func TestWhatDoesNotAnswerIsLeftAlone(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.token("acme")
	w.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunner, Status: 502})
	var errs []time.Duration
	for range 6 {
		_, err := c.Runner(t.Context(), 1)
		after, away := github.ComeBack(err)
		if !away {
			t.Fatalf("got %v", err)
		}
		errs = append(errs, after)
		w.pass(100 * time.Millisecond)
	}
	if n := w.called(githubsim.EndpointRunner); n != 3 {
		t.Errorf("GitHub was called %d times; want 3, then none for a second: %v", n, errs)
	}
	w.ClearFaults()
	w.pass(time.Second)
	if _, err := c.Runner(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// A listing without answers is paused. Runners are registered and removed in the meantime.
func TestAFailingListingDelaysNoRunner(t *testing.T) {
	for name, tc := range map[string]struct {
		fault        githubsim.Fault
		called       int           // how often the listing is called before Corral pauses it
		after, pause time.Duration // the RetryAfter of the first error, and the length of the pause
	}{
		"502":                          {githubsim.Fault{Status: 502}, 3, 0, time.Second},
		"503 with Retry-After":         {githubsim.Fault{Status: 503, RetryAfter: time.Minute}, 1, time.Minute, time.Minute},
		"503 with Retry-After, for 1h": {githubsim.Fault{Status: 503, RetryAfter: time.Hour}, 1, 5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			c := w.token("acme")
			list := func() error {
				_, err := c.Runners(t.Context(), 0)
				return err
			}
			tc.fault.Endpoint = githubsim.EndpointRunners
			w.AddFault(tc.fault)
			if after, away := github.ComeBack(list()); !away || after != tc.after {
				t.Errorf("away %v, after %s; want %s", away, after, tc.after)
			}
			for range 5 {
				if err := list(); !github.IsUnavailable(err) {
					t.Errorf("got %v", err)
				}
			}
			if n := w.called(githubsim.EndpointRunners); n != tc.called {
				t.Errorf("listed %d times; want %d", n, tc.called)
			}
			jit, err := c.GenerateJIT(t.Context(), Registration{Name: "r1", Labels: []string{"linux"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.RemoveRunner(t.Context(), jit.RunnerID); err != nil {
				t.Error(err)
			}
			w.ClearFaults()
			w.pass(tc.pause - time.Millisecond)
			if after, _ := github.ComeBack(list()); after != time.Millisecond {
				t.Errorf("just before the pause ends: wait %s", after)
			}
			w.pass(time.Millisecond)
			if err := list(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGroupsAreVisibleToTheirRepositories(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	for name, tc := range map[string]struct {
		path, group, repository string
		want                    bool
	}{
		"the default group":           {"acme", "", "acme/app", true},
		"a group of one repository":   {"acme", "gpu", "acme/lib", true},
		"another than the group's":    {"acme", "GPU", "acme/app", false},
		"another organization's":      {"acme", "default", "other/app", false},
		"the repository itself":       {"acme/app", "default", "Acme/App", true},
		"another than the repository": {"acme/app", "default", "acme/lib", false},
		"the enterprise's":            {"enterprises/big", "default", "acme/lib", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := must[bool](t)(w.token(tc.path).Visible(t.Context(), tc.group, tc.repository)); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if _, err := w.token("acme").Visible(t.Context(), "default", "../../x"); err == nil {
		t.Error("a path is taken for a repository")
	}
}

func TestRepositoriesByPattern(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	for name, tc := range map[string]struct {
		path     string
		patterns []string
		want     []string
	}{
		"named":                  {"acme", []string{"acme/app", "other/x"}, []string{"acme/app", "other/x"}},
		"without its owner":      {"acme", []string{"app"}, []string{"acme/app"}},
		"all":                    {"acme", []string{"*"}, []string{"acme/app", "acme/lib"}},
		"some, and twice":        {"acme", []string{"acme/L*", "lib"}, []string{"acme/lib"}},
		"the connection's only":  {"acme/app", []string{"*"}, []string{"acme/app"}},
		"of an enterprise":       {"enterprises/big", []string{"acme/*b"}, []string{"acme/lib"}},
		"another's, by its path": {"acme/app", []string{"other/*"}, nil},
		"no character classes":   {"acme", []string{"[al]*", "?*b", "l\\i*"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := must[[]string](t)(w.token(tc.path).Repositories(t.Context(), tc.patterns))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, pattern := range []string{"*/app", "a/b/c", "../x", ""} {
		if got, err := w.token("enterprises/big").Repositories(t.Context(), []string{pattern}); err == nil {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}

func TestANewRepositoryIsFoundWithinAMinute(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	c := w.token("acme")
	must[[]string](t)(c.Repositories(t.Context(), []string{"*"}))
	if err := w.AddRepository(githubsim.Repository{FullName: "acme/new"}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if found := must[[]string](t)(c.Repositories(t.Context(), []string{"*"})); len(found) != 2 {
		t.Errorf("GitHub was asked twice in a minute: %v", found)
	}
	w.pass(time.Second)
	if found := must[[]string](t)(c.Repositories(t.Context(), []string{"n*"})); len(found) != 1 {
		t.Errorf("found %v", found)
	}
}

func TestUnfinishedJobsAreListed(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	for _, job := range []githubsim.Job{
		{Repository: "acme/app", Name: "one", RunID: 5, Labels: []string{"linux"}},
		{Repository: "acme/app", Name: "two", RunID: 5, Labels: []string{"gpu"}},
		{Repository: "acme/app", Name: "protected", Labels: []string{"linux"}, Waiting: true},
		{Repository: "acme/lib", Name: "elsewhere", Labels: []string{"linux"}},
	} {
		if _, err := w.AddJob(job); err != nil {
			t.Fatal(err)
		}
	}
	c := w.token("acme")
	list := must[JobList](t)(c.Jobs(t.Context(), "acme/app", 0))
	got := map[string]string{}
	for _, j := range list.Jobs {
		got[j.Name] = j.Status + " " + strings.Join(j.Labels, ",")
		known := must[*Job](t)(c.Job(t.Context(), "acme/app", j.ID))
		if known == nil || known.Name != j.Name || known.RunID != j.RunID {
			t.Errorf("job %d: %+v", j.ID, known)
		}
	}
	want := map[string]string{"one": "queued linux", "two": "queued gpu", "protected": "waiting linux"}
	if diff := cmp.Diff(want, got); diff != "" || !list.Complete {
		t.Errorf("complete %v\n%s", list.Complete, diff)
	}
	if known := must[*Job](t)(c.Job(t.Context(), "acme/app", 1)); known != nil {
		t.Errorf("a job that isn't there: %+v", known)
	}
}

// Runs that wait for an approval may be many and old. They must not hide runs whose jobs need runners.
func TestChosenRunsNeedRunnersFirst(t *testing.T) {
	ids := func(first, n int64) (all []int64) {
		for i := range n {
			all = append(all, first+i)
		}
		return all
	}
	for name, tc := range map[string]struct {
		queued, running, waiting []int64
		want                     []int64
		all                      bool
	}{
		"none":                      {all: true},
		"some":                      {queued: []int64{3}, running: []int64{2}, waiting: []int64{1}, want: []int64{3, 2, 1}, all: true},
		"a run whose state changed": {queued: []int64{3, 1}, running: []int64{3}, waiting: []int64{1}, want: []int64{3, 1}, all: true},
		"many that wait":            {queued: []int64{1000}, running: []int64{1001}, waiting: ids(1, mostRuns), want: append([]int64{1000, 1001}, ids(1, mostRuns-2)...)},
		"as many as may be":         {queued: ids(1, mostRuns), want: ids(1, mostRuns), all: true},
		"as many, and one moved on": {queued: ids(1, mostRuns), running: []int64{7}, want: ids(1, mostRuns), all: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, all := choose(tc.queued, tc.running, tc.waiting)
			if !slices.Equal(got, tc.want) || all != tc.all {
				t.Errorf("got %v, %v", got, all)
			}
		})
	}
}

func TestDeliveriesAreListedReadAndAskedForAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		owner  string
		client func(*world) *Client
		ofApp  bool
	}{
		"an organization's, with a token": {"acme", func(w *world) *Client { return w.token("acme") }, false},
		"an organization's, with an App":  {"acme", (*world).app, false},
		"a repository's":                  {"acme/app", func(w *world) *Client { return w.token("acme/app") }, false},
		"the App's own":                   {"apps/7", (*world).app, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			got := make(chan string, 10)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("X-GitHub-Delivery") }))
			t.Cleanup(receiver.Close)
			hook := must[int64](t)(w.AddHook(githubsim.Hook{Owner: tc.owner, URL: receiver.URL}))
			if tc.ofApp {
				hook = 0
			}
			if err := w.Send(githubsim.Event{Event: "push", Repository: "acme/app", Branch: "main"}); err != nil {
				t.Fatal(err)
			}
			first := <-got
			if err := w.WaitDelivered(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := tc.client(w)
			page, next, err := c.Deliveries(t.Context(), hook, "")
			if err != nil || next != "" || len(page) != 1 || page[0].GUID != first || page[0].Event != "push" || page[0].StatusCode != 200 || page[0].DeliveredAt.IsZero() {
				t.Fatalf("page %+v, next %q, %v", page, next, err)
			}
			event, payload, err := c.Payload(t.Context(), hook, page[0].ID)
			if err != nil || event != "push" || !strings.Contains(string(payload), "refs/heads/main") {
				t.Errorf("event %q, payload %s, %v", event, payload, err)
			}
			if err := c.Redeliver(t.Context(), hook, page[0].ID); err != nil {
				t.Error(err)
			}
			if again := <-got; again != first {
				t.Errorf("redelivered as %s, not as %s", again, first)
			}
		})
	}
}

func TestDeliveriesThatCannotBeHad(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	if _, _, err := w.token("acme").Deliveries(t.Context(), 0, ""); !github.IsForbidden(err) {
		t.Errorf("an App's, with a token: %v", err)
	}
	if _, _, err := w.token("enterprises/big").Deliveries(t.Context(), 3, ""); !github.IsNotFound(err) {
		t.Errorf("an enterprise's: %v", err)
	}
}

// answering starts a server in place of GitHub.
func answering(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	c, err := NewClient(github.Credentials{ConfigURL: server.URL + "/acme", Token: "secret"}, github.Options{Transport: network, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnotherHostGetsNoRequest(t *testing.T) {
	var seen atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	t.Cleanup(elsewhere.Close)
	c := answering(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) })
	_, err := c.Runner(t.Context(), 1)
	if seen.Load() != 0 || !errors.As(err, new(github.ForeignHost)) || !github.IsUnavailable(err) || strings.Contains(err.Error(), "no answer") {
		t.Errorf("%d requests; %v", seen.Load(), err)
	}
}

// A page of a hundred runs has more than a megabyte. It is cached for conditional requests, too.
func TestAFullPageOfRunsIsNotCountedAgain(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	for range pageSize {
		if _, err := w.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"linux"}}); err != nil {
			t.Fatal(err)
		}
	}
	c, left := w.token("acme"), [2]int{}
	for i := range left {
		if list := must[JobList](t)(c.Jobs(t.Context(), "acme/app", 0)); len(list.Jobs) != pageSize {
			t.Errorf("%d jobs", len(list.Jobs))
		}
		_, left[i] = c.Budget()
		w.pass(time.Minute)
	}
	if left[0] != left[1] {
		t.Errorf("%d calls were left, then %d", left[0], left[1])
	}
}

// sent records request bodies.
type sent struct {
	next   http.RoundTripper
	mu     sync.Mutex
	bodies []string
}

func (s *sent) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.bodies = append(s.bodies, strings.TrimSpace(string(body)))
		s.mu.Unlock()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	return s.next.RoundTrip(req)
}

// GitHub's documentation requires an object as the body. go-github sends null for missing options.
func TestATokenIsAskedForWithAnObject(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	_, private := appKeys()
	creds := github.Credentials{ConfigURL: w.ConfigURL("acme"), App: &github.App{ID: "7", InstallationID: 70, PrivateKey: private}}
	s := &sent{next: network}
	options := github.Options{Transport: s, Now: w.Now, Timeout: time.Minute}
	must[Identity](t)(Verify(t.Context(), creds, options))
	must[[]Group](t)(must[*Client](t)(NewClient(creds, options)).Groups(t.Context()))
	if !slices.Equal(s.bodies, []string{"{}", "{}"}) {
		t.Errorf("sent were %q", s.bodies)
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"runners":[`)
			for range 9 {
				_, _ = fmt.Fprint(w, strings.Repeat(" ", 1<<20))
			}
			_, _ = fmt.Fprint(w, `]}`)
		},
		"too large, and says so": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999") },
		"no JSON":                func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") },
		"null":                   func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "null") },
		"nothing":                func(http.ResponseWriter, *http.Request) {},
		"an error page": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>bad gateway", http.StatusBadGateway)
		},
		"unchanged, of nothing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, answer)
			_, err := c.Runners(t.Context(), 0)
			want := github.KindUnavailable
			if strings.HasPrefix(name, "too large") { // the next answer will be too large as well
				want = github.KindUnexpected
			}
			if github.KindOf(err) != want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// go-github reads most of these answers as an empty list, or as an object with the id 0. Both would mean that nothing
// exists.
func TestPartialAnswersAreErrors(t *testing.T) {
	ask := func(do func(context.Context, *Client) (any, error)) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error {
			_, err := do(ctx, c)
			return err
		}
	}
	runner := []string{"", "{}", `{"id":1}`, `{"id":1,"name":"r1"}`, `{"id":1,"name":"r1","status":"online"}`, `{"id":1,"name":"r1","busy":true}`}
	for name, tc := range map[string]struct {
		do     func(context.Context, *Client) error
		bodies []string
	}{
		"a runner":      {ask(func(ctx context.Context, c *Client) (any, error) { return c.Runner(ctx, 1) }), runner},
		"runners":       {ask(func(ctx context.Context, c *Client) (any, error) { return c.Runners(ctx, 0) }), []string{"", "{}", `{"runners":null}`, `{"runners":[{"id":1}]}`}},
		"by a name":     {ask(func(ctx context.Context, c *Client) (any, error) { return c.RunnerByName(ctx, "r1") }), []string{"", "{}", `{"total_count":0}`}},
		"groups":        {ask(func(ctx context.Context, c *Client) (any, error) { return c.GroupID(ctx, "gpu") }), []string{"", "{}", `{"runner_groups":[{}]}`}},
		"workflow runs": {ask(func(ctx context.Context, c *Client) (any, error) { return c.Jobs(ctx, "acme/app", 0) }), []string{"", "{}", `{"workflow_runs":[{}]}`}},
		"jobs":          {ask(func(ctx context.Context, c *Client) (any, error) { return c.jobsOfRun(ctx, "acme", "app", 1, &room{}) }), []string{"", "{}", `{"jobs":[{}]}`}},
		"a job":         {ask(func(ctx context.Context, c *Client) (any, error) { return c.Job(ctx, "acme/app", 1) }), []string{"", "{}"}},
		"repositories":  {ask(func(ctx context.Context, c *Client) (any, error) { return c.Repositories(ctx, []string{"*"}) }), []string{"", "null"}},
		"deliveries": {ask(func(ctx context.Context, c *Client) (any, error) {
			page, _, err := c.Deliveries(ctx, 1, "")
			return page, err
		}), []string{"", "null"}},
	} {
		for _, body := range tc.bodies {
			c := answering(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) })
			if err := tc.do(t.Context(), c); github.KindOf(err) != github.KindUnavailable {
				t.Errorf("%s, %q: got %v; want Unavailable", name, body, err)
			}
		}
	}
}

// If GitHub does not know a run that it has just listed, the listing fails. Otherwise the run's waiting jobs would be
// forgotten.
func TestTheJobsOfARunThatIsNotFoundAreNotKnown(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/jobs") {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, `{"workflow_runs":[{"id":1}]}`)
	})
	if _, err := c.Jobs(t.Context(), "acme/app", 0); github.KindOf(err) != github.KindUnexpected {
		t.Errorf("got %v; want Unexpected", err)
	}
}

func TestADeliveryThatIsTooLargeIsNotRead(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"event":"push","request":{"payload":{"x":%q}}}`, strings.Repeat("x", payloadBounds.Bytes))
	})
	if _, _, err := c.Payload(t.Context(), 1, 2); github.KindOf(err) != github.KindUnexpected {
		t.Errorf("got %v", err)
	}
}

// Older releases of GitHub Enterprise Server ignore the name in a lookup and return all runners.
func TestARunnerIsFoundByNameAmongAll(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		page := r.URL.Query().Get("page")
		if page == "1" {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?page=2>; rel="next"`, r.Host, r.URL.Path))
		}
		_, _ = fmt.Fprintf(w, `{"runners":[{"id":%s,"name":"r%s","status":"online","busy":false}]}`, page, page)
	})
	if r := must[*Runner](t)(c.RunnerByName(t.Context(), "r2")); r == nil || r.ID != 2 {
		t.Errorf("found %+v", r)
	}
	if r := must[*Runner](t)(c.RunnerByName(t.Context(), "r3")); r != nil {
		t.Errorf("found %+v", r)
	}
}

func TestWhatIsSharedIsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := shared[int]{options: github.Options{}.WithDefaults(1).For(github.Credentials{})}
	for i := range 3 * mostShared {
		s.put(fmt.Sprint(i), i, now)
	}
	if n := len(s.kept); n > mostShared {
		t.Errorf("%d lists are kept", n)
	}
	s.put("later", 0, now.Add(sharedLife+time.Second))
	if n := len(s.kept); n != 1 {
		t.Errorf("%d lists are kept after their time", n)
	}
}
