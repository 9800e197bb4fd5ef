// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeplay plays a node: it does to runner pods, as seen through the API server, what a scheduler and a kubelet
// would, and calls a function where these would start a container. What it writes follows the kubelet: see
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
package nodeplay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// JITConfigEnv is the environment variable that hands a runner its configuration. A pod is played when one of its containers
// takes the variable from a Secret.
const JITConfigEnv = "ACTIONS_RUNNER_INPUT_JITCONFIG"

// Options say how pods are played.
type Options struct {
	// NodeName is the node's name, "played" when empty.
	NodeName string
	// Run is the runner container: it is called with the value from the pod's Secret and returns the exit code. It must
	// return when ctx ends, which stands for SIGTERM. It is called at the same time for many pods.
	Run func(ctx context.Context, jitConfig string) (exitCode int)
	// StartDelay is the time that pulling the image and starting the container seem to take.
	StartDelay time.Duration
}

// Play registers a node and plays the pods of all namespaces until ctx ends. Then it ends what runs, waits for each call of
// Run to return, and returns nil; the pods stay as they are, as on a node that lost its power. It returns an error when the
// node cannot be registered.
func Play(ctx context.Context, config *rest.Config, o Options) error {
	if o.NodeName == "" {
		o.NodeName = "played"
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making an HTTP client: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	n := &node{client: clients, options: o, actors: map[types.UID]*actor{}}
	if err := n.register(ctx); err != nil {
		return err
	}
	return n.watch(ctx)
}

// node holds what is known of the pods it plays.
type node struct {
	client  kubernetes.Interface
	options Options
	running sync.WaitGroup // one for each actor, and for each call of Run
	address atomic.Uint32  // counts the pod IPs given out

	mu     sync.Mutex
	actors map[types.UID]*actor
}

// register makes the node, or takes over one of the same name, and calls it ready.
func (n *node) register(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   n.options.NodeName,
		Labels: map[string]string{corev1.LabelHostname: n.options.NodeName, corev1.LabelOSStable: "linux"},
	}}
	_, err := nodes.Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the node: %w", err)
	}
	if object, err = nodes.Get(ctx, object.Name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("getting the node: %w", err)
	}
	object.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("10k"),
		corev1.ResourceMemory: resource.MustParse("10Ti"),
		corev1.ResourcePods:   resource.MustParse("100k"),
	}
	object.Status.Allocatable = object.Status.Capacity
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP}}
	object.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "played, not real",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if _, err = nodes.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("reporting the node's status: %w", err)
	}
	return nil
}

// watch follows all pods until ctx ends and returns when nothing runs any more.
func (n *node) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(n.client, 0)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.observe(ctx, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { n.observe(ctx, object.(*corev1.Pod)) },
		DeleteFunc: n.forget,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	n.running.Wait()
	return nil
}

// observe gives each new pod an actor, and tells it when the pod is to end.
func (n *node) observe(ctx context.Context, pod *corev1.Pod) {
	runner := runnerContainer(pod)
	if runner == nil || pod.Spec.NodeName != "" && pod.Spec.NodeName != n.options.NodeName {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a, known := n.actors[pod.UID]
	if !known {
		a = newActor(ctx, n, pod, runner)
		n.actors[pod.UID] = a
		n.running.Go(a.play)
	}
	if pod.DeletionTimestamp != nil {
		a.terminate(pod.DeletionGracePeriodSeconds)
	}
}

// forget ends the actor of a pod that is no more.
func (n *node) forget(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, known := n.actors[pod.UID]; known {
		a.gone()
		delete(n.actors, pod.UID)
	}
}

// runnerContainer is the container whose configuration comes from a Secret, nil when there is none.
func runnerContainer(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if jitConfigRef(&pod.Spec.Containers[i]) != nil {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

func jitConfigRef(container *corev1.Container) *corev1.SecretKeySelector {
	for _, env := range container.Env {
		if env.Name == JITConfigEnv && env.ValueFrom != nil {
			return env.ValueFrom.SecretKeyRef
		}
	}
	return nil
}
