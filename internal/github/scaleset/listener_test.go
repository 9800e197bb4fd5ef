// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

const owner = "cluster/pool"

// quickly shortens a Listener's waits.
var quickly = Pace{
	Backoff: newBackoff(time.Millisecond, 20*time.Millisecond), Refused: 20 * time.Millisecond,
	Elsewhere: 20 * time.Millisecond, Statistics: 10 * time.Millisecond, Gather: time.Millisecond,
	Linger: time.Millisecond, Burst: 1000,
}

// memory is a Recorder that keeps events in memory, and fails or waits on demand.
type memory struct {
	mu     sync.Mutex
	events []JobEvent
	fail   int           // the number of calls that still fail
	hold   chan struct{} // calls wait until it is closed; nil for none
	called chan struct{}
}

func (m *memory) RecordJobs(ctx context.Context, events []JobEvent) error {
	notify(m.called)
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail > 0 {
		m.fail--
		return errors.New("the API server is away")
	}
	m.events = append(m.events, events...)
	return nil
}

// recorded returns the types of a runner's events, in order.
func (m *memory) recorded(runner string) []EventType {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kinds []EventType
	for _, event := range m.events {
		if event.RunnerName == runner {
			kinds = append(kinds, event.Type)
		}
	}
	return kinds
}

// stage is a simulated GitHub with one scale set and a Listener on it.
type stage struct {
	*testing.T
	sim      *githubsim.Running
	client   *Client
	set      *Set
	memory   *memory
	listener *Listener
	changed  chan struct{}
	stop     func() // ends Run and waits for it
}

func newStage(t *testing.T, options githubsim.Options) *stage {
	t.Helper()
	s := &stage{T: t, sim: startSim(t, options), memory: &memory{called: make(chan struct{}, 1)}, changed: make(chan struct{}, 1)}
	s.client = tokenClient(t, s.sim)
	s.set = createSet(t, s.client)
	return s
}

// listen starts the Listener; change may adjust its Config first.
func (s *stage) listen(capacity int, change ...func(*Config)) {
	s.Helper()
	config := Config{
		Client: s.client, SetID: s.set.ID, Owner: owner, Recorder: s.memory, Pace: quickly,
		Changed: func() { notify(s.changed) },
	}
	for _, c := range change {
		c(&config)
	}
	s.listener = NewListener(config)
	s.listener.Announce(capacity)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.listener.Run(ctx)
	}()
	s.stop = func() {
		cancel()
		<-ended
	}
	s.Cleanup(s.stop)
}

// await waits until the Snapshot satisfies a condition. Changed wakes it.
func (s *stage) await(what string, cond func(Snapshot) bool) Snapshot {
	s.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		if snapshot := s.listener.Snapshot(); cond(snapshot) {
			return snapshot
		}
		select {
		case <-s.changed:
		case <-timeout.C:
			s.Fatalf("%s didn't happen: %+v; %+v", what, s.listener.Snapshot(), s.sim.Report())
		}
	}
}

func (s *stage) awaitState(state State) Snapshot {
	s.Helper()
	return s.await(string(state), func(snapshot Snapshot) bool { return snapshot.State == state })
}

func (s *stage) awaitAssigned(n int) Snapshot {
	s.Helper()
	return s.await(fmt.Sprintf("%d jobs assigned", n), func(snapshot Snapshot) bool { return snapshot.Known && snapshot.Assigned == n })
}

// awaitSim waits until a condition holds in the simulated GitHub.
func (s *stage) awaitSim(what string, cond func() bool) {
	s.Helper()
	if err := s.sim.WaitUntil(testContext(s.T), cond); err != nil {
		s.Fatalf("%s didn't happen: %+v; %+v", what, s.listener.Snapshot(), s.sim.Report())
	}
}

func (s *stage) awaitAcknowledged() {
	s.Helper()
	s.awaitSim("acknowledging everything", func() bool { return s.sim.Report().ScaleSets[0].Messages == 0 })
}

func (s *stage) addJobs(n int) {
	s.Helper()
	for range n {
		if _, err := s.sim.AddJob(githubsim.Job{Repository: "acme/app", Name: "build", Labels: []string{"linux"}}); err != nil {
			s.Fatal(err)
		}
	}
}

