// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeplay plays a node: it does to runner pods, as seen through the API server, what a scheduler and a kubelet
// would, and calls a function where these would start a container. What it writes follows the kubelet: see
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/.
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

// JITConfigEnv is the environment variable that hands a runner its configuration. A pod is played when one of its containers
// takes the variable from a Secret.
const JITConfigEnv = "ACTIONS_RUNNER_INPUT_JITCONFIG"

// TokenEnv is the variable with the token by which a persistent runner registers itself.
const TokenEnv = "ACTIONS_RUNNER_INPUT_TOKEN"

// Options say how pods are played.
type Options struct {
	// NodeName is the node's name, "played" when empty.
	NodeName string
	// Nodes is how many nodes are played; one when 0. When several, their names are NodeName-1, NodeName-2 and so on.
	Nodes int
	// Namespace whose pods are played; those of all when empty.
	Namespace string
	// Scheduler is what the pods that are played name as theirs; the default scheduler when empty.
	Scheduler string
	// Run is the runner container: it is called with what the container has and returns the exit code. It must
	// return when ctx ends, which stands for SIGTERM, and say nothing more to anybody when the cause is ErrKilled. It tells
	// how far it has come. It is called at the same time for many pods.
	Run func(ctx context.Context, c Container, reached func(Stage)) (exitCode int)
	// StartDelay is the time that pulling the image and starting the container seem to take.
	StartDelay time.Duration
	// OnFault is told of each fault just before it strikes a pod; may be nil. It is called at the same time for many pods.
	OnFault func(pod *corev1.Pod, m FaultKind)
	// Seed decides which pods faults with a probability strike.
	Seed uint64
}

// Container is what a runner's container has of what its pod says.
type Container struct {
	// JITConfig is the runner's configuration.
	JITConfig string
	// Args are its arguments, Env is its environment, and Files are those of the pod's Secret by their paths.
	Args  []string
	Env   map[string]string
	Files map[string][]byte
	// Kept outlives the container when that runs again: what it has on the pod's emptyDir.
	Kept map[string][]byte
}

// Node plays the pods of one or several nodes.
type Node struct {
	client     kubernetes.Interface
	httpClient *http.Client
	options    Options
	faults     faultList
	running    sync.WaitGroup // one for each actor, and for all that it starts
	address    atomic.Uint32  // counts the pod IPs given out

	mu      sync.Mutex
	ctx     context.Context // of Play, nil before
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	actors  map[types.UID]*actor
	places  []string                      // names of the nodes
	lost    map[string]context.CancelFunc // ends what happens to the pods of a lost node
	changed chan struct{}                 // closed when a node returns, or takes pods again
	turn    int                           // of the node that gets the next pod
}

// New makes the nodes; they do nothing until [Node.Play].
func New(config *rest.Config, o Options) (*Node, error) {
	if o.NodeName == "" {
		o.NodeName = "played"
	}
	if o.Scheduler == "" {
		o.Scheduler = corev1.DefaultSchedulerName
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	// As controllers do: what a watch tells is encoded once for all who watch.
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

// Play registers the nodes and plays their pods until ctx ends. Then it ends what runs, waits for each call of Run to return,
// and returns nil; the pods stay as they are, as on nodes that lost their power. It returns an error when a node cannot be
// registered. It is called once.
func (n *Node) Play(ctx context.Context) error {
	defer utilnet.CloseIdleConnectionsFor(n.httpClient.Transport)
	for _, name := range n.places {
		if err := n.register(ctx, name); err != nil {
			return err
		}
	}
	return n.watch(ctx)
}

// register makes a node, or takes over one of the same name, and calls it ready.
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

// watch follows the pods until ctx ends and returns when nothing runs any more.
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

// observe gives each new pod an actor, and tells it when the pod is to end.
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

// dismiss gives a pod another actor soon. No event may come that would: its deletion was told to the one that goes.
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

// forget ends the actor of a pod that is no more.
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
		if (env.Name == JITConfigEnv || env.Name == TokenEnv) && env.ValueFrom != nil {
			return env.ValueFrom.SecretKeyRef
		}
	}
	return nil
}
