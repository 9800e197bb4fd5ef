// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// A mark only counts if it names the pod's own runner and registration, which a template cannot know.
func TestAMarkCountsOnItsOwnRunnersPod(t *testing.T) {
	job := &v1alpha1.JobReference{ID: "j", Repository: "acme/app"}
	marked := func(uid types.UID, id int64) string {
		text, err := poolstatus.Mark(job, uid, id)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, tc := range map[string]struct {
		mark string
		want bool
	}{
		"its own":              {marked("u1", 7), true},
		"of another runner":    {marked("u2", 7), false},
		"of another's id":      {marked("u1", 8), false},
		"as a template has it": {`{"id":"j"}`, false},
		"of nobody":            {marked("", 0), false},
		"of no job":            {`{"runnerUID":"u1","runnerID":7}`, false},
		"none":                 {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				v1alpha1.RunnerUIDAnnotation: "u1", v1alpha1.RunnerIDAnnotation: "7", v1alpha1.JobAnnotation: tc.mark,
			}}}
			if got := poolstatus.JobOf(pod); (got != nil) != tc.want || got != nil && *got != *job {
				t.Errorf("it has job %+v", got)
			}
		})
	}
}

// A container's message is reported as one line of limited size. The same applies to an init container.
func TestLastWordsAreOneBoundedLine(t *testing.T) {
	for name, tc := range map[string]struct {
		state corev1.ContainerStateTerminated
		want  *v1alpha1.RunnerExit
	}{
		"ended well":      {corev1.ContainerStateTerminated{Message: "done"}, nil},
		"ended badly":     {corev1.ContainerStateTerminated{ExitCode: 137, Signal: 9, Message: "\x1b[31mout of\n\tmemory\x00\n"}, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 137, Signal: 9, Node: "n1", Message: "[31mout of memory"}},
		"said nothing":    {corev1.ContainerStateTerminated{ExitCode: 1}, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Node: "n1"}},
		"said a lot":      {corev1.ContainerStateTerminated{ExitCode: 1, Message: strings.Repeat("ä", 1000)}, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Node: "n1", Message: strings.Repeat("ä", 500)}},
		"said secrets":    {corev1.ContainerStateTerminated{ExitCode: 1, Message: "+ ./run.sh --jitconfig eyJhbGciOiJSUzI1NiJ9\nHTTPS_PROXY=http://corral:hunter2@proxy:3128\ncurl: (22) 403"}, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Node: "n1", Message: "+ ./run.sh --jitconfig *** HTTPS_PROXY=http://***@proxy:3128 curl: (22) 403"}},
		"cut in a word":   {corev1.ContainerStateTerminated{ExitCode: 1, Message: "6C7e42F2" + strings.Repeat(" ", 2047) + "bye"}, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Node: "n1", Message: "bye"}},
		"cut in a letter": {corev1.ContainerStateTerminated{ExitCode: 1, Message: strings.Repeat("ä", 1000) + "."}, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Node: "n1", Message: strings.Repeat("ä", 499) + "."}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "runner", State: corev1.ContainerState{Terminated: &tc.state}}}}}
			if diff := cmp.Diff(tc.want, poolstatus.Observe(&v1alpha1.Runner{}, pod, time.Minute, time.Time{}).Exit); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The end of a runner with a job is read back as it was written.
func TestAnEndIsToldTheSameTwice(t *testing.T) {
	const reason = "OOMKilled (exit code 137), with a job: GitHub will fail it"
	now := time.Unix(1000, 0)
	r := &v1alpha1.Runner{Status: v1alpha1.RunnerStatus{Job: &v1alpha1.JobReference{ID: "1"}, EndedAt: &metav1.Time{Time: now}, Reason: reason}}
	if got := poolstatus.Assess(poolstatus.Observe(r, nil, time.Minute, now), now).Reason; got != reason {
		t.Errorf("it ended with %q", got)
	}
}

