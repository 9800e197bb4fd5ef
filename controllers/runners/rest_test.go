// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// restRegistry returns the same REST client for every connection.
type restRegistry struct{ client *rest.Client }

func (r restRegistry) Get(string) (*rest.Client, bool) { return r.client, true }

const (
	testCluster = "cluster"
	testPoolUID = "p1"
)

// newRESTBench returns a bench whose Runner registers through the REST API.
func newRESTBench(t *testing.T) *bench {
	t.Helper()
	return newRESTBenchOn(t, githubsim.Options{})
}

func newRESTBenchOn(t *testing.T, o githubsim.Options) *bench {
	t.Helper()
	b := newBenchOn(t, o)
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	gh, err := rest.NewClient(github.Credentials{ConfigURL: b.github.ConfigURL("acme"), Token: "t"},
		github.Options{Transport: network, Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.REST = restRegistry{gh}
	b.Clients.(*registry).gone = true
	old := b.runner()
	old.Finalizers = nil
	if err := b.Client.Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := b.Client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := b.Client.Delete(t.Context(), b.pool()); err != nil {
		t.Fatal(err)
	}
	b.create(restRunner("linux-a", b.now, b.github.ConfigURL("acme")))
	b.create(restPool())
	return b
}

func (b *bench) update(obj client.Object) {
	b.t.Helper()
	if err := b.Client.Update(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create(obj client.Object) {
	b.t.Helper()
	if err := b.Client.Create(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

func restPool() *v1alpha1.RunnerPool {
	return &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", UID: testPoolUID},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, Registration: v1alpha1.RegisterREST, RunnerLabels: []string{"gpu"},
		},
	}
}

func restRunner(name string, created time.Time, url string) *v1alpha1.Runner {
	return &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: name, UID: "u1", Finalizers: []string{v1alpha1.RunnerFinalizer}, CreationTimestamp: metav1.Time{Time: created},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(restPool(), v1alpha1.GroupVersion.WithKind("RunnerPool"))},
		},
		Spec: v1alpha1.RunnerSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, Revision: "linux-1",
			REST: &v1alpha1.RESTRegistration{URL: url, RunnerGroup: "default", Labels: restPool().GetMarkedLabels(testCluster)},
		},
	}
}

func running(at time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: at}}}
}

func ended(at time.Time) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Time{Time: at}, FinishedAt: metav1.Time{Time: at}}}
}

// work runs the runner's process, which takes jobs, until the returned function is called.
func (b *bench) work() (stop func()) {
	b.t.Helper()
	secret := get(b, &corev1.Secret{}, podspec.SecretName("linux-a"))
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = simrunner.Run(ctx, string(secret.Data[podspec.JITKey]))
	}()
	return func() {
		cancel()
		<-done
	}
}

// job makes the runner's process run a job until the returned function is called.
func (b *bench) job() (end func()) {
	b.t.Helper()
	id, err := b.github.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"gpu"}, Duration: time.Hour})
	if err != nil {
		b.t.Fatal(err)
	}
	stop := b.work()
	b.until("the job", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 1 })
	return func() {
		b.github.CancelJob(id)
		b.until("the job's end", func(r githubsim.Report) bool { return len(r.Runners) == 0 })
		stop()
	}
}

