// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

func TestTokensComeBackOneByOne(t *testing.T) {
	start := time.Now()
	b := &bucket{most: 3, each: time.Second}
	var got []time.Duration
	now := start
	for range 6 { // as fast as possible
		now = now.Add(max(0, b.wait(now)))
		b.spend(now, b.each)
		got = append(got, now.Sub(start))
	}
	now = now.Add(time.Hour) // more than enough, and still not more than three at once
	for range 4 {
		now = now.Add(max(0, b.wait(now)))
		b.spend(now, b.each)
		got = append(got, now.Sub(start).Truncate(time.Hour))
	}
	got = append(got, b.wait(now))
	want := []time.Duration{0, 0, 0, time.Second, 2 * time.Second, 3 * time.Second, time.Hour, time.Hour, time.Hour, time.Hour, time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAPollCostsWhatItsPoolHasToDo(t *testing.T) {
	for jobs, want := range map[int]time.Duration{0: 125 * time.Millisecond, 1: 125 * time.Millisecond, 4: 500 * time.Millisecond, 8: time.Second, 500: time.Second} {
		if got := cost(time.Second, jobs); got != want {
			t.Errorf("%d jobs: %s, want %s", jobs, got, want)
		}
	}
}

// fleet starts a runner for each assigned job, in simulated time.
type fleet struct {
	*testing.T
	sim      *githubsim.Server
	network  http.RoundTripper
	client   *Client
	set      *Set
	listener *Listener
	changed  chan struct{}
	begin    func() time.Duration // from a runner's creation to its connection
	runners  sync.WaitGroup
	seen     time.Time // when jobs were first seen
}

// slowRecorder is as slow as a busy API server.
type slowRecorder struct{}

func (slowRecorder) RecordJobs(context.Context, []JobEvent) error {
	time.Sleep(150 * time.Millisecond)
	return nil
}

func newFleet(t *testing.T, pace Pace) *fleet {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	f := &fleet{T: t, sim: githubsim.New(githubsim.Options{}), changed: make(chan struct{}, 1)}
	f.begin = func() time.Duration { return 500*time.Millisecond + time.Duration(random.Int64N(int64(4*time.Second))) }
	f.sim.AddOrg("acme")
	f.sim.AddToken("secret")
	f.network = inMemory(f.sim)
	var err error
	if f.client, err = NewClient(github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}, github.Options{Transport: f.network}); err != nil {
		t.Fatal(err)
	}
	if f.set, err = f.client.Create(t.Context(), Set{Name: "linux", GroupID: 1, Labels: []string{"linux"}}); err != nil {
		t.Fatal(err)
	}
	f.listener = NewListener(Config{
		Client: f.client, SetID: f.set.ID, Owner: owner, Recorder: slowRecorder{}, Pace: pace,
		Changed: func() { notify(f.changed) },
	})
	f.listener.Announce(1000)
	return f
}

// serve runs until all jobs are done, and returns the number of message requests.
func (f *fleet) serve(jobs int) int {
	ctx, cancel := context.WithCancel(f.Context())
	var listening sync.WaitGroup
	listening.Go(func() { f.listener.Run(ctx) })
	time.Sleep(time.Minute) // a poll is held
	for range jobs {
		if _, err := f.sim.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"linux"}, Duration: 2 * time.Second}); err != nil {
			f.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	before := f.messageRequests()
	made, finished := 0, func() bool {
		s := f.listener.Snapshot()
		return s.Assigned == 0 && len(s.Completed) == jobs
	}
	for ; !finished(); <-f.changed {
		s := f.listener.Snapshot()
		if s.Assigned > 0 && f.seen.IsZero() {
			f.seen = time.Now()
		}
		for ; made < min(jobs, s.Assigned+len(s.Completed)); made++ {
			name, wait := fmt.Sprintf("linux-%d", made), f.begin()
			f.runners.Go(func() { f.run(name, wait) })
		}
	}
	f.runners.Wait()
	time.Sleep(10 * time.Second) // acknowledgements
	cost := f.messageRequests() - before
	if left := f.sim.Report().ScaleSets[0].Messages; left > 0 {
		f.Errorf("%d messages were not acknowledged", left)
	}
	cancel()
	listening.Wait()
	time.Sleep(2 * clientRest)
	f.sim.Close()
	return cost
}

func (f *fleet) messageRequests() int {
	requests := f.sim.Report().Requests
	return requests[githubsim.EndpointGetMessage] + requests[githubsim.EndpointDeleteMessage]
}