func TestContainersBeforeTheRunnersAreObserved(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	exit := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
	}
	now, created := time.Unix(1000, 0), time.Unix(900, 0)
	for name, tc := range map[string]struct {
		init, runner corev1.ContainerState
		phase        corev1.PodPhase
		state        v1alpha1.RunnerState
		cause        v1alpha1.RunnerCause
		reason       string
	}{
		"an image that can't be pulled": {waiting("ImagePullBackOff"), waiting("PodInitializing"), corev1.PodPending, v1alpha1.RunnerFailed, v1alpha1.CauseImagePull, "not running within 1m0s: container setup: ImagePullBackOff: m"},
		"one that is tried again later": {corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "tools:1": ErrImagePull: no such image`}},
			waiting("PodInitializing"), corev1.PodPending, v1alpha1.RunnerFailed, v1alpha1.CauseImagePull, "not running within 1m0s: container setup: ErrImagePull: no such image"},
		"one that can't be made":      {waiting("CreateContainerConfigError"), waiting("PodInitializing"), corev1.PodPending, v1alpha1.RunnerFailed, v1alpha1.CauseConfig, "not running within 1m0s: container setup: CreateContainerConfigError: m"},
		"a sidecar that crashes":      {waiting("CrashLoopBackOff"), waiting("PodInitializing"), corev1.PodPending, v1alpha1.RunnerFailed, v1alpha1.CauseCrash, "not running within 1m0s: container setup: CrashLoopBackOff: m"},
		"one that ends with an error": {exit(1), waiting("PodInitializing"), corev1.PodFailed, v1alpha1.RunnerFailed, v1alpha1.CauseCrash, "container setup: Error (exit code 1)"},
		"one that is done":            {exit(0), waiting("PodInitializing"), corev1.PodPending, v1alpha1.RunnerPending, "", "starting"},
		"a sidecar that ends after the runner began": {exit(1), corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: now}}}, corev1.PodRunning,
			v1alpha1.RunnerIdle, "", "waiting for a job"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: created}}}
			pod, err := podspec.Trim(&corev1.Pod{Status: corev1.PodStatus{
				Phase:                 tc.phase,
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "setup", State: tc.init}},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: tc.runner}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			got := poolstatus.Assess(poolstatus.Observe(r, pod.(*corev1.Pod), 10*time.Minute, now), now)
			if got.State != tc.state || got.Cause != tc.cause || got.Reason != tc.reason {
				t.Errorf("got %s %q %q", got.State, got.Cause, got.Reason)
			}
		})
	}
}

// kube-scheduler's texts differ between versions.
func TestAClaimThatKeepsItsPodFromANodeIsKnownByTheSchedulersText(t *testing.T) {
	for text, want := range map[string]v1alpha1.RunnerCause{
		"2 node(s) had volume node affinity conflict":                                             v1alpha1.CauseCache,
		"1 Insufficient cpu, 2 node(s) didn't match PersistentVolume's node affinity":             v1alpha1.CauseCache,
		"2 node(s) had no available volume zone":                                                  v1alpha1.CauseCache,
		"2 node(s) didn't find available persistent volumes to bind":                              v1alpha1.CauseCache,
		"2 node(s) did not have enough free storage":                                              v1alpha1.CauseCache,
		"2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)":             v1alpha1.CauseCache,
		"pod has unbound immediate PersistentVolumeClaims":                                        v1alpha1.CauseCache,
		`persistentvolumeclaim "corral-cache-linux-0" not found`:                                  v1alpha1.CauseCache,
		`storageclass.storage.k8s.io "fast" not found`:                                            v1alpha1.CauseCache,
		"1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector":                 v1alpha1.CauseUnschedulable,
		"2 Insufficient ephemeral-storage":                                                        v1alpha1.CauseUnschedulable,
		"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access": v1alpha1.CauseCache,
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.CacheClaimAnnotation: "corral-cache-linux-0"}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: " + text + ".",
			}}},
		}
		if got := poolstatus.Observe(&v1alpha1.Runner{}, pod, time.Minute, time.Time{}); got.Cause != want {
			t.Errorf("%s: %q", text, got.Cause)
		}
	}
}

// The clock of a node or of the scheduler may be wrong by an hour. The time of an event is then the time when it was
// first seen.
func TestTimesByAnotherClock(t *testing.T) {
	now := time.Unix(100_000, 0)
	created, recorded := now.Add(-5*time.Minute), now.Add(-30*time.Second)
	for _, wrong := range []time.Duration{0, -time.Hour, -time.Minute, time.Hour} {
		at := metav1.Time{Time: now.Add(wrong)}
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
		ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at, FinishedAt: at}}
		unscheduled := corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: at, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
		}
		for name, tc := range map[string]struct {
			state     corev1.ContainerState
			condition corev1.PodCondition
			known     bool // the status contains the start
			want      v1alpha1.RunnerState
			since     time.Time
			until     time.Duration
		}{
			"started":        {state: running, want: v1alpha1.RunnerIdle, since: now},
			"known to run":   {state: running, known: true, want: v1alpha1.RunnerIdle, since: recorded},
			"ended":          {state: ended, known: true, want: v1alpha1.RunnerFinished, since: now, until: poolstatus.Settle},
			"ended at once":  {state: ended, want: v1alpha1.RunnerFinished, since: now, until: poolstatus.Settle},
			"has no node":    {condition: unscheduled, want: v1alpha1.RunnerPending, since: now, until: poolstatus.ClaimDeadline},
			"no pod has run": {want: v1alpha1.RunnerPending, since: now, until: 10 * time.Minute},
		} {
			t.Run(name+" "+wrong.String(), func(t *testing.T) {
				r := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now}}}
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now}, Annotations: map[string]string{v1alpha1.CacheClaimAnnotation: "claim"}},
					Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{tc.condition}, ContainerStatuses: []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: tc.state}}},
				}
				if tc.known {
					r.CreationTimestamp, pod.CreationTimestamp, r.Status.StartedAt = metav1.Time{Time: created}, metav1.Time{Time: created}, &metav1.Time{Time: recorded}
				}
				got := poolstatus.Assess(poolstatus.Observe(r, pod, 10*time.Minute, now), now)
				isLater := tc.condition.Type != "" && wrong > 0 // if the scheduler's clock is ahead, a claim is given up later, within the startup deadline
				if got.State != tc.want || !got.Since.Equal(tc.since) || tc.until != 0 && !isLater && got.Until.Sub(now) != tc.until || got.Until.Sub(now) > 10*time.Minute {
					t.Errorf("%s since %s, until %s", got.State, got.Since, got.Until)
				}
			})
		}
	}
}
