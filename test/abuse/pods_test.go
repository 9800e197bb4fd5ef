// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
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
)

// podFixture is a fixture with a pool whose pods are struck, on a GitHub of its own, and a pool on the
// same connection whose pods are not.
type podFixture struct {
	*fixture
	pool *v1alpha1.RunnerPool
}

const (
	struck = "struck"
	spared = bystander + "-spared"
)

// newPodFixture makes the fixture. The pool itself comes with admit.
func newPodFixture(t *testing.T) *podFixture {
	t.Helper()
	s := newFixtureOnOwnGitHub(t, githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second})
	s.pool(spared)
	return &podFixture{fixture: s}
}

// shortDeadlines makes the pool's deadlines short, for faults that only a deadline ends. With the default deadlines, a slow machine delays runners
// and fails none.
func shortDeadlines(p *v1alpha1.RunnerPool) {
	deadline := metav1.Duration{Duration: 5 * time.Second}
	p.Spec.Deadlines = v1alpha1.DeadlinesSpec{Startup: &deadline, Connect: &deadline}
}

// admit creates the pool.
func (a *podFixture) admit(change ...func(*v1alpha1.RunnerPool)) {
	a.Helper()
	a.fixture.pool(struck, change...)
	a.pool = &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: struck}}
}

// strike lets a fault strike the pool's pods.
func (a *podFixture) inject(m nodeplay.FaultKind, times int) (heal func()) {
	return w.Node.Inject(nodeplay.Fault{
		Kind: m, Times: times, After: 3 * time.Second, Namespace: a.namespace, Labels: map[string]string{v1alpha1.PoolLabel: struck},
	})
}

// keepPods lets GitHub hold on to every registration, so that no runner can be cleaned up,
// until release is called. What comes about meanwhile doesn't wait for the cleaning.
func (a *podFixture) keepPods() (release func()) {
	a.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning})
	return a.github.ClearFaults
}

// runnerSays waits until a runner of the pool is in a state, for a cause unless it's empty, and with words
// in its reason or in its condition, and returns its name.
func (a *podFixture) runnerSays(state v1alpha1.RunnerState, cause v1alpha1.RunnerCause, text string) (name string) {
	a.Helper()
	eventually(a.T, func(ctx context.Context) error {
		runners, err := a.runners(ctx, struck)
		if err != nil {
			return err
		}
		var seen []string
		for _, r := range runners {
			said := r.Status.Reason + "; " + conditions.GetMessage(&r, v1alpha1.ReadyCondition)
			if r.Status.State == state && (cause == "" || r.Status.Cause == cause) && strings.Contains(said, text) {
				name = r.Name
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s is %s (%s): %s", r.Name, r.Status.State, r.Status.Cause, said))
		}
		return fmt.Errorf("no runner is %s (%s) with %q:\n%s", state, cause, text, strings.Join(seen, "\n"))
	})
	return name
}

// isReplacedFirst waits until the pool's first runner is given up and another one is made, and fails the
// test unless its pod is still there then. It returns the name of the first.
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

// isHeldBack waits until so many runners have failed in a row, or more, and the pool says so. No more than
// one other may have been made, the next that is tried.
func (a *podFixture) isHeldBack(failures int, cause v1alpha1.RunnerCause, text string) {
	a.Helper()
	failed := 0
	eventually(a.T, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, key(a.namespace, struck), a.pool); err != nil {
			return err
		}
		for _, kind := range []string{v1alpha1.HealthyCondition, v1alpha1.ReadyCondition} {
			c := conditions.Get(a.pool, kind)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.RunnersFailingReason || !strings.Contains(c.Message, text) {
				return fmt.Errorf("%s is %+v, want %s", kind, c, text)
			}
			var named v1alpha1.RunnerCause
			_, err := fmt.Sscanf(c.Message, "%d runners in a row failed (%s ", &failed, &named)
			if err != nil || failed < failures || named != cause+":" {
				return fmt.Errorf("%s says %s, want %d or more of %s", kind, c.Message, failures, cause)
			}
		}
		return nil
	})
	runners, err := a.runners(a.Context(), struck)
	must(a.T, err)
	slow := 0 // on a busy machine some miss their short deadlines, which is no failure in a row
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

// number is a runner's among those of its pool, from 1 on.
func number(t *testing.T, runner string) int {
	t.Helper()
	n, err := strconv.Atoi(runner[strings.LastIndexByte(runner, '-')+1:])
	must(t, err)
	return n
}

// announces waits until GitHub was told a capacity.
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