func (b *bench) until(what string, cond func(githubsim.Report) bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	if err := b.github.WaitUntil(ctx, func() bool { return cond(b.github.Report()) }); err != nil {
		b.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func TestARESTRunnerIsRegisteredWithItsLabelsAndDeregisteredAfterItsJob(t *testing.T) {
	b := newRESTBench(t)
	b.reconcile()
	made := b.github.Report().Runners
	if len(made) != 1 || made[0].Scope != "orgs/acme" || int64(made[0].ID) != b.runner().Status.RunnerID {
		t.Fatalf("registered: %+v", made)
	}
	if diff := cmp.Diff(b.runner().Spec.REST.Labels, made[0].Labels); diff != "" {
		t.Error(diff)
	}
	if b.pod() == nil {
		t.Fatal("no pod")
	}
	end := b.job()
	b.setPod(running(b.now))
	b.delete()
	if after := b.reconcile().RequeueAfter; after != busyRetry || b.pod() == nil || b.registered() != 1 {
		t.Fatalf("a runner with a job was touched; looks again in %s", after)
	}
	if b.pod().Labels[v1alpha1.JobIDLabel] != "" { // GitHub gives the same answer for runners that never connected, which would look busy forever
		t.Error("its pod is marked as one with a job")
	}
	end()
	b.setPod(ended(b.now))
	b.passes(2, goneAfter)
	b.reconcile()
	if b.pod() != nil || b.runner() != nil {
		t.Errorf("left behind: %+v", b.runner())
	}
}

func TestARESTRegistrationWhoseAnswerWasLostIsMadeAgain(t *testing.T) {
	b := newRESTBench(t)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGenerateJITConfig, Times: 1, DropAnswer: true, Status: 502})
	b.reconcile()
	if b.registered() != 1 || b.pod() != nil {
		t.Fatalf("%d registrations after the lost answer", b.registered())
	}
	b.reconcile()
	b.reconcile()
	if b.registered() != 1 || b.pod() == nil {
		t.Errorf("%d registrations, pod %v", b.registered(), b.pod())
	}
}

func TestRESTRegistrationFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*bench)
		reason  string
		text    string
	}{
		"no such group": {func(b *bench) {
			r, p := b.runner(), b.pool()
			r.Spec.REST.RunnerGroup, p.Spec.RunnerGroup = "none", "none"
			b.update(r)
			b.update(p)
		}, v1alpha1.RunnerGroupNotFoundReason, `looking up runner group "none"`},
		"no right": {func(b *bench) {
			b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGenerateJITConfig, Status: 404})
		},
			v1alpha1.PermissionMissingReason, "may not register runners for organization acme"},
		"a limit": {func(b *bench) {
			b.github.AddFault(githubsim.SecondaryLimit(githubsim.EndpointGenerateJITConfig, time.Minute))
		}, v1alpha1.GitHubUnavailableReason, "secondary rate limit"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRESTBench(t)
			tc.prepare(b)
			after := b.reconcile().RequeueAfter
			r := b.runner()
			if reason := conditions.GetReason(r, v1alpha1.ReadyCondition); reason != tc.reason || !strings.Contains(r.Status.Reason, tc.text) || after == 0 {
				t.Errorf("reason %s, %q; looks again in %s", reason, r.Status.Reason, after)
			}
		})
	}
}

func TestANameThatSomebodyElseRegisteredIsLeftAlone(t *testing.T) {
	b := newRESTBench(t)
	gh, _ := b.REST.Get("")
	if _, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: "linux-a", Labels: []string{"gpu"}}); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	b.reconcile()
	if r := b.runner(); b.registered() != 1 || r != nil && r.Status.State != v1alpha1.RunnerFailed {
		t.Errorf("%d registrations, runner %+v", b.registered(), r)
	}
}

// failures returns the failures of the pool's runners since the previous call.
func (b *bench) failures() []Failure {
	return b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Failures
}

func TestARunnerThatGitHubRemovedHadAJob(t *testing.T) {
	for name, seen := range map[string]bool{"that nobody saw": false, "that the collector saw": true} {
		t.Run(name, func(t *testing.T) {
			b := newRESTBench(t)
			b.reconcile()
			if seen {
				recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
				if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{{Type: scaleset.JobStarted, JobID: v1alpha1.UnknownJob, RunnerName: "linux-a", At: b.now}}); err != nil {
					t.Fatal(err)
				}
			}
			b.setPod(ended(b.now))
			b.github.PurgeRunner(int(b.runner().Status.RunnerID)) // as at the end of its job
			b.reconcile()
			if r := b.runner(); r.Status.State != v1alpha1.RunnerFinished || r.DeletionTimestamp.IsZero() || r.Status.Job == nil || (r.Status.Job.StartedAt != nil) != seen {
				t.Errorf("status %+v", r.Status)
			}
			if _, over := b.Memory.Completion(client.ObjectKeyFromObject(b.runner()), b.runner().UID); !over {
				t.Error("the pool isn't told")
			}
			b.reconcile()
			if failures := b.failures(); b.runner() != nil || len(failures) != 0 {
				t.Errorf("runner %+v, failures %+v", b.runner(), failures)
			}
		})
	}
}

