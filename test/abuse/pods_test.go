// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// podFixture is a fixture with its own simulated GitHub and two pools on one connection. Faults affect only the pods of
// one of them.
type podFixture struct {
	*fixture
	pool *v1alpha1.RunnerPool
}

const (
	struck = "struck"
	spared = bystander + "-spared"
)

// newPodFixture creates the fixture. admit creates the pool that faults strike.
func newPodFixture(t *testing.T) *podFixture {
	t.Helper()
	s := newFixtureOnOwnGitHub(t, githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second})
	s.pool(spared)
	return &podFixture{fixture: s}
}

// shortDeadlines shortens the pool's deadlines, for faults that only a deadline detects. With the default
// deadlines, a slow machine delays runners but does not fail them.
func shortDeadlines(p *v1alpha1.RunnerPool) {
	deadline := metav1.Duration{Duration: 5 * time.Second}
	p.Spec.Deadlines = v1alpha1.DeadlinesSpec{Startup: &deadline, Connect: &deadline}
}

// admit creates the pool that faults strike.
func (a *podFixture) admit(change ...func(*v1alpha1.RunnerPool)) {
	a.Helper()
	a.fixture.pool(struck, change...)
	a.pool = &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: struck}}
}

// inject injects a fault into the pool's pods.
func (a *podFixture) inject(m nodeplay.FaultKind, times int) (heal func()) {
	return w.Node.Inject(nodeplay.Fault{
		Kind: m, Times: times, After: 3 * time.Second, Namespace: a.namespace, Labels: map[string]string{v1alpha1.PoolLabel: struck},
	})
}

// keepPods lets GitHub refuse to remove registrations until release is called, so that no runner can be cleaned
// up. The test can then check that replacements do not wait for the cleanup.
func (a *podFixture) keepPods() (release func()) {
	a.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning})
	return a.github.ClearFaults
}

// runnerSays waits until a runner of the pool is in a state, for a cause unless it is empty, and its status has a value: the code of a cause of
// Ready, or the text of another program in a detail or in the reason of the state. It returns the runner's name.
func (a *podFixture) runnerSays(state v1alpha1.RunnerState, cause v1alpha1.RunnerCause, value string) (name string) {
	a.Helper()
	eventually(a.T, func(ctx context.Context) error {
		runners, err := a.runners(ctx, struck)
		if err != nil {
			return err
		}
		var seen []string
		for _, r := range runners {
			causes, details := recorder.Causes(&r, v1alpha1.ReadyCondition)
			said := strings.Join([]string{r.Status.Reason, causes, details}, "; ")
			if r.Status.State == state && (cause == "" || r.Status.Cause == cause) && strings.Contains(said, value) {
				name = r.Name
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s is %s (%s): %s", r.Name, r.Status.State, r.Status.Cause, said))
		}
		return fmt.Errorf("no runner is %s (%s) with %q:\n%s", state, cause, value, strings.Join(seen, "\n"))
	})
	return name
}

// isReplacedFirst waits until the pool's first runner is given up and has a replacement. It fails the test unless
// the first runner's pod still exists at that time. It returns the name of the first runner.
func (a *podFixture) isReplacedFirst() (failed string) {
	a.Helper()
	eventually(a.T, func(ctx context.Context) error {
		runners, err := a.runners(ctx, struck)
		if err != nil {
			return err
		}
		for _, r := range runners {
			if number(a.T, r.Name) == 1 && !r.DeletionTimestamp.IsZero() && len(runners) > 1 {
				failed = r.Name
				return nil
			}
		}
		return fmt.Errorf("none is replaced of %d runners", len(runners))
	})
	must(a.T, w.Client.Get(a.Context(), key(a.namespace, failed), &corev1.Pod{}))
	return failed
}

// isGone waits until nothing is left of a runner.
func (a *podFixture) isGone(failed string) {
	a.Helper()
	eventually(a.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(a.namespace, failed), &v1alpha1.Runner{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("runner %s: %w", failed, err)
		}
		if err := w.Client.Get(ctx, key(a.namespace, failed), &corev1.Pod{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod %s: %w", failed, err)
		}
		return nil
	})
	for _, r := range a.github.Report().Runners {
		if r.Name == failed {
			a.Errorf("%s is still registered", failed)
		}
	}
}

// isHeldBack waits until the pool reports that this many runners or more failed in a row, for a cause, with the text of another program.
// The pool may have created no more than one other runner, the next attempt.
func (a *podFixture) isHeldBack(failures int, cause v1alpha1.RunnerCause, text string) {
	a.Helper()
	failed := 0
	eventually(a.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(a.namespace, struck), a.pool); err != nil {
			return err
		}
		for _, kind := range []string{v1alpha1.HealthyCondition, v1alpha1.ReadyCondition} {
			causes := v1alpha1.CausesOf(a.pool.Status.Causes, kind)
			if !conditions.IsFalse(a.pool, kind) || len(causes) == 0 || causes[0].Code != "CircuitOpen" || !strings.Contains(causes[0].Detail, text) {
				return fmt.Errorf("the causes of %s are %+v, want %s", kind, causes, text)
			}
			var err error
			failed, err = strconv.Atoi(causes[0].Parameter("count"))
			if err != nil || failed < failures || causes[0].Parameter("cause") != string(cause) {
				return fmt.Errorf("the causes of %s are %+v, want %d or more of %s", kind, causes, failures, cause)
			}
		}
		return nil
	})
	runners, err := a.runners(a.Context(), struck)
	must(a.T, err)
	slow := 0 // on a busy machine, some runners miss their short deadlines, which does not count as a failure in a row
	for _, f := range a.pool.Status.Failures {
		if f.Cause != cause {
			slow++
		}
	}
	for _, r := range runners {
		if n := number(a.T, r.Name); n > failed+1+slow {
			a.Errorf("%s was made when %d had failed and %d were slow", r.Name, failed, slow)
		}
	}
}

