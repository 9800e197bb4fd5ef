// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/actions/scaleset"
	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim"
)

// poll expects a message; pollNothing expects none within the hold time.
func poll(t *testing.T, session *scaleset.MessageSessionClient, after, capacity int) *scaleset.RunnerScaleSetMessage {
	t.Helper()
	message, err := session.GetMessage(testContext(t), after, capacity)
	if err != nil || message == nil {
		t.Fatalf("polling after %d: %v, %v", after, message, err)
	}
	return message
}

func pollNothing(t *testing.T, session *scaleset.MessageSessionClient, after, capacity int) {
	t.Helper()
	message, err := session.GetMessage(testContext(t), after, capacity)
	if err != nil || message != nil {
		t.Fatalf("polling after %d: %+v, %v; want nothing", after, message, err)
	}
}

func TestMessagesComeAgainUntilDeleted(t *testing.T) {
	sim := start(t, githubsim.Options{Hold: time.Millisecond})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	session := openSession(t, client, set.ID)
	first := addJob(t, sim, githubsim.Job{})
	one := poll(t, session, 0, 5)
	if one.MessageID != 100000001 || len(one.JobAssignedMessages) != 1 || one.JobAssignedMessages[0].JobID != first {
		t.Fatalf("first message: %+v", one)
	}
	if got := one.JobAssignedMessages[0]; got.RunnerRequestID != 0 || got.OwnerName != "acme" || got.RepositoryName != "app" {
		t.Errorf("event: %+v", got)
	}
	addJob(t, sim, githubsim.Job{})
	two := poll(t, session, one.MessageID, 5)
	if two.MessageID != one.MessageID+1 || two.Statistics.TotalAssignedJobs != 2 {
		t.Errorf("second message: %+v", two)
	}
	pollNothing(t, session, two.MessageID, 5)
	if err := session.Close(ctx); err != nil {
		t.Fatal(err)
	}

	session = openSession(t, client, set.ID)
	if got := session.Session().Statistics.TotalAssignedJobs; got != 2 {
		t.Errorf("a new session is told of %d assigned jobs, want 2", got)
	}
	again := poll(t, session, 0, 5)
	if again.MessageID != one.MessageID || again.Statistics.TotalAssignedJobs != 2 {
		t.Errorf("in the next session: %+v; want the first message, with statistics of now", again)
	}
	for range 2 { // deleting it again is no error
		if err := session.DeleteMessage(ctx, one.MessageID); err != nil {
			t.Fatal(err)
		}
	}
	if left := poll(t, session, 0, 5); left.MessageID != two.MessageID {
		t.Errorf("after deletion: message %d, want %d", left.MessageID, two.MessageID)
	}
}

func TestMessageCarriesFiftyEventsAtMost(t *testing.T) {
	sim := start(t, githubsim.Options{})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	for range 120 {
		addJob(t, sim, githubsim.Job{})
	}
	session := openSession(t, client, set.ID)
	var sizes []int
	for after := 0; len(sizes) < 3; {
		message := poll(t, session, after, 200)
		sizes = append(sizes, len(message.JobAssignedMessages))
		after = message.MessageID
		if got := message.Statistics.TotalAssignedJobs; got != 120 {
			t.Errorf("statistics tell %d assigned jobs, want 120 at once", got)
		}
	}
	if diff := cmp.Diff([]int{50, 50, 20}, sizes); diff != "" {
		t.Errorf("events per message (-want +got):\n%s", diff)
	}
}

func TestAnnouncedCapacityIsObeyed(t *testing.T) {
	sim := start(t, githubsim.Options{Hold: time.Millisecond})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	for range 5 {
		addJob(t, sim, githubsim.Job{})
	}
	session := openSession(t, client, set.ID)
	pollNothing(t, session, 0, 0)
	after := 0
	for _, step := range []struct{ capacity, want int }{{1, 1}, {2, 1}, {5, 3}} {
		message := poll(t, session, after, step.capacity)
		after = message.MessageID
		if got := len(message.JobAssignedMessages); got != step.want {
			t.Errorf("capacity %d released %d jobs, want %d", step.capacity, got, step.want)
		}
	}
	pollNothing(t, session, after, 5)
	pollNothing(t, session, after, 1)
	if got := sim.Report().ScaleSets[0].Statistics.Assigned; got != 5 {
		t.Errorf("%d jobs assigned after the capacity fell, want 5 still", got)
	}
}

