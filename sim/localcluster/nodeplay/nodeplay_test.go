// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// limit bounds each wait of a test; a test comes near it only if something is broken.
const limit = 3 * time.Minute

var (
	cluster *localcluster.Cluster // shared; each test simulates its own node in its own namespace
	api     kubernetes.Interface
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	if cluster, err = localcluster.Start(context.Background(), localcluster.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if api, err = kubernetes.NewForConfig(cluster.Config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// play runs a node until the test ends, or until the returned function is called.
func play(t *testing.T, run func(ctx context.Context, jitConfig string) int) (stop func()) {
	t.Helper()
	_, stop = playWith(t, nodeplay.Options{Run: func(ctx context.Context, c nodeplay.Container, _ func(nodeplay.Stage)) int {
		return run(ctx, c.JITConfig)
	}})
	return stop
}

func playWith(t *testing.T, o nodeplay.Options) (node *nodeplay.Node, stop func()) {
	t.Helper()
	node, err := nodeplay.New(cluster.Config, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Play(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(limit):
			t.Error("the node did not stop")
		}
	})
	t.Cleanup(stop)
	return node, stop
}

func newNamespace(t *testing.T) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text()[:10])
	if err := cluster.CreateNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

func createSecret(t *testing.T, namespace, name, value string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"config": value}}
	if _, err := api.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createPod creates a runner pod with a sidecar. Its Secret has the same name.
func createPod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	always, grace := corev1.ContainerRestartPolicyAlways, int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			InitContainers:                []corev1.Container{{Name: "docker", Image: "docker", RestartPolicy: &always}},
			Containers: []corev1.Container{{Name: "runner", Image: "runner", Env: []corev1.EnvVar{{
				Name: nodeplay.JITConfigEnv,
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "config",
				}},
			}}}},
		},
	}
	pod, err := api.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// follow calls visit with each state of a pod until visit returns true, or until the pod is deleted.
func follow(t *testing.T, pod *corev1.Pod, visit func(pod *corev1.Pod, deleted bool) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	one := fields.OneTermEqualSelector("metadata.name", pod.Name).String()
	_, err := watchtools.Until(ctx, pod.ResourceVersion, &watcher{namespace: pod.Namespace, selector: one}, func(e watch.Event) (bool, error) {
		current, ok := e.Object.(*corev1.Pod)
		if !ok {
			return false, apierrors.FromObject(e.Object)
		}
		return visit(current, e.Type == watch.Deleted), nil
	})
	if err != nil {
		t.Fatalf("waiting for pod %s: %v", pod.Name, err)
	}
}

type watcher struct{ namespace, selector string }

func (w *watcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector = w.selector
	return api.CoreV1().Pods(w.namespace).Watch(ctx, o)
}

func (w *watcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), o)
}

// look is the state of a pod as a controller sees it.
type look struct {
	Phase     corev1.PodPhase
	Ready     corev1.ConditionStatus
	Container string // state and reason, or exit code
	Sidecar   string
}

func lookAt(pod *corev1.Pod) look {
	l := look{Phase: pod.Status.Phase}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			l.Ready = c.Status
		}
	}
	if len(pod.Status.ContainerStatuses) == 1 {
		l.Container, l.Sidecar = describe(pod.Status.ContainerStatuses[0]), describe(pod.Status.InitContainerStatuses[0])
	}
	return l
}

