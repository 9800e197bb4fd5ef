// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

func TestJudge(t *testing.T) {
	created := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return created.Add(time.Duration(s) * time.Second) }
	job := func(started, completed int, result string) *v1alpha1.JobReference {
		j := &v1alpha1.JobReference{ID: "j", Result: result, StartedAt: &metav1.Time{Time: at(started)}}
		if completed > 0 {
			j.CompletedAt = &metav1.Time{Time: at(completed)}
		}
		return j
	}
	cases := map[string]struct {
		o    poolstatus.Observation
		now  time.Time
		want poolstatus.Assessment
	}{
		"starting": {
			now:  at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "starting", Since: created, Until: at(60)},
		},
		"starting says what it waits for": {
			o: poolstatus.Observation{EndReason: "ErrImagePull: no such image"}, now: at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "ErrImagePull: no such image", Since: created, Until: at(60)},
		},
		"past its startup deadline": {
			o: poolstatus.Observation{EndReason: "Unschedulable", Cause: v1alpha1.CauseUnschedulable}, now: at(60),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "not running within 1m0s: Unschedulable", Since: at(60), Cause: v1alpha1.CauseUnschedulable},
		},
		"its pod came late": {
			o: poolstatus.Observation{HasPod: true, PodCreatedAt: at(3000)}, now: at(3059),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "starting", Since: created, Until: at(3060)},
		},
		"its node came late, and the first pull failed": {
			o:    poolstatus.Observation{HasPod: true, PodCreatedAt: at(1), ScheduledAt: at(50), Cause: v1alpha1.CauseImagePull, EndReason: "ErrImagePull"},
			now:  at(60),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "ErrImagePull", Since: created, Until: at(61), Cause: v1alpha1.CauseImagePull},
		},
		"no room for its pod, for hours": {
			o: poolstatus.Observation{EndReason: "exceeded quota", Cause: v1alpha1.CauseQuota}, now: at(9999),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "exceeded quota", Since: created, Until: at(10000), Cause: v1alpha1.CauseQuota, Blocked: true},
		},
		"no room until GitHub forgets it": {
			o: poolstatus.Observation{EndReason: "exceeded quota", Cause: v1alpha1.CauseQuota}, now: at(10000),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "not running within 1m0s: exceeded quota", Since: at(60), Cause: v1alpha1.CauseQuota},
		},
		"no claim for its pod": {
			o: poolstatus.Observation{EndReason: "none is free", Cause: v1alpha1.CauseCache}, now: at(60),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "none is free", Since: created, Until: at(10000), Cause: v1alpha1.CauseCache, Blocked: true},
		},
		"its pod's claim is in another zone": {
			o:    poolstatus.Observation{HasPod: true, PodCreatedAt: at(1), StuckSince: at(2), EndReason: "volume node affinity conflict", Cause: v1alpha1.CauseCache},
			now:  at(32),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "not running within 31s: volume node affinity conflict", Since: at(32), Cause: v1alpha1.CauseCache},
		},
		"idle": {
			o: poolstatus.Observation{StartedAt: at(3)}, now: at(90),
			want: poolstatus.Assessment{State: v1alpha1.RunnerIdle, Reason: "waiting for a job", Since: at(3)},
		},
		"busy": {
			o: poolstatus.Observation{StartedAt: at(3), Job: job(9, 0, "")}, now: at(90),
			want: poolstatus.Assessment{State: v1alpha1.RunnerBusy, Reason: "running a job", Since: at(9)},
		},
		"busy although the container was not seen starting": {
			o: poolstatus.Observation{Job: job(9, 0, "")}, now: at(10),
			want: poolstatus.Assessment{State: v1alpha1.RunnerBusy, Reason: "running a job", Since: at(9)},
		},
		"its job completed, its container still runs": {
			o: poolstatus.Observation{StartedAt: at(3), Job: job(9, 20, "failed")}, now: at(21),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFinished, Reason: "job failed", Since: at(20)},
		},
		"ended before the completion was seen": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true, Job: job(9, 0, "")}, now: at(21),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFinished, Settling: true, Reason: "ended, waiting for the job's completion", Since: at(20), Until: at(35)},
		},
		"ended so fast that the job's start was not seen": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(4), EndedClean: true}, now: at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFinished, Settling: true, Reason: "ended, waiting for the job's completion", Since: at(4), Until: at(19)},
		},
		"ended while nobody looked: the completion is still to come": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true, Noticed: at(50)}, now: at(60),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFinished, Settling: true, Reason: "ended, waiting for the job's completion", Since: at(20), Until: at(65)},
		},
		"ended, and the completion never came": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true, Job: job(9, 0, "")}, now: at(35),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFinished, Reason: "ended; the job's completion was not seen", Since: at(20)},
		},
		"ended without ever having a job": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true}, now: at(35),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "ended without a job", Since: at(20), Cause: v1alpha1.CauseCrash},
		},
		"without a job, and its pod is taken away": {
			o: poolstatus.Observation{StartedAt: at(3), Removed: true}, now: at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "its pod is being removed", Since: at(5), Cause: v1alpha1.CauseRemoved},
		},
		"with a job, and its pod is taken away": {
			o: poolstatus.Observation{StartedAt: at(3), Removed: true, Job: job(4, 0, "")}, now: at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerBusy, Reason: "running a job", Since: at(4)},
		},
		"crashed": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(4), EndReason: "OOMKilled (exit code 137)"}, now: at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "OOMKilled (exit code 137)", Since: at(4), Cause: v1alpha1.CauseCrash},
		},
		"ended with an error because its pod is taken away": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(4), EndReason: "Error (exit code 143)", Removed: true, Cause: v1alpha1.CauseRemoved}, now: at(5),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "Error (exit code 143)", Since: at(4), Cause: v1alpha1.CauseRemoved},
		},
		"died with a job: no other runner gets that job": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndReason: "OOMKilled (exit code 137)", Job: job(9, 0, "")}, now: at(500),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "OOMKilled (exit code 137), with a job: GitHub will fail it", Since: at(20), Settling: true, Until: at(920)},
		},
		"died with a job that GitHub never failed": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndReason: "OOMKilled (exit code 137)", Job: job(9, 0, "")}, now: at(920),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "OOMKilled (exit code 137)", Since: at(20)},
		},
		"nothing amiss, but too slow": {
			o: poolstatus.Observation{}, now: at(60),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "not running within 1m0s: no container status", Since: at(60), Cause: v1alpha1.CauseSlow},
		},
		"its job is over: GitHub let go of it": {
			o: poolstatus.Observation{StartedAt: at(3), Job: job(9, 0, ""), Terminating: true, Deregistered: true}, now: at(90),
			want: poolstatus.Assessment{State: v1alpha1.RunnerFinished, Reason: "its job is over; its container is not known to have ended", Since: at(3)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.o.CreatedAt, tc.o.Deadline, tc.o.Expires = created, time.Minute, at(10000)
			if diff := cmp.Diff(tc.want, poolstatus.Assess(tc.o, tc.now)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// Until GitHub reports whether a runner had a job, its Runner's status keeps the actor that ended it.
func TestAnEndIsRememberedUntilGitHubIsAsked(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	for name, tc := range map[string]struct {
		o      poolstatus.Observation
		reason string
		cause  v1alpha1.RunnerCause
	}{
		"by itself": {poolstatus.Observation{}, "ended without a job", v1alpha1.CauseCrash},
		"by its node": {
			poolstatus.Observation{EndReason: "Preempting: by a critical pod", Cause: v1alpha1.CauseNode, Exit: &v1alpha1.RunnerExit{Actor: v1alpha1.ActorNode}},
			"Preempting: by a critical pod", v1alpha1.CauseNode,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.o.EndedAt, tc.o.EndedClean = at(20), true
			r := &v1alpha1.Runner{}
			for range 2 { // the second time from the status that the first has written
				a := poolstatus.Unasked(tc.o)
				r.Status.EndedAt, r.Status.EndedClean, r.Status.Exit = &metav1.Time{Time: at(20)}, true, tc.o.Exit
				r.Status.Reason, r.Status.Cause = a.Reason, a.Cause
				tc.o = poolstatus.Observe(r, nil, time.Minute, at(40))
			}
			if got := poolstatus.Assess(tc.o, at(20).Add(poolstatus.JobLost)); got.State != v1alpha1.RunnerFailed || got.Reason != tc.reason || got.Cause != tc.cause {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestWhatWaitingWontMendIsNotWaitedForLong(t *testing.T) {
	created := time.Unix(1_000_000, 0)
	o := poolstatus.Observation{CreatedAt: created, Deadline: time.Hour, Cause: v1alpha1.CauseImagePull, EndReason: "ErrImagePull: not found"}
	due := created.Add(poolstatus.StuckDeadline)
	for name, tc := range map[string]struct {
		now  time.Time
		want poolstatus.Assessment
	}{
		"the kubelet tries again": {
			now:  due.Add(-time.Second),
			want: poolstatus.Assessment{State: v1alpha1.RunnerPending, Reason: "ErrImagePull: not found", Since: created, Until: due, Cause: v1alpha1.CauseImagePull},
		},
		"given up": {
			now:  due,
			want: poolstatus.Assessment{State: v1alpha1.RunnerFailed, Reason: "not running within 1m0s: ErrImagePull: not found", Since: due, Cause: v1alpha1.CauseImagePull},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, poolstatus.Assess(o, tc.now)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnconnected(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	idle := []poolstatus.Runner{{Name: "b", Since: start.Add(time.Second)}, {Name: "a", Since: start}, {Name: "young", Since: start.Add(2 * time.Minute)}}
	cases := map[string]struct {
		online, busy       int
		counted, unsettled time.Duration
		now                time.Duration // 31 s if 0
		want               poolstatus.Suspects
		ask                bool
		next               time.Duration
		sure               []string
	}{
		"all are online":                       {online: 3, counted: 31 * time.Second, next: 119 * time.Second, sure: []string{"b", "a"}},
		"counted too early to tell":            {counted: 10 * time.Second, ask: true},
		"one is missing, any":                  {online: 1, counted: 31 * time.Second, want: missing(1), next: 119 * time.Second},
		"none is online":                       {counted: 31 * time.Second, want: missing(2), next: 119 * time.Second},
		"a busy one is online too":             {online: 4, busy: 1, counted: 31 * time.Second, next: 119 * time.Second, sure: []string{"b", "a"}},
		"the busy one is online, an idle not":  {online: 2, busy: 1, counted: 31 * time.Second, want: missing(1), next: 119 * time.Second},
		"those that are young may yet connect": {online: 2, counted: 31 * time.Second, next: 119 * time.Second},
		"one that ended may have been counted": {online: 3, counted: 31 * time.Second, unsettled: 32 * time.Second, now: 41 * time.Second, next: 50 * time.Second},
		"and it was a while ago":               {online: 3, counted: 31 * time.Second, unsettled: 31 * time.Second, now: 91 * time.Second, ask: true, next: 59 * time.Second},
		"and one is missing all the same":      {online: 1, counted: 31 * time.Second, unsettled: 32 * time.Second, now: 41 * time.Second, want: missing(1), next: 109 * time.Second},
		"counted after the last one ended":     {online: 3, counted: 31 * time.Second, unsettled: 30 * time.Second, next: 119 * time.Second, sure: []string{"b", "a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			online := poolstatus.Online{Count: tc.online, At: start.Add(tc.counted), Unsettled: start.Add(tc.unsettled)}
			got := poolstatus.Connections(idle, tc.busy, online, 30*time.Second, start.Add(max(tc.now, 31*time.Second)))
			var sure []string
			for _, r := range got.Sure {
				sure = append(sure, r.Name)
			}
			got.Sure = nil
			want := poolstatus.Connected{Suspects: tc.want, Ask: tc.ask, Next: tc.next}
			if diff := cmp.Diff(want, got) + cmp.Diff(tc.sure, sure); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// missing returns the suspects a and b. n of them are missing on GitHub, but it is unknown which.
func missing(n int) poolstatus.Suspects {
	return poolstatus.Suspects{Names: []string{"a", "b"}, Missing: n}
}

func TestOverdue(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	busy := []poolstatus.Runner{{Name: "b", Since: start.Add(time.Second)}, {Name: "a", Since: start}, {Name: "new", Since: start.Add(time.Minute)}}
	for name, tc := range map[string]struct {
		counted int
		after   time.Duration
		want    poolstatus.Suspects
	}{
		"GitHub counts as many":            {counted: 2, after: time.Minute},
		"GitHub counts one less":           {counted: 1, after: time.Minute, want: missing(1)},
		"GitHub counts none":               {after: time.Minute, want: missing(2)},
		"the count is from before the job": {after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, poolstatus.Overdue(busy, tc.counted, start.Add(tc.after))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCount(t *testing.T) {
	var c v1alpha1.RunnerCounts
	for _, s := range []v1alpha1.RunnerState{"", v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy, v1alpha1.RunnerFinished, v1alpha1.RunnerFailed} {
		poolstatus.Count(&c, s, s == v1alpha1.RunnerBusy)
	}
	want := v1alpha1.RunnerCounts{Total: 6, Pending: 2, Idle: 1, Busy: 1, Finished: 1, Failed: 1, Outdated: 1}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