// runRunner registers a runner, which lives until its job is done.
func (s *stage) runRunner(name string) {
	s.Helper()
	ctx := testContext(s.T)
	jit, err := s.client.GenerateJIT(ctx, s.set.ID, name)
	if err != nil {
		s.Fatal(err)
	}
	if code, err := simrunner.Run(ctx, jit.Encoded); code != simrunner.ExitOK || err != nil {
		s.Fatalf("runner: %d, %v", code, err)
	}
}

func (s *stage) requests(endpoint githubsim.Endpoint) int { return s.sim.Report().Requests[endpoint] }

func TestJobIsSeenFromAssignmentToCompletion(t *testing.T) {
	for _, mode := range []githubsim.Mode{githubsim.AutoAssign, githubsim.Acquire} {
		t.Run(string(mode), func(t *testing.T) {
			s := newStage(t, githubsim.Options{Mode: mode})
			s.listen(5)
			s.addJobs(1)
			s.awaitAssigned(1)
			s.runRunner("linux-1")
			snapshot := s.await("completion", func(snapshot Snapshot) bool { return snapshot.Completed["linux-1"].JobID != "" })
			if snapshot.Assigned != 0 {
				t.Errorf("the job is completed, and still counted: %+v", snapshot.Statistics)
			}
			job := s.sim.Jobs()[0]
			want := JobEvent{
				Type: JobCompleted, JobID: job.ID, Repository: "acme/app", Workflow: "acme/app/.github/workflows/ci.yml@refs/heads/main",
				Name: "build", RunID: job.RunID, RunnerID: int64(job.RunnerID), RunnerName: "linux-1", Result: "succeeded",
				QueuedAt: job.Queued.UTC(), AssignedAt: job.Assigned.UTC(), StartedAt: job.Started.UTC(), At: job.Finished.UTC(),
			}
			if diff := cmp.Diff(want, snapshot.Completed["linux-1"], cmpopts.EquateApproxTime(time.Second)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			s.awaitAcknowledged()
			if diff := cmp.Diff([]EventType{JobStarted, JobCompleted}, s.memory.recorded("linux-1")); diff != "" {
				t.Errorf("recorded: -want +got:\n%s", diff)
			}
			s.listener.Retain(func(string) bool { return false })
			if snapshot := s.listener.Snapshot(); len(snapshot.Started)+len(snapshot.Completed) != 0 {
				t.Errorf("not forgotten: %+v", snapshot)
			}
		})
	}
}

func TestCapacityTakesEffectDuringAHeldPoll(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.listen(0)
	s.awaitState(Listening)
	s.addJobs(3)
	s.listener.Announce(2)
	s.awaitAssigned(2)
	s.listener.Announce(3)
	s.awaitAssigned(3)
}

// Polls travel on different connections; the older must not arrive last.
func TestTheLastOfManyCapacitiesHolds(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.listen(1)
	s.awaitState(Listening)
	for capacity := range 50 {
		s.listener.Announce(capacity)
	}
	s.awaitSim("the last capacity", func() bool { return s.sim.Report().ScaleSets[0].Capacity == 49 })
	if polls := s.requests(githubsim.EndpointGetMessage); polls > 4 {
		t.Errorf("%d polls for capacities that came at once", polls)
	}
}

func TestMessageIsAcknowledgedOnlyWhenItsEventsAreDurable(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.memory.hold, s.memory.fail = make(chan struct{}), 2
	s.listen(5)
	s.addJobs(1)
	s.awaitAssigned(1)
	s.runRunner("linux-1")
	<-s.memory.called
	s.await("completion, read ahead", func(snapshot Snapshot) bool { return snapshot.Completed["linux-1"].JobID != "" })
	s.addJobs(1)
	s.awaitAssigned(1)
	if n := s.sim.Report().ScaleSets[0].Messages; n == 0 {
		t.Error("acknowledged before the events were durable")
	}
	close(s.memory.hold)
	s.awaitAcknowledged()
	if diff := cmp.Diff([]EventType{JobStarted, JobCompleted}, s.memory.recorded("linux-1")); diff != "" {
		t.Errorf("recorded: -want +got:\n%s", diff)
	}
}

func TestUnrecordedEventsComeAgainToTheNextListener(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.memory.hold = make(chan struct{})
	s.listen(5)
	s.addJobs(1)
	s.awaitAssigned(1)
	s.runRunner("linux-1")
	<-s.memory.called
	s.stop() // like a controller that ends before it could write
	s.memory = &memory{called: make(chan struct{}, 1)}
	s.listen(5)
	s.await("completion", func(snapshot Snapshot) bool { return snapshot.Completed["linux-1"].JobID != "" })
	s.awaitAcknowledged()
	if kinds := s.memory.recorded("linux-1"); !slices.Contains(kinds, JobStarted) || !slices.Contains(kinds, JobCompleted) {
		t.Errorf("recorded %v", kinds)
	}
}

// TestSessionSurvives covers temporary faults that must not end the session.
func TestSessionSurvives(t *testing.T) {
	for name, fault := range map[string]githubsim.Fault{
		"polls that fail":             {Endpoint: githubsim.EndpointGetMessage, Skip: 1, Times: 3, Status: 503},
		"polls that are cut":          {Endpoint: githubsim.EndpointGetMessage, Skip: 1, Times: 1, DropAnswer: true},
		"rate limit on polls":         {Endpoint: githubsim.EndpointGetMessage, Skip: 1, Times: 1, Status: 429},
		"acknowledgements that fail":  {Endpoint: githubsim.EndpointDeleteMessage, Times: 2, Status: 500},
		"lost acknowledgement":        {Endpoint: githubsim.EndpointDeleteMessage, Times: 1, DropAnswer: true, Status: 502},
		"message delivered twice":     {Endpoint: githubsim.EndpointDeleteMessage, Times: 2, Alter: githubsim.AlterDuplicate},
		"events twice in a message":   {Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterDuplicate},
		"unknown type of message":     {Endpoint: githubsim.EndpointGetMessage, Times: 1, Alter: githubsim.AlterUnknownOuterType},
		"unknown type of event":       {Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterUnknownInnerType},
		"empty bodies":                {Endpoint: githubsim.EndpointGetMessage, Times: 3, Status: 200},
		"byte order mark":             {Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterByteOrderMark},
		"messages without statistics": {Endpoint: githubsim.EndpointGetMessage, Times: 1, Alter: githubsim.AlterNoStatistics},
		"statistics that are zero":    {Endpoint: githubsim.EndpointGetMessage, Times: 1, Alter: githubsim.AlterZeroStatistics},
		"session without statistics":  {Endpoint: githubsim.EndpointCreateSession, Times: 1, Alter: githubsim.AlterNoStatistics},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, githubsim.Options{})
			s.sim.AddFault(fault)
			s.listen(5)
			s.addJobs(1)
			s.awaitAssigned(1)
			s.addJobs(1)
			s.awaitAssigned(2)
			s.runRunner("linux-1")
			s.awaitAssigned(1)
			s.runRunner("linux-2")
			s.awaitAssigned(0)
			s.awaitAcknowledged()
			s.awaitState(Listening)
			if n := s.requests(githubsim.EndpointCreateSession); n != 1 {
				t.Errorf("%d sessions were opened; want 1", n)
			}
			if broken := s.sim.Invariants(); len(broken) > 0 {
				t.Errorf("broken: %v", broken)
			}
		})
	}
}