// number returns the number in a runner's name, starting with 1.
func number(t *testing.T, runner string) int {
	t.Helper()
	n, err := strconv.Atoi(runner[strings.LastIndexByte(runner, '-')+1:])
	must(t, err)
	return n
}

// announces waits until the pool announces a capacity to GitHub.
func (a *podFixture) announces(capacity int) {
	a.Helper()
	eventually(a.T, func(context.Context) error {
		for _, set := range a.github.Report().ScaleSets {
			if set.Name == struck && set.Capacity != capacity {
				return fmt.Errorf("%d is announced, want %d", set.Capacity, capacity)
			}
		}
		return nil
	})
}

// isHealthy waits until the pool reports that its runners do not fail.
func (a *podFixture) isHealthy() {
	a.Helper()
	a.has(a.pool, metav1.Condition{Type: v1alpha1.HealthyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason})
	a.ready(a.pool)
}

// recovers waits until the pool reports that its runners do not fail any more. On a busy machine, the pool may give up its only
// runner as too slow although the runner did the job. The pool then tries again with the next job, which recovers adds.
func (a *podFixture) recovers() {
	a.Helper()
	slow := ""
	eventually(a.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(a.namespace, struck), a.pool); err != nil {
			return err
		}
		if conditions.IsTrue(a.pool, v1alpha1.HealthyCondition) {
			return nil
		}
		last := a.pool.Status.Failures[0]
		if last.Cause == v1alpha1.CauseSlow && last.Runner != slow {
			slow = last.Runner
			a.addJobs(struck, 1, time.Millisecond)
		}
		return fmt.Errorf("the last failure is %+v", last)
	})
	a.isHealthy()
}

// sparedGoesOn fails the test unless jobs run in the spared pool and in the bystander's pool.
func (a *podFixture) sparedGoesOn() {
	a.Helper()
	a.allDone(a.addJobs(spared, 1, time.Millisecond))
	a.othersGoOn()
}

// result waits until GitHub reports the end of a job, and returns its result.
func (a *podFixture) result(id string) (result string) {
	a.Helper()
	eventually(a.T, func(context.Context) error {
		j := a.job(id)
		if result = j.Result; result == "" {
			return fmt.Errorf("job %s is %s", id, j.State)
		}
		return nil
	})
	return result
}

