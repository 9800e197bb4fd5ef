// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
)

// newFixtureOnFaultyGitHub makes a fixture on a GitHub that forgets a lost session soon.
func newFixtureOnFaultyGitHub(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOnOwnGitHub(t, githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second})
}

// doneOnce waits until all jobs succeeded, and fails the test if one was run twice, lost, or
// its runner ended.
func (s *fixture) doneOnce(ids []string) {
	s.Helper()
	s.allDone(ids)
	if broken := s.github.Invariants(); len(broken) > 0 {
		s.Errorf("broken: %s", strings.Join(broken, "; "))
	}
}

// jobs adds some and waits until they are done, each once.
func (s *fixture) jobs(label string, n int) {
	s.Helper()
	s.doneOnce(s.addJobs(label, n, 50*time.Millisecond))
}

// dismiss deletes a pool and waits until nothing of it is left, here and on GitHub.
func (s *fixture) dismiss(pool *v1alpha1.RunnerPool) {
	s.Helper()
	must(s.T, w.Client.Delete(s.Context(), pool))
	eventually(s.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pool), &v1alpha1.RunnerScaleSet{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the RunnerScaleSet is left: %w", err)
		}
		if left, err := s.runners(ctx, pool.Name); err != nil || len(left) > 0 {
			return fmt.Errorf("%d runners are left: %w", len(left), err)
		}
		if set := s.onGitHub(pool.Name); set.ID != 0 {
			return fmt.Errorf("left on GitHub: %+v", set)
		}
		return nil
	})
}

// wholeLife makes a pool, has it do jobs before and after a change, and deletes it.
func (s *fixture) wholeLife() {
	s.Helper()
	s.github.AddRunnerGroup(s.namespace, githubsim.Group{Name: "big"})
	pool := s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup, p.Spec.Scale.Idle = "big", new(int32(1)) })
	s.jobs("linux", 3)
	s.patch(pool, `{"spec":{"runnerLabels":["linux","x64"]}}`)
	eventually(s.T, func(context.Context) error {
		if set := s.onGitHub("linux"); !slices.Contains(set.Labels, "x64") {
			return fmt.Errorf("labels on GitHub are %v", set.Labels)
		}
		return nil
	})
	s.github.ExpireQueueTokens()
	s.patch(pool, `{"spec":{"scale":{"max":9}}}`) // ends the held poll, whose token was good
	s.jobs("x64", 3)
	eventually(s.T, func(ctx context.Context) error { // only one that is registered is to be removed from GitHub
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pool), p); err != nil || p.Status.Runners.Idle == 0 {
			return fmt.Errorf("no runner is idle: %v, %w", p.Status.Runners, err)
		}
		return nil
	})
	s.dismiss(pool)
}

// onGitHub is what GitHub has of a scale set; zero if nothing.
func (s *fixture) onGitHub(name string) githubsim.ScaleSetReport {
	for _, set := range s.github.Report().ScaleSets {
		if set.Name == name {
			return set
		}
	}
	return githubsim.ScaleSetReport{}
}

// lifeEndpoints are those that a whole life calls.
var lifeEndpoints = []githubsim.Endpoint{
	githubsim.EndpointRegistrationToken, githubsim.EndpointRunnerRegistration,
	githubsim.EndpointFindGroup, githubsim.EndpointFindScaleSet, githubsim.EndpointCreateScaleSet, githubsim.EndpointGetScaleSet,
	githubsim.EndpointUpdateScaleSet, githubsim.EndpointDeleteScaleSet,
	githubsim.EndpointCreateSession, githubsim.EndpointRefreshSession, githubsim.EndpointDeleteSession,
	githubsim.EndpointGetMessage, githubsim.EndpointDeleteMessage,
	githubsim.EndpointJITConfig, githubsim.EndpointDeleteAgent,
}

// livesWith has a fault at each endpoint during a whole life, and fails the test if one was
// not met.
func (s *fixture) livesWith(fault githubsim.Fault) {
	s.Helper()
	s.checkMessages(0) // it passes by itself
	s.ready(s.connection())
	for _, fault.Endpoint = range lifeEndpoints {
		s.github.AddFault(fault)
	}
	s.github.ExpireAdminTokens() // those that the connection has from before
	s.wholeLife()
	s.othersGoOn()
	for _, endpoint := range lifeEndpoints {
		if !slices.ContainsFunc(s.github.FaultsHit(), func(h githubsim.Hit) bool { return strings.HasPrefix(h.Fault, string(endpoint)+" ") }) {
			s.Errorf("nothing went wrong at %s", endpoint)
		}
	}
}

