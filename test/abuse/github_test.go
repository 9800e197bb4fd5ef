// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
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

// newFixtureOnFaultyGitHub creates a fixture with a GitHub that soon expires lost sessions.
func newFixtureOnFaultyGitHub(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOnOwnGitHub(t, githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second})
}

// doneOnce waits until all jobs have succeeded. It fails the test if a job ran twice or was lost, or if a busy
// runner was stopped.
func (s *fixture) doneOnce(ids []string) {
	s.Helper()
	s.allDone(ids)
	if broken := s.github.Invariants(); len(broken) > 0 {
		s.Errorf("broken: %s", strings.Join(broken, "; "))
	}
}

// jobs adds jobs and waits until each of them has run once.
func (s *fixture) jobs(label string, n int) {
	s.Helper()
	s.doneOnce(s.addJobs(label, n, 50*time.Millisecond))
}

// dismiss deletes a pool and waits until nothing of it is left in the cluster and on GitHub.
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

// wholeLife creates a pool, runs jobs before and after a change of its spec, and deletes it.
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
	s.patch(pool, `{"spec":{"scale":{"max":9}}}`) // ends the current poll, which was opened with a valid token
	s.jobs("x64", 3)
	eventually(s.T, func(ctx context.Context) error { // only a registered runner has to be removed from GitHub
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pool), p); err != nil || p.Status.Runners.Idle == 0 {
			return fmt.Errorf("no runner is idle: %v, %w", p.Status.Runners, err)
		}
		return nil
	})
	s.dismiss(pool)
}

// onGitHub returns GitHub's state of a scale set, or the zero value if it does not exist.
func (s *fixture) onGitHub(name string) githubsim.ScaleSetReport {
	for _, set := range s.github.Report().ScaleSets {
		if set.Name == name {
			return set
		}
	}
	return githubsim.ScaleSetReport{}
}

// lifeEndpoints lists the endpoints that wholeLife uses.
var lifeEndpoints = []githubsim.Endpoint{
	githubsim.EndpointRegistrationToken, githubsim.EndpointRunnerRegistration,
	githubsim.EndpointFindGroup, githubsim.EndpointFindScaleSet, githubsim.EndpointCreateScaleSet, githubsim.EndpointGetScaleSet,
	githubsim.EndpointUpdateScaleSet, githubsim.EndpointDeleteScaleSet,
	githubsim.EndpointCreateSession, githubsim.EndpointRefreshSession, githubsim.EndpointDeleteSession,
	githubsim.EndpointGetMessage, githubsim.EndpointDeleteMessage,
	githubsim.EndpointJITConfig, githubsim.EndpointDeleteAgent,
}

// livesWith injects a fault at each endpoint during wholeLife, and fails the test if a fault was never hit.
func (s *fixture) livesWith(fault githubsim.Fault) {
	s.Helper()
	s.checkMessages(1) // it recovers without a user; on a busy machine, it takes long enough to be reported
	s.ready(s.connection())
	for _, fault.Endpoint = range lifeEndpoints {
		s.github.AddFault(fault)
	}
	s.github.ExpireAdminTokens() // the connection's existing tokens
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

// unavailable is the verdict of a pool that GitHub does not serve, with values of the failed call.
func unavailable(causes string, values ...string) verdict {
	return verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.GitHubUnavailableReason, Causes: causes, Details: values}
}

// Causes of a pool whose scale set GitHub does not serve, and of one whose session fails.
const (
	scaleSetUnserved = "GitHubUnavailable\nOfScaleSet"
	sessionUnserved  = "GitHubUnavailable\nListening\nOfScaleSet"
)

