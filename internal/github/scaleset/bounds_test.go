// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// hostileMessage returns a message with the given body, in the format of the queue.
func hostileMessage(t *testing.T, body string) string {
	t.Helper()
	text, err := json.Marshal(wireMessage{MessageID: 1, MessageType: jobMessages, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func started(n int, name string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`{"messageType":"JobStarted","jobId":"j","runnerName":"`+name+`","runnerId":1},`, n), ",") + "]"
}

// Whatever a server sends in place of a message, the client uses little memory, and the error names the part that is
// too large.
func TestAHostileMessageTakesLittleMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		message string
		want    github.TooLarge
	}{
		"127,000 events": {hostileMessage(t, "["+strings.Repeat(`{"messageType":"JobStarted","runnerName":"r"},`, 126_999)+"{}]"), github.TooLarge{Most: 2 << 20, Unit: "bytes"}},
		"201 events":     {hostileMessage(t, started(201, "r")), github.TooLarge{Most: 200, Unit: "elements"}},
		"many labels":    {hostileMessage(t, `[{"messageType":"JobAssigned","requestLabels":["x"`+strings.Repeat(`,"x"`, 100)+`]}]`), github.TooLarge{Field: "requestLabels", Most: 100, Unit: "elements"}},
		"10,000 levels":  {`{"messageId":1,"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, github.TooLarge{Most: 32, Unit: "levels"}},
		"levels within":  {hostileMessage(t, strings.Repeat("[", 10_000)), github.TooLarge{Most: 32, Unit: "levels"}},
		"a long text":    {hostileMessage(t, `[{"messageType":"JobStarted","runnerName":"`+strings.Repeat("x", 1<<20)+`"}]`), github.TooLarge{Field: "runnerName", Most: 256 << 10, Unit: "bytes"}},
		"a long list":    {`{"messageId":1,"x":[0` + strings.Repeat(",0", 877_777) + `]}`, github.TooLarge{Field: "x", Most: 100, Unit: "elements"}},
	} {
		t.Run(name, func(t *testing.T) {
			sim, c := memoryClient(t, githubsim.Options{})
			s, _, err := c.OpenSession(testContext(t), createSet(t, c).ID, owner)
			if err != nil {
				t.Fatal(err)
			}
			sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: http.StatusOK, Body: tc.message})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = s.Poll(testContext(t), patience)
			runtime.ReadMemStats(&after)
			large, e := github.TooLarge{}, new(github.Error)
			if !errors.As(err, &large) || large != tc.want || !errors.As(err, &e) || e.Kind != github.KindUnavailable || e.Status != http.StatusOK || e.Silent {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			// The total includes the server's copies.
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(16<<20+3*len(tc.message)) {
				t.Errorf("it took %d MiB", took>>20)
			}
		})
	}
}

// GitHub sends up to 50 events in a message. Events with a name longer than GitHub's maximum are acknowledged with the
// others and dropped.
func TestEventsWithLongNamesAreLeftOut(t *testing.T) {
	sim, c := memoryClient(t, githubsim.Options{})
	s, _, err := c.OpenSession(testContext(t), createSet(t, c).ID, owner)
	if err != nil {
		t.Fatal(err)
	}
	events := []string{
		`{"messageType":"JobStarted","jobId":"good","runnerName":"r","jobDisplayName":"` + strings.Repeat("x", 2000) + `"}`,
		`{"messageType":"JobStarted","jobId":"a","runnerName":"` + strings.Repeat("x", 257) + `"}`,
		`{"messageType":"JobStarted","jobId":"b","ownerName":"acme","repositoryName":"` + strings.Repeat("x", 136) + `"}`,
		`{"messageType":"JobCompleted","jobId":"` + strings.Repeat("x", 257) + `"}`,
	}
	for i := range 46 {
		events = append(events, fmt.Sprintf(`{"messageType":"JobAssigned","jobId":"%d"}`, i))
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: http.StatusOK, Body: hostileMessage(t, "["+strings.Join(events, ",")+"]")})
	m, err := s.poll(testContext(t), patience, 0, 0, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, event := range durable(m.events) {
		names = append(names, event.JobID)
	}
	if len(m.unknown) != 3 || len(m.events) != 47 || len(names) != 1 || names[0] != "good" || m.size != 50 {
		t.Errorf("%d events, %v of them durable; %d unknown; size %d", len(m.events), names, len(m.unknown), m.size)
	}
	if n := len(durable(m.events)[0].Name); n != 1024 {
		t.Errorf("the job's name has %d bytes", n)
	}
}

// What Corral reads for a session counts against the allowance of the namespace, even if it cannot be used.
func TestAnswersAreCharged(t *testing.T) {
	message := hostileMessage(t, "["+strings.TrimSuffix(strings.Repeat(`{"messageType":"JobAssigned","jobDisplayName":"`+strings.Repeat("x", 500)+`"},`, 110), ",")+"]")
	unknown := hostileMessage(t, "["+strings.Repeat("{},", 199)+"{}]")
	tooMany := hostileMessage(t, started(201, "r"))
	for name, tc := range map[string]struct {
		status int
		body   string
		want   int
	}{
		"no message":      {http.StatusAccepted, "", answerCost},
		"an empty body":   {http.StatusOK, " ", answerCost + 1},
		"events":          {http.StatusOK, message, answerCost + len(message) + 110*eventCost},
		"unknown events":  {http.StatusOK, unknown, answerCost + len(unknown) + 200*eventCost},
		"too many events": {http.StatusOK, tooMany, answerCost + len(tooMany)},
		"an error":        {http.StatusInternalServerError, `{"message":"no"}`, answerCost + len(`{"message":"no"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := memoryClient(t, githubsim.Options{})
				s, _, err := c.OpenSession(testContext(t), createSet(t, c).ID, owner)
				if err != nil {
					t.Fatal(err)
				}
				sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: tc.status, Body: tc.body})
				before := c.options.Charge(1<<30, time.Now())
				_, _ = s.poll(testContext(t), patience, 0, 0, time.Now)
				after := time.Until(s.rest)
				want := c.options.Charge(tc.want, time.Now()) - after
				if got := after - before; (got - want).Abs() > time.Microsecond {
					t.Errorf("it delays the next poll by %s, want %s", got, want)
				}
			})
		})
	}
}

