// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// runner is a process that connects, takes a job, and ends when asked to.
func runner(ctx context.Context, c nodeplay.Container, reached func(nodeplay.Stage)) int {
	reached(nodeplay.Connected)
	if c.JITConfig == "has a job" {
		reached(nodeplay.Working)
	}
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), nodeplay.ErrKilled) {
		return 1 // this exit code is not reported
	}
	return 0
}

func ready(reason corev1.ConditionStatus) func(*corev1.Pod, bool) bool {
	return func(p *corev1.Pod, _ bool) bool { return lookAt(p).Ready == reason }
}

func TestFaultsAreToldAsAKubeletTells(t *testing.T) {
	tests := map[string]struct {
		fault nodeplay.Fault
		until func(p *corev1.Pod, deleted bool) bool
		want  look
	}{
		"crash before connecting": {
			fault: nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting},
			until: func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodFailed },
			want:  look{corev1.PodFailed, corev1.ConditionFalse, "exit 1 Error", "exit 0 Completed"},
		},
		"crash connected": {
			fault: nodeplay.Fault{Kind: nodeplay.CrashConnected},
			until: func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodFailed },
			want:  look{corev1.PodFailed, corev1.ConditionFalse, "exit 139 Error", "exit 0 Completed"},
		},
		"killed in a job": {
			fault: nodeplay.Fault{Kind: nodeplay.KilledInJob, After: time.Millisecond},
			until: func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodFailed },
			want:  look{corev1.PodFailed, corev1.ConditionFalse, "exit 137 OOMKilled", "exit 0 Completed"},
		},
		"never connects": {
			fault: nodeplay.Fault{Kind: nodeplay.NeverConnects},
			until: ready(corev1.ConditionTrue),
			want:  look{corev1.PodRunning, corev1.ConditionTrue, "running", "running"},
		},
		"image refused": {
			fault: nodeplay.Fault{Kind: nodeplay.ImageRefused},
			until: func(p *corev1.Pod, _ bool) bool { return lookAt(p).Container == "waiting ImagePullBackOff" },
			want:  look{corev1.PodPending, corev1.ConditionFalse, "waiting ImagePullBackOff", "waiting PodInitializing"},
		},
		"evicted": {
			fault: nodeplay.Fault{Kind: nodeplay.Evicted},
			until: func(_ *corev1.Pod, deleted bool) bool { return deleted },
			want:  look{corev1.PodSucceeded, corev1.ConditionFalse, "exit 0 Completed", "exit 0 Completed"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := newNamespace(t)
			struck := make(chan nodeplay.FaultKind, 1)
			node, _ := playWith(t, nodeplay.Options{Namespace: namespace, Run: runner, OnFault: func(_ *corev1.Pod, m nodeplay.FaultKind) { struck <- m }})
			node.Inject(tc.fault)
			createSecret(t, namespace, "r", "has a job")
			pod := createPod(t, namespace, "r")
			follow(t, pod, func(p *corev1.Pod, deleted bool) bool {
				pod = p
				return tc.until(p, deleted)
			})
			if diff := cmp.Diff(tc.want, lookAt(pod)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if m := <-struck; m != tc.fault.Kind {
				t.Errorf("told of %q", m)
			}
		})
	}
}

func TestUnschedulablePodStartsOnceTheFaultIsCleared(t *testing.T) {
	for kind, why := range map[nodeplay.FaultKind]string{nodeplay.Unschedulable: "3 Insufficient cpu", nodeplay.VolumeElsewhere: "3 node(s) had volume node affinity conflict"} {
		t.Run(string(kind), func(t *testing.T) {
			namespace := newNamespace(t)
			node, _ := playWith(t, nodeplay.Options{Namespace: namespace, Run: runner})
			clear := node.Inject(nodeplay.Fault{Kind: kind})
			createSecret(t, namespace, "r", "any")
			pod := createPod(t, namespace, "r")
			follow(t, pod, func(p *corev1.Pod, _ bool) bool {
				pod = p
				return len(p.Status.Conditions) > 0
			})
			got := pod.Status.Conditions[0]
			if got.Type != corev1.PodScheduled || got.Reason != corev1.PodReasonUnschedulable || !strings.HasPrefix(got.Message, "0/3 nodes are available: "+why+".") {
				t.Errorf("the scheduler says %+v", got)
			}
			clear()
			follow(t, pod, func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodRunning })
		})
	}
}

// The response to an assignment can be lost with its node: the assignment is repeated without effect, and the pod still
// starts.
func TestAPodThatIsAssignedAlreadyStarts(t *testing.T) {
	namespace := newNamespace(t)
	node, _ := playWith(t, nodeplay.Options{Namespace: namespace, Run: runner})
	clear := node.Inject(nodeplay.Fault{Kind: nodeplay.Unschedulable})
	createSecret(t, namespace, "r", "any")
	pod := createPod(t, namespace, "r")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { return len(p.Status.Conditions) > 0 })
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node.Places()[0]}}
	if err := api.CoreV1().Pods(namespace).Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clear()
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodRunning })
}