func TestASessionWithoutStatisticsAsksForThem(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Times: 1, Alter: githubsim.AlterNoStatistics})
	s.listen(5)
	s.await("statistics", func(snapshot Snapshot) bool { return snapshot.Known })
}

// A caller without statistics asks for them again and again, which must not become a busy loop.
func TestStatisticsThatStayAwayAreNotAskedForInALoop(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointCreateSession, githubsim.EndpointGetMessage, githubsim.EndpointGetScaleSet} {
		s.sim.AddFault(githubsim.Fault{Endpoint: endpoint, Alter: githubsim.AlterNoStatistics})
	}
	s.listen(5, func(c *Config) {
		c.Pace.Statistics = time.Hour
		c.Changed = func() {
			s.listener.Refresh() // like a pool without a count
			notify(s.changed)
		}
	})
	s.addJobs(3)
	for _, name := range []string{"linux-1", "linux-2", "linux-3"} {
		s.runRunner(name)
		s.await("completion", func(snapshot Snapshot) bool { return snapshot.Completed[name].JobID != "" })
	}
	if asked, polled := s.requests(githubsim.EndpointGetScaleSet), s.requests(githubsim.EndpointGetMessage); asked > 30 || polled > 60 {
		t.Errorf("statistics were asked for %d times, messages %d times", asked, polled)
	}
}