// A server chooses how many jobs a message offers, and how large the answer to their acquisition is.
func TestAnswersToAcquisitionsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := memoryClient(t, githubsim.Options{})
		s, _, err := c.OpenSession(testContext(t), createSet(t, c).ID, owner)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"count":1,"value":[1` + strings.Repeat(" ", 20_000) + `]}`
		sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointAcquireJobs, Status: http.StatusOK, Body: body})
		before := c.options.Charge(1<<30, time.Now())
		if err := s.acquire(testContext(t), []int64{1}); err != nil {
			t.Fatal(err)
		}
		after := c.options.Charge(0, time.Now())
		want := c.options.Charge(len(body), time.Now()) - after
		if got := after - before; (got - want).Abs() > time.Microsecond {
			t.Errorf("it delays the next poll by %s, want %s", got, want)
		}
	})
}

// New runner names that keep arriving take no more memory than the runners of many pools.
func TestASnapshotRemembersSoManyRunners(t *testing.T) {
	o := newObservation(github.Options{}.WithDefaults(1).For(github.Credentials{}).Keep)
	for i := range 3 * mostRunners / 100 {
		m := &message{}
		for j := range 100 {
			name := fmt.Sprintf("r%d", i*100+j)
			m.events = append(m.events, JobEvent{Type: JobStarted, RunnerName: name, JobID: "1"}, JobEvent{Type: JobCompleted, RunnerName: name, JobID: "1"})
		}
		o.add(m, time.Unix(1, 0))
	}
	known := o.get()
	if len(known.Started) != mostRunners || len(known.Completed) != mostRunners {
		t.Errorf("%d and %d runners are remembered", len(known.Started), len(known.Completed))
	}
	o.add(&message{events: []JobEvent{{Type: JobStarted, RunnerName: "r0", JobID: "2"}}}, time.Unix(1, 0))
	o.retain(func(name string) bool { return name == "r0" })
	if got := o.get().Started; len(got) != 1 || got["r0"].JobID != "2" {
		t.Errorf("%+v", got)
	}
}

// Messages that are too large are trouble of the connection. It ends some time after the last such message.
func TestMessagesThatAreTooLargeAreTheConnectionsTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := githubsim.New(githubsim.Options{})
		defer sim.Close()
		sim.AddOrg("acme")
		sim.AddToken("secret")
		known := github.NewConnections(time.Now)
		if err := known.Set("ci/acme", github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}); err != nil {
			t.Fatal(err)
		}
		c, _ := NewClients(known, github.Options{Transport: inMemory(sim)}).Get("ci/acme")
		set := createSet(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		l := NewListener(Config{Client: c, SetID: set.ID, Owner: owner, Recorder: &memory{}})
		go func() {
			defer close(ended)
			l.Run(ctx)
		}()
		defer func() { cancel(); <-ended }()
		sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: http.StatusOK, Body: hostileMessage(t, started(201, "r"))})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		trouble, yes := known.Trouble("ci/acme")
		if !yes || trouble.Code != http.StatusOK || trouble.Fault != error(github.TooLarge{Most: 200, Unit: "elements"}) { //nolint:errorlint // it is not wrapped
			t.Errorf("%t, %+v", yes, trouble)
		}
		if s := l.Snapshot(); s.State != Failing || github.KindOf(s.Err) != github.KindUnavailable || github.CodeOf(s.Err) != http.StatusOK {
			t.Errorf("%s: %v", s.State, s.Err)
		}
		calls := sim.Report().Requests[githubsim.EndpointGetMessage]
		if calls > 30 {
			t.Errorf("%d polls in two minutes", calls)
		}
		sim.ClearFaults()
		time.Sleep(3 * time.Minute)
		if trouble, yes := known.Trouble("ci/acme"); yes || l.Snapshot().State != Listening {
			t.Errorf("it isn't over: %+v, %s", trouble, l.Snapshot().State)
		}
	})
}

// All sessions of a namespace share one allowance, through any of its connections. A new capacity does not permit a poll
// before its turn.
func TestSessionsOfANamespaceShareAnAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := githubsim.New(githubsim.Options{})
		defer sim.Close()
		sim.AddOrg("acme")
		sim.AddToken("secret")
		known := github.NewConnections(time.Now)
		clients := NewClients(known, github.Options{Transport: inMemory(sim)})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		listeners, polls := map[string]*Listener{}, map[string]*atomic.Int64{}
		var wait time.Duration
		for i, key := range []string{"greedy/a", "greedy/b", "other/c"} {
			if err := known.Set(key, github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}); err != nil {
				t.Fatal(err)
			}
			c, _ := clients.Get(key)
			network, n := c.tokens.next, &atomic.Int64{}
			polls[key] = n
			c.tokens.next = roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Header.Get("X-ScaleSetMaxCapacity") != "" {
					n.Add(1)
				}
				return network.RoundTrip(req)
			})
			set, err := c.Create(ctx, Set{Name: fmt.Sprint("linux-", i), GroupID: github.DefaultRunnerGroupID, Labels: []string{"linux"}})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				wait = c.options.Charge(1<<30, time.Now())
			}
			l := NewListener(Config{Client: c, SetID: set.ID, Owner: owner, Recorder: &memory{}})
			l.Announce(1)
			listeners[key] = l
			running.Go(func() { l.Run(ctx) })
		}
		time.Sleep(time.Second)
		for _, l := range listeners {
			l.Announce(2)
		}
		time.Sleep(10 * time.Second)
		if a, b, c := polls["greedy/a"].Load(), polls["greedy/b"].Load(), polls["other/c"].Load(); a != 0 || b != 0 || c < 2 {
			t.Errorf("%d and %d polls of the greedy namespace, %d of the other one", a, b, c)
		}
		time.Sleep(wait)
		if a, b := polls["greedy/a"].Load(), polls["greedy/b"].Load(); a == 0 || b == 0 {
			t.Errorf("%d and %d polls after the wait", a, b)
		}
	})
}

// stuckRecorder never returns before its context ends.
type stuckRecorder struct{}

func (stuckRecorder) RecordJobs(ctx context.Context, _ []JobEvent) error {
	<-ctx.Done()
	return ctx.Err()
}

// Messages whose events wait to be recorded are limited for all sessions of a namespace. Further messages stay in the
// queue until there is room.
func TestMessagesThatWaitAreBoundedForAllSessions(t *testing.T) {
	_, c := memoryClient(t, githubsim.Options{})
	large := &message{}
	for i := range 4 * fullMessage {
		large.events = append(large.events, JobEvent{Type: JobStarted, RunnerName: fmt.Sprint("r", i), Name: strings.Repeat("x", 1024), Workflow: strings.Repeat("x", 1024)})
	}
	size := int64(0)
	for _, e := range large.events {
		size += e.size()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken := int64(0)
	var loops []*sessionLoop
	for range 10 {
		a := newSessionLoop(NewListener(Config{Client: c, Owner: owner, Recorder: stuckRecorder{}, Held: func() bool { return false }}), nil)
		loops = append(loops, a)
		recording, stop := context.WithCancel(ctx)
		a.stop = stop
		go a.recorder.run(recording)
		for n := range maxAhead {
			m := *large
			m.id = n + 1
			if err := a.handle(ctx, &m); err != nil {
				t.Fatal(err)
			}
			if !a.isBlocked {
				taken++
			} else if a.cursor != n || a.ahead != n {
				t.Fatalf("a message that is left in the queue moves the cursor to %d, and %d are ahead", a.cursor, a.ahead)
			} else {
				break
			}
		}
	}
	if taken*size > github.AnswerMemory/8 || (taken+1)*size < github.AnswerMemory/8 {
		t.Errorf("%d messages of %d bytes wait", taken, size)
	}
	last := loops[len(loops)-1]
	if err := last.handle(ctx, &message{id: 1, statistics: &Statistics{AssignedJobs: 7}}); err != nil || last.isBlocked || last.seen.jobs() != 7 {
		t.Errorf("a message without events is left in the queue: %v", err)
	}
	for _, a := range loops {
		a.end(ctx)
		a.seen.end()
	}
	if h, ok := c.options.Retain(github.AnswerMemory / 8); !ok {
		t.Error("what sessions had that ended still waits")
	} else {
		h.Leave()
	}
}

// The last events of runners use a limited number of bytes for all sessions of a namespace. A listener forgets them
// when the memory is needed.
func TestSnapshotsAreBoundedForAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := github.Options{}.WithDefaults(1).For(github.Credentials{}).Keep
		var all []*observation
		event := func(i int) JobEvent {
			return JobEvent{Type: JobStarted, RunnerName: fmt.Sprint(i, strings.Repeat("r", 200)), Name: strings.Repeat("x", 1024), Workflow: strings.Repeat("x", 1024)}
		}
		for range 5 {
			o := newObservation(keep)
			all = append(all, o)
			for i := range 3000 {
				o.add(&message{events: []JobEvent{event(i)}}, time.Now())
				synctest.Wait()
			}
		}
		small := newObservation(keep)
		small.add(&message{events: []JobEvent{event(1)}}, time.Now())
		total := int64(0)
		for _, o := range append(all, small) {
			for _, e := range o.get().Started {
				total += e.size()
			}
		}
		if total > github.KeptMemory/4 || total < github.KeptMemory/8 || len(small.get().Started) != 1 {
			t.Errorf("%d bytes are remembered, and %d of a small pool", total, len(small.get().Started))
		}
		for _, o := range all {
			o.retain(func(string) bool { return false })
			o.end()
			o.retain(func(string) bool { return false })
		}
	})
}