func describe(s corev1.ContainerStatus) string {
	switch {
	case s.State.Waiting != nil:
		return "waiting " + s.State.Waiting.Reason
	case s.State.Running != nil:
		return "running"
	}
	return fmt.Sprintf("exit %d %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
}

func TestPodRunsToItsEnd(t *testing.T) {
	namespace := newNamespace(t)
	proceed := make(chan struct{})
	codes := map[string]int{"ok": 0, "bad": 3}
	play(t, func(_ context.Context, jitConfig string) int {
		<-proceed // ensures that Running is seen
		return codes[jitConfig]
	})
	tests := map[string]struct {
		config string
		want   look
	}{
		"success": {config: "ok", want: look{corev1.PodSucceeded, corev1.ConditionFalse, "exit 0 Completed", "exit 0 Completed"}},
		"failure": {config: "bad", want: look{corev1.PodFailed, corev1.ConditionFalse, "exit 3 Error", "exit 0 Completed"}},
	}
	pods := map[string]*corev1.Pod{}
	for name, tc := range tests {
		createSecret(t, namespace, name, tc.config)
		pods[name] = createPod(t, namespace, name)
		follow(t, pods[name], func(pod *corev1.Pod, _ bool) bool {
			pods[name] = pod
			return pod.Status.Phase == corev1.PodRunning
		})
		pod := pods[name]
		if diff := cmp.Diff(look{corev1.PodRunning, corev1.ConditionTrue, "running", "running"}, lookAt(pod)); diff != "" {
			t.Errorf("%s, while running (-want +got):\n%s", name, diff)
		}
		if pod.Spec.NodeName != "played" || pod.Status.PodIP == "" || pod.Status.StartTime == nil {
			t.Errorf("%s: node %q, IP %q, start %v; want all set", name, pod.Spec.NodeName, pod.Status.PodIP, pod.Status.StartTime)
		}
	}
	close(proceed)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			follow(t, pods[name], func(pod *corev1.Pod, _ bool) bool {
				pods[name] = pod
				return pod.Status.Phase != corev1.PodRunning
			})
			if diff := cmp.Diff(tc.want, lookAt(pods[name])); diff != "" {
				t.Errorf("at the end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeletionGivesGrace(t *testing.T) {
	tests := map[string]struct {
		heeds bool // whether the runner ends when asked to
		want  look
	}{
		"runner heeds it":   {heeds: true, want: look{corev1.PodFailed, corev1.ConditionFalse, "exit 7 Error", "exit 0 Completed"}},
		"runner ignores it": {heeds: false, want: look{corev1.PodFailed, corev1.ConditionFalse, "exit 137 Error", "exit 0 Completed"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace, release := newNamespace(t), make(chan struct{})
			stop := play(t, func(ctx context.Context, _ string) int {
				<-ctx.Done()
				if !tc.heeds {
					<-release
				}
				return 7
			})
			createSecret(t, namespace, "r", "any")
			pod := createPod(t, namespace, "r")
			follow(t, pod, func(p *corev1.Pod, _ bool) bool {
				pod = p
				return p.Status.Phase == corev1.PodRunning
			})
			if err := api.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			follow(t, pod, func(p *corev1.Pod, deleted bool) bool {
				if !deleted {
					pod = p
				}
				return deleted
			})
			if diff := cmp.Diff(tc.want, lookAt(pod)); diff != "" {
				t.Errorf("last seen (-want +got):\n%s", diff)
			}
			close(release)
			stop()
		})
	}
}

func TestMissingSecretKeepsThePodPending(t *testing.T) {
	namespace := newNamespace(t)
	got := make(chan string, 1)
	play(t, func(_ context.Context, jitConfig string) int { got <- jitConfig; return 0 })
	pod := createPod(t, namespace, "late")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool {
		pod = p
		return len(p.Status.ContainerStatuses) > 0
	})
	want := look{corev1.PodPending, corev1.ConditionFalse, "waiting CreateContainerConfigError", "waiting PodInitializing"}
	if diff := cmp.Diff(want, lookAt(pod)); diff != "" {
		t.Errorf("without its Secret (-want +got):\n%s", diff)
	}
	createSecret(t, namespace, "late", "now")
	if config := <-got; config != "now" {
		t.Errorf("the runner was given %q", config)
	}
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodSucceeded })
}

func TestPodThatNeverStartedIsRemoved(t *testing.T) {
	namespace := newNamespace(t)
	play(t, func(context.Context, string) int { return 0 }) // for pods that earlier tests left behind
	pod := createPod(t, namespace, "never")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { return len(p.Status.ContainerStatuses) > 0 })
	if err := api.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, pod, func(p *corev1.Pod, deleted bool) bool {
		if p.Status.Phase == corev1.PodRunning {
			t.Error("the runner ran")
		}
		return deleted
	})
}

func TestOtherPodsAreLeftAlone(t *testing.T) {
	namespace := newNamespace(t)
	stop := play(t, func(context.Context, string) int { return 0 })
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	before, err := api.CoreV1().Pods(namespace).Create(t.Context(), plain, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	createSecret(t, namespace, "r", "any")
	follow(t, createPod(t, namespace, "r"), func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodSucceeded })
	stop()
	after, err := api.CoreV1().Pods(namespace).Get(t.Context(), "plain", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("a pod without a runner was changed (-before +after):\n%s", diff)
	}
}

func TestNodeFindsItsPodsAgain(t *testing.T) {
	namespace := newNamespace(t)
	stop := play(t, func(ctx context.Context, _ string) int { <-ctx.Done(); return 0 })
	createSecret(t, namespace, "r", "any")
	pod := createPod(t, namespace, "r")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodRunning })
	stop()
	play(t, func(context.Context, string) int { t.Error("a runner was started twice"); return 0 })
	follow(t, pod, func(p *corev1.Pod, _ bool) bool {
		pod = p
		return p.Status.Phase == corev1.PodFailed
	})
	if got := lookAt(pod).Container; got != "exit 255 Unknown" {
		t.Errorf("got %q", got)
	}
}

func TestNothingRunsOnAfterTheNode(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	namespace := newNamespace(t)
	stop := play(t, func(ctx context.Context, _ string) int { <-ctx.Done(); return 0 })
	const pods = 20
	for i := range pods {
		name := fmt.Sprintf("r%d", i)
		createSecret(t, namespace, name, "any")
		follow(t, createPod(t, namespace, name), func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodRunning })
	}
	stop()
	// A connection can outlive its last request for a moment, and the test has its own connection.
	goleak.VerifyNone(t, ignore, goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"))
}

func TestAPodEndsAtItsDeadlineAndStays(t *testing.T) {
	namespace := newNamespace(t)
	play(t, func(ctx context.Context, _ string) int {
		<-ctx.Done()
		return 0
	})
	createSecret(t, namespace, "r", "config")
	pod := createPod(t, namespace, "r")
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { pod = p; return p.Status.Phase == corev1.PodRunning })
	if _, err := api.CoreV1().Pods(namespace).Patch(t.Context(), "r", types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, pod, func(p *corev1.Pod, _ bool) bool { pod = p; return p.Status.Phase == corev1.PodFailed })
	if pod.DeletionTimestamp != nil || pod.Status.Reason != "DeadlineExceeded" {
		t.Errorf("%s, deleted %v", pod.Status.Reason, pod.DeletionTimestamp)
	}
	if err := api.CoreV1().Pods(namespace).Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, pod, func(_ *corev1.Pod, deleted bool) bool { return deleted })
}
