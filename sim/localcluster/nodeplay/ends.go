// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ends of pods by their node, by other components of Kubernetes, and by outsiders. They strike once the runner connected, or took a job with
// [Fault.InJob]. What is written follows the source of Kubernetes, which a test compares.
const (
	// NodeEvicts evicts the pod because the node is low on memory.
	NodeEvicts FaultKind = "node-evicts"
	// NodeShutsDown ends the pod as the node shuts down gracefully.
	NodeShutsDown FaultKind = "node-shuts-down"
	// CriticalPodComes ends the pod to make room for a critical one on the node.
	CriticalPodComes FaultKind = "critical-pod-comes"
	// StorageExceeded evicts the pod because an emptyDir exceeds its limit.
	StorageExceeded FaultKind = "storage-exceeded"
	// ContainerLost is a container that the node can't find any more.
	ContainerLost FaultKind = "container-lost"
	// OutOfMemory kills the process for the memory that it takes.
	OutOfMemory FaultKind = "out-of-memory"
	// SchedulerPreempts deletes the pod for one of higher priority.
	SchedulerPreempts FaultKind = "scheduler-preempts"
	// NodeTainted deletes the pod because of a taint of its node.
	NodeTainted FaultKind = "node-tainted"
	// EvictedByAPI evicts the pod as kubectl drain, deschedulers and autoscalers do.
	EvictedByAPI FaultKind = "evicted-by-api"
	// ForceDeleted deletes the pod without a grace period.
	ForceDeleted FaultKind = "force-deleted"
	// Refused lets the node refuse the pod, for [Fault.Reason].
	Refused FaultKind = "refused"
	// DeletedAtOnce deletes the pod before it has a node.
	DeletedAtOnce FaultKind = "deleted-at-once"
)

// kubeletEnd is what a kubelet writes about a pod that it ends.
type kubeletEnd struct {
	reason, message string
	// disruption is the message of the condition DisruptionTarget; "" for no condition.
	disruption string
	// keepsSuccess leaves the phase as it is of a pod that succeeded.
	keepsSuccess bool
	// grace is how long the process has, if the pod gives it more.
	grace time.Duration
}

const (
	lowOnMemory = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container runner was using 812Mi, request is 0, has larger consumption of memory. "
	shutdown    = "Pod was terminated in response to imminent node shutdown."
)

// kubeletEnds are those of pkg/kubelet/eviction (helpers.go and eviction_manager.go), nodeshutdown and preemption.
var kubeletEnds = map[FaultKind]kubeletEnd{
	NodeEvicts:    {reason: "Evicted", message: lowOnMemory, disruption: lowOnMemory, grace: time.Second},
	NodeShutsDown: {reason: "Terminated", message: shutdown, disruption: shutdown, keepsSuccess: true, grace: 10 * time.Second},
	CriticalPodComes: {
		reason: "Preempting", message: "Preempted in order to admit critical pod", disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
		grace: 10 * time.Second,
	},
	StorageExceeded: {reason: "Evicted", message: `Usage of EmptyDir volume "work" exceeds the limit "1Gi". `, grace: time.Second},
}

// deadlineEnd is that of pkg/kubelet/active_deadline.go.
var deadlineEnd = kubeletEnd{reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline"}

// refusals are the messages of pkg/kubelet/lifecycle/predicate.go, cm, sysctl, nodeshutdown and eviction, by reason.
var refusals = map[string]string{
	"UnexpectedAdmissionError": "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected",
	"OutOfcpu":                 "Node didn't have enough resource: cpu, requested: 2000, used: 3500, capacity: 4000",
	"NodeAffinity":             "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
	"TopologyAffinityError":    "Resources cannot be allocated with Topology locality",
	"NodeShutdown":             "Pod was rejected as the node is shutting down.",
	"Evicted":                  "The node had condition: [DiskPressure]. ",
	"SysctlForbidden":          `forbidden sysctl: "kernel.msgmax" not allowlisted`,
}

// Refusals are the reasons for which a fault of the kind Refused may let a node refuse a pod.
func Refusals() []string { return slices.Sorted(maps.Keys(refusals)) }

// over applies the end to the status of the containers, as SyncTerminatingPod of pkg/kubelet/kubelet.go does.
func (e kubeletEnd) over(status corev1.PodStatus) corev1.PodStatus {
	if !e.keepsSuccess || status.Phase != corev1.PodSucceeded {
		status.Phase = corev1.PodFailed
	}
	status.Reason, status.Message = e.reason, e.message
	if e.disruption != "" {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: e.disruption, LastTransitionTime: metav1.Now(),
		})
	}
	return status
}

// endByKubelet asks the process to end, and kills it when its time is over.
func (p *process) endByKubelet(e kubeletEnd) {
	p.node.mu.Lock()
	p.said = &e
	p.node.mu.Unlock()
	if seconds := p.pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		e.grace = min(e.grace, time.Duration(*seconds)*time.Second)
	}
	p.sendTerm()
	if pause(p.life, e.grace) == nil {
		p.crash(ending{exitCode: exitKilled}) // if it hasn't ended
	}
}

// refuse is what Kubelet.rejectPod writes: nothing of containers, and no condition.
func (a *actor) refuse() error {
	a.struck(Refused)
	reason := a.fault.Reason
	if reason == "" {
		reason = "UnexpectedAdmissionError"
	}
	return a.report(corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: " + refusals[reason]})
}

// deleteAtOnce deletes the pod before it has a node, so that it is gone at once.
func (a *actor) deleteAtOnce() error {
	a.struck(DeletedAtOnce)
	err := a.persistently(func(ctx context.Context) error { return a.node.deletePod(ctx, a.pod, nil) })
	if err == nil {
		<-a.life.Done()
	}
	return err
}

// ends returns what strikes a process for the kinds above; nil for other kinds.
func (p *process) ends(kind FaultKind) func() {
	if e, ok := kubeletEnds[kind]; ok {
		return func() { p.endByKubelet(e) }
	}
	switch kind {
	case ContainerLost:
		return func() { p.crash(ending{exitCode: exitKilled, reason: "ContainerStatusUnknown"}) }
	case OutOfMemory:
		return func() { p.crash(ending{exitCode: exitKilled, reason: "OOMKilled"}) }
	case SchedulerPreempts:
		return func() {
			p.disrupt(disruption(corev1.PodReasonPreemptionByScheduler, "default-scheduler: preempting to accommodate a higher priority pod"))
		}
	case NodeTainted:
		return func() {
			p.disrupt(disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"))
		}
	case EvictedByAPI:
		return func() { p.outside(p.evictByAPI) }
	case ForceDeleted:
		return func() { p.outside(func(ctx context.Context) error { return p.node.deletePod(ctx, p.pod, new(int64)) }) }
	}
	return nil
}

// disrupt sets a condition and deletes the pod.
func (p *process) disrupt(condition map[string]any) {
	p.outside(func(ctx context.Context) error {
		return errors.Join(p.node.patchPod(ctx, p.pod, condition), p.node.deletePod(ctx, p.pod, nil))
	})
}

func (p *process) evictByAPI(ctx context.Context) error {
	return p.node.client.CoreV1().Pods(p.pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.pod.Namespace, Name: p.pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.pod.UID))},
	})
}

// outside does something to the pod in somebody else's name, who sees it run.
func (p *process) outside(do func(ctx context.Context) error) {
	select {
	case <-p.reported:
	case <-p.alive.Done():
	}
	p.complain(p.persistently(do))
}