func TestImageComesAfterATime(t *testing.T) {
	namespace := newNamespace(t)
	node, _ := playWith(t, nodeplay.Options{Namespace: namespace, Run: runner})
	node.Inject(nodeplay.Fault{Kind: nodeplay.ImageRefused, For: 300 * time.Millisecond})
	createSecret(t, namespace, "r", "any")
	refusals := 0
	follow(t, createPod(t, namespace, "r"), func(p *corev1.Pod, _ bool) bool {
		if lookAt(p).Container == "waiting ErrImagePull" {
			refusals++
		}
		return p.Status.Phase == corev1.PodRunning
	})
	if refusals == 0 {
		t.Error("the image was never refused")
	}
}

func TestHangingContainerIsKilledAfterItsGrace(t *testing.T) {
	namespace := newNamespace(t)
	node, _ := playWith(t, nodeplay.Options{Namespace: namespace, Run: func(context.Context, nodeplay.Container, func(nodeplay.Stage)) int { return 0 }})
	node.Inject(nodeplay.Fault{Kind: nodeplay.HangsAfterJob})
	createSecret(t, namespace, "r", "any")
	pod := createPod(t, namespace, "r")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodRunning })
	if err := api.CoreV1().Pods(namespace).Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, pod, func(p *corev1.Pod, deleted bool) bool {
		pod = p
		return deleted
	})
	if got := lookAt(pod).Container; got != "exit 137 Error" {
		t.Errorf("the container ended with %q", got)
	}
}

func TestFaultsSelectTheirPods(t *testing.T) {
	namespace := newNamespace(t)
	var mu sync.Mutex
	struck := map[string]bool{}
	node, _ := playWith(t, nodeplay.Options{Namespace: namespace, Run: runner, OnFault: func(p *corev1.Pod, _ nodeplay.FaultKind) {
		mu.Lock()
		defer mu.Unlock()
		struck[p.Name] = true
	}})
	node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Namespace: "another"})
	node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Labels: map[string]string{"pool": "another"}})
	node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Probability: 1e-9})
	node.Inject(nodeplay.Fault{Kind: nodeplay.CrashBeforeConnecting, Skip: 1, Times: 1})
	for i := range 3 {
		name := fmt.Sprintf("r%d", i)
		createSecret(t, namespace, name, "any")
		follow(t, createPod(t, namespace, name), ready(corev1.ConditionTrue))
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]bool{"r1": true}, struck); diff != "" {
		t.Errorf("struck (-want +got):\n%s", diff)
	}
}

// lost runs two nodes, starts a pod and loses its node.
func lost(t *testing.T, namespace string, loss nodeplay.Loss) (*nodeplay.Node, *corev1.Pod) {
	t.Helper()
	killed := make(chan error, 1)
	node, _ := playWith(t, nodeplay.Options{NodeName: namespace, Nodes: 2, Namespace: namespace, Run: func(ctx context.Context, _ nodeplay.Container, _ func(nodeplay.Stage)) int {
		<-ctx.Done()
		killed <- context.Cause(ctx)
		return 0
	}})
	createSecret(t, namespace, "r", "any")
	pod := createPod(t, namespace, "r")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool {
		pod = p
		return p.Status.Phase == corev1.PodRunning
	})
	if err := node.Lose(t.Context(), pod.Spec.NodeName, loss); err != nil {
		t.Fatal(err)
	}
	if cause := <-killed; !errors.Is(cause, nodeplay.ErrKilled) {
		t.Errorf("the process ended because of %v", cause)
	}
	return node, pod
}

func TestPodsOfALostNodeStayUntilItReturns(t *testing.T) {
	namespace := newNamespace(t)
	node, pod := lost(t, namespace, nodeplay.Loss{EvictAfter: time.Millisecond})
	follow(t, pod, func(p *corev1.Pod, _ bool) bool {
		pod = p
		return p.DeletionTimestamp != nil
	})
	if got := lookAt(pod); got.Phase != corev1.PodRunning || got.Ready != corev1.ConditionFalse || got.Container != "running" {
		t.Errorf("the pod is seen as %+v", got)
	}
	object, err := api.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if object.Status.Conditions[0].Status != corev1.ConditionUnknown {
		t.Errorf("the node is %+v", object.Status.Conditions[0])
	}
	createSecret(t, namespace, "next", "any")
	follow(t, createPod(t, namespace, "next"), func(p *corev1.Pod, _ bool) bool {
		if p.Spec.NodeName == pod.Spec.NodeName {
			t.Fatal("a pod was assigned to a lost node")
		}
		return p.Status.Phase == corev1.PodRunning
	})
	if err := node.ReturnAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	follow(t, pod, func(p *corev1.Pod, deleted bool) bool {
		pod = p
		return deleted
	})
	if got := lookAt(pod).Container; got != "exit 255 Unknown" {
		t.Errorf("the container ended with %q", got)
	}
}

func TestPodsOfARemovedNodeAreCollected(t *testing.T) {
	namespace := newNamespace(t)
	node, pod := lost(t, namespace, nodeplay.Loss{RemoveAfter: time.Millisecond})
	follow(t, pod, func(_ *corev1.Pod, deleted bool) bool { return deleted })
	if _, err := api.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node: %v", err)
	}
	if err := node.Return(t.Context(), pod.Spec.NodeName); err != nil {
		t.Error(err)
	}
}
