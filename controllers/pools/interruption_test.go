// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
)

// interrupt ends one runner on each of the nodes.
func (b *bench) interrupt(cause v1alpha1.RunnerCause, reason string, nodes ...string) {
	b.t.Helper()
	for _, node := range nodes {
		b.results.Failures = append(b.results.Failures, runners.Failure{
			Runner: "r-" + node, Revision: b.pool().Status.Revision, Cause: cause, Message: reason, Node: node, Began: b.now, At: b.now,
			Exit: &v1alpha1.RunnerExit{Actor: v1alpha1.ActorNode, Reason: reason, Node: node},
		})
	}
	b.reconcile()
}

// health returns the reason of the pool's condition Healthy.
func (b *bench) health() string {
	b.t.Helper()
	return conditions.GetReason(b.pool(), v1alpha1.HealthyCondition)
}

// A pool whose nodes end its runners reports the nodes. Its capacity stays, and its template is not blamed.
func TestNodesThatEndRunnersAreReported(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.interrupt(v1alpha1.CauseNode, "Evicted: low on memory", "n1", "n2")
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("after two: %s", got)
	}
	b.interrupt(v1alpha1.CauseNode, "OutOfcpu: requested 2", "n1", "n1")
	c := conditions.Get(b.pool(), v1alpha1.HealthyCondition)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.NodesFailingReason || !strings.Contains(c.Message, "n1, n2") || !strings.Contains(c.Message, "OutOfcpu") {
		t.Errorf("%+v", c)
	}
	if !conditions.IsReady(b.pool()) || b.lastAnnounced() != 5 || len(b.runners()) != 2 {
		t.Errorf("announced %d, %d runners, %s", b.lastAnnounced(), len(b.runners()), b.readyReason())
	}
	b.interrupt(v1alpha1.CauseNode, "Evicted: low on memory", "n3")
	events := 0
	for _, e := range b.allEvents() {
		if strings.HasPrefix(e, "Warning "+v1alpha1.NodesFailingReason) {
			events++
		}
	}
	if events != 1 {
		t.Errorf("%d events", events)
	}
}

func TestOthersWhoDeletePodsAreReported(t *testing.T) {
	b := newBench(t)
	b.start()
	b.interrupt(v1alpha1.CauseRemoved, "its pod is being removed", "n1", "n1", "n1")
	if got := b.health(); got != v1alpha1.PodsDeletedReason {
		t.Errorf("it says %s", got)
	}
}

// A name taken by an earlier runner's Secret does not count as a pod deleted by another actor.
func TestNamesThatAreTakenAreNoInterruption(t *testing.T) {
	b := newBench(t)
	b.start()
	for range 3 {
		b.results.Failures = append(b.results.Failures, runners.Failure{Cause: v1alpha1.CauseRemoved, NameTaken: true, Began: b.now, At: b.now})
	}
	b.reconcile()
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("it says %s", got)
	}
}

// A healthy runner ends the interruption. The condition stays for a minute, so that it does not change with each runner.
func TestARunnerThatDoesWellEndsAnInterruption(t *testing.T) {
	b := newBench(t)
	b.start()
	b.interrupt(v1alpha1.CauseNode, "Evicted", "n1", "n1", "n1")
	b.now = b.now.Add(2 * time.Second)
	b.results.Worked = map[string]runners.Worked{b.pool().Status.Revision: {Began: b.now}}
	b.reconcile()
	if got := b.health(); got != v1alpha1.NodesFailingReason {
		t.Errorf("at once it says %s", got)
	}
	b.now = b.now.Add(interruptedLeast)
	b.reconcile()
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("after a minute it says %s", got)
	}
	b.interrupt(v1alpha1.CauseNode, "Evicted", "n1", "n1")
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("the row goes on: %s", got)
	}
}

// Draining a node ends many idle runners at once. They were healthy before, so this is no interruption.
func TestRunnersThatDidWellBeforeAreNoInterruption(t *testing.T) {
	b := newBench(t)
	b.warm(3)
	began := b.now
	b.now = b.now.Add(time.Minute)
	b.reconcile()
	for range 3 {
		b.results.Failures = append(b.results.Failures, runners.Failure{Cause: v1alpha1.CauseRemoved, Message: "drained", Node: "n1", Began: began, At: b.now})
	}
	b.reconcile()
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("it says %s", got)
	}
}

func TestAnInterruptionIsForgotten(t *testing.T) {
	b := newBench(t)
	b.start()
	b.interrupt(v1alpha1.CauseNode, "Evicted", "n1", "n1", "n1")
	b.now = b.now.Add(interruptedFor)
	b.reconcile()
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("it says %s", got)
	}
	b.restart()
	b.reconcile()
	b.interrupt(v1alpha1.CauseNode, "Evicted", "n1")
	if got := b.health(); got != v1alpha1.SucceededReason {
		t.Errorf("after a restart it counts what was long before: %s", got)
	}
}

// Three real crashes open the circuit even if nodes end other runners in between.
func TestCrashesAmongInterruptionsOpenTheCircuit(t *testing.T) {
	b := newBench(t)
	b.start()
	for range 3 {
		b.interrupt(v1alpha1.CauseNode, "Evicted", "n1")
		b.fail(1, v1alpha1.CauseCrash)
		b.reconcile()
	}
	if got := b.health(); got != v1alpha1.RunnersFailingReason || b.lastAnnounced() != 0 {
		t.Errorf("it says %s and announces %d", got, b.lastAnnounced())
	}
}

// Ends by nodes and other actors do not roll back an update.
func TestInterruptionsRollNoUpdateBack(t *testing.T) {
	b := newBench(t)
	b.start()
	b.warm(3)
	b.runAll()
	to := b.edit("runner:2")
	for _, cause := range []v1alpha1.RunnerCause{v1alpha1.CauseNode, v1alpha1.CauseRemoved, v1alpha1.CauseDeadline} {
		for range 3 {
			b.results.Failures = append(b.results.Failures, runners.Failure{Revision: to, Cause: cause, Message: "x", Node: "n1", Began: b.now, At: b.now})
		}
		b.reconcile()
		if b.phase() == v1alpha1.UpdateRolledBack || b.health() == v1alpha1.RunnersFailingReason {
			t.Errorf("%s: phase %s, %s", cause, b.phase(), b.health())
		}
	}
}
