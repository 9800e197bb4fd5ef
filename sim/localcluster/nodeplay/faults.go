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

// FaultKind is what a fault does to a pod.
type FaultKind string

const (
	// Unschedulable leaves the pod without a node until the fault is over.
	Unschedulable FaultKind = "unschedulable"
	// VolumeElsewhere leaves the pod without a node until the fault is over, as the volume of its claim is in another zone than each node.
	VolumeElsewhere FaultKind = "volume-elsewhere"
	// StartsSlowly leaves the container in ContainerCreating until the fault is over, as a node under load does.
	StartsSlowly FaultKind = "starts-slowly"
	// ImageRefused fails each pull of the runner's image until the fault is over.
	ImageRefused FaultKind = "image-refused"
	// InitImageRefused fails each pull of the first init container's image until the fault is over.
	InitImageRefused FaultKind = "init-image-refused"
	// InitFails ends the first init container with exit code 1, and with it the pod.
	InitFails FaultKind = "init-fails"
	// CrashBeforeConnecting ends the container with exit code 1 before Run is called.
	CrashBeforeConnecting FaultKind = "crash-before-connecting"
	// VersionRefused ends the container before Run is called, as the runner's image does when GitHub refuses its version: with exit code 7
	// if [ReturnOutdatedEnv] asks for it, else with 0.
	VersionRefused FaultKind = "version-refused"
	// CrashConnected kills the process after it connected; exit code 139.
	CrashConnected FaultKind = "crash-connected"
	// KilledInJob kills the process after it took a job: OOMKilled, exit code 137.
	KilledInJob FaultKind = "killed-in-job"
	// ListenerKilled kills the runner's own program after it took a job: the image's script ends well, exit code 0.
	ListenerKilled FaultKind = "listener-killed"
	// SidecarStays lets every other container go on when the runner's has ended.
	SidecarStays FaultKind = "sidecar-stays"
	// HangsAfterJob lets the container go on when Run has returned, whatever it is asked.
	HangsAfterJob FaultKind = "hangs-after-job"
	// NeverConnects runs the container and never calls Run; it heeds SIGTERM, exit code 143.
	NeverConnects FaultKind = "never-connects"
	// Evicted deletes the pod from outside after its process connected, as draining a node does.
	Evicted FaultKind = "evicted"
	// ClockWrong has the node show another time, by Fault.Clock, and does nothing else.
	ClockWrong FaultKind = "clock-wrong"
	// NodeLost is told of the pods of a node that [Node.Lose] takes away; it can't be injected.
	NodeLost FaultKind = "node-lost"
	// NodeLostAfterEnd is told of those whose runner had ended by then.
	NodeLostAfterEnd FaultKind = "node-lost-after-end"
)

// Fault strikes new pods, each pod once at most.
type Fault struct {
	Kind FaultKind
	// Namespace and Labels select pods; empty ones select all.
	Namespace string
	Labels    map[string]string
	// Skip lets so many of the selected pods go first.
	Skip int
	// Times is how many pods it strikes; 0 means all until it is cleared.
	Times int
	// Probability with which it strikes a selected pod, 0 to 1; always when 0. See [Options.Seed].
	Probability float64
	// After is the time from connecting or taking a job until CrashConnected, KilledInJob, ListenerKilled, Evicted and the ends of pods strike.
	After time.Duration
	// Clock is how far the clock of the pod's node is ahead, whatever the fault's kind.
	Clock time.Duration
	// InJob lets the ends of pods by nodes and outsiders strike once the runner took a job, and not once it connected.
	InJob bool
	// Reason for which a node refuses the pod: one of [Refusals].
	Reason string
	// For is the time after which Unschedulable, VolumeElsewhere, StartsSlowly, ImageRefused and InitImageRefused are over for a pod; when 0, once the fault is
	// cleared.
	For time.Duration
}

// injected is a fault until it is cleared. A spent one stays, for the pods that still suffer from it.
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

// faultList holds the faults, the oldest first.
type faultList struct {
	mu     sync.Mutex
	random *rand.Rand
	faults []*injected
}

// Inject lets pods that are met from now on suffer. The returned function clears the fault: it strikes no more pods, and those
// that wait because of it go on. Of several faults that select a pod, the oldest that strikes does.
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

// ClearFaults clears all faults but the loss of nodes.
func (n *Node) ClearFaults() {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	for _, f := range n.faults.faults {
		f.end()
	}
	n.faults.faults = nil
}

// strike finds the fault that a pod is to suffer, nil for none.
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

// suffers says whether the pod's fault is of a kind.
func (a *actor) suffers(m FaultKind) bool { return a.fault != nil && a.fault.Kind == m }

// struck tells of the pod's fault, just before it strikes.
func (a *actor) struck(m FaultKind) {
	if a.node.options.OnFault != nil {
		a.node.options.OnFault(a.pod, m)
	}
}

// suffer waits until the pod's fault is over; an error when the pod is being deleted first.
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