func TestServerErrorsAtEachEndpoint(t *testing.T) {
	newFixtureOnOwnGitHub(t, githubsim.Options{}).livesWith(githubsim.Fault{Times: 1, Status: 500})
}

func TestRateLimitsAtEachEndpoint(t *testing.T) {
	newFixtureOnOwnGitHub(t, githubsim.Options{}).livesWith(githubsim.Fault{Times: 1, Status: 429, RetryAfter: time.Second})
}

func TestSecondaryLimitsAtEachEndpoint(t *testing.T) {
	fault := githubsim.SecondaryLimit("", time.Second)
	fault.Times = 1
	newFixtureOnOwnGitHub(t, githubsim.Options{}).livesWith(fault)
}

func TestSlowAnswersAtEachEndpoint(t *testing.T) {
	newFixtureOnOwnGitHub(t, githubsim.Options{}).livesWith(githubsim.Fault{Times: 3, Delay: time.Second})
}

// unavailable is what a pool says of a GitHub that doesn't serve it.
func unavailable(message string) verdict {
	return verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.GitHubUnavailableReason, Message: message}
}

// TestWordsOfAnOutage has one endpoint fail for as long as it takes to read what is said.
func TestWordsOfAnOutage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault githubsim.Fault
		want  verdict
		cause string // "" for the end of what is wanted
	}{
		"find": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 503},
			want:  unavailable(`scale set: looking for scale set "linux": GitHub answered 503`),
		},
		"create": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateScaleSet, Status: 500},
			want:  unavailable(`scale set: creating scale set "linux": GitHub answered 500`),
		},
		"session": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 500},
			want:  unavailable("scale set: listening: opening the message session of scale set 1: GitHub answered 500"),
		},
		"poll": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 502},
			want:  unavailable("scale set: listening: polling for messages: GitHub answered 502"),
		},
		"limited": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 429, RetryAfter: 5 * time.Second},
			want:  unavailable("scale set: listening: opening the message session of scale set 1: GitHub answered 429"),
		},
		"hangs": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Hang: true},
			want:  unavailable("scale set: listening: opening the message session of scale set 1: no answer in time"),
			cause: "GitHub didn't answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixtureOnFaultyGitHub(t)
			s.ready(s.connection())
			var pool *v1alpha1.RunnerPool
			if tc.fault.Endpoint == githubsim.EndpointGetMessage { // it has a session already
				pool = s.listening("linux")
			}
			s.github.AddFault(tc.fault)
			if pool == nil {
				pool = s.pool("linux")
			}
			s.says(pool, tc.want)
			s.troubled()
			s.look(cmp.Or(tc.cause, tc.want.Message[strings.LastIndex(tc.want.Message, ": ")+2:]), 1, "pool/linux")
			s.othersGoOn()
			s.github.ClearFaults()
			s.jobs("linux", 3)
			s.ready(pool)
		})
	}
}

// troubled waits until the connection says that GitHub can't be used.
func (s *fixture) troubled() {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		conn := s.connection()
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(conn), conn); err != nil {
			return err
		}
		if got := verdictOf(conn); got.Reason != v1alpha1.GitHubUnavailableReason || !strings.Contains(got.Message, " calls for pools; next try by ") {
			return fmt.Errorf("the connection says %+v", got)
		}
		return nil
	})
}

// runnerTells waits until a runner of the pool says why it isn't ready.
func (s *fixture) runnerTells(pool, text string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		runners, err := s.runners(ctx, pool)
		if err != nil {
			return err
		}
		var told []string
		for i := range runners {
			told = append(told, verdictOf(&runners[i]).Message)
		}
		if !slices.Contains(told, text) {
			return fmt.Errorf("no runner tells %q, but:\n%s", text, strings.Join(told, "\n"))
		}
		return nil
	})
}

// hasBusy waits until the controller knows of n runners of a pool with a job.
func (s *fixture) hasBusy(pool string, n int) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		busy, err := s.inState(ctx, pool, v1alpha1.RunnerBusy)
		if err == nil && busy != n {
			err = fmt.Errorf("%d runners are busy", busy)
		}
		return err
	})
}

// inState counts the runners of a pool in a state.
func (s *fixture) inState(ctx context.Context, pool string, state v1alpha1.RunnerState) (n int, err error) {
	runners, err := s.runners(ctx, pool)
	for _, r := range runners {
		if r.Status.State == state {
			n++
		}
	}
	return n, err
}