// run simulates the life of a runner.
func (f *fleet) run(name string, wait time.Duration) {
	jit, err := f.client.GenerateJIT(f.Context(), f.set.ID, name)
	if err != nil {
		f.Error(err)
		return
	}
	time.Sleep(wait)
	config, err := runnerwire.Decode(jit.Encoded)
	if err != nil {
		f.Error(err)
		return
	}
	r := &runnerCalls{fleet: f, credential: config.ClientID()}
	var session runnerwire.Session
	r.call(http.MethodPost, runnerwire.PathSession, nil, &session)
	r.session = session.SessionID
	var job runnerwire.JobMessage
	r.call(http.MethodGet, runnerwire.PathMessage, nil, &job)
	var work runnerwire.Work
	r.call(http.MethodPost, runnerwire.PathAcknowledge, nil, &work)
	time.Sleep(time.Duration(work.DurationMillis) * time.Millisecond)
	r.call(http.MethodPost, runnerwire.PathComplete, runnerwire.Completion{Result: "succeeded"}, nil)
}

type runnerCalls struct {
	*fleet
	credential, session string
}

func (r *runnerCalls) call(method, path string, body, into any) {
	payload, err := json.Marshal(body)
	if err != nil {
		r.Error(err)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), method, "http://github.test"+path, bytes.NewReader(payload))
	if err != nil {
		r.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+r.credential)
	req.Header.Set(runnerwire.HeaderSession, r.session)
	resp, err := r.network.RoundTrip(req)
	if err != nil {
		r.Error(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices || into != nil && json.NewDecoder(resp.Body).Decode(into) != nil {
		r.Errorf("%s %s: %v", method, path, resp)
	}
}

// The lower bound is six requests for a single job: each of its three events arrives in a separate message, which is
// polled and deleted.
func TestBurstsShareMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		jobs int
		most float64 // message requests per job
	}{
		"one job":  {jobs: 1, most: 7},
		"25 jobs":  {jobs: 25, most: 1.2},
		"500 jobs": {jobs: 500, most: 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cost := newFleet(t, Pace{}).serve(tc.jobs)
				t.Logf("%d message requests for %d jobs: %.2f per job", cost, tc.jobs, float64(cost)/float64(tc.jobs))
				if float64(cost) > tc.most*float64(tc.jobs) {
					t.Errorf("%d message requests for %d jobs", cost, tc.jobs)
				}
			})
		})
	}
}

// atLeisure polls once after a message, and then not for an hour.
func atLeisure(c *Config) { c.Pace.Burst, c.Pace.Refill = 1, time.Hour }

func TestABusySessionStillAnnouncesAndAcknowledgesAtOnce(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.memory.hold = make(chan struct{})
	s.listen(3, atLeisure)
	s.awaitState(Listening)
	s.addJobs(1)
	s.awaitAssigned(1)
	s.runRunner("linux-1") // takes the token
	s.await("a start", func(snapshot Snapshot) bool { return len(snapshot.Started) > 0 })
	close(s.memory.hold)
	s.awaitSim("acknowledging what is durable", func() bool { return s.sim.Report().ScaleSets[0].Messages == 0 })
	s.addJobs(3)
	s.listener.Announce(4)
	s.awaitSim("the capacity", func() bool { return s.sim.Report().ScaleSets[0].Capacity == 4 })
	s.awaitAssigned(3)
	s.stop()
	if n := s.sim.Report().SessionsOpen; n != 0 {
		t.Error("the session is still open")
	}
}

func TestABacklogIsReadWithoutPause(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.addJobs(5 * fullMessage)
	s.listen(5*fullMessage, atLeisure)
	s.awaitSim("reading all", func() bool { return s.requests(githubsim.EndpointDeleteMessage) == 5 })
}

// A server answers every poll at once with a full message. The cost of a session does not depend on the speed of the
// server.
func TestFullMessagesWithoutEndArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := memoryClient(t, githubsim.Options{})
		set := createSet(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		polls := 0
		sim := c.tokens.next
		c.tokens.next = promhttp.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.Header.Get("X-ScaleSetMaxCapacity") != "":
				if polls++; polls == 4*backlogMessages {
					cancel()
				}
				body := fmt.Sprintf(`{"messageId":%d,"messageType":"RunnerScaleSetJobMessages","body":"[%s{}]"}`, polls, strings.Repeat("{},", fullMessage))
				return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
			case req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "message"):
				return &http.Response{StatusCode: http.StatusNoContent, Request: req, Header: http.Header{}, Body: http.NoBody}, nil
			}
			return sim.RoundTrip(req)
		})
		l := NewListener(Config{Client: c, SetID: set.ID, Owner: owner, Recorder: slowRecorder{}})
		l.Announce(10)
		began := time.Now()
		l.Run(ctx)
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("%d polls took %s", polls, took)
		}
	})
}

func TestStatisticsAreAskedForWithoutAPoll(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.listen(3, atLeisure)
	s.addJobs(1)
	s.awaitAssigned(1)
	s.runRunner("linux-1")
	s.awaitSim("a session that waits", func() bool {
		return s.requests(githubsim.EndpointGetMessage) >= 2 && s.sim.Report().ScaleSets[0].Messages == 0
	})
	s.listener.Refresh()
	s.awaitAssigned(0)
}