func TestAHeldPollEndsTheTrouble(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 2, Status: 503})
	s.listen(5, func(c *Config) { c.Pace.Taken = 50 * time.Millisecond })
	s.awaitSim("a third poll", func() bool { return s.requests(githubsim.EndpointGetMessage) == 3 })
	s.awaitState(Listening)
}

func TestQueueTokenIsRenewed(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.listen(5)
	s.addJobs(1)
	s.awaitAssigned(1)
	s.awaitAcknowledged()
	s.sim.ExpireQueueTokens()
	s.listener.Announce(6) // ends the held poll, which had a valid token
	s.addJobs(1)
	s.awaitAssigned(2)
	if opened, renewed := s.requests(githubsim.EndpointCreateSession), s.requests(githubsim.EndpointRefreshSession); opened != 1 || renewed != 1 {
		t.Errorf("%d sessions opened and %d renewals; want 1 and 1", opened, renewed)
	}
}

// GitHub renews the queue's token in the same call that resumes a session. A temporary error has no effect, any other
// error costs the session; neither means that the scale set does not exist.
func TestRefusalsOfARenewal(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  githubsim.Fault
		opened int
	}{
		"not valid":    {githubsim.Fault{Status: 400, Body: `{"typeName":"RunnerScaleSetSessionExpiredException","message":"The session identifier is not valid."}`}, 2},
		"unauthorized": {githubsim.Fault{Status: 401}, 2},
		"forbidden":    {githubsim.Fault{Status: 403}, 2},
		"not found":    {githubsim.Fault{Status: 404}, 2},
		"conflict":     {githubsim.Fault{Status: 409}, 2},
		"rate limit":   {githubsim.Fault{Status: 429, RetryAfter: time.Second}, 1},
		"unavailable":  {githubsim.Fault{Status: 503}, 1},
		"answer lost":  {githubsim.Fault{DropAnswer: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, githubsim.Options{})
			var gone atomic.Bool
			s.listen(5, func(c *Config) {
				c.Changed = func() {
					gone.CompareAndSwap(false, github.IsNotFound(s.listener.Snapshot().Err))
					notify(s.changed)
				}
			})
			s.addJobs(1)
			s.awaitAssigned(1)
			s.awaitAcknowledged()
			tc.fault.Endpoint, tc.fault.Times = githubsim.EndpointRefreshSession, 1
			s.sim.AddFault(tc.fault)
			s.sim.ExpireQueueTokens()
			s.listener.Announce(6) // ends the held poll, which had a valid token
			s.addJobs(1)
			s.awaitAssigned(2)
			s.awaitState(Listening)
			s.awaitAcknowledged()
			if err := s.sim.WaitUntil(t.Context(), func() bool { return s.requests(githubsim.EndpointCreateSession) >= tc.opened }); err != nil {
				t.Fatal(err) // a session that ended by itself counts as open until the next attempt
			}
			if n := s.requests(githubsim.EndpointCreateSession); n != tc.opened || gone.Load() || len(s.sim.FaultsHit()) != 1 {
				t.Errorf("%d sessions were opened, want %d; gone: %v; hit: %v", n, tc.opened, gone.Load(), s.sim.FaultsHit())
			}
		})
	}
}

// GitHub sends no message about a waiting job while no more jobs are accepted, so the Listener fetches the count.
func TestJobsThatWaitForAFullPoolAreSeen(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: 10 * time.Millisecond})
	s.listen(1, func(c *Config) { c.Pace.Full = time.Millisecond })
	s.addJobs(1)
	s.awaitAssigned(1)
	s.addJobs(2)
	s.await("two jobs that wait", func(snapshot Snapshot) bool { return snapshot.Statistics.AvailableJobs == 2 })
}

func TestLostSessionIsOpenedAnew(t *testing.T) {
	for name, lose := range map[string]func(*stage){
		"expired": func(s *stage) { s.sim.ExpireSession(int(s.set.ID)) },
		"admin token revoked while the session expired": func(s *stage) {
			s.sim.ExpireAdminTokens()
			s.sim.ExpireSession(int(s.set.ID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, githubsim.Options{})
			var failed atomic.Bool
			s.listen(5, func(c *Config) {
				c.Changed = func() {
					failed.CompareAndSwap(false, s.listener.Snapshot().State == Failing)
					notify(s.changed)
				}
			})
			s.awaitState(Listening)
			s.addJobs(1)
			s.awaitAssigned(1)
			lose(s)
			s.addJobs(1)
			s.awaitAssigned(2)
			s.awaitState(Listening)
			if name == "expired" && failed.Load() {
				t.Error("a session that GitHub ended is no outage")
			}
		})
	}
}