// A connection may name any server. What that sends beyond what GitHub may send isn't read, and no other tenant notices.
func TestAServerWhoseAnswersAreTooLarge(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	pool := s.listening("linux")
	events := strings.Repeat(`{\"messageType\":\"JobStarted\",\"runnerName\":\"r\"},`, 127_000)
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: http.StatusOK, Body: `{"messageId":1,"messageType":"RunnerScaleSetJobMessages","body":"[` + events + `{}]"}`})
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunners, Status: http.StatusOK, Body: `{"runners":[` + strings.Repeat(`{"id":1,"name":"r","status":"online","busy":false},`, 877_777) + `{}]}`})
	s.pool("rest", func(p *v1alpha1.RunnerPool) { p.Spec.Registration = v1alpha1.RegisterREST }) // whose runners are listed
	s.says(pool, unavailable("scale set: listening: polling for messages: reading the answer: the JSON has more than 2097152 bytes"))
	s.troubled()
	s.processIsWell()
	s.look("the JSON has more than 2097152 bytes", 1, "pool/linux")
	s.othersGoOn()
	s.github.ClearFaults()
	s.jobs("linux", 3)
	s.ready(pool)
	s.processIsWell()
}

func TestALimitedEndpointLeavesTheOthersAlone(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	long := s.addJobs("linux", 1, harness.LongJob)
	eventually(s.T, func(ctx context.Context) error { return errors.Join(s.running(1), s.idle(ctx, "linux", 1)) })
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 429, RetryAfter: 10 * time.Minute})
	s.addJobs("linux", 2, time.Millisecond)
	s.runnerTells("linux", `registering runner "RUNNER": GitHub answered 429`)
	s.troubled()
	s.look("GitHub answered 429", 1, "pool/linux")
	harness.CutShort(s.T, s.github, long...) // polls and acknowledgements go on
	s.doneOnce(long)
	s.dismiss(s.listening("other")) // so do scale sets and sessions
	s.othersGoOn()
}

// running says whether so many jobs run.
func (s *fixture) running(n int) error {
	if got := s.github.Report().Jobs[githubsim.JobRunning]; got != n {
		return fmt.Errorf("%d jobs run; want %d", got, n)
	}
	return nil
}

func TestAGitHubThatHangs(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	pool := s.listening("linux")
	for _, endpoint := range lifeEndpoints {
		// A poll may be held. A session is closed if the outage lasts for a minute, as on a slow machine.
		if endpoint != githubsim.EndpointGetMessage && endpoint != githubsim.EndpointDeleteSession {
			s.github.AddFault(githubsim.Fault{Endpoint: endpoint, Hang: true})
		}
	}
	ids := s.addJobs("linux", 5, time.Millisecond)
	s.runnerTells("linux", `registering runner "RUNNER": GitHub didn't answer the last 3 calls (no answer in time)`)
	other := s.pool("other")
	s.says(other, unavailable(`scale set: looking for scale set "other": GitHub didn't answer the last 3 calls (no answer in time)`))
	s.troubled()
	s.look("GitHub didn't answer", 1, "pool/other")
	s.othersGoOn()
	s.github.ClearFaults()
	s.doneOnce(ids)
	s.jobs("other", 1)
	s.ready(pool)
}

// serve lets a GitHub be reached at an address until shut is called: then nobody listens there.
func serve(t *testing.T, github http.Handler, address string) (at string, shut func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	server := &http.Server{Handler: github, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends when it is shut, always with an error
	shut = func() { _ = server.Close() }
	t.Cleanup(shut)
	return listener.Addr().String(), shut
}

func TestAGitHubThatRefusesConnections(t *testing.T) {
	t.Parallel()
	github, err := githubsim.Start(githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second})
	must(t, err)
	t.Cleanup(github.Close)
	address, shut := serve(t, github.Server, "127.0.0.1:0")
	github.URL = "http://" + address
	s := makeFixture(t, github)
	pool := s.listening("linux")
	shut()
	s.troubled()
	s.look("Let the controller reach GitHub", 1, "pool/linux")
	s.othersGoOn()
	serve(t, github.Server, address)
	s.jobs("linux", 3)
	s.ready(pool)
	s.lookedEnough()
	s.dismiss(pool)
}