func (a *podFixture) job(id string) githubsim.JobTimeline {
	jobs := a.github.Jobs()
	return jobs[slices.IndexFunc(jobs, func(j githubsim.JobTimeline) bool { return j.ID == id })]
}

// gitHubIsContent fails the test if a job was lost or ran twice, or if a busy runner was stopped. Violations by
// the failed runner are ignored.
func (a *podFixture) gitHubIsContent(failed string) {
	a.Helper()
	for _, broken := range a.github.Invariants() {
		if !strings.Contains(broken, failed) {
			a.Errorf("GitHub says: %s", broken)
		}
	}
}

func atMost(n int32) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = &n }
}

func template(spec string) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) {
		p.Spec.Template = runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"runner","image":"runner:1"}],%s}}`, spec)}
	}
}

// A lack of capacity resolves without a user, for example when nodes are added. Each runner waits until its
// deadline.
func TestAPodThatIsNeverScheduled(t *testing.T) {
	a := newPodFixture(t)
	const text = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."
	heal, release := a.inject(nodeplay.Unschedulable, 0), a.keepPods()
	a.admit(shortDeadlines, func(p *v1alpha1.RunnerPool) { p.Spec.Deadlines.Startup = &metav1.Duration{Duration: 30 * time.Second} }) // long enough for the look; the deadline of the next runner is doubled
	jobs := a.addJobs(struck, 1, time.Millisecond)
	a.look("Unschedulable", 0, "pool/"+struck, "runner/"+a.runnerSays(v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, text))
	a.runnerSays(v1alpha1.RunnerFailed, v1alpha1.CauseUnschedulable, text)
	failed := a.isReplacedFirst()
	a.sparedGoesOn()
	release()
	a.isGone(failed)
	heal()
	a.allDone(jobs)
	a.isHealthy()
	a.gitHubIsContent(failed)
}

// ill is a fault that strikes every runner of a pool, with the expected messages.
type ill struct {
	kind nodeplay.FaultKind
	// text is the reason of the first failed runner.
	text string
	// cause and complaint are the ones of the pool.
	cause     v1alpha1.RunnerCause
	complaint string
	// idle is the number of idle runners that the pool keeps. If it is 0, the pool gets one job.
	idle int
	// change modifies the pool.
	change []func(*v1alpha1.RunnerPool)
}

// withInit adds an init container.
func withInit() []func(*v1alpha1.RunnerPool) {
	return []func(*v1alpha1.RunnerPool){template(`"initContainers":[{"name":"tools","image":"tools:1"}]`)}
}

// neverStarts checks that the pool is held back, that it tries one runner from time to time, and that it resumes
// once the fault is gone.
func neverStarts(t *testing.T, i ill) {
	t.Helper()
	a := newPodFixture(t)
	heal, release := a.inject(i.kind, 0), a.keepPods()
	a.admit(append([]func(*v1alpha1.RunnerPool){shortDeadlines, func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(i.idle)) }}, i.change...)...)
	jobs := a.addJobs(struck, 1-i.idle, time.Millisecond)
	failed := a.isReplacedFirst()
	a.runnerSays(v1alpha1.RunnerFailed, i.cause, i.text)
	release()
	a.isHeldBack(3, i.cause, i.complaint)
	a.announces(0)
	a.sparedGoesOn()
	a.isHeldBack(4, i.cause, i.complaint)
	eventually(t, func(ctx context.Context) error {
		runners, err := a.runners(ctx, struck)
		if err == nil && len(runners) > 0 {
			err = fmt.Errorf("%d runners are left", len(runners))
		}
		return err
	})
	a.look(cmp.Or(i.complaint, string(i.cause)), 1, "pool/"+struck)
	heal()
	a.allDone(jobs)
	a.recovers()
	a.announces(10)
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	a.isGone(failed)
	a.gitHubIsContent(failed)
}

func TestAnImageThatIsRefused(t *testing.T) {
	const text = `failed to pull and unpack image "runner:1"`
	neverStarts(t, ill{
		kind:  nodeplay.ImageRefused,
		cause: v1alpha1.CauseImagePull, complaint: text,
	})
}

func TestAnInitContainerWhoseImageIsRefused(t *testing.T) {
	neverStarts(t, ill{
		kind: nodeplay.InitImageRefused, text: "container tools: ",
		cause: v1alpha1.CauseImagePull, complaint: `failed to pull and unpack image "tools:1"`, change: withInit(),
	})
}

func TestAnInitContainerThatFails(t *testing.T) {
	const text = "container tools: Error (exit code 1)"
	neverStarts(t, ill{kind: nodeplay.InitFails, text: text, cause: v1alpha1.CauseCrash, complaint: text, change: withInit()})
}

func TestARunnerThatCrashesBeforeItConnects(t *testing.T) {
	const text = "Error (exit code 1)"
	neverStarts(t, ill{
		kind: nodeplay.CrashBeforeConnecting, text: text,
		cause: v1alpha1.CauseCrash, complaint: text,
	})
}

func TestARunnerWhoseVersionIsRefused(t *testing.T) {
	const text = "exit code 7"
	neverStarts(t, ill{kind: nodeplay.VersionRefused, text: text, cause: v1alpha1.CauseOutdated, complaint: text})
}

func TestARunnerThatCrashesWhileIdle(t *testing.T) {
	const text = "Error (exit code 139)"
	neverStarts(t, ill{
		idle: 1,
		kind: nodeplay.CrashConnected, text: text,
		cause: v1alpha1.CauseCrash, complaint: text,
	})
}

func TestARunnerThatNeverConnects(t *testing.T) {
	neverStarts(t, ill{kind: nodeplay.NeverConnects, cause: v1alpha1.CauseNeverConnected})
}

// nodes simulates two nodes for the pods that name the fixture as their scheduler.
//
// Cleanup functions that check messages must be registered after this call, so that they run before the nodes
// stop. GitHub considers a runner on a stopped node to be offline.
func (a *podFixture) nodes() *nodeplay.Node {
	a.Helper()
	n, err := nodeplay.New(w.Cluster.Config, nodeplay.Options{
		NodeName: a.namespace, Nodes: 2, Namespace: a.namespace, Scheduler: a.namespace, Run: world.RunRunner,
	})
	must(a.T, err)
	ctx, stop := context.WithCancel(a.Context())
	done := make(chan error, 1)
	go func() { done <- n.Play(ctx) }()
	a.Cleanup(func() {
		stop()
		must(a.T, <-done)
	})
	return n
}

// scheduled assigns a pool's pods to the fixture's nodes.
func (a *podFixture) scheduled() func(*v1alpha1.RunnerPool) {
	return template(fmt.Sprintf(`"schedulerName":%q,"terminationGracePeriodSeconds":1`, a.namespace))
}

// loses waits for the given number of runners in a state, and removes the node of one of them for good. Its pods
// are marked as deleted, but no kubelet stops them. It returns the names of the node and of its runners.
func (a *podFixture) loses(n *nodeplay.Node, state v1alpha1.RunnerState, count int) (node string, lost []string) {
	a.Helper()
	eventually(a.T, func(ctx context.Context) error {
		runners, err := a.runners(ctx, struck)
		if err != nil {
			return err
		}
		runners = slices.DeleteFunc(runners, func(r v1alpha1.Runner) bool { return r.Status.State != state })
		if len(runners) != count {
			return fmt.Errorf("%d runners are %s, want %d", len(runners), state, count)
		}
		return nil
	})
	pods, err := a.pods(a.Context(), struck)
	must(a.T, err)
	node = pods[0].Spec.NodeName
	for _, p := range pods {
		if p.Spec.NodeName == node {
			lost = append(lost, p.Name)
		}
	}
	must(a.T, n.Lose(a.Context(), node, nodeplay.Loss{EvictAfter: time.Second}))
	return node, lost
}

func TestANodeThatIsLostWithIdleRunners(t *testing.T) {
	a := newPodFixture(t)
	n := a.nodes()
	// One Warning because the node ended runners that had been idle for less than ten seconds. On a slow machine,
	// another one for each runner whose pod remains.
	a.checkMessages(1 + 6)
	a.admit(a.scheduled(), func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(6)) })
	node, lost := a.loses(n, v1alpha1.RunnerIdle, 6)
	a.run(6, func([]corev1.Pod) error { return nil })
	a.runnerSays(v1alpha1.RunnerFailed, v1alpha1.CauseNode, "DeletionByTaintManager: ")
	for _, failed := range lost {
		must(t, w.Client.Get(t.Context(), key(a.namespace, failed), &corev1.Pod{}))
	}
	a.allDone(a.addJobs(struck, 3, time.Millisecond))
	a.sparedGoesOn()
	a.isHealthy()
	must(t, n.Return(t.Context(), node))
	for _, failed := range lost {
		a.isGone(failed)
	}
	a.gitHubIsContent(lost[0])
}

// The real kubectl drains a node without --force. Idle runners are evicted, and kubectl waits for the runner that
// has a job.
func TestANodeThatIsDrained(t *testing.T) {
	a := newPodFixture(t)
	a.nodes()
	a.checkMessages(0)
	a.admit(a.scheduled(), func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(3)) })
	job := a.addJobs(struck, 1, time.Hour)[0]
	busy := a.runnerSays(v1alpha1.RunnerBusy, "", "")
	var node string
	a.run(4, func(pods []corev1.Pod) error {
		beside := 0
		node = pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == busy })].Spec.NodeName
		for _, p := range pods {
			if p.Spec.NodeName == node {
				beside++
			}
		}
		if beside < 2 {
			return fmt.Errorf("%d pods are on the node of the job", beside)
		}
		return nil
	})
	kubectl, err := localcluster.Kubectl(t.Context(), io.Discard)
	must(t, err)
	output := &strings.Builder{}
	drain := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", w.Cluster.Kubeconfig(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data")
	drain.Stdout, drain.Stderr = output, output
	must(t, drain.Start())
	drained := make(chan error, 1)
	go func() { drained <- drain.Wait() }()
	a.run(4, func(pods []corev1.Pod) error {
		for _, p := range pods {
			if (p.Name == busy) != (p.Spec.NodeName == node) {
				return fmt.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
			}
		}
		return nil
	})
	select {
	case err := <-drained:
		t.Fatalf("the drain didn't wait for the job: %v\n%s", err, output)
	default:
	}
	a.github.CancelJob(job)
	if err := <-drained; err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	a.isHealthy()
	a.gitHubIsContent("none")
}

// Kubernetes refuses to evict a pod that two PodDisruptionBudgets select.
func TestAnotherBudgetOverRunnersWithAJob(t *testing.T) {
	s := newFixture(t)
	s.listening("linux")
	long := s.addJobs("linux", 1, harness.LongJob)
	s.create(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "mine"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.PoolLabel: "linux"}}},
	})
	s.hasEvent("linux", v1alpha1.DisruptionBudgetsReason, "mine", v1alpha1.JobIDLabel)
	s.look("mine", 1, "pool/linux")
	harness.CutShort(s.T, s.github, long...)
	s.othersGoOn()
}

// run waits until the given number of pods of the pool are running, are not being deleted, and pass a check.
func (a *podFixture) run(count int, are func([]corev1.Pod) error) {
	a.Helper()
	eventually(a.T, func(ctx context.Context) error {
		pods, err := a.pods(ctx, struck)
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil })
		if len(pods) != count {
			return fmt.Errorf("%d pods run", len(pods))
		}
		return are(pods)
	})
}

// Only GitHub decides when a job has failed.
func TestANodeThatIsLostWithAJob(t *testing.T) {
	a := newPodFixture(t)
	n := a.nodes()
	a.admit(a.scheduled())
	lost := a.addJobs(struck, 1, time.Hour)[0]
	node, failed := a.loses(n, v1alpha1.RunnerBusy, 1)
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	a.look("", 0, "runner/"+a.runnerSays(v1alpha1.RunnerFinished, "", "ContainerEnding"))
	if got := a.result(lost); got != githubsim.ResultFailed {
		t.Errorf("the lost job %s", got)
	}
	a.sparedGoesOn()
	a.isHealthy()
	must(t, n.Return(t.Context(), node))
	a.isGone(failed[0])
	a.gitHubIsContent(failed[0])
}

// The job died with its runner. GitHub assigns it to no other runner, so the pool creates none for it.
func TestARunnerThatIsKilledInItsJob(t *testing.T) {
	a := newPodFixture(t)
	heal, release := a.inject(nodeplay.KilledInJob, 1), a.keepPods()
	defer heal()
	a.admit()
	killed := a.addJobs(struck, 1, time.Hour)[0]
	failed := a.runnerSays(v1alpha1.RunnerFinished, "", "")
	r := &v1alpha1.Runner{}
	must(t, w.Client.Get(t.Context(), key(a.namespace, failed), r))
	if e := r.Status.Exit; e == nil || e.Code != 137 || e.Node == "" || !strings.HasSuffix(e.Message, "An error occurred: the runner ends.") {
		t.Errorf("it ended with %+v", e)
	}
	a.look("", 1, "runner/"+failed)
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	must(t, w.Client.Get(t.Context(), key(a.namespace, failed), &corev1.Pod{}))
	a.sparedGoesOn()
	if got := a.result(killed); got != githubsim.ResultFailed {
		t.Errorf("the killed runner's job %s", got)
	}
	release()
	a.isGone(failed)
	a.isHealthy()
	a.gitHubIsContent(failed)
}

// The runner's container exits successfully although its process was killed. The job is lost anyway.
func TestARunnerWhoseProgramIsKilledInItsJob(t *testing.T) {
	a := newPodFixture(t)
	a.checkMessages(0)
	defer a.inject(nodeplay.ListenerKilled, 1)()
	a.admit()
	killed := a.addJobs(struck, 1, time.Hour)[0]
	failed := a.runnerSays(v1alpha1.RunnerFinished, "", "")
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	if got := a.result(killed); got != githubsim.ResultFailed {
		t.Errorf("the killed runner's job %s", got)
	}
	a.isGone(failed)
	a.sparedGoesOn()
	a.isHealthy()
	a.gitHubIsContent(failed)
}

// A service mesh injects a sidecar that never exits on its own.
func TestASidecarThatOutlivesItsRunner(t *testing.T) {
	a := newPodFixture(t)
	defer a.inject(nodeplay.SidecarStays, 0)()
	a.watch(0)
	a.admit(atMost(1))
	a.allDone(a.addJobs(struck, 3, time.Millisecond))
	a.sparedGoesOn()
	a.isHealthy()
	a.gitHubIsContent("none")
}

// A job is over when GitHub reports it. The runner then no longer counts towards max, although its container is
// still running.
func TestARunnerThatHangsAfterItsJobIsCancelled(t *testing.T) {
	a := newPodFixture(t)
	heal, release := a.inject(nodeplay.HangsAfterJob, 1), a.keepPods()
	defer heal()
	a.admit(atMost(1), template(`"terminationGracePeriodSeconds":1`))
	cancelled := a.addJobs(struck, 1, time.Hour)[0]
	a.runnerSays(v1alpha1.RunnerBusy, "", "")
	a.github.CancelJob(cancelled)
	failed := a.runnerSays(v1alpha1.RunnerFinished, "", "ContainerEnding")
	a.look("", 0, "runner/"+failed)
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	must(t, w.Client.Get(t.Context(), key(a.namespace, failed), &corev1.Pod{}))
	a.sparedGoesOn()
	if got := a.result(cancelled); got != githubsim.ResultCanceled {
		t.Errorf("the cancelled job %s", got)
	}
	release()
	a.isGone(failed)
	a.isHealthy()
	a.gitHubIsContent(failed)
}