// isHealthy waits until the pool says that its runners don't fail.
func (a *podFixture) isHealthy() {
	a.Helper()
	a.has(a.pool, metav1.Condition{Type: v1alpha1.HealthyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason, Message: "fewer than 3 runners failed in a row"})
	a.ready(a.pool)
}

// sparedGoesOn fails the test unless jobs are done for the pool beside, and for that on another connection.
func (a *podFixture) sparedGoesOn() {
	a.Helper()
	a.allDone(a.addJobs(spared, 1, time.Millisecond))
	a.othersGoOn()
}

// result waits until a job ended, by GitHub's word, and returns how.
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

// gitHubIsContent fails the test if a job was lost or ran twice, or a busy runner was ended, unless it's
// of the runner that the fault struck.
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

// Want of room passes by itself, as when nodes are added: each runner waits until its deadline.
func TestAPodThatIsNeverScheduled(t *testing.T) {
	a := newPodFixture(t)
	const text = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."
	heal, release := a.inject(nodeplay.Unschedulable, 0), a.keepPods()
	a.admit(shortDeadlines, func(p *v1alpha1.RunnerPool) { p.Spec.Deadlines.Startup = &metav1.Duration{Duration: 30 * time.Second} }) // to be looked at; the next one has twice as long
	jobs := a.addJobs(struck, 1, time.Millisecond)
	a.look("Unschedulable", 0, "pool/"+struck, "runner/"+a.runnerSays(v1alpha1.RunnerPending, v1alpha1.CauseUnschedulable, text))
	a.runnerSays(v1alpha1.RunnerFailed, v1alpha1.CauseUnschedulable, "not running within 30s: "+text)
	failed := a.isReplacedFirst()
	a.sparedGoesOn()
	release()
	a.isGone(failed)
	heal()
	a.allDone(jobs)
	a.isHealthy()
	a.gitHubIsContent(failed)
}

// ill is a fault that strikes every runner of a pool, and what is read of it.
type ill struct {
	kind nodeplay.FaultKind
	// text of the runner that failed first.
	text string
	// cause and complaint of the pool.
	cause     v1alpha1.RunnerCause
	complaint string
	// idle runners that are wanted; one job waits when there are none.
	idle int
	// change of the pool.
	change []func(*v1alpha1.RunnerPool)
}

// withInit is a pod with a container that runs before the runner's.
func withInit() []func(*v1alpha1.RunnerPool) {
	return []func(*v1alpha1.RunnerPool){template(`"initContainers":[{"name":"tools","image":"tools:1"}]`)}
}

// neverStarts shows what comes of it: the pool is held back, one runner is tried now and then, and
// when the fault is gone it takes up work again.
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
	a.look(i.complaint, 1, "pool/"+struck)
	heal()
	a.allDone(jobs)
	a.isHealthy()
	a.announces(10)
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	a.isGone(failed)
	a.gitHubIsContent(failed)
}

func TestAnImageThatIsRefused(t *testing.T) {
	const text = `failed to pull and unpack image "runner:1"`
	neverStarts(t, ill{
		kind: nodeplay.ImageRefused, text: "not running within 5s: ",
		cause: v1alpha1.CauseImagePull, complaint: text,
	})
}

func TestAnInitContainerWhoseImageIsRefused(t *testing.T) {
	neverStarts(t, ill{
		kind: nodeplay.InitImageRefused, text: "not running within 5s: container tools: ",
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
	const text = "GitHub refuses this runner version: update the image (exit code 7)"
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
	const text = "its container runs, but GitHub doesn't see it 5s later: can it reach GitHub?"
	neverStarts(t, ill{kind: nodeplay.NeverConnects, text: text, cause: v1alpha1.CauseNeverConnected, complaint: text})
}

// nodes plays two nodes for the pods that name the fixture as their scheduler.
//
// What is said is checked before they stop, so after a call of nodes: a runner whose node stopped is one that GitHub doesn't see.
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

// scheduled lets the nodes of the fixture play a pool's pods.
func (a *podFixture) scheduled() func(*v1alpha1.RunnerPool) {
	return template(fmt.Sprintf(`"schedulerName":%q,"terminationGracePeriodSeconds":1`, a.namespace))
}

// loses waits for so many runners in a state and takes the node of one of them away for good: its pods are
// deleted, and nobody is there to end them. It returns the names of the node and of the runners it had.
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
	// That the node ends runners that were idle for less than ten seconds; and, where the machine is slow, that the pod of each runner stays.
	a.checkMessages(1 + 6)
	a.admit(a.scheduled(), func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(6)) })
	node, lost := a.loses(n, v1alpha1.RunnerIdle, 6)
	a.run(6, func([]corev1.Pod) error { return nil })
	a.runnerSays(v1alpha1.RunnerFailed, v1alpha1.CauseNode, "its pod is being removed: DeletionByTaintManager: ")
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

