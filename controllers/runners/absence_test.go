// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"net/http"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/sim/githubsim"
)

// nothing maps names to the answers with which GitHub reports that something does not exist, or reports nothing.
var nothing = map[string]githubsim.Fault{
	"an empty body":   {Status: http.StatusOK},
	"an empty object": {Status: http.StatusOK, Body: "{}"},
	"an empty list":   {Status: http.StatusOK, Body: `{"count":0,"value":[]}`},
	"404":             {Status: http.StatusNotFound},
}

// breaks makes GitHub answer calls of the endpoints with a fault, until the returned function is called.
func (b *bench) breaks(f githubsim.Fault, endpoints ...githubsim.Endpoint) (restore func()) {
	for _, e := range endpoints {
		f.Endpoint = e
		b.github.AddFault(f)
	}
	return b.github.ClearFaults
}

// step reconciles once. The pass may return an error and be retried.
func (b *bench) step(after time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(after)
	_, _ = b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: "linux-a"}})
}

// running makes the container run, and restarts the controller after it has seen that.
func (b *bench) running() {
	b.t.Helper()
	b.reconcile()
	b.setPod(running(b.now))
	b.reconcile()
	b.restart()
}

func (b *bench) record(events ...scaleset.JobEvent) {
	b.t.Helper()
	for i := range events {
		events[i].JobID, events[i].RunnerName, events[i].At = "7", "linux-a", b.now
	}
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	if err := recorder.RecordJobs(b.t.Context(), events); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) asked(e githubsim.Endpoint) int { return b.github.Report().Requests[e] }

// After a restart, GitHub briefly finds nothing by name, by ID, or by both. The controller still sends the call that
// removes the registration, and GitHub refuses it while the runner has a job.
func TestNothingFoundEndsNoDeletedRunner(t *testing.T) {
	for kind, endpoints := range map[string][]githubsim.Endpoint{
		"by name": {githubsim.EndpointFindAgent}, "by id": {githubsim.EndpointGetAgent}, "by both": {githubsim.EndpointFindAgent, githubsim.EndpointGetAgent},
	} {
		for answer, fault := range nothing {
			t.Run(kind+" "+answer, func(t *testing.T) {
				b := newBench(t)
				b.running()
				b.delete()
				restore := b.breaks(fault, endpoints...)
				b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning})
				for range 6 {
					b.step(time.Second)
				}
				if b.pod() == nil || b.registered() != 1 {
					t.Fatal("a runner with a job was ended")
				}
				if n := b.asked(githubsim.EndpointDeleteAgent); kind == "by name" && n == 0 {
					t.Error("GitHub was not asked to remove it")
				}
				restore()
				b.passes(2, absentLook)
				if b.pod() != nil || b.runner() != nil || b.registered() != 0 {
					t.Errorf("left behind: %+v, %d registrations", b.runner(), b.registered())
				}
			})
		}
	}
}

// A job begins before the node reports that the container started.
func TestAJobWhoseContainerWasNotSeenIsLeft(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.record(scaleset.JobEvent{Type: scaleset.JobStarted})
	b.restart()
	b.delete()
	b.breaks(nothing["an empty list"], githubsim.EndpointFindAgent)
	b.breaks(nothing["404"], githubsim.EndpointGetAgent, githubsim.EndpointDeleteAgent)
	for range 12 {
		b.step(goneAfter)
	}
	if b.pod() == nil {
		t.Error("a runner with a job was ended")
	}
}