func TestARESTRunnerThatEndedInPeaceWithoutAJobFailed(t *testing.T) {
	b := newRESTBench(t)
	b.reconcile()
	b.setPod(ended(b.now))
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerFinished || !r.DeletionTimestamp.IsZero() {
		t.Fatalf("not waited for GitHub's word: %+v", r.Status)
	}
	b.now = b.now.Add(time.Minute)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunner, Times: 1, Status: 502})
	b.reconcile()
	if r := b.runner(); !r.DeletionTimestamp.IsZero() {
		t.Fatal("judged while GitHub doesn't answer")
	}
	b.reconcile()
	b.reconcile()
	failures := b.failures()
	if b.runner() != nil || b.registered() != 0 || len(failures) != 1 || failures[0].Clean || failures[0].Cause != v1alpha1.CauseCrash {
		t.Errorf("runner %+v, failures %+v", b.runner(), failures)
	}
}

// A runner that is killed during a job is not a failure of the template, so it does not hold the pool back.
func TestARESTRunnerThatIsKilledInItsJobIsNoFailureOfThePools(t *testing.T) {
	b := newRESTBench(t)
	b.reconcile()
	end := b.job()
	killed := ended(b.now)
	killed.Terminated.ExitCode, killed.Terminated.Reason = 137, "OOMKilled"
	b.setPod(killed)
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerFailed || r.Status.Job == nil || !strings.Contains(r.Status.Reason, "with a job") {
		t.Errorf("status %+v", r.Status)
	}
	b.reconcile()
	if b.runner() == nil || b.registered() != 1 {
		t.Error("let go before GitHub failed its job")
	}
	end()
	b.passes(2, goneAfter)
	if failures := b.failures(); b.runner() != nil || len(failures) != 1 || !failures[0].HadJob || failures[0].Cause != "" {
		t.Errorf("runner %+v, failures %+v", b.runner(), failures)
	}
}

func TestARESTRunnerThatCrashesWithoutAJobFailed(t *testing.T) {
	b := newRESTBench(t)
	b.reconcile()
	crashed := ended(b.now)
	crashed.Terminated.ExitCode = 1
	b.setPod(crashed)
	b.reconcile()
	b.reconcile()
	failures := b.failures()
	if b.runner() != nil || b.registered() != 0 || len(failures) != 1 || failures[0].Cause != v1alpha1.CauseCrash {
		t.Errorf("runner %+v, failures %+v", b.runner(), failures)
	}
}

// collect advances the clock and compares each connection that is due.
func (b *bench) collect(c *RunnerCollector, after time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(after)
	var running sync.WaitGroup
	c.round(b.t.Context(), &running)
	running.Wait()
}

func (b *bench) newCollector() *RunnerCollector {
	return &RunnerCollector{
		Reporter: b.Reporter, Live: b.Live, Clients: b.Clients, REST: b.REST, Sessions: counted{Sets: b.Sets}, Memory: b.Memory, Cluster: testCluster,
		Now: func() time.Time { return b.now },
	}
}