// The real kubectl drains a node without --force: runners without a job go elsewhere, and it waits for the one that has one.
func TestANodeThatIsDrained(t *testing.T) {
	a := newPodFixture(t)
	a.nodes()
	a.checkMessages(0)
	a.admit(a.scheduled(), func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(3)) })
	job := a.addJobs(struck, 1, time.Hour)[0]
	busy := a.runnerSays(v1alpha1.RunnerBusy, "", "running a job")
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
	assets, err := localcluster.Assets(t.Context(), io.Discard)
	must(t, err)
	output := &strings.Builder{}
	drain := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), "--kubeconfig", w.Cluster.Kubeconfig(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data")
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

// Kubernetes evicts no pod that two budgets select.
func TestAnotherBudgetOverRunnersWithAJob(t *testing.T) {
	s := newFixture(t)
	s.listening("linux")
	long := s.addJobs("linux", 1, harness.LongJob)
	s.create(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "mine"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.PoolLabel: "linux"}}},
	})
	s.hasEvent("linux", "PodDisruptionBudget mine selects runners that have a job, as corral-busy-runners does: no pod is evicted that two select, so that a drain of its node fails; "+
		"let it leave out pods with the label corral.dev/job-id")
	s.look("PodDisruptionBudget mine", 1, "pool/linux")
	harness.CutShort(s.T, s.github, long...)
	s.othersGoOn()
}

// run waits until so many pods of the pool run and aren't being deleted, and are as they should be.
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

// GitHub alone says when a job has failed.
func TestANodeThatIsLostWithAJob(t *testing.T) {
	a := newPodFixture(t)
	n := a.nodes()
	a.admit(a.scheduled())
	lost := a.addJobs(struck, 1, time.Hour)[0]
	node, failed := a.loses(n, v1alpha1.RunnerBusy, 1)
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	a.look("", 0, "runner/"+a.runnerSays(v1alpha1.RunnerFinished, "", "its job is over; waiting for its container to end"))
	if got := a.result(lost); got != githubsim.ResultFailed {
		t.Errorf("the lost job %s", got)
	}
	a.sparedGoesOn()
	a.isHealthy()
	must(t, n.Return(t.Context(), node))
	a.isGone(failed[0])
	a.gitHubIsContent(failed[0])
}

// No other runner gets the job of one that died with it, so none is made for it.
func TestARunnerThatIsKilledInItsJob(t *testing.T) {
	a := newPodFixture(t)
	heal, release := a.inject(nodeplay.KilledInJob, 1), a.keepPods()
	defer heal()
	a.admit()
	killed := a.addJobs(struck, 1, time.Hour)[0]
	failed := a.runnerSays(v1alpha1.RunnerFinished, "", "job failed")
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

// The runner's image ends well although its program was killed: the job is lost all the same.
func TestARunnerWhoseProgramIsKilledInItsJob(t *testing.T) {
	a := newPodFixture(t)
	a.checkMessages(0)
	defer a.inject(nodeplay.ListenerKilled, 1)()
	a.admit()
	killed := a.addJobs(struck, 1, time.Hour)[0]
	failed := a.runnerSays(v1alpha1.RunnerFinished, "", "ended")
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	if got := a.result(killed); got != githubsim.ResultFailed {
		t.Errorf("the killed runner's job %s", got)
	}
	a.isGone(failed)
	a.sparedGoesOn()
	a.isHealthy()
	a.gitHubIsContent(failed)
}

// A mesh puts a container into each pod that never ends by itself.
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

// A job is over when GitHub says so: its runner's place is free, although its container goes on.
func TestARunnerThatHangsAfterItsJobIsCancelled(t *testing.T) {
	a := newPodFixture(t)
	heal, release := a.inject(nodeplay.HangsAfterJob, 1), a.keepPods()
	defer heal()
	a.admit(atMost(1), template(`"terminationGracePeriodSeconds":1`))
	cancelled := a.addJobs(struck, 1, time.Hour)[0]
	a.runnerSays(v1alpha1.RunnerBusy, "", "running a job")
	a.github.CancelJob(cancelled)
	failed := a.runnerSays(v1alpha1.RunnerFinished, "", "its job is over; waiting for its container to end")
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