// A session that works only for moments counts as failing, so that a reader never sees it as healthy by chance.
func TestSessionsThatEndAtOnceAreAnOutage(t *testing.T) {
	for name, endpoint := range map[string]githubsim.Endpoint{"a poll": githubsim.EndpointGetMessage, "an acknowledgement": githubsim.EndpointDeleteMessage} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, githubsim.Options{Hold: 10 * time.Millisecond})
			s.sim.AddFault(githubsim.Fault{Endpoint: endpoint, Status: 400})
			var mu sync.Mutex
			var states []State
			s.listen(5, func(c *Config) {
				c.Pace.Taken = time.Second
				c.Changed = func() {
					mu.Lock()
					defer mu.Unlock()
					if state := s.listener.Snapshot().State; len(states) == 0 || states[len(states)-1] != state {
						states = append(states, state)
					}
					notify(s.changed)
				}
			})
			s.addJobs(1)
			s.awaitSim("ten sessions", func() bool { return s.requests(githubsim.EndpointCreateSession) >= 10 })
			mu.Lock()
			if want := []State{Listening, Failing}; !slices.Equal(states, want) {
				t.Errorf("states %v, want %v", states, want)
			}
			mu.Unlock()
			s.sim.ClearFaults()
			s.awaitState(Listening)
		})
	}
}

func TestSessionHeldByAnotherIsJudged(t *testing.T) {
	gone := func(owner string) bool { return owner == "cluster/gone" }
	for holder, want := range map[string]State{
		owner:              Refused,
		"cluster/gone":     Refused,
		"cluster/other":    OwnedElsewhere,
		"elsewhere/gone":   OwnedElsewhere,
		"a listener's pod": OwnedElsewhere,
	} {
		t.Run(strings.ReplaceAll(holder, "/", " "), func(t *testing.T) {
			s := newStage(t, githubsim.Options{SessionOwners: true})
			s.sim.StealSession(int(s.set.ID), holder)
			s.listen(5, func(c *Config) { c.OwnerGone = gone })
			snapshot := s.awaitState(want)
			if snapshot.Owner != holder || !strings.Contains(snapshot.Message, holder) {
				t.Errorf("owner %q, message %q", snapshot.Owner, snapshot.Message)
			}
			s.await("statistics without a session", func(snapshot Snapshot) bool { return snapshot.Known })
			s.sim.ExpireSession(int(s.set.ID))
			s.awaitState(Listening)
		})
	}
}

// crashed leaves a session open that announced 3, like a process that is killed, and returns what the next process
// knows about it.
func (s *stage) crashed() Earlier {
	s.Helper()
	var isOver atomic.Bool
	s.listen(3, func(c *Config) { c.Held = func() bool { return !isOver.Load() } })
	session := s.awaitState(Listening).Session
	s.addJobs(1) // only assigned once the capacity has arrived
	s.awaitAssigned(1)
	s.runRunner("linux-0")
	s.awaitAssigned(0)
	isOver.Store(true)
	s.stop()
	return Earlier{ID: session, Until: time.Now().Add(time.Hour)}
}

func TestSessionOfACrashedProcessIsResumed(t *testing.T) {
	for _, named := range []bool{false, true} {
		s := newStage(t, githubsim.Options{SessionOwners: named})
		earlier := s.crashed()
		s.listen(3, func(c *Config) { c.Earlier = earlier })
		if got := s.awaitState(Listening); got.Session != earlier.ID {
			t.Errorf("session %s, want %s", got.Session, earlier.ID)
		}
		s.addJobs(1)
		s.awaitAssigned(1)
		s.stop() // closes it
		s.listen(3)
		s.awaitState(Listening)
	}
}