func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]githubsim.Endpoint{
		"registration": githubsim.EndpointJITConfig,
		"session":      githubsim.EndpointCreateSession,
		"scale-set":    githubsim.EndpointCreateScaleSet,
		"removal":      githubsim.EndpointDeleteAgent,
		"ack":          githubsim.EndpointDeleteMessage,
		"deletion":     githubsim.EndpointDeleteScaleSet,
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixtureOnFaultyGitHub(t)
			warnings := 0
			if name == "session" { // that GitHub has, and doesn't say whose it is
				warnings = 1
			}
			s.checkMessages(warnings)
			s.github.AddFault(githubsim.Fault{Endpoint: endpoint, Times: 2, DropAnswer: true, Status: 502})
			pool := s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
			s.jobs("linux", 3)
			s.othersGoOn()
			s.ready(pool)
			s.dismiss(pool)
			if hit := s.github.FaultsHit(); len(hit) == 0 {
				t.Error("no answer was lost")
			}
		})
	}
}

// queueMisbehaves does jobs while messages come in some odd way.
func queueMisbehaves(t *testing.T, faults ...githubsim.Fault) {
	s := newFixtureOnFaultyGitHub(t)
	pool := s.listening("linux")
	s.watch(0)
	for _, f := range faults {
		s.github.AddFault(f)
	}
	for range 3 {
		s.jobs("linux", 5)
	}
	s.othersGoOn()
	s.ready(pool)
	if hit := s.github.FaultsHit(); len(hit) < len(faults) {
		s.Errorf("only this went wrong: %v", hit)
	}
	s.lookedEnough()
	s.dismiss(pool)
}

func TestMessagesThatComeTwice(t *testing.T) {
	queueMisbehaves(t,
		githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterDuplicate},
		githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterRedeliver},
		githubsim.Fault{Endpoint: githubsim.EndpointDeleteMessage, Times: 5, Alter: githubsim.AlterDuplicate})
}

func TestMessagesOutOfOrder(t *testing.T) {
	queueMisbehaves(t,
		githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterReorder},
		githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 5, Alter: githubsim.AlterOutOfOrder})
}

func TestMessagesOfAnUnknownType(t *testing.T) {
	queueMisbehaves(t, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 3, Alter: githubsim.AlterUnknownOuterType})
}

func TestEventsOfAnUnknownType(t *testing.T) {
	queueMisbehaves(t, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterUnknownInnerType})
}

func TestASessionWithoutAQueue(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Alter: githubsim.AlterEmptyQueueURL})
	pool := s.pool("linux")
	s.says(pool, unavailable("scale set: listening: opening the message session of scale set 1: GitHub gave no message queue URL"))
	s.hasEvent("linux", "scale set: listening: opening the message session of scale set 1: GitHub gave no message queue URL") // its connection has no trouble
	s.look("GitHub gave no message queue URL", 1, "pool/linux")
	s.othersGoOn()
	s.github.ClearFaults()
	s.jobs("linux", 3)
}

func TestTokensThatExpireEarly(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	s.checkMessages(0)
	pool := s.listening("linux")
	for range 3 {
		s.github.ExpireAdminTokens()
		s.github.ExpireQueueTokens()
		s.jobs("linux", 3)
	}
	s.othersGoOn()
	s.dismiss(pool)
}

func TestATokenThatIsRevoked(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	token := "ghp_" + s.namespace
	s.github.AddToken(token)
	s.useToken(token)
	pool := s.listening("linux")
	long := s.addJobs("linux", 1, harness.LongJob)
	s.hasBusy("linux", 1)
	eventually(s.T, func(ctx context.Context) error { // corral explain shows the version
		must(s.T, w.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool))
		if pool.Status.RunnerVersion == nil {
			return errors.New("the runner's version is not known yet")
		}
		return nil
	})
	s.github.RevokeToken(token)
	s.github.ExpireAdminTokens()
	s.github.ExpireQueueTokens()
	s.patch(pool, `{"spec":{"scale":{"max":9}}}`) // ends the held poll, whose token was good
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason,
		Message: "scale set: listening: opening the message session of scale set 1: GitHub answered 401: Bad credentials",
	})
	waiting := s.addJobs("linux", 2, time.Millisecond) // of which the pool doesn't learn
	s.says(s.connection(), verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason, Stalled: true, Message: `Secret "acme": github_token is wrong, expired or revoked: GitHub answered 401`})
	harness.CutShort(s.T, s.github, long...)
	s.doneOnce(long)
	s.runnerTells("linux", "deregistering: removing runner 1: GitHub answered 401: Bad credentials")
	s.look("GitHub answered 401", 1, "pool/linux")
	s.othersGoOn()
	s.github.AddToken(token + "_new")
	s.useToken(token + "_new")
	s.doneOnce(waiting)
	s.ready(pool)
}