// TestWordsOfAnOutage lets one endpoint fail until the pool and its connection have reported it.
func TestWordsOfAnOutage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault githubsim.Fault
		want  verdict
	}{
		"find": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointFindScaleSet, Status: 503},
			want:  unavailable(scaleSetUnserved, `"linux"`, "503"),
		},
		"create": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateScaleSet, Status: 500},
			want:  unavailable(scaleSetUnserved, `"linux"`, "500"),
		},
		"session": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 500},
			want:  unavailable(sessionUnserved, "1", "500"),
		},
		"poll": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 502},
			want:  unavailable(sessionUnserved, "502"),
		},
		"limited": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 429, RetryAfter: 5 * time.Second},
			want:  unavailable("GitHubRateLimited\nListening\nOfScaleSet", "1", "429"),
		},
		"hangs": {
			fault: githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Hang: true},
			want:  unavailable(sessionUnserved, "1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixtureOnFaultyGitHub(t)
			s.ready(s.connection())
			var pool *v1alpha1.RunnerPool
			if tc.fault.Endpoint == githubsim.EndpointGetMessage { // requires an open session
				pool = s.listening("linux")
			}
			s.github.AddFault(tc.fault)
			if pool == nil {
				pool = s.pool("linux")
			}
			s.says(pool, tc.want)
			s.troubled()
			s.look(v1alpha1.GitHubUnavailableReason, 1, "pool/linux")
			s.othersGoOn()
			s.github.ClearFaults()
			s.jobs("linux", 3)
			s.ready(pool)
		})
	}
}

// troubled waits until the connection reports that GitHub is unavailable.
func (s *fixture) troubled() {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		conn := s.connection()
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(conn), conn); err != nil {
			return err
		}
		causes := v1alpha1.CausesOf(conn.Status.Causes, v1alpha1.ReadyCondition)
		if got, _ := verdictOf(conn); got.Reason != v1alpha1.GitHubUnavailableReason || len(causes) == 0 || causes[0].NextAttempt == nil {
			return fmt.Errorf("the connection has %+v, %+v", got, causes)
		}
		return nil
	})
}

// runnerTells waits until a runner of the pool has these causes of not being ready, with values in their details.
func (s *fixture) runnerTells(pool, want string, values ...string) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		runners, err := s.runners(ctx, pool)
		if err != nil {
			return err
		}
		var seen []string
		for i := range runners {
			v, details := verdictOf(&runners[i])
			if v.Causes == want && !slices.ContainsFunc(values, func(value string) bool { return !strings.Contains(details, value) }) {
				return nil
			}
			seen = append(seen, v.Causes+": "+details)
		}
		return fmt.Errorf("no runner has %q with %q, but:\n%s", want, values, strings.Join(seen, "\n"))
	})
}

// hasBusy waits until the controller knows of n busy runners in a pool.
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

// A connection may point to any server. The controller stops reading an answer that is larger than any of
// GitHub's, and other tenants are not affected.
func TestAServerWhoseAnswersAreTooLarge(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	pool := s.listening("linux")
	events := strings.Repeat(`{\"messageType\":\"JobStarted\",\"runnerName\":\"r\"},`, 127_000)
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: http.StatusOK, Body: `{"messageId":1,"messageType":"RunnerScaleSetJobMessages","body":"[` + events + `{}]"}`})
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunners, Status: http.StatusOK, Body: `{"runners":[` + strings.Repeat(`{"id":1,"name":"r","status":"online","busy":false},`, 877_777) + `{}]}`})
	s.pool("rest", func(p *v1alpha1.RunnerPool) { p.Spec.Registration = v1alpha1.RegisterREST }) // lists the runners on GitHub
	s.says(pool, unavailable(sessionUnserved, "2097152 bytes"))
	s.troubled()
	s.processIsWell()
	s.look("2097152 bytes", 1, "pool/linux")
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
	s.runnerTells("linux", "GitHubRateLimited", `"RUNNER"`, "429")
	s.troubled()
	s.look(v1alpha1.GitHubUnavailableReason, 1, "pool/linux")
	harness.CutShort(s.T, s.github, long...) // polls and acknowledgements continue
	s.doneOnce(long)
	s.dismiss(s.listening("other")) // scale sets and sessions still work
	s.othersGoOn()
}