// GitHub answers 404 to every request about a runner whose container runs. The pod may end only because of another fact.
func TestOnlyAFactEndsAPodThatRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(*bench)
		looks int // a minute apart, until the pod is gone
	}{
		"nothing happens":            {func(*bench) {}, 11},
		"its container ends":         {func(b *bench) { b.setPod(ended(b.now)) }, 6},
		"its job is reported":        {func(b *bench) { b.record(scaleset.JobEvent{Type: scaleset.JobCompleted, Result: "canceled"}) }, 6},
		"GitHub knows it for once":   {func(b *bench) { b.github.AddFault(jobRuns) }, 17},
		"GitHub is away for once":    {func(b *bench) { b.github.AddFault(awayOnce) }, 17},
		"the scale set is not there": {func(b *bench) { b.github.AddFault(noSet) }, 17},
		"nobody looks for a while":   {func(b *bench) { b.now = b.now.Add(absentGap) }, 16},
		"the controller restarts":    {(*bench).restart, 16},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.running()
			b.record(scaleset.JobEvent{Type: scaleset.JobStarted})
			b.delete()
			b.now = b.runner().DeletionTimestamp.Time
			looks := 0
			for ; b.pod() != nil && looks < 20; looks++ {
				if looks == 5 {
					tc.do(b)
				}
				restore := b.breaks(githubsim.Fault{Status: http.StatusNotFound}, githubsim.EndpointGetAgent, githubsim.EndpointDeleteAgent)
				b.breaks(nothing["an empty list"], githubsim.EndpointFindAgent)
				b.step(absentLook)
				restore()
			}
			if looks != tc.looks {
				t.Errorf("its pod was deleted after %d looks; want %d", looks, tc.looks)
			}
		})
	}
}

// Answers that interrupt a series of 404 answers.
var (
	jobRuns  = githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 1, Alter: githubsim.AlterJobStillRunning}
	awayOnce = githubsim.Fault{Endpoint: githubsim.EndpointGetAgent, Times: 1, Status: http.StatusBadGateway}
	noSet    = githubsim.Fault{Endpoint: githubsim.EndpointGetScaleSet, Times: 1, Status: http.StatusNotFound}
)

// A runner without a running container is released after the second 404 answer to the call that removes it.
func TestARegistrationIsGoneAfterTwoRefusals(t *testing.T) {
	b := newBench(t)
	b.running()
	b.setPod(ended(b.now))
	b.delete()
	b.breaks(githubsim.Fault{Status: http.StatusNotFound}, githubsim.EndpointGetAgent, githubsim.EndpointDeleteAgent)
	b.reconcile()
	b.passes(1, goneAfter-time.Second)
	if b.runner() == nil {
		t.Fatal("gone too early")
	}
	b.passes(1, time.Second)
	if b.runner() != nil || b.asked(githubsim.EndpointDeleteAgent) != 3 {
		t.Errorf("%d calls to remove it; left is %+v", b.asked(githubsim.EndpointDeleteAgent), b.runner())
	}
}

// If the status is lost and the pod has no ID, the Secret has it.
func TestTheSecretsIDIsDeregistered(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.restart()
	if err := b.Client.Delete(t.Context(), b.pod()); err != nil {
		t.Fatal(err)
	}
	r := b.runner()
	r.Status = v1alpha1.RunnerStatus{}
	if err := b.Client.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.delete()
	b.breaks(nothing["an empty list"], githubsim.EndpointFindAgent)
	b.reconcile()
	if b.registered() != 0 || b.runner() != nil {
		t.Errorf("%d registrations, runner %+v", b.registered(), b.runner())
	}
}

// An ID that a user wrote into a status is not sent for removal. GitHub reports that it belongs to another runner, or
// GitHub does not know the ID and the pool does not hold the scale set.
func TestAForgedIDIsNotSent(t *testing.T) {
	for name, prepare := range map[string]func(*bench){
		"of another name": func(*bench) {},
		"that GitHub does not find, of a pool without the scale set": func(b *bench) {
			b.Sets.(*holder).who = "victim/linux acme p2"
			b.breaks(githubsim.Fault{Status: http.StatusNotFound}, githubsim.EndpointGetAgent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.runner()
			r.Status.RunnerID = b.victims("linux-b")
			if err := b.Client.Status().Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			prepare(b)
			b.finish()
			if n := b.asked(githubsim.EndpointDeleteAgent); n != 0 || b.registered() != 1 {
				t.Errorf("%d calls to remove it", n)
			}
		})
	}
}

// newDeletedRESTBench returns a bench whose runner has a job and was deleted.
func newDeletedRESTBench(t *testing.T) *bench {
	b := newRESTBench(t)
	b.running()
	b.record(scaleset.JobEvent{Type: scaleset.JobStarted})
	b.reconcile()
	b.delete()
	b.now = b.runner().DeletionTimestamp.Time
	return b
}