func TestCollectorFindsAJobWithoutEvents(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	end := b.job()
	b.collect(c, time.Minute)
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerBusy || r.Status.Job.ID != v1alpha1.UnknownJob {
		t.Fatalf("status %+v", r.Status)
	}
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	late := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "7", Repository: "acme/app", RunnerName: "linux-a", RunnerID: b.runner().Status.RunnerID, At: b.now}
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{late}); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if job := b.pod().Annotations[v1alpha1.JobAnnotation]; !strings.Contains(job, `"id":"7"`) {
		t.Errorf("the job's name came late, the pod has %s", job)
	}
	end()
	b.collect(c, time.Minute)
	b.passes(10, absentLook) // the check that the suspicion requests
	if r := b.runner(); !r.DeletionTimestamp.IsZero() || r.Status.State != v1alpha1.RunnerBusy {
		t.Fatalf("ended by the word of GitHub's absence alone: %+v", r.Status)
	}
	b.passes(1, absentLook)
	if r := b.runner(); r.DeletionTimestamp.IsZero() || r.Status.State != v1alpha1.RunnerFinished {
		t.Errorf("status %+v", r.Status)
	}
}

func TestTheCollectorEndsARunnerThatNeverConnects(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	b.collect(c, time.Minute)
	b.collect(c, 2*time.Minute)
	if r := b.runner(); !r.DeletionTimestamp.IsZero() {
		t.Fatal("ended when it was seen offline once")
	}
	b.collect(c, 2*time.Minute)
	failures := b.failures()
	if r := b.runner(); r.DeletionTimestamp.IsZero() || len(failures) != 1 || failures[0].Cause != v1alpha1.CauseNeverConnected {
		t.Errorf("failures %+v", failures)
	}
	b.reconcile()
	if r := b.runner(); r != nil && r.Status.State != v1alpha1.RunnerFailed {
		t.Errorf("status %+v", r.Status)
	}
}

// The URL of a connection never changes, but the connection may be deleted and another created with its name. There, the
// runner's ID belongs to another runner.
func TestAConnectionIsRecreatedWithAnotherURL(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{{Type: scaleset.JobStarted, JobID: "7", RunnerName: "linux-a", At: b.now}}); err != nil {
		t.Fatal(err)
	}
	b.github.AddOrg("other")
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	other, err := rest.NewClient(github.Credentials{ConfigURL: b.github.ConfigURL("other"), Token: "t"}, github.Options{Transport: network, Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.REST = restRegistry{other}
	c.REST = b.REST
	b.create(&v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}})
	b.collect(c, time.Minute)
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerBusy || !r.DeletionTimestamp.IsZero() {
		t.Fatalf("status %+v", r.Status)
	}
	b.delete()
	b.now = b.runner().DeletionTimestamp.Add(orphanAfter * 2)
	b.reconcile()
	if b.pod() == nil {
		t.Fatal("a runner with a job was ended")
	}
	b.setPod(ended(b.now))
	b.reconcile()
	if b.runner() != nil || b.github.Report().Requests[githubsim.EndpointDeleteRunner] != 0 {
		t.Errorf("not given up, or somebody else's was removed: %+v", b.runner())
	}
}

// nowhere has no client of any connection.
type nowhere struct{}

func (nowhere) Get(string) (*rest.Client, bool) { return nil, false }

// Without webhooks and without rights, it is unknown whether a runner has a job.
func TestARunnerThatMayHaveAJobIsWaitedFor(t *testing.T) {
	for name, after := range map[string]time.Duration{"its container ends": orphanAfter, "it never does": jobUnknownAfter} {
		t.Run(name, func(t *testing.T) {
			b := newRESTBench(t)
			b.reconcile()
			b.setPod(running(b.now))
			b.reconcile()
			b.REST = nowhere{} // there is no connection either
			b.delete()
			begun := b.runner().DeletionTimestamp.Time
			b.now = begun.Add(jobUnknownAfter - time.Second)
			b.reconcile()
			if b.pod() == nil {
				t.Fatal("its pod was ended")
			}
			b.now = begun.Add(after)
			if after == orphanAfter {
				b.setPod(ended(b.now))
			}
			b.reconcile()
			b.reconcile()
			if b.runner() != nil || b.pod() != nil {
				t.Errorf("not given up: %+v", b.runner().Status)
			}
		})
	}
}

