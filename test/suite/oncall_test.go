// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/scaling"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/test/recorder"
)

// Each situation might page an on-call engineer. The part SITUATION of testdata/oncall.txtar lists the problems
// that are then visible, by object and code.
var situations = []struct {
	name string
	// cause is a code, a parameter or the text of another program in the JSON answer of each command that explains the trouble; "" for no trouble.
	cause string
	// warnings is the maximum number of Warning events.
	warnings int
	tell     func(*situation)
}{
	{"normal-job", "", 0, aNormalJob},
	{"good-commit", "", 0, aGoodCommit},
	{"broken-commit", "pools.cue:8:2: pools.linux.spec.runnerLables: field not allowed", 1, aBrokenCommit},
	{"pruning-commit", "", 1, aPruningCommit},
	{"wrong-token", v1alpha1.CredentialsRefusedReason, 1, aWrongToken},
	{"missing-group", "RunnerGroupMissing", 1, aMissingGroup},
	{"github-500", v1alpha1.GitHubUnavailableReason, 1, aGitHubThatAnswers500},
	{"github-429", v1alpha1.GitHubUnavailableReason, 1, aGitHubThatAnswers429},
	{"failing-pods", "Error (exit code 1)", 1, failingPods},
	{"full-pool", "full", 0, aFullPool},
	{"suspended", v1alpha1.SuspendedReason, 0, aSuspendedPool},
	{"denied", "container runner is privileged", 1, aDeniedPool},
	{"ceiling", "corral.scaling.limit (limits.rego:3)", 0, aCeiling},
	{"stuck-runner", "Unschedulable", 0, aStuckRunner},
	{"stolen-session", "ScaleSetHeld", 1, aStolenSession},
	{"deletion-while-busy", "linux", 0, aDeletionWhileBusy},
	{"secret-gone", v1alpha1.CredentialsMissingReason, 1, aSecretThatIsGone},
	{"restart-in-a-burst", "", 0, aRestartInABurst},
}

func TestOnCall(t *testing.T) {
	for _, told := range situations {
		t.Run(told.name, func(t *testing.T) {
			s := newSituation(t, told.name)
			s.Cause, s.Warnings = told.cause, told.warnings
			told.tell(s)
			s.Close()
		})
	}
}

// situation is a recorded story, in a namespace with the connection acme.
type situation struct {
	recorder.Recorder
	t         *testing.T
	w         *story
	namespace string
}

const (
	// jobsRun is the ID of a situation's first workflow run.
	jobsRun = 9001
	// brief is the duration of a job. GitHub then reports its start and its end in separate messages. Between
	// them, even a controller on a busy machine logs that the runner is busy.
	brief = 4 * time.Second
)

func newSituation(t *testing.T, name string) *situation {
	t.Helper()
	t.Parallel()
	options := githubsim.Options{LostAfter: 20 * time.Second}
	if name == "stolen-session" {
		options.SessionExpiry = 15 * time.Second // the session's other owner never polls
	}
	w := newStoryOn(t, options, "--watch-namespaces="+name)
	w.elect(t, name+"-lease")
	must(t, w.Connect(t.Context(), name, "acme", name+"-org"))
	s := &situation{t: t, w: w, namespace: name}
	s.Recorder = recorder.Recorder{Namespace: name, Archive: "testdata/oncall.txtar", Story: name, LeaseNamespace: name + "-lease"}
	s.Open(t, w.World.World)
	return s
}

// begin runs the controller.
func (s *situation) begin() {
	s.t.Helper()
	s.Logs = append(s.Logs, s.w.start(s.t))
}

// pool creates the pool linux and returns it.
func (s *situation) pool(change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	s.t.Helper()
	p := newPool(s.namespace, "linux", "acme", append([]func(*v1alpha1.RunnerPool){atMost(3)}, change...)...)
	must(s.t, s.w.Client.Create(s.t.Context(), p))
	return p
}

func atMost(n int32) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = &n }
}

// listening creates the pool linux and waits until it accepts jobs.
func (s *situation) listening(change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	s.t.Helper()
	p := s.pool(change...)
	eventually(s.t, s.ready(p))
	return p
}

// jobs adds jobs for the pool linux, each in a workflow run of its own.
func (s *situation) jobs(n int, duration time.Duration) []string {
	s.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		id, err := s.w.GitHub.AddJob(githubsim.Job{
			Repository: s.namespace + "-org/app", Labels: []string{"linux"}, RunID: jobsRun + int64(len(s.w.GitHub.Jobs())), Duration: duration,
		})
		must(s.t, err)
		ids[i] = id
	}
	return ids
}