// While its earlier session is not resumed, a pool uses statistics: until the session expires if GitHub refused, and
// until GitHub answers otherwise.
func TestRefusalsOfAResume(t *testing.T) {
	expired := `{"typeName":"RunnerScaleSetSessionExpiredException","message":"The session identifier is not valid."}`
	absent := `{"typeName":"RunnerScaleSetNotFoundException","message":"No runner scale set found with identifier 1."}`
	for name, tc := range map[string]struct {
		fault githubsim.Fault
		named bool // whether GitHub names the owner of the blocking session
		state State
		owner string // the expected Owner
		asked int    // PATCH requests; 0: repeated until the session is resumed
	}{
		"not valid":                   {fault: githubsim.Fault{Status: 400, Body: expired}, state: Refused, owner: owner, asked: 1},
		"unauthorized":                {fault: githubsim.Fault{Status: 401}, state: Refused, owner: owner, asked: 2}, // also with new tokens
		"forbidden":                   {fault: githubsim.Fault{Status: 403}, state: Refused, owner: owner, asked: 1},
		"not found":                   {fault: githubsim.Fault{Status: 404}, state: Refused, owner: owner, asked: 1},
		"scale set not found":         {fault: githubsim.Fault{Status: 404, Body: absent}, state: Refused, owner: owner, asked: 1},
		"conflict":                    {fault: githubsim.Fault{Status: 409}, state: Refused, owner: owner, asked: 1},
		"conflict, owners are named":  {fault: githubsim.Fault{Status: 409}, named: true, state: Refused, owner: owner, asked: 1},
		"another's":                   {fault: githubsim.Fault{Alter: githubsim.AlterSessionOwner}, state: OwnedElsewhere, asked: 1},
		"another's, owners are named": {fault: githubsim.Fault{Alter: githubsim.AlterSessionOwner}, named: true, state: Refused, owner: owner, asked: 1},
		"rate limit":                  {fault: githubsim.Fault{Status: 429, RetryAfter: time.Second}, state: Refused, owner: owner},
		"secondary limit":             {fault: githubsim.SecondaryLimit("", time.Second), state: Refused, owner: owner},
		"unavailable":                 {fault: githubsim.Fault{Status: 503}, state: Refused, owner: owner},
		"answer lost":                 {fault: githubsim.Fault{DropAnswer: true}, state: Refused, owner: owner},
		"without a queue":             {fault: githubsim.Fault{Alter: githubsim.AlterEmptyQueueURL}, state: Refused, owner: owner},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, githubsim.Options{SessionOwners: tc.named})
			earlier := s.crashed()
			tc.fault.Endpoint = githubsim.EndpointRefreshSession
			s.sim.AddFault(tc.fault)
			s.listen(3, func(c *Config) { c.Earlier = earlier })
			if got := s.awaitState(tc.state); got.Owner != tc.owner {
				t.Errorf("owner %q; want %q", got.Owner, tc.owner)
			}
			s.addJobs(2)
			if got := s.awaitAssigned(2); got.State != tc.state {
				t.Errorf("%s with statistics; want %s", got.State, tc.state)
			}
			s.awaitSim("a third attempt", func() bool { return s.requests(githubsim.EndpointCreateSession) >= 1+3 })
			if tc.asked > 0 {
				s.sim.ExpireSession(int(s.set.ID))
			} else {
				s.sim.ClearFaults()
			}
			got := s.awaitState(Listening)
			if resumed := got.Session == earlier.ID; resumed == (tc.asked > 0) {
				t.Errorf("resumed: %v", resumed)
			}
			if n := s.requests(githubsim.EndpointRefreshSession); tc.asked > 0 && n != tc.asked || tc.asked == 0 && n < 2 {
				t.Errorf("%d attempts to resume", n)
			}
			s.addJobs(1)
			s.awaitAssigned(3)
		})
	}
}

// If GitHub refuses to open a session for a reason other than a conflict, the Listener tries again, and demand comes
// from statistics.
func TestRefusalsOfAnOpening(t *testing.T) {
	for name, tc := range map[string]struct {
		fault githubsim.Fault
		kind  github.Kind
	}{
		"bad request":     {githubsim.Fault{Status: 400}, github.KindUnexpected},
		"unauthorized":    {githubsim.Fault{Status: 401}, github.KindUnauthorized},
		"forbidden":       {githubsim.Fault{Status: 403}, github.KindForbidden},
		"not found":       {githubsim.Fault{Status: 404}, github.KindNotFound},
		"rate limit":      {githubsim.Fault{Status: 429, RetryAfter: time.Second}, github.KindRateLimited},
		"secondary limit": {githubsim.SecondaryLimit("", time.Second), github.KindRateLimited},
		"unavailable":     {githubsim.Fault{Status: 503}, github.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, githubsim.Options{})
			tc.fault.Endpoint = githubsim.EndpointCreateSession
			s.sim.AddFault(tc.fault)
			s.listen(3)
			if got := s.awaitState(Failing); github.KindOf(got.Err) != tc.kind {
				t.Errorf("got %v; want %s", got.Err, tc.kind)
			}
			s.await("statistics without a session", func(snapshot Snapshot) bool { return snapshot.Known })
			s.sim.ClearFaults()
			s.awaitState(Listening)
			s.addJobs(1)
			s.awaitAssigned(1)
		})
	}
}