func TestTheCollectorLeavesARunnerAloneThatIsConnected(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	stop := b.work()
	defer stop()
	b.until("the runner", func(r githubsim.Report) bool { return r.Runners[0].Online })
	for range 5 {
		b.collect(c, 2*time.Minute)
		b.reconcile()
	}
	if r := b.runner(); !r.DeletionTimestamp.IsZero() || r.Status.State != v1alpha1.RunnerIdle {
		t.Errorf("status %+v", r.Status)
	}
	if n := b.github.Report().Requests[githubsim.EndpointRunners]; n != 5 {
		t.Errorf("GitHub was asked %d times in ten minutes", n)
	}
}

func TestWhatWasLeftBehindIsSwept(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	stop := b.work()
	defer stop()
	b.until("the runner", func(r githubsim.Report) bool { return r.Runners[0].Online })
	gh, _ := b.REST.Get("")
	for name, labels := range map[string][]string{
		"linux-leaked":  {"gpu", v1alpha1.OwnerLabel(testCluster, testPoolUID)},
		"another-pools": {"gpu", v1alpha1.OwnerLabel(testCluster, "p2")},
		"anothers":      {"gpu"},
	} {
		if _, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: name, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	names := func() map[string]bool {
		there := map[string]bool{}
		for _, r := range b.github.Report().Runners {
			there[r.Name] = true
		}
		return there
	}
	for range leakAfter / time.Minute {
		b.collect(c, time.Minute)
		if !names()["linux-leaked"] {
			t.Fatal("swept before its time")
		}
	}
	b.collect(c, time.Minute)
	if diff := cmp.Diff(map[string]bool{"linux-a": true, "another-pools": true, "anothers": true}, names()); diff != "" {
		t.Error(diff)
	}
}

// Two servers, and two organizations of one server, count their runners separately. A Runner that is registered elsewhere
// keeps no registration with the same ID.
func TestAnIDElsewhereIsAnotherRegistration(t *testing.T) {
	for name, tc := range map[string]struct {
		url    string
		remain int
	}{
		"another server":          {"https://github.example.com/acme", 0},
		"a place that is unknown": {"", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRESTBench(t)
			c := b.newCollector()
			gh, _ := b.REST.Get("")
			leaked, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: "linux-leaked", Labels: restPool().GetMarkedLabels(testCluster)})
			if err != nil {
				t.Fatal(err)
			}
			other := restRunner("linux-b", b.now, tc.url)
			other.UID, other.Status.RunnerID = "u2", leaked.RunnerID
			b.create(other)
			b.collect(c, time.Minute)
			b.collect(c, leakAfter)
			if n := b.registered(); n != tc.remain {
				t.Errorf("%d registrations are left, want %d", n, tc.remain)
			}
		})
	}
}