// announced waits until GitHub knows the announced capacity of the pool linux.
func (s *situation) announced(n int) {
	s.t.Helper()
	must(s.t, s.w.GitHub.WaitUntil(s.t.Context(), func() bool { return s.w.GitHub.Report().ScaleSets[0].Capacity == n }))
}

// job returns the arguments of corral explain for a job.
func (s *situation) job(number int) string {
	return fmt.Sprintf("job %s/app/actions/runs/%d --labels linux", s.w.GitHub.ConfigURL(s.namespace+"-org"), jobsRun+number)
}

// cancel ends long jobs.
func (s *situation) cancel(ids []string) {
	s.t.Helper()
	for _, id := range ids {
		if !s.w.GitHub.CancelJob(id) {
			s.t.Errorf("job %s can't be cancelled", id)
		}
	}
}

// patch applies a JSON merge patch to an object.
func (s *situation) patch(o client.Object, json string) {
	s.t.Helper()
	must(s.t, s.w.Client.Patch(s.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(json))))
}

// says returns a check that an object's Ready condition has a reason.
func (s *situation) says(o kube.Object, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.w.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		ready := conditions.Get(o, v1alpha1.ReadyCondition)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("%T %s is %+v", o, o.GetName(), ready)
		}
		return nil
	}
}

// away returns a check that a pool and its connection report that GitHub is unavailable.
func (s *situation) away(p *v1alpha1.RunnerPool) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(s.says(p, v1alpha1.GitHubUnavailableReason)(ctx), s.says(s.connection(), v1alpha1.GitHubUnavailableReason)(ctx))
	}
}

// ready returns a check that an object is ready.
func (s *situation) ready(o kube.Object) func(context.Context) error {
	return s.says(o, v1alpha1.SucceededReason)
}

// runs returns a check that the pool linux has the given numbers of jobs and busy runners, and no other runners.
func (s *situation) runs(jobs, busy int32) func(context.Context) error {
	return func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := s.w.Client.Get(ctx, key(s.namespace, "linux"), p); err != nil {
			return err
		}
		if p.Status.GetJobs() != jobs || p.Status.Runners.Busy != busy || p.Status.Runners.Total != busy {
			return fmt.Errorf("%d jobs, %+v", p.Status.GetJobs(), p.Status.Runners)
		}
		return nil
	}
}

// runner returns a check that a runner has the given state and cause.
func (s *situation) runner(state v1alpha1.RunnerState, cause v1alpha1.RunnerCause) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &v1alpha1.RunnerList{}
		if err := s.w.Client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(r v1alpha1.Runner) bool { return r.Status.State == state && r.Status.Cause == cause }) {
			return fmt.Errorf("no runner is %s (%s) of %d", state, cause, len(list.Items))
		}
		return nil
	}
}

// calm checks that the pool linux is ready and has no jobs and no runners.
func (s *situation) calm(ctx context.Context) error {
	return errors.Join(s.ready(&v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "linux"}})(ctx), s.runs(0, 0)(ctx))
}

// ends waits until the pool linux is ready and idle, records the story, and cleans up.
func (s *situation) ends() {
	s.t.Helper()
	eventually(s.t, s.calm)
	s.Tale("the whole story")
	s.w.cleanUp(s.t, s.namespace)
}

func aNormalJob(s *situation) {
	s.begin()
	s.listening()
	ids := s.jobs(1, harness.LongJob)
	s.Look("a job runs", s.runs(1, 1), "pool/linux", s.job(0))
	harness.CutShort(s.t, s.w.GitHub, ids...)
	s.Look("the job is done", s.calm, "pool/linux", s.job(0))
	s.ends()
}

// commits starts the controller and a source with two pools, and waits until the pools are idle.
func (s *situation) commits() (g *gitops, source *v1alpha1.PoolSource) {
	s.t.Helper()
	s.begin()
	g = s.w.newSource(s.t, s.namespace, time.Hour)
	source = &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pools"}}
	eventually(s.t, s.calm)
	return g, source
}

func aGoodCommit(s *situation) {
	g, source := s.commits()
	g.Write("pools.cue", definitions(5, "linux", "runner:2", true))
	g.sync(g.Push("Raise max"))
	s.Look("a commit is applied", s.both(s.ready(source), s.calm), "pool/linux")
	s.ends()
}

// both combines two checks.
func (s *situation) both(one, other func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return errors.Join(one(ctx), other(ctx)) }
}

func aBrokenCommit(s *situation) {
	g, source := s.commits()
	g.Write("pools.cue", strings.Replace(definitions(5, "linux", "runner:1", true), "runnerLabels", "runnerLables", 1))
	g.Push("Raise max, with a typo")
	g.request()
	s.Look("a commit is broken", s.says(source, v1alpha1.BuildFailedReason), "pool/linux")
	g.Write("pools.cue", definitions(5, "linux", "runner:1", true))
	g.sync(g.Push("Mend it"))
	s.ends()
}