// running returns an error unless n jobs are running.
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
		// A poll is expected to be held. On a slow machine, GitHub ends a session between two polls, and an outage lasts for
		// the minute after which the controller deletes it: then jobs are heard of by another session only.
		if !slices.Contains([]githubsim.Endpoint{githubsim.EndpointGetMessage, githubsim.EndpointCreateSession, githubsim.EndpointDeleteSession}, endpoint) {
			s.github.AddFault(githubsim.Fault{Endpoint: endpoint, Hang: true})
		}
	}
	ids := s.addJobs("linux", 5, time.Millisecond)
	s.runnerTells("linux", v1alpha1.GitHubUnavailableReason, `"RUNNER"`, "3 calls")
	other := s.pool("other")
	s.says(other, unavailable(scaleSetUnserved, `"other"`, "3 calls"))
	s.troubled()
	s.look(v1alpha1.GitHubUnavailableReason, 1, "pool/other")
	s.othersGoOn()
	s.github.ClearFaults()
	s.doneOnce(ids)
	s.jobs("other", 1)
	s.ready(pool)
}

// serve makes a simulated GitHub available at an address, until shut closes the listener.
func serve(t *testing.T, github http.Handler, address string) (at string, shut func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	server := &http.Server{Handler: github, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends with an error when the listener is closed
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
	s.look(v1alpha1.GitHubUnavailableReason, 1, "pool/linux")
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
			if name == "session" { // GitHub has a session and does not report its owner
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

// queueMisbehaves runs jobs while the message queue has the given faults.
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
	s.says(pool, unavailable(sessionUnserved, "message queue URL"))
	s.hasEvent("linux", v1alpha1.GitHubUnavailableReason, "message queue URL") // its connection has no trouble
	s.look("message queue URL", 1, "pool/linux")
	s.othersGoOn()
	s.github.ClearFaults()
	s.jobs("linux", 3)
}

// The official client reads some fields of answers without a check. A panic would end the process for all tenants.
func TestATokenAnswerWithoutAToken(t *testing.T) {
	s := newFixtureOnFaultyGitHub(t)
	s.ready(s.connection())
	s.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRegistrationToken, Status: http.StatusCreated, Body: "{}"})
	s.github.ExpireAdminTokens() // the connection's existing tokens
	pool := s.pool("linux")
	s.says(pool, unavailable(scaleSetUnserved, "required fields"))
	s.hasEvent("linux", v1alpha1.GitHubUnavailableReason, "required fields")
	s.look("required fields", 1, "pool/linux")
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
	s.patch(pool, `{"spec":{"scale":{"max":9}}}`) // ends the current poll, which was opened with a valid token
	s.says(pool, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason,
		Causes: "CredentialsRefused\nListening\nOfScaleSet", Details: []string{"401", "Bad credentials"},
	})
	waiting := s.addJobs("linux", 2, time.Millisecond) // the pool does not learn of these jobs
	s.says(s.connection(), verdict{Ready: metav1.ConditionFalse, Reason: v1alpha1.CredentialsRefusedReason, Stalled: true, Causes: badToken, Details: []string{"401"}}, `"acme"`, `"SECRET"`)
	harness.CutShort(s.T, s.github, long...)
	s.doneOnce(long)
	s.runnerTells("linux", "CredentialsRefused\nDeregistering", "runner 1", "401", "Bad credentials")
	s.look(v1alpha1.CredentialsRefusedReason, 1, "pool/linux")
	s.othersGoOn()
	s.github.AddToken(token + "_new")
	s.useToken(token + "_new")
	s.doneOnce(waiting)
	s.ready(pool)
}

// setID returns the ID of the pool's scale set on GitHub.
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
		Causes: "ScaleSetHeld name=\"linux\" owner=\"another process\"\nOfScaleSet",
	})
	s.look("ScaleSetHeld", 2, "pool/linux") // once more when the spec was changed
	s.othersGoOn()
	harness.CutShort(s.T, s.github, long...) // the runner keeps running
	s.patch(pool, `{"spec":{"runnerLabels":["linux","x64"]}}`)
	s.github.ExpireSession(s.setID(pool)) // the other owner's session expires, and the pool continues
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
	s.runnerTells("linux", "JobRunning")
	s.jobs("linux", 3)
	s.othersGoOn()
	s.dismiss(pool)
}

// idle returns an error unless the pool has n idle runners, in the cluster and on GitHub.
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