func TestARegistrationOfAPoolThatIsGoneIsSweptForAnHour(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	b.collect(c, time.Minute)
	r := b.runner()
	r.Finalizers = nil // by force
	if err := b.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, obj := range []client.Object{r, restPool()} {
		if err := b.Client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	b.collect(c, time.Minute)
	b.collect(c, leakAfter)
	if b.registered() != 0 {
		t.Error("left behind")
	}
	b.collect(c, markLife+time.Minute)
	b.collect(c, restInterval)
	if len(c.memories) != 0 {
		t.Errorf("remembered for ever: %+v", c.memories)
	}
}

// Some servers fail a job at once if no runner with its labels is registered.
func TestAPlaceholderKeepsJobsWaiting(t *testing.T) {
	b := newRESTBenchOn(t, githubsim.Options{FailWithoutRunner: true})
	queue := func() string {
		id, err := b.github.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"self-hosted", "gpu"}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.github.CancelJob(id)
		jobs := b.github.Jobs()
		return string(jobs[len(jobs)-1].State)
	}
	if state := queue(); state != string(githubsim.JobCompleted) {
		t.Fatalf("without a runner a job is %s", state)
	}
	c := b.newCollector()
	b.delete()
	b.reconcile()
	pool := get(b, &v1alpha1.RunnerPool{}, "linux")
	pool.Spec.REST = &v1alpha1.RESTSpec{Placeholder: v1alpha1.PlaceholderAlways}
	if err := b.Client.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	b.collect(c, restInterval)
	made := b.github.Report().Runners
	if len(made) != 1 || len(made[0].Labels) != 5 || made[0].Online || len(made[0].Name) > 64 {
		t.Fatalf("registered: %+v", made)
	}
	if state := queue(); state != string(githubsim.JobQueued) {
		t.Errorf("with a placeholder a job is %s", state)
	}
	for range 8 {
		b.collect(c, time.Minute)
	}
	if now := b.github.Report().Runners; len(now) != 1 || now[0].ID != made[0].ID {
		t.Fatalf("swept or made again: %+v", now)
	}
	pool.Spec.RunnerLabels = []string{"gpu", "large"}
	if err := b.Client.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	b.collect(c, time.Minute)
	if now := b.github.Report().Runners; len(now) != 1 || len(now[0].Labels) != 6 {
		t.Errorf("with the labels of before: %+v", now)
	}
	pool.Spec.REST = nil
	if err := b.Client.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	b.collect(c, time.Minute)
	b.collect(c, leakAfter)
	if b.registered() != 0 {
		t.Error("kept although it isn't wanted any more")
	}
}

// The namespaces that use a connection share GitHub's limits. A pool whose labels change again and again gets one new
// placeholder an hour.
func TestAPlaceholderIsReplacedOnceAnHour(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.delete()
	b.reconcile()
	pool := get(b, &v1alpha1.RunnerPool{}, "linux")
	pool.Spec.REST = &v1alpha1.RESTSpec{Placeholder: v1alpha1.PlaceholderAlways}
	b.update(pool)
	b.collect(c, restInterval)
	var registered []int
	for i := range 130 { // minutes
		pool.Spec.RunnerLabels = []string{fmt.Sprint("label-", i)}
		b.update(pool)
		b.collect(c, time.Minute)
		now := b.github.Report().Runners
		if len(now) != 1 {
			t.Fatalf("minute %d: %+v", i, now)
		}
		if len(registered) == 0 || registered[len(registered)-1] != now[0].ID {
			registered = append(registered, now[0].ID)
		}
	}
	if len(registered) != 3 {
		t.Errorf("%d placeholders in 130 minutes", len(registered))
	}
}

// Pools that are replaced by new pools get new placeholders. One visit registers few of them for one namespace.
func TestOneVisitRegistersFewPlaceholders(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.delete()
	b.reconcile()
	gh, _ := b.REST.Get("")
	v := visit{RunnerCollector: c, fleet: &fleet{}, gh: gh}
	for i := range placeholdersAtOnce + 10 {
		p := restPool()
		p.Name, p.UID = fmt.Sprint("pool-", i), types.UID(fmt.Sprint("u", i))
		p.Spec.REST = &v1alpha1.RESTSpec{Placeholder: v1alpha1.PlaceholderAlways}
		if i < 2 {
			p.Namespace = "other"
		}
		v.pools = append(v.pools, p)
	}
	for _, want := range []int{placeholdersAtOnce + 2, placeholdersAtOnce + 10} {
		list, err := gh.Runners(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		v.keepPlaceholders(t.Context(), list.Runners)
		if n := b.registered(); n != want {
			t.Errorf("%d placeholders, want %d", n, want)
		}
		b.now = b.now.Add(time.Minute)
	}
}

func TestLabelsAreComparedAsGitHubDoes(t *testing.T) {
	want := []string{"gpu", "self-hosted", "linux", "x64"}
	if !sameLabels([]string{"self-hosted", "X64", "Linux", "gpu"}, want) || sameLabels([]string{"self-hosted", "X64", "Linux"}, want) {
		t.Error("compared by their case, or their number isn't")
	}
}

func TestTheCollectorOfOneConnectionWaitsForNoOther(t *testing.T) {
	b := newRESTBench(t)
	c := b.newCollector()
	b.reconcile()
	remove := b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunners, Hang: true})
	var running sync.WaitGroup
	b.now = b.now.Add(time.Minute)
	c.round(t.Context(), &running) // hangs
	other := restPool()
	other.Name, other.UID, other.Spec.ConnectionRef.Name = "other", "p2", "other"
	b.create(other)
	c.round(t.Context(), &running)
	c.mu.Lock()
	taken := len(c.memories)
	c.mu.Unlock()
	if taken != 2 {
		t.Errorf("%d connections were begun", taken)
	}
	remove()
	running.Wait()
}