func aPruningCommit(s *situation) {
	g, source := s.commits()
	g.Write("pools.cue", definitions(3, "linux", "runner:1", false))
	g.sync(g.Push("Remove a pool"))
	g.waitRemote("extra", func(set *githubsim.ScaleSetReport) bool { return set == nil })
	g.Write("pools.cue", "package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\n")
	g.Push("Remove the other too")
	g.request()
	s.Look("all pools are to go", s.says(source, v1alpha1.PruneRefusedReason), "pool/linux")
	g.Write("pools.cue", definitions(3, "linux", "runner:1", false))
	g.sync(g.Push("Put it back"))
	s.ends()
}

// useToken writes a token to the connection's Secret.
func (s *situation) useToken(token string) {
	s.t.Helper()
	s.patch(s.w.CredentialsSecret(s.namespace, "acme"), fmt.Sprintf(`{"stringData":{%q:%q}}`, v1alpha1.TokenKey, token))
}

func (s *situation) connection() *v1alpha1.GitHubConnection {
	return &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "acme"}}
}

// requestConnection reconciles the connection, as a user would request after fixing its Secret.
func (s *situation) requestConnection() {
	s.t.Helper()
	s.patch(s.connection(), `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`)
}

func aWrongToken(s *situation) {
	s.useToken("ghp_wrong")
	s.begin()
	p := s.pool()
	ids := s.jobs(1, brief)
	s.Look("the token is wrong", s.both(s.says(p, v1alpha1.ConnectionNotReadyReason), s.says(s.connection(), v1alpha1.CredentialsRefusedReason)), "pool/linux", s.job(0))
	s.useToken(s.w.CredentialsSecret("", "").StringData[v1alpha1.TokenKey])
	s.requestConnection()
	s.w.allDone(s.t, ids)
	s.ends()
}

func aMissingGroup(s *situation) {
	s.begin()
	p := s.pool(func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup = "gpu" })
	s.Look("the runner group is missing", s.says(p, v1alpha1.RunnerGroupNotFoundReason), "pool/linux", s.job(0))
	s.patch(p, `{"spec":{"runnerGroup":"default"}}`)
	s.w.allDone(s.t, s.jobs(1, brief))
	s.ends()
}

func aGitHubThatAnswers500(s *situation) {
	s.begin()
	p := s.listening()
	for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointGetMessage, githubsim.EndpointCreateSession, githubsim.EndpointGetScaleSet, githubsim.EndpointJITConfig} {
		s.w.GitHub.AddFault(githubsim.Fault{Endpoint: endpoint, Status: 500})
	}
	ids := s.jobs(1, brief)
	s.Look("GitHub answers 500", s.away(p), "pool/linux", s.job(0))
	s.w.GitHub.ClearFaults()
	s.w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 500}) // until the session is open and reports the end of the job
	eventually(s.t, s.ready(&v1alpha1.RunnerScaleSet{ObjectMeta: p.ObjectMeta}))
	s.w.GitHub.ClearFaults()
	s.w.allDone(s.t, ids)
	s.ends()
}

func aGitHubThatAnswers429(s *situation) {
	s.begin()
	p := s.listening()
	s.w.GitHub.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 429, RetryAfter: 10 * time.Second})
	ids := s.jobs(1, brief)
	s.Look("GitHub answers 429", s.away(p), "pool/linux", s.job(0))
	s.w.GitHub.ClearFaults()
	s.w.allDone(s.t, ids)
	s.ends()
}

// inject strikes the given number of the situation's pods, or all if it is 0.
func (s *situation) inject(kind nodeplay.FaultKind, times int) (heal func()) {
	heal = s.w.Node.Inject(nodeplay.Fault{Kind: kind, Namespace: s.namespace, Times: times})
	s.t.Cleanup(heal)
	return heal
}

func failingPods(s *situation) {
	s.begin()
	p := s.listening()
	s.inject(nodeplay.CrashBeforeConnecting, scaling.Tolerated)
	ids := s.jobs(1, brief)
	s.Look("its runners fail", s.says(p, v1alpha1.RunnersFailingReason), "pool/linux", s.job(0))
	s.w.allDone(s.t, ids)
	s.ends()
}

func aFullPool(s *situation) {
	s.begin()
	s.listening(atMost(2))
	ids := s.jobs(6, time.Hour)
	s.Look("the pool is full", s.runs(2, 2), "pool/linux", s.job(0), s.job(5))
	s.cancel(ids)
	s.ends()
}

