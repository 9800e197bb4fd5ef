// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FaultKind is the kind of a fault of a pod.
type FaultKind string

const (
	// Unschedulable leaves the pod without a node until the fault is over.
	Unschedulable FaultKind = "unschedulable"
	// VolumeElsewhere leaves the pod without a node until the fault is over, because the volume of its claim is in
	// another zone than every node.
	VolumeElsewhere FaultKind = "volume-elsewhere"
	// StartsSlowly leaves the container in ContainerCreating until the fault is over, as on a node under load.
	StartsSlowly FaultKind = "starts-slowly"
	// ImageRefused makes each pull of the runner's image fail until the fault is over.
	ImageRefused FaultKind = "image-refused"
	// InitImageRefused makes each pull of the first init container's image fail until the fault is over.
	InitImageRefused FaultKind = "init-image-refused"
	// InitFails ends the first init container with exit code 1, which fails the pod.
	InitFails FaultKind = "init-fails"
	// CrashBeforeConnecting ends the container with exit code 1 before Run is called.
	CrashBeforeConnecting FaultKind = "crash-before-connecting"
	// VersionRefused ends the container before Run is called, as the runner's image does if GitHub rejects its version:
	// with exit code 7 if [ReturnOutdatedEnv] requests it, otherwise with 0.
	VersionRefused FaultKind = "version-refused"
	// CrashConnected kills the process after it has connected, with exit code 139.
	CrashConnected FaultKind = "crash-connected"
	// KilledInJob kills the process after it took a job, with reason OOMKilled and exit code 137.
	KilledInJob FaultKind = "killed-in-job"
	// ListenerKilled kills the runner program after it took a job. The image's script then ends with exit code 0.
	ListenerKilled FaultKind = "listener-killed"
	// SidecarStays keeps all other containers running after the runner has ended.
	SidecarStays FaultKind = "sidecar-stays"
	// HangsAfterJob keeps the container running after Run has returned, even when it is asked to end.
	HangsAfterJob FaultKind = "hangs-after-job"
	// NeverConnects runs the container without calling Run; it ends on SIGTERM with exit code 143.
	NeverConnects FaultKind = "never-connects"
	// Evicted deletes the pod after its process has connected, as draining a node does.
	Evicted FaultKind = "evicted"
	// ClockWrong shifts the clock of the node by Fault.Clock, and has no other effect.
	ClockWrong FaultKind = "clock-wrong"
	// NodeLost is reported for the pods of a node lost through [Node.Lose]; it cannot be injected.
	NodeLost FaultKind = "node-lost"
	// NodeLostAfterEnd is reported for such pods whose runner had already ended.
	NodeLostAfterEnd FaultKind = "node-lost-after-end"
)

// Fault affects new pods, each pod at most once.
type Fault struct {
	Kind FaultKind
	// Namespace and Labels select pods. Empty values select all pods.
	Namespace string
	Labels    map[string]string
	// Skip is the number of selected pods to skip first.
	Skip int
	// Times is the maximum number of affected pods; 0 means all until the fault is cleared.
	Times int
	// Probability of affecting a selected pod, from 0 to 1; 0 means always. See [Options.Seed].
	Probability float64
	// After is the delay after connecting or taking a job for CrashConnected, KilledInJob, ListenerKilled, Evicted and
	// the kinds that end pods.
	After time.Duration
	// Clock is how far the clock of the pod's node is ahead, for any kind.
	Clock time.Duration
	// InJob makes the kinds that end pods happen after the runner took a job instead of after it connected.
	InJob bool
	// Reason for which a node rejects the pod: one of [Refusals].
	Reason string
	// For is the time after which Unschedulable, VolumeElsewhere, StartsSlowly, ImageRefused and InitImageRefused end
	// for a pod; 0 means when the fault is cleared.
	For time.Duration
}

// injected is a fault that has been injected. A spent fault is kept for the pods that it still affects.
type injected struct {
	Fault
	spent bool
	over  context.Context
	end   context.CancelFunc
}

func (f *injected) selects(pod *corev1.Pod) bool {
	return !f.spent && (f.Namespace == "" || f.Namespace == pod.Namespace) &&
		labels.SelectorFromSet(f.Labels).Matches(labels.Set(pod.Labels))
}

// faultList contains the faults, oldest first.
type faultList struct {
	mu     sync.Mutex
	random *rand.Rand
	faults []*injected
}

// Inject makes a fault affect new pods. The returned function clears the fault: it affects no more pods, and pods that
// wait because of it continue. If several faults select a pod, only the oldest applicable one applies.
func (n *Node) Inject(f Fault) (clear func()) {
	i := &injected{Fault: f}
	i.over, i.end = context.WithCancel(context.Background())
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	n.faults.faults = append(n.faults.faults, i)
	return func() {
		n.faults.mu.Lock()
		defer n.faults.mu.Unlock()
		i.spent = true
		i.end()
	}
}

// ClearFaults clears all faults, but does not bring back lost nodes.
func (n *Node) ClearFaults() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	for _, f := range n.faults.faults {
		f.end()
	}
	n.faults.faults = nil
}

// strike returns the fault for a pod, or nil if there is none.
func (l *faultList) strike(pod *corev1.Pod) *injected {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		switch {
		case !f.selects(pod):
		case f.Skip > 0:
			f.Skip--
		case f.Probability > 0 && l.random.Float64() >= f.Probability:
		default:
			f.Times--
			f.spent = f.Times == 0
			return f
		}
	}
	return nil
}

// suffers reports whether the pod's fault is of a kind.
func (a *actor) suffers(m FaultKind) bool { return a.fault != nil && a.fault.Kind == m }

// struck reports the pod's fault, just before it takes effect.
func (a *actor) struck(m FaultKind) {
	if a.node.options.OnFault != nil {
		a.node.options.OnFault(a.pod, m)
	}
}

// suffer waits until the pod's fault is over. It returns an error if the pod is deleted first.
func (a *actor) suffer() error {
	ctx, cancel := context.WithCancel(a.term)
	defer cancel()
	defer context.AfterFunc(a.fault.over, cancel)()
	if a.fault.For > 0 {
		ctx, cancel = context.WithTimeout(ctx, a.fault.For)
		defer cancel()
	}
	<-ctx.Done()
	return a.term.Err()
}