// GitHub also answers 404 if the credentials lost their rights. That never counts as absence, however long it lasts.
func TestLostRightsAreNoAbsence(t *testing.T) {
	b := newDeletedRESTBench(t)
	b.breaks(githubsim.Fault{Status: http.StatusNotFound}, githubsim.EndpointRunner, githubsim.EndpointDeleteRunner, githubsim.EndpointRunners)
	b.passes(120, connectionRetry)
	if n := b.asked(githubsim.EndpointDeleteRunner); n > 11 {
		t.Errorf("GitHub was asked %d times in ten minutes", n)
	}
	b.passes(60, absentLook)
	b.passes(1, connectionRetry)
	if b.pod() == nil {
		t.Error("a runner with a job was ended")
	}
	if reason := conditions.GetReason(b.runner(), v1alpha1.ReadyCondition); reason != v1alpha1.PermissionMissingReason {
		t.Errorf("reason %s", reason)
	}
}

// A request by ID returns 404 although GitHub lists the runner.
func TestARunnerInTheListIsNotAbsent(t *testing.T) {
	b := newDeletedRESTBench(t)
	b.breaks(githubsim.Fault{Status: http.StatusNotFound}, githubsim.EndpointRunner, githubsim.EndpointDeleteRunner)
	b.passes(60, absentLook)
	b.passes(1, connectionRetry)
	if b.pod() == nil {
		t.Error("a runner with a job was ended")
	}
}

// After a restart, GitHub counts no runners for a while and knows none of them. Runners with a job keep running.
func TestDoubtedRunnersOutliveAnOutage(t *testing.T) {
	for answer, fault := range nothing {
		for name, isMarked := range map[string]bool{"with a job": true, "with a job that nobody told of": false} {
			t.Run(name+", "+answer, func(t *testing.T) {
				b := newBench(t)
				b.running()
				if isMarked {
					b.record(scaleset.JobEvent{Type: scaleset.JobStarted})
				}
				restore := b.breaks(fault, githubsim.EndpointGetAgent, githubsim.EndpointFindAgent)
				b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning})
				for range 14 {
					b.Memory.Suspect(client.ObjectKey{Namespace: "ci", Name: "linux-a"}, true, b.now)
					b.step(5 * time.Second)
				}
				if b.pod() == nil || b.registered() != 1 || isMarked && !b.runner().DeletionTimestamp.IsZero() {
					t.Errorf("ended: %+v", b.runner().Status)
				}
				restore()
				b.step(absentLook)
				b.step(absentLook)
				if r := b.runner(); isMarked && (r.Status.State != v1alpha1.RunnerBusy || !conditions.IsReady(r)) {
					t.Errorf("status %+v", r.Status)
				}
			})
		}
	}
}

// A runner that GitHub does not list yet may have registered since, so its job is not over.
func TestAnUnlistedRunnersJobGoesOn(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.tell(began("7", 0))
	b.collect(b.newCollector(), time.Minute)
	if pod := b.pod(); pod.Labels[v1alpha1.JobIDLabel] != "7" || b.runner().Status.Job.IsOver() {
		t.Errorf("its job is over: %+v, %v", b.runner().Status.Job, pod.Labels)
	}
}

// A runner without a known job may still have one, because neither a missing connection nor one with refused credentials
// reports jobs.
func TestARunnerThatMayHaveAJobIsNotEndedForWantOfRights(t *testing.T) {
	for name, prepare := range map[string]func(b *bench){
		"its connection is gone": func(b *bench) { b.Clients.(*registry).gone = true },
		"its credentials are refused": func(b *bench) {
			b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Status: 401})
		},
		"its credentials lack rights": func(b *bench) {
			b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Status: 403})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			b.setPod(running(b.now))
			b.reconcile()
			prepare(b)
			b.delete()
			b.now = b.runner().DeletionTimestamp.Time
			b.reconcile()
			b.now = b.now.Add(jobUnknownAfter - time.Second)
			b.reconcile()
			if b.pod() == nil {
				t.Fatal("its pod was ended")
			}
			b.now = b.now.Add(time.Second)
			b.reconcile()
			if b.pod() != nil {
				t.Error("not given up")
			}
		})
	}
}