func aSuspendedPool(s *situation) {
	s.begin()
	p := s.listening()
	s.patch(p, `{"spec":{"stopPolicy":"Drain"}}`)
	eventually(s.t, s.says(p, v1alpha1.SuspendedReason))
	s.announced(0)
	ids := s.jobs(1, brief)
	s.Look("the pool is suspended", s.says(p, v1alpha1.SuspendedReason), "pool/linux", s.job(0))
	s.patch(p, `{"spec":{"stopPolicy":"None"}}`)
	s.w.allDone(s.t, ids)
	s.ends()
}

func privileged(p *v1alpha1.RunnerPool) {
	p.Spec.Template = runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:1","securityContext":{"privileged":true}}]}}`)}
}

func aDeniedPool(s *situation) {
	s.begin()
	guard := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "guard"}}
	guard.Spec.Modules = map[string]string{"template.rego": teamPolicy}
	must(s.t, s.w.Client.Create(s.t.Context(), guard))
	p := s.pool(privileged)
	ids := s.jobs(1, brief)
	s.Look("a policy denies the pool", s.says(p, v1alpha1.PolicyDeniedReason), "pool/linux", s.job(0))
	s.patch(p, `{"spec":{"template":{"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}}}`)
	s.w.allDone(s.t, ids)
	s.ends()
}

func aCeiling(s *situation) {
	s.begin()
	s.listening()
	must(s.t, s.w.Client.Create(s.t.Context(), limitPolicy(s.namespace, "limits", 1)))
	waitLimits(s.t, key(s.namespace, "linux"), 1)
	s.announced(1)
	ids := s.jobs(3, time.Hour)
	s.Look("a policy holds the pool to 1", s.runs(1, 1), "pool/linux", s.job(2))
	s.cancel(ids)
	s.ends()
}

func aStuckRunner(s *situation) {
	s.begin()
	s.listening()
	heal := s.inject(nodeplay.Unschedulable, 0)
	ids := s.jobs(1, brief)
	var stuck string
	eventually(s.t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerList{}
		err := s.w.Client.List(ctx, list, client.InNamespace(s.namespace))
		if len(list.Items) == 0 {
			return fmt.Errorf("no runner is made: %w", err)
		}
		stuck = list.Items[0].Name
		return nil
	})
	s.Look("no node takes a runner's pod", s.runner(v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable), "pool/linux", "runner/"+stuck, s.job(0))
	heal()
	s.w.allDone(s.t, ids)
	s.ends()
}

func aStolenSession(s *situation) {
	s.begin()
	p := s.listening()
	if !s.w.GitHub.StealSession(s.w.GitHub.Report().ScaleSets[0].ID, "elsewhere/pool") {
		s.t.Fatal("no session to steal")
	}
	ids := s.jobs(1, brief)
	s.Look("somebody else holds the session", s.says(p, v1alpha1.OwnedElsewhereReason), "pool/linux", s.job(0))
	s.w.allDone(s.t, ids) // once the other owner's session has expired
	s.ends()
}

func aDeletionWhileBusy(s *situation) {
	s.begin()
	p := s.listening()
	ids := s.jobs(1, time.Hour)
	eventually(s.t, s.both(s.runs(1, 1), s.runner(v1alpha1.RunnerBusy, "")))
	must(s.t, s.w.Client.Delete(s.t.Context(), p))
	s.Look("the pool is deleted while its job runs", func(ctx context.Context) error {
		if err := s.w.Client.Get(ctx, client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the pool may be there: %w", err)
		}
		return s.runner(v1alpha1.RunnerBusy, "")(ctx)
	}, "pool/linux")
	s.cancel(ids)
	s.w.cleanUp(s.t, s.namespace)
	s.Tale("the whole story")
}

func aSecretThatIsGone(s *situation) {
	s.begin()
	s.listening()
	must(s.t, s.w.Client.Delete(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "acme"}}))
	s.requestConnection()
	s.Look("the credentials are gone", s.says(s.connection(), v1alpha1.CredentialsMissingReason), "pool/linux")
	must(s.t, s.w.Client.Create(s.t.Context(), s.w.CredentialsSecret(s.namespace, "acme")))
	eventually(s.t, s.ready(s.connection()))
	s.w.allDone(s.t, s.jobs(1, brief))
	s.ends()
}

// A killed controller cannot shut down cleanly, and misses GitHub's messages until it restarts.
func aRestartInABurst(s *situation) {
	s.begin()
	s.listening(atMost(8))
	ids := s.jobs(24, 500*time.Millisecond)
	s.w.untilDone(s.t, ids, 8)
	s.Logs[0].Kill()
	s.begin()
	s.w.allDone(s.t, ids)
	s.Look("all jobs are done", s.calm)
	s.Tale("what was said of it")
	s.w.cleanUp(s.t, s.namespace)
}