func TestSessionWithoutAnOwnerIsAnothersUnlessItMayBeOurs(t *testing.T) {
	past := func(c *Config) { c.Earlier = Earlier{ID: "x", Until: time.Now().Add(-time.Second)} }
	for _, change := range []func(*Config){func(*Config) {}, past} {
		s := newStage(t, githubsim.Options{})
		s.sim.StealSession(int(s.set.ID), "another")
		s.listen(3, change)
		s.awaitState(OwnedElsewhere)
		if n := s.requests(githubsim.EndpointRefreshSession); n != 0 {
			t.Errorf("%d attempts to resume", n)
		}
	}
}

// GitHub may have opened a session although its answer was lost. The next conflict is then with our own session.
func TestSessionWhoseOpeningWasNotAnsweredIsOurs(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, DropAnswer: true, Times: 1})
	s.listen(3)
	s.awaitState(Refused)
	s.sim.ExpireSession(int(s.set.ID))
	s.awaitState(Listening)
}

// A session that opens after its caller has left is closed, because it would block the next one.
func TestASessionThatOpensTooLateIsClosed(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Delay: 200 * time.Millisecond})
	s.listen(3)
	s.awaitSim("being asked for a session", func() bool { return s.requests(githubsim.EndpointCreateSession) == 1 })
	s.stop()
	if open := s.sim.Report().SessionsOpen; open != 0 {
		t.Errorf("%d sessions are open", open)
	}
}

// A refusal is an answer, so the session is not open.
func TestASessionThatWasNotOpenedIsNotOurs(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 503, Times: 1})
	s.sim.StealSession(int(s.set.ID), "another")
	s.listen(3)
	s.awaitState(OwnedElsewhere)
}

// After a gateway timeout, the session may be open.
func TestASessionBehindAGatewayThatGaveUpMayBeOurs(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, DropAnswer: true, Status: 502, Times: 1})
	s.listen(3)
	s.awaitState(Refused)
}

func TestWhoLostTheLeaseNeitherPollsNorCloses(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.listen(3, func(c *Config) { c.Held = func() bool { return false } })
	s.awaitState(Listening)
	s.stop()
	if polls, closed := s.requests(githubsim.EndpointGetMessage), s.requests(githubsim.EndpointDeleteSession); polls+closed != 0 {
		t.Errorf("%d polls, %d sessions closed", polls, closed)
	}
}

// A process that hangs and resumes polls a session that another process has taken over. Until it notices that it lost
// the lease, both read the same messages. One may acknowledge a message before the other has read it; the other then
// learns about it from the statistics.
func TestTwoProcessesMayPollOneSession(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: 50 * time.Millisecond})
	var lost atomic.Bool
	s.listen(3, func(c *Config) { c.Held, c.Pace.Verify = func() bool { return !lost.Load() }, 10*time.Millisecond })
	session, former, stopFormer := s.awaitState(Listening).Session, s.listener, s.stop
	s.listen(3, func(c *Config) {
		c.Earlier, c.Pace.Verify = Earlier{ID: session, Until: time.Now().Add(time.Hour)}, 10*time.Millisecond
	})
	if got := s.awaitState(Listening); got.Session != session {
		t.Errorf("session %s, want %s", got.Session, session)
	}
	s.addJobs(2)
	s.awaitAssigned(2)
	s.awaitSim("the former's count", func() bool { return former.Snapshot().Assigned == 2 })
	lost.Store(true)
	stopFormer()
	s.runRunner("linux-1")
	if got := s.awaitAssigned(1); got.State != Listening || got.Session != session {
		t.Errorf("afterwards: %s, session %s", got.State, got.Session)
	}
}