func TestNoRunnerMountsAWebhooksSecret(t *testing.T) {
	b := newRESTBench(t)
	b.create(&v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"},
		Spec: v1alpha1.GitHubConnectionSpec{
			SecretRef: &v1alpha1.LocalObjectReference{Name: "token"},
			Webhook:   &v1alpha1.ConnectionWebhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}},
		},
	})
	got, err := Credentials(t.Context(), b.Client, "ci")
	if diff := cmp.Diff([]string{"token", "hook"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A runner that ended just before its connection lost its client, or before the controller restarted, waits until GitHub
// can be asked about its job. It is neither deleted nor blamed before that.
func TestAnEndedRunnerWaitsForItsConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		bench   func(*testing.T) *bench
		code    int32
		hadJob  bool
		noticed time.Duration // how long after the end Corral notices it
	}{
		"scale set, no job":            {bench: newBench},
		"scale set, job":               {bench: newBench, hadJob: true},
		"scale set, after an outage":   {bench: newBench, hadJob: true, noticed: 2 * poolstatus.JobLost},
		"REST, no job":                 {bench: newRESTBench},
		"REST, job":                    {bench: newRESTBench, hadJob: true},
		"REST, killed during a job":    {bench: newRESTBench, hadJob: true, code: 137},
		"REST, killed while it waited": {bench: newRESTBench, code: 137, noticed: 2 * poolstatus.JobLost},
	} {
		t.Run(name, func(t *testing.T) {
			b := tc.bench(t)
			b.reconcile()
			end := ended(b.now)
			end.Terminated.ExitCode = tc.code
			b.setPod(end)
			if tc.hadJob {
				b.github.PurgeRunner(int(b.runner().Status.RunnerID)) // as at the end of its job
			}
			clients, restClients := b.Clients, b.REST
			b.Clients, b.REST = &registry{gone: true}, nowhere{}
			b.now = b.now.Add(tc.noticed)
			b.passes(3, poolstatus.Settle)
			if r := b.runner(); !r.DeletionTimestamp.IsZero() || conditions.GetReason(r, v1alpha1.ReadyCondition) != v1alpha1.ConnectionNotReadyReason || len(b.failures()) != 0 {
				t.Fatalf("judged before GitHub was asked: %+v", r.Status)
			}
			b.Clients, b.REST = clients, restClients
			b.reconcile()
			failures := 1
			if tc.hadJob {
				failures = 0
			}
			if got := b.failures(); b.runner().DeletionTimestamp.IsZero() || len(got) != failures {
				t.Errorf("status %+v, failures %+v", b.runner().Status, got)
			}
		})
	}
}

// A connection that never returns does not keep an ended runner forever.
func TestAnEndedRunnerGivesUpItsConnection(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *bench{"scale set": newBench, "REST": newRESTBench} {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			b.reconcile()
			b.setPod(ended(b.now))
			b.Clients, b.REST = &registry{gone: true}, nowhere{}
			b.reconcile()
			b.passes(1, poolstatus.JobLost)
			if r := b.runner(); r.DeletionTimestamp.IsZero() || len(b.failures()) != 1 {
				t.Errorf("status %+v", r.Status)
			}
		})
	}
}