// setID is the id of the pool's scale set on GitHub.
func (s *fixture) setID(pool *v1alpha1.RunnerPool) int {
	s.Helper()
	set := &v1alpha1.RunnerScaleSet{}
	must(s.T, w.Client.Get(s.Context(), client.ObjectKeyFromObject(pool), set))
	return int(set.Status.ID)
}

func TestASessionThatIsStolen(t *testing.T) {
	s := newFixtureOnOwnGitHub(t, githubsim.Options{SessionExpiry: time.Hour, LostAfter: 20 * time.Second})
	pool := s.listening("linux")
	long := s.addJobs("linux", 1, harness.LongJob)
	eventually(s.T, func(context.Context) error { return s.running(1) })
	if !s.github.StealSession(s.setID(pool), "elsewhere/pool") {
		t.Fatal("no session to steal")
	}
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.OwnedElsewhereReason, Stalled: true,
		Message: `scale set: the scale set "linux" is held by somebody else; choose another spec.scaleSetName or end the other`,
	})
	s.look("held by somebody else", 2, "pool/linux") // once more when the spec was changed
	s.othersGoOn()
	harness.CutShort(s.T, s.github, long...) // its runner goes on
	s.patch(pool, `{"spec":{"runnerLabels":["linux","x64"]}}`)
	s.github.ExpireSession(s.setID(pool)) // the thief's, as after a while, and the pool goes on
	s.jobs("linux", 2)
	s.jobs("x64", 1)
	s.ready(pool)
}

func TestAScaleSetThatIsForgotten(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	s.checkMessages(0)
	pool := s.listening("linux")
	s.jobs("linux", 1)
	before := s.setID(pool)
	s.github.ForgetScaleSet(before)
	s.jobs("linux", 3)
	s.othersGoOn()
	if after := s.setID(pool); after == before {
		t.Errorf("the scale set is still %d", after)
	}
	s.ready(pool)
	s.dismiss(pool)
}

func TestARunnerThatGitHubSaysIsBusy(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	s.checkMessages(0)
	pool := s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	s.jobs("linux", 1)
	eventually(s.T, func(ctx context.Context) error { return s.idle(ctx, "linux", 1) })
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 2, Alter: githubsim.AlterJobStillRunning})
	must(t, w.Client.DeleteAllOf(t.Context(), &v1alpha1.Runner{}, client.InNamespace(s.namespace), client.MatchingLabels{v1alpha1.PoolLabel: "linux"}))
	s.runnerTells("linux", "GitHub says that it has a job; the runner ends after that")
	s.jobs("linux", 3)
	s.othersGoOn()
	s.dismiss(pool)
}

// idle says whether so many runners of a pool wait for jobs, as GitHub sees it.
func (s *fixture) idle(ctx context.Context, pool string, n int) error {
	idle, err := s.inState(ctx, pool, v1alpha1.RunnerIdle)
	if err != nil {
		return err
	}
	if online := s.onGitHub(pool).Statistics.Idle; idle != n || online != n {
		return fmt.Errorf("%d runners are idle, %d on GitHub; want %d", idle, online, n)
	}
	return nil
}

func TestARegistrationThatIsPurged(t *testing.T) {
	t.Parallel()
	t.Run("idle", func(t *testing.T) {
		s := newFixtureOnFaultyGitHub(t)
		s.watch(0)
		pool := s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
		eventually(s.T, func(ctx context.Context) error { return s.idle(ctx, "linux", 1) })
		s.purge("linux")
		s.jobs("linux", 3)
		s.othersGoOn()
		eventually(s.T, func(ctx context.Context) error { return s.idle(ctx, "linux", 1) })
		s.lookedEnough()
		s.dismiss(pool)
	})
	t.Run("not-connected", func(t *testing.T) {
		s := newFixtureOnFaultyGitHub(t)
		s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunnerSession, Hang: true})
		pool := s.pool("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
		eventually(s.T, func(context.Context) error {
			if s.github.Report().Requests[githubsim.EndpointRunnerSession] == 0 {
				return fmt.Errorf("no runner connects")
			}
			return nil
		})
		s.purge("linux")
		s.github.ClearFaults()
		s.jobs("linux", 3)
		s.othersGoOn()
		s.dismiss(pool)
	})
}

// purge lets GitHub forget the runners of a pool.
func (s *fixture) purge(pool string) {
	s.Helper()
	for _, r := range s.github.Report().Runners {
		if !s.github.PurgeRunner(r.ID) {
			s.Errorf("runner %s of %s was gone", r.Name, pool)
		}
	}
}