func TestStatisticsStayCurrentWhileRefused(t *testing.T) {
	s := newStage(t, githubsim.Options{SessionOwners: true})
	s.listen(3)
	s.addJobs(3)
	s.awaitAssigned(3)
	s.stop()
	s.sim.StealSession(int(s.set.ID), owner)
	s.listen(3)
	s.awaitState(Refused)
	s.awaitAssigned(3)
	s.runRunner("linux-1")
	s.awaitAssigned(2)
}

func TestAbsentScaleSetIsTold(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.listen(1)
	s.awaitState(Listening)
	s.sim.ForgetScaleSet(int(s.set.ID))
	s.await("NotFound", func(snapshot Snapshot) bool { return snapshot.State == Failing && github.IsNotFound(snapshot.Err) })
}

func TestSessionWithoutQueueIsOpenedAnew(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Times: 2, Alter: githubsim.AlterEmptyQueueURL})
	s.listen(1)
	s.awaitState(Listening)
	if n := s.requests(githubsim.EndpointCreateSession); n != 3 {
		t.Errorf("%d attempts; want 3", n)
	}
}

func TestSilentPollCostsThePatienceAndNoMore(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 3, Status: 500})
	s.listen(1, func(c *Config) { c.Pace.Patience = time.Nanosecond })
	s.addJobs(1)
	s.awaitAssigned(1)
	if n := s.requests(githubsim.EndpointCreateSession); n < 2 {
		t.Errorf("%d sessions were opened; want another after patience is over", n)
	}
}

func TestSessionIsClosedOnTheWayOut(t *testing.T) {
	s := newStage(t, githubsim.Options{Hold: time.Hour})
	s.listen(1)
	s.addJobs(1)
	s.awaitAssigned(1)
	s.stop()
	if n := s.sim.Report().SessionsOpen; n != 0 {
		t.Error("the session is still open: the next one waits a minute and a half for it")
	}
}

func TestSessionIsClosedAlthoughGitHubStumbles(t *testing.T) {
	for name, fault := range map[string]githubsim.Fault{
		"error":       {Status: 500},
		"rate limit":  {Status: 429, RetryAfter: time.Second},
		"lost answer": {Status: 502, DropAnswer: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, githubsim.Options{Hold: time.Hour})
			fault.Endpoint, fault.Times = githubsim.EndpointDeleteSession, 2
			s.sim.AddFault(fault)
			s.listen(1)
			s.awaitState(Listening)
			s.stop()
			if n := s.sim.Report().SessionsOpen; n != 0 {
				t.Error("the session is still open")
			}
		})
	}
}

func TestShutdownIsBounded(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteSession, Hang: true})
	s.listen(1, func(c *Config) { c.Pace.Close = 10 * time.Millisecond })
	s.awaitState(Listening)
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestManyMessagesAreReadAheadWithinBounds(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.memory.hold = make(chan struct{})
	const runners = maxAhead * 2
	s.listen(runners)
	s.addJobs(runners)
	s.awaitAssigned(runners)
	for i := range runners {
		s.runRunner(fmt.Sprintf("linux-%d", i))
	}
	close(s.memory.hold)
	s.await("all completions", func(snapshot Snapshot) bool { return len(snapshot.Completed) == runners && snapshot.Assigned == 0 })
	s.awaitAcknowledged()
}

// Nothing can be recorded for a long time. The session is still polled, and opened again when GitHub ends it.
func TestASessionIsPolledWhileNothingIsRecorded(t *testing.T) {
	s := newStage(t, githubsim.Options{})
	s.memory.hold = make(chan struct{})
	const runners = maxAhead * 2
	s.listen(runners, func(c *Config) { c.Pace.Blocked = time.Millisecond })
	s.addJobs(runners)
	s.awaitAssigned(runners)
	for i := range maxAhead + 1 {
		s.runRunner(fmt.Sprintf("linux-%d", i))
		s.awaitAssigned(runners - 1 - i) // from the statistics of the message that is left in the queue
	}
	former := s.listener.Snapshot().Session
	if !s.sim.ExpireSession(int(s.set.ID)) {
		t.Fatal("no session is open")
	}
	s.await("another session", func(snapshot Snapshot) bool { return snapshot.Session != former && snapshot.State == Listening })
	close(s.memory.hold)
	for i := maxAhead + 1; i < runners; i++ {
		s.runRunner(fmt.Sprintf("linux-%d", i))
	}
	s.await("all completions", func(snapshot Snapshot) bool { return len(snapshot.Completed) == runners && snapshot.Assigned == 0 })
	s.awaitAcknowledged()
}
