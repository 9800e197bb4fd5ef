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
		want poolstatus.Verdict
	}{
		"starting": {
			now:  at(5),
			want: poolstatus.Verdict{State: v1alpha1.RunnerPending, Reason: "starting", Since: created, Until: at(60)},
		},
		"starting says what it waits for": {
			o: poolstatus.Observation{EndReason: "ErrImagePull: no such image"}, now: at(5),
			want: poolstatus.Verdict{State: v1alpha1.RunnerPending, Reason: "ErrImagePull: no such image", Since: created, Until: at(60)},
		},
		"past its startup deadline": {
			o: poolstatus.Observation{EndReason: "Unschedulable"}, now: at(60),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: "not running 1m0s after its creation: Unschedulable", Since: at(60)},
		},
		"idle": {
			o: poolstatus.Observation{StartedAt: at(3)}, now: at(90),
			want: poolstatus.Verdict{State: v1alpha1.RunnerIdle, Reason: "waiting for a job", Since: at(3)},
		},
		"busy": {
			o: poolstatus.Observation{StartedAt: at(3), Job: job(9, 0, "")}, now: at(90),
			want: poolstatus.Verdict{State: v1alpha1.RunnerBusy, Reason: "running a job", Since: at(9)},
		},
		"busy although the container was not seen starting": {
			o: poolstatus.Observation{Job: job(9, 0, "")}, now: at(10),
			want: poolstatus.Verdict{State: v1alpha1.RunnerBusy, Reason: "running a job", Since: at(9)},
		},
		"its job completed, its container still runs": {
			o: poolstatus.Observation{StartedAt: at(3), Job: job(9, 20, "failed")}, now: at(21),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFinished, Reason: "job failed", Since: at(20)},
		},
		"ended before the completion was seen": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true, Job: job(9, 0, "")}, now: at(21),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFinished, Settling: true, Reason: "ended, waiting for the job's completion", Since: at(20), Until: at(35)},
		},
		"ended so fast that the job's start was not seen": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(4), EndedClean: true}, now: at(5),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFinished, Settling: true, Reason: "ended, waiting for the job's completion", Since: at(4), Until: at(19)},
		},
		"ended, and the completion never came": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true, Job: job(9, 0, "")}, now: at(35),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFinished, Reason: "ended; the job's completion was not seen", Since: at(20)},
		},
		"ended without ever having a job": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(20), EndedClean: true}, now: at(35),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: "ended without a job", Since: at(20)},
		},
		"without a job, and its pod is taken away": {
			o: poolstatus.Observation{StartedAt: at(3), Removed: true}, now: at(5),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: "its pod is being removed", Since: at(5)},
		},
		"with a job, and its pod is taken away": {
			o: poolstatus.Observation{StartedAt: at(3), Removed: true, Job: job(4, 0, "")}, now: at(5),
			want: poolstatus.Verdict{State: v1alpha1.RunnerBusy, Reason: "running a job", Since: at(4)},
		},
		"crashed": {
			o: poolstatus.Observation{StartedAt: at(3), EndedAt: at(4), EndReason: "OOMKilled (exit code 137)"}, now: at(5),
			want: poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: "OOMKilled (exit code 137)", Since: at(4)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.o.CreatedAt, tc.o.Deadline = created, time.Minute
			if diff := cmp.Diff(tc.want, poolstatus.Judge(tc.o, tc.now)); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
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
