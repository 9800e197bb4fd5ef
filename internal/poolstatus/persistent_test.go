// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

var epoch = time.Unix(1_000_000, 0)

// jobAt returns a job with the times when it began and ended, in seconds after the epoch; negative if it did not.
func jobAt(id string, began, over int) *v1alpha1.JobReference {
	j := &v1alpha1.JobReference{ID: id}
	if began >= 0 {
		j.StartedAt = &metav1.Time{Time: epoch.Add(time.Duration(began) * time.Second)}
	}
	if over >= 0 {
		j.CompletedAt = &metav1.Time{Time: epoch.Add(time.Duration(over) * time.Second)}
	}
	return j
}

func TestJobsOfAPersistentRunnerAreFollowedInAnyOrder(t *testing.T) {
	const nobody = v1alpha1.UnknownJob
	for name, tc := range map[string]struct {
		known, said, want *v1alpha1.JobReference
		over              int32
	}{
		"the first begins":                      {nil, jobAt("1", 5, -1), jobAt("1", 5, -1), 0},
		"the first ended before it was seen":    {nil, jobAt("1", -1, 9), jobAt("1", -1, 9), 1},
		"it ends":                               {jobAt("1", 5, -1), jobAt("1", -1, 9), jobAt("1", 5, 9), 1},
		"its end is told again":                 {jobAt("1", 5, 9), jobAt("1", -1, 9), jobAt("1", 5, 9), 0},
		"its begin is told late":                {jobAt("1", -1, 9), jobAt("1", 5, -1), jobAt("1", 5, 9), 0},
		"the next begins":                       {jobAt("1", 5, 9), jobAt("2", 10, -1), jobAt("2", 10, -1), 0},
		"the next begins in the same second":    {jobAt("9", 5, 5), jobAt("10", 5, -1), jobAt("10", 5, -1), 0},
		"an end was lost":                       {jobAt("1", 5, -1), jobAt("2", 10, -1), jobAt("2", 10, -1), 1},
		"an end and a whole job were lost":      {jobAt("1", 5, -1), jobAt("2", -1, 20), jobAt("2", -1, 20), 2},
		"the begin of one before":               {jobAt("2", 10, -1), jobAt("1", 5, -1), jobAt("2", 10, -1), 0},
		"the end of one before":                 {jobAt("2", 10, -1), jobAt("1", -1, 9), jobAt("2", 10, -1), 0},
		"the end of one before, in that second": {jobAt("10", 10, -1), jobAt("9", -1, 10), jobAt("10", 10, -1), 0},
		"a list sees it at work":                {jobAt("1", 5, 9), jobAt(nobody, 60, -1), jobAt(nobody, 60, -1), 0},
		"a list sees what is known":             {jobAt("1", 5, -1), jobAt(nobody, 60, -1), jobAt("1", 5, -1), 0},
		"a list of before the end":              {jobAt("1", 5, 90), jobAt(nobody, 60, -1), jobAt("1", 5, 90), 0},
		"a list sees it free":                   {jobAt("1", 5, -1), jobAt(nobody, -1, 60), jobAt("1", 5, 60), 1},
		"a list of before the begin sees none":  {jobAt("2", 70, -1), jobAt(nobody, -1, 60), jobAt("2", 70, -1), 0},
		"a list of that second sees none":       {jobAt("1", 60, -1), jobAt(nobody, -1, 60), jobAt("1", 60, -1), 0},
		"a list sees it free, as known":         {jobAt("1", 5, 9), jobAt(nobody, -1, 60), jobAt("1", 5, 9), 0},
		"what a list saw gets its name":         {jobAt(nobody, 60, -1), jobAt("1", 58, -1), jobAt("1", 60, -1), 0},
		"what a list saw ends":                  {jobAt(nobody, 60, -1), jobAt("1", -1, 70), jobAt("1", 60, 70), 1},
		"one before what a list saw ends":       {jobAt(nobody, 60, -1), jobAt("1", -1, 50), jobAt(nobody, 60, -1), 0},
		"what lists saw gets its name later":    {jobAt(nobody, 60, 120), jobAt("1", -1, 100), jobAt("1", 60, 120), 0},
		"another after what lists saw":          {jobAt(nobody, 60, 120), jobAt("1", 130, -1), jobAt("1", 130, -1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			last, over := poolstatus.Follow(tc.known, tc.said)
			if diff := cmp.Diff(tc.want, last); diff != "" || over != tc.over {
				t.Errorf("%d more are over, want %d; (-want +got):\n%s", over, tc.over, diff)
			}
		})
	}
}

func persistent() *v1alpha1.Runner {
	return &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", CreationTimestamp: metav1.Time{Time: epoch}},
		Spec:       v1alpha1.RunnerSpec{REST: &v1alpha1.RESTRegistration{Persistent: true}},
	}
}

