// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeplay simulates a node: through the API server, it does to runner pods what a scheduler and a kubelet
// would do, and calls a function where these would start a container. The status that it writes follows the kubelet's:
// see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
package nodeplay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// JITConfigEnv is the environment variable with the configuration of a runner. A pod is simulated if one of its
// containers takes the variable from a Secret.
const JITConfigEnv = "ACTIONS_RUNNER_INPUT_JITCONFIG"

// TokenEnv is the variable with the token that a persistent runner registers itself with.
const TokenEnv = "ACTIONS_RUNNER_INPUT_TOKEN"

// Options determine how pods are simulated.
type Options struct {
	// NodeName is the name of the node, "played" if empty.
	NodeName string
	// Nodes is the number of nodes; 0 means one. Several nodes are named NodeName-1, NodeName-2 and so on.
	Nodes int
	// Namespace of the simulated pods; all namespaces if empty.
	Namespace string
	// Scheduler is the scheduler name of the simulated pods; the default scheduler if empty.
	Scheduler string
	// Run is the runner container: it gets the input of the container and returns the exit code. It must return when
	// ctx ends, which stands for SIGTERM, and must not communicate any more if the cause is ErrKilled. It calls reached
	// for each stage that it reaches. It is called concurrently for many pods.
	Run func(ctx context.Context, c Container, reached func(Stage)) (exitCode int)
	// StartDelay is the simulated time for pulling the image and starting the container.
	StartDelay time.Duration
	// OnFault is called for each fault just before it affects a pod; it can be nil. It is called concurrently for many
	// pods.
	OnFault func(pod *corev1.Pod, m FaultKind)
	// Seed determines which pods are affected by faults with a probability.
	Seed uint64
}

// Container is the input of a runner container, from the pod's spec.
type Container struct {
	// JITConfig is the runner's configuration.
	JITConfig string
	// Args are the arguments, Env is the environment, and Files are the files of the pod's Secret by path.
	Args  []string
	Env   map[string]string
	Files map[string][]byte
	// Kept is the content of the pod's emptyDir, which survives a restart of the container.
	Kept map[string][]byte
}

// Node simulates the pods of one or several nodes.
type Node struct {
	client     kubernetes.Interface
	httpClient *http.Client
	options    Options
	faults     faultList
	running    sync.WaitGroup // each actor, and all goroutines that it starts
	address    atomic.Uint32  // number of pod IPs assigned

	mu      sync.Mutex
	ctx     context.Context // of Play; nil before
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	actors  map[types.UID]*actor
	places  []string                      // names of the nodes
	lost    map[string]context.CancelFunc // cancel functions of lost nodes, which end what happens to their pods
	changed chan struct{}                 // closed when a node returns or becomes schedulable again
	turn    int                           // index of the node for the next pod
}

// New creates the nodes; they do nothing until [Node.Play].
func New(config *rest.Config, o Options) (*Node, error) {
	if o.NodeName == "" {
		o.NodeName = "played"
	}
	if o.Scheduler == "" {
		o.Scheduler = corev1.DefaultSchedulerName
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	// Use protobuf like controllers do: an API server encodes each watch event once for all watches with the same
	// encoding.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client: %w", err)
	}
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	n := &Node{
		client: clients, httpClient: httpClient, options: o, actors: map[types.UID]*actor{},
		lost: map[string]context.CancelFunc{}, changed: make(chan struct{}), places: []string{o.NodeName},
	}
	if o.Nodes > 1 {
		n.places = nil
		for i := range o.Nodes {
			n.places = append(n.places, fmt.Sprintf("%s-%d", o.NodeName, i+1))
		}
	}
	n.faults.random = rand.New(rand.NewPCG(o.Seed, 0))
	return n, nil
}

// Play registers the nodes and simulates their pods until ctx ends. Then it cancels all running containers, waits for
// each call of Run, and returns nil. The pods stay unchanged, as on nodes that lost power. It returns an error if a
// node cannot be registered. It must be called only once.
func (n *Node) Play(ctx context.Context) error {
	defer utilnet.CloseIdleConnectionsFor(n.httpClient.Transport)
	for _, name := range n.places {
		if err := n.register(ctx, name); err != nil {
			return err
		}
	}
	return n.watch(ctx)
}

// register creates a node, or takes over an existing one of the same name, and marks it ready.
func (n *Node) register(ctx context.Context, name string) error {
	nodes := n.client.CoreV1().Nodes()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
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

// watch follows the pods until ctx ends, and returns when nothing is running any more.
func (n *Node) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithNamespace(n.options.Namespace))
	pods := factory.Core().V1().Pods()
	n.mu.Lock()
	nodes := factory.Core().V1().Nodes()
	n.ctx, n.pods, n.nodes = ctx, pods.Lister(), nodes.Lister()
	n.mu.Unlock()
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.observe(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { n.observe(object.(*corev1.Pod)) },
		DeleteFunc: n.forget,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: n.uncordoned}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	n.running.Wait()
	return nil
}

// observe creates an actor for each new pod, and notifies it when the pod is being deleted.
func (n *Node) observe(pod *corev1.Pod) {
	runner := runnerContainer(pod)
	if runner == nil || pod.Spec.SchedulerName != n.options.Scheduler || pod.Spec.NodeName != "" && !slices.Contains(n.places, pod.Spec.NodeName) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a, known := n.actors[pod.UID]
	if !known {
		if n.lost[pod.Spec.NodeName] != nil {
			return
		}
		a = newActor(n.ctx, n, pod, runner)
		n.actors[pod.UID] = a
		n.running.Go(a.play)
	}
	if pod.DeletionTimestamp != nil {
		a.terminate(pod.DeletionGracePeriodSeconds)
	} else if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil && pod.Status.StartTime != nil {
		left := time.Until(pod.Status.StartTime.Add(time.Duration(*deadline) * time.Second))
		n.later(a.life, left, func() error { a.sendTerm(); return nil })
	}
}

// dismiss gives a pod another actor soon. There may be no further event for the pod: the previous actor received the
// deletion.
func (n *Node) dismiss(a *actor) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.actors[a.pod.UID] == a {
		delete(n.actors, a.pod.UID)
	}
	n.later(n.ctx, time.Second, func() error {
		if pod, err := n.pods.Pods(a.pod.Namespace).Get(a.pod.Name); err == nil {
			n.observe(pod)
		}
		return nil
	})
}

// forget ends the actor of a pod that no longer exists.
func (n *Node) forget(object any) {
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

// runnerContainer returns the container whose configuration comes from a Secret, or nil if there is none.
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
		if (env.Name == JITConfigEnv || env.Name == TokenEnv) && env.ValueFrom != nil {
			return env.ValueFrom.SecretKeyRef
		}
	}
	return nil
}