func TestPollIsHeldUntilSomethingHappens(t *testing.T) {
	sim := start(t, githubsim.Options{Hold: time.Hour})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	session := openSession(t, client, set.ID)
	answered := make(chan *scaleset.RunnerScaleSetMessage, 1)
	go func() {
		message, _ := session.GetMessage(context.WithoutCancel(t.Context()), 0, 1)
		answered <- message
	}()
	waitUntil(t, sim, func() bool { return sim.Report().ScaleSets[0].Capacity == 1 })
	addJob(t, sim, githubsim.Job{})
	if message := <-answered; message == nil || len(message.JobAssignedMessages) != 1 {
		t.Errorf("the held poll got %+v", message)
	}
}

func TestPollEndsWithItsCaller(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, Hold: time.Hour})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	session := openSession(t, client, set.ID)
	ctx, leave := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		_, err := session.GetMessage(ctx, 0, 1)
		ended <- err
	}()
	waitUntil(t, sim, func() bool { return sim.Report().ScaleSets[0].Capacity == 1 })
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the poll ended with %v", err)
	}
	waitUntil(t, sim, func() bool { // it expires once no poll holds it
		clock.advance(92 * time.Second)
		return sim.Report().SessionsOpen == 0
	})
}

func TestQueueTokenExpiresAndIsRefreshed(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, QueueTokenTTL: 30 * time.Second, AdminTokenTTL: time.Hour})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	session := openSession(t, client, set.ID)
	before := session.Session()
	addJob(t, sim, githubsim.Job{})
	clock.advance(31 * time.Second)
	message := poll(t, session, 0, 1)
	sim.ExpireQueueTokens()
	if err := session.DeleteMessage(testContext(t), message.MessageID); err != nil {
		t.Error(err)
	}
	after := session.Session()
	if before.SessionID != after.SessionID || before.MessageQueueAccessToken == after.MessageQueueAccessToken {
		t.Error("a refresh has to keep the session and change the token")
	}
	if got := sim.Report().Requests[githubsim.EndpointRefreshSession]; got != 2 {
		t.Errorf("%d refreshes, want 2", got)
	}
}

func TestEndedSessionIsRefusedToItsClient(t *testing.T) {
	for name, end := range map[string]func(*githubsim.Running, int) bool{
		"expired": func(sim *githubsim.Running, id int) bool { return sim.ExpireSession(id) },
		"stolen":  func(sim *githubsim.Running, id int) bool { return sim.StealSession(id, "thief") },
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{})
			client := newClient(t, sim, "acme")
			set := newSet(t, client)
			session := openSession(t, client, set.ID)
			if !end(sim, set.ID) {
				t.Fatal("there was no session")
			}
			_, err := session.GetMessage(testContext(t), 0, 1)
			wantError(t, err, "RunnerScaleSetSessionExpiredException")
		})
	}
}

func TestJobsAreOfferedAndAcquired(t *testing.T) {
	sim := start(t, githubsim.Options{Mode: githubsim.Acquire, Hold: time.Millisecond})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	addJob(t, sim, githubsim.Job{})
	addJob(t, sim, githubsim.Job{})
	session := openSession(t, client, set.ID)
	offer := poll(t, session, 0, 1)
	if len(offer.JobAvailableMessages) != 1 || offer.Statistics.TotalAvailableJobs != 1 {
		t.Fatalf("capacity for one job: %+v", offer)
	}
	id := offer.JobAvailableMessages[0].RunnerRequestID
	for _, want := range [][]int64{{id}, {}} { // an acquired job cannot be acquired again
		won, err := session.AcquireJobs(ctx, []int64{id, 999})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, won); diff != "" {
			t.Errorf("acquired (-want +got):\n%s", diff)
		}
	}
	assigned := poll(t, session, offer.MessageID, 1)
	if len(assigned.JobAssignedMessages) != 1 || assigned.Statistics.TotalAssignedJobs != 1 {
		t.Errorf("after acquiring: %+v", assigned)
	}
}

func TestOfferIsRepeatedInTheNextSession(t *testing.T) {
	sim := start(t, githubsim.Options{Mode: githubsim.Acquire})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	addJob(t, sim, githubsim.Job{})
	session := openSession(t, client, set.ID)
	offer := poll(t, session, 0, 1)
	if err := session.DeleteMessage(ctx, offer.MessageID); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	session = openSession(t, client, set.ID)
	if again := poll(t, session, 0, 1); len(again.JobAvailableMessages) != 1 {
		t.Errorf("in the next session: %+v", again)
	}
}

func TestAcquireIsUnknownToGitHubCom(t *testing.T) {
	sim := start(t, githubsim.Options{})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	_, err := openSession(t, client, set.ID).AcquireJobs(testContext(t), []int64{1})
	wantError(t, err, "404")
}