// The state of a persistent runner by its pod: events that end a runner with a single job only interrupt a persistent
// one.
func TestAPersistentRunnerIsObserved(t *testing.T) {
	at := func(s int) metav1.Time { return metav1.Time{Time: epoch.Add(time.Duration(s) * time.Second)} }
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(5)}}
	down := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(5), FinishedAt: at(100), ExitCode: code, Reason: "Error"}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	for name, tc := range map[string]struct {
		state, last corev1.ContainerState
		phase       corev1.PodPhase
		job         *v1alpha1.JobReference
		now         int
		want        poolstatus.Assessment
	}{
		"no job yet":         {state: up, now: 6, want: poolstatus.Assessment{State: v1alpha1.RunnerIdle, Since: epoch.Add(5 * time.Second), Reason: "waiting for a job"}},
		"with a job":         {state: up, job: jobAt("1", 7, -1), now: 8, want: poolstatus.Assessment{State: v1alpha1.RunnerBusy, Since: epoch.Add(7 * time.Second), Reason: "running a job"}},
		"its job is over":    {state: up, job: jobAt("1", 7, 9), now: 10, want: poolstatus.Assessment{State: v1alpha1.RunnerIdle, Since: epoch.Add(9 * time.Second), Reason: "waiting for a job"}},
		"it ended in peace":  {state: down(0), now: 101, want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Since: epoch.Add(100 * time.Second), Until: epoch.Add(160 * time.Second), Reason: "restarting: Error (exit code 0)"}},
		"it ended in a job":  {state: down(137), job: jobAt("1", 7, -1), now: 101, want: poolstatus.Assessment{State: v1alpha1.RunnerBusy, Since: epoch.Add(7 * time.Second), Until: epoch.Add(160 * time.Second), Reason: "restarting with a job: Error (exit code 137)"}},
		"it waits to run":    {state: waiting("CrashLoopBackOff"), last: down(1), now: 159, want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Since: epoch.Add(100 * time.Second), Until: epoch.Add(160 * time.Second), Reason: "restarting: Error (exit code 1)"}},
		"it waits too long":  {state: waiting("CrashLoopBackOff"), last: down(0), now: 160, want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: epoch.Add(100 * time.Second), Cause: v1alpha1.CauseCrash, Reason: "it exits repeatedly: Error (exit code 0)"}},
		"too long in a job":  {state: waiting("CrashLoopBackOff"), last: down(1), job: jobAt("1", 7, -1), now: 160, want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: epoch.Add(100 * time.Second), Settling: true, Until: epoch.Add(1000 * time.Second), Reason: "it exits repeatedly: Error (exit code 1), with a job: GitHub will fail it"}},
		"its image is gone":  {state: waiting("ImagePullBackOff"), last: down(1), now: 160, want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: epoch.Add(100 * time.Second), Cause: v1alpha1.CauseImagePull, Reason: "it exits repeatedly: Error (exit code 1)"}},
		"its version is old": {state: down(7), now: 101, want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: epoch.Add(100 * time.Second), Cause: v1alpha1.CauseOutdated, Reason: "GitHub refuses this runner version: update the image (exit code 7)"}},
		"it runs again":      {state: up, last: down(1), now: 110, want: poolstatus.Assessment{State: v1alpha1.RunnerIdle, Since: epoch.Add(5 * time.Second), Reason: "waiting for a job"}},
		"it was evicted":     {phase: corev1.PodFailed, state: down(137), now: 101, want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: epoch.Add(100 * time.Second), Cause: v1alpha1.CauseCrash, Reason: "Error (exit code 137)"}},
		"it starts":          {state: waiting("ContainerCreating"), now: 4, want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Since: epoch, Until: epoch.Add(poolstatus.TokenLife), Reason: "starting"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := persistent()
			if r.Status.Job = tc.job; tc.now > 5 {
				r.Status.StartedAt = new(at(5))
			}
			if tc.phase == "" {
				tc.phase = corev1.PodRunning
			}
			trimmed, err := podspec.Trim(&corev1.Pod{Status: corev1.PodStatus{Phase: tc.phase, ContainerStatuses: []corev1.ContainerStatus{
				{Name: v1alpha1.RunnerContainerName, State: tc.state, LastTerminationState: tc.last},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			now := epoch.Add(time.Duration(tc.now) * time.Second)
			got := poolstatus.Assess(poolstatus.Observe(r, trimmed.(*corev1.Pod), 2*time.Hour, now), now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLaterOfTwoJobsCounts(t *testing.T) {
	for name, tc := range map[string]struct{ status, mark, want *v1alpha1.JobReference }{
		"none":                       {},
		"marked only":                {nil, jobAt("1", 5, -1), jobAt("1", 5, -1)},
		"known only":                 {jobAt("1", 5, 9), nil, jobAt("1", 5, 9)},
		"over, and still marked":     {jobAt("1", 5, 9), jobAt("1", 5, -1), jobAt("1", 5, 9)},
		"marked as over":             {jobAt("1", 5, -1), jobAt("1", 5, 9), jobAt("1", 5, 9)},
		"the next is marked already": {jobAt("1", 5, 9), jobAt("2", 10, -1), jobAt("2", 10, -1)},
		"the one before is marked":   {jobAt("2", 10, -1), jobAt("1", 5, -1), jobAt("2", 10, -1)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, poolstatus.Later(tc.status, tc.mark)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPersistentRunnerRetires(t *testing.T) {
	spec := &v1alpha1.PersistentSpec{MaxJobs: new(int32(10)), MaxAge: &metav1.Duration{Duration: time.Hour}}
	for name, tc := range map[string]struct {
		runner *v1alpha1.Runner
		done   int32
		spec   *v1alpha1.PersistentSpec
		age    time.Duration
		why    string
		next   time.Duration
	}{
		"never":                     {runner: persistent(), done: 1000, age: 1000 * time.Hour},
		"not yet":                   {runner: persistent(), done: 9, spec: spec, age: time.Minute, next: 59 * time.Minute},
		"after so many jobs":        {runner: persistent(), done: 10, spec: spec, age: time.Minute, why: "it has done 10 jobs (spec.persistent.maxJobs: 10)"},
		"at such an age":            {runner: persistent(), spec: spec, age: time.Hour, why: "it is older than 1h0m0s (spec.persistent.maxAge)"},
		"one that takes a job only": {runner: &v1alpha1.Runner{}, done: 10, spec: spec, age: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if why, next := poolstatus.Retires(tc.runner, tc.done, tc.spec, epoch.Add(tc.age)); why != tc.why || next != tc.next {
				t.Errorf("got %q, %s", why, next)
			}
		})
	}
}
