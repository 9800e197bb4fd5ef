// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// keeping makes the runner's pool keep the last failed pod, and assigns the runner's pod to a node.
func (b *bench) keeping() {
	b.t.Helper()
	pool := b.pool()
	pool.Spec.FailedPodTTL = &metav1.Duration{Duration: 10 * time.Minute}
	b.update(pool)
	b.reconcile()
	pod := b.pod()
	pod.Spec.NodeName = "n1"
	pod.Labels[v1alpha1.JobIDLabel] = "7"
	pod.Annotations[podspec.SafeToEvictAnnotation] = "false"
	b.update(pod)
}

// setPhase makes the pod end as a node reports it.
func (b *bench) setPhase(phase corev1.PodPhase) {
	b.t.Helper()
	pod := b.pod()
	pod.Status.Phase = phase
	if err := b.Client.Status().Update(b.t.Context(), pod); err != nil {
		b.t.Fatal(err)
	}
}

// crash ends the runner's container, and its pod, with an error.
func (b *bench) crash() {
	b.t.Helper()
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.Time{Time: b.now}}})
	b.setPhase(corev1.PodFailed)
}

func TestThePodOfARunnerThatFailedIsKept(t *testing.T) {
	b := newBench(t)
	b.keeping()
	b.crash()
	b.reconcile()
	b.reconcile()
	if b.runner() != nil || b.registered() != 0 {
		t.Fatalf("the runner waits: %v, %d registered", b.runner(), b.registered())
	}
	pod := b.pod()
	if pod == nil || !KeptUntil(pod, b.now).Equal(b.now.Add(10*time.Minute)) {
		t.Fatalf("pod %v", pod)
	}
	if pod.Labels[v1alpha1.JobIDLabel] != "" || pod.Annotations[podspec.SafeToEvictAnnotation] != "true" {
		t.Errorf("it is protected as if it had a job: %v, %v", pod.Labels, pod.Annotations)
	}
	b.reconcile() // the runner is gone
	if b.pod() == nil {
		t.Error("it is swept before its time")
	}
	b.now = b.now.Add(10 * time.Minute)
	b.reconcile()
	if b.pod() != nil {
		t.Error("it is kept for longer")
	}
}

func TestAPodThatRunsIsKeptOnceItEnded(t *testing.T) {
	for name, ends := range map[string]bool{"it ends": true, "its node is lost": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.keeping()
			b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
			b.reconcile()
			r := b.runner()
			b.Memory.MarkFailed(client.ObjectKeyFromObject(r), r.UID, poolstatus.Assessment{State: v1alpha1.RunnerFailed, Cause: v1alpha1.CauseNeverConnected, Since: b.now})
			b.delete()
			b.reconcile()
			if s := b.pod().Spec.ActiveDeadlineSeconds; s == nil || *s != 1 || b.pod().Annotations[v1alpha1.KeptUntilAnnotation] != "" || b.runner() == nil {
				t.Fatalf("pod %+v", b.pod())
			}
			if ends {
				b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, FinishedAt: metav1.Time{Time: b.now}}})
				b.setPhase(corev1.PodFailed)
			}
			b.now = b.now.Add(stopFor)
			b.reconcile()
			b.reconcile()
			if kept := b.pod() != nil; kept != ends || b.runner() != nil {
				t.Errorf("kept: %v, runner %v", kept, b.runner())
			}
		})
	}
}

func TestWhichPodsAreNotKept(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"the pool keeps none": func(b *bench) {
			pool := b.pool()
			pool.Spec.FailedPodTTL = nil
			b.update(pool)
		},
		"the pool is gone": func(b *bench) {
			if err := b.Client.Delete(b.t.Context(), b.pool()); err != nil {
				b.t.Fatal(err)
			}
		},
		"one with a claim of the cache": func(b *bench) {
			pod := b.pod()
			pod.Annotations[v1alpha1.CacheClaimAnnotation] = "corral-cache-linux-0"
			b.update(pod)
		},
		"one that was on no node": func(b *bench) {
			pod := b.pod()
			pod.Spec.NodeName = ""
			b.update(pod)
		},
		"one that somebody ended": func(b *bench) {
			r := b.runner()
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.TerminateAnnotation, "it is stuck")
			b.update(r)
		},
		"one that policies deny": func(b *bench) {
			r := b.runner()
			b.Memory.MarkFailed(client.ObjectKeyFromObject(r), r.UID, poolstatus.Assessment{State: v1alpha1.RunnerFailed, Cause: v1alpha1.CauseRefused, Since: b.now})
		},
		"one that somebody has kept for longer": func(b *bench) {
			pod := b.pod()
			pod.Annotations[v1alpha1.KeptUntilAnnotation] = b.now.Add(3 * v1alpha1.MaxFailedPodTTL).Format(time.RFC3339)
			b.update(pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.keeping()
			b.crash()
			change(b)
			b.delete()
			for range 3 {
				b.reconcile()
			}
			if b.runner() != nil || b.pod() != nil {
				t.Errorf("runner %v, pod %v", b.runner(), b.pod())
			}
		})
	}
}
