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

// Faults in which the node, another component of Kubernetes, or a client ends the pod. They happen after the runner has
// connected, or after it took a job with [Fault.InJob]. The written status follows the source of Kubernetes, which a
// test verifies.
const (
	// NodeEvicts evicts the pod because the node is low on memory.
	NodeEvicts FaultKind = "node-evicts"
	// NodeShutsDown ends the pod as the node shuts down gracefully.
	NodeShutsDown FaultKind = "node-shuts-down"
	// CriticalPodComes ends the pod to make room for a critical pod on the node.
	CriticalPodComes FaultKind = "critical-pod-comes"
	// StorageExceeded evicts the pod because an emptyDir exceeds its limit.
	StorageExceeded FaultKind = "storage-exceeded"
	// ContainerLost is a container that the node no longer finds.
	ContainerLost FaultKind = "container-lost"
	// OutOfMemory kills the process because of its memory use.
	OutOfMemory FaultKind = "out-of-memory"
	// SchedulerPreempts deletes the pod in favor of a pod with a higher priority.
	SchedulerPreempts FaultKind = "scheduler-preempts"
	// NodeTainted deletes the pod because of a taint of its node.
	NodeTainted FaultKind = "node-tainted"
	// EvictedByAPI evicts the pod, as kubectl drain, deschedulers and autoscalers do.
	EvictedByAPI FaultKind = "evicted-by-api"
	// ForceDeleted deletes the pod without a grace period.
	ForceDeleted FaultKind = "force-deleted"
	// Refused makes the node reject the pod for [Fault.Reason].
	Refused FaultKind = "refused"
	// DeletedAtOnce deletes the pod before it is assigned to a node.
	DeletedAtOnce FaultKind = "deleted-at-once"
)

// kubeletEnd is what a kubelet reports about a pod that it ends.
type kubeletEnd struct {
	reason, message string
	// disruption is the message of the condition DisruptionTarget; "" for no condition.
	disruption string
	// keepsSuccess means that the phase of a pod that succeeded is not changed.
	keepsSuccess bool
	// grace is the grace period, unless the pod's is shorter.
	grace time.Duration
}

const (
	lowOnMemory = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container runner was using 812Mi, request is 0, has larger consumption of memory. "
	shutdown    = "Pod was terminated in response to imminent node shutdown."
)

// kubeletEnds are from pkg/kubelet/eviction (helpers.go and eviction_manager.go), nodeshutdown and preemption.
var kubeletEnds = map[FaultKind]kubeletEnd{
	NodeEvicts:    {reason: "Evicted", message: lowOnMemory, disruption: lowOnMemory, grace: time.Second},
	NodeShutsDown: {reason: "Terminated", message: shutdown, disruption: shutdown, keepsSuccess: true, grace: 10 * time.Second},
	CriticalPodComes: {
		reason: "Preempting", message: "Preempted in order to admit critical pod", disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
		grace: 10 * time.Second,
	},
	StorageExceeded: {reason: "Evicted", message: `Usage of EmptyDir volume "work" exceeds the limit "1Gi". `, grace: time.Second},
}

// deadlineEnd is from pkg/kubelet/active_deadline.go.
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

// Refusals returns the reasons for which a fault of the kind Refused can make a node reject a pod.
func Refusals() []string { return slices.Sorted(maps.Keys(refusals)) }

// over applies the end to a status, as SyncTerminatingPod of pkg/kubelet/kubelet.go does.
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

// endByKubelet asks the process to end, and kills it after the grace period.
func (p *process) endByKubelet(e kubeletEnd) {
	p.node.mu.Lock()
	p.said = &e
	p.node.mu.Unlock()
	if seconds := p.pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		e.grace = min(e.grace, time.Duration(*seconds)*time.Second)
	}
	p.sendTerm()
	if pause(p.life, e.grace) == nil {
		p.crash(ending{exitCode: exitKilled}) // no effect if it has ended
	}
}

// refuse writes the same status as Kubelet.rejectPod: no containers and no condition.
func (a *actor) refuse() error {
	a.struck(Refused)
	reason := a.fault.Reason
	if reason == "" {
		reason = "UnexpectedAdmissionError"
	}
	return a.report(corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: " + refusals[reason]})
}

// deleteAtOnce deletes the pod before it is assigned to a node, so that it is removed immediately.
func (a *actor) deleteAtOnce() error {
	a.struck(DeletedAtOnce)
	err := a.persistently(func(ctx context.Context) error { return a.node.deletePod(ctx, a.pod, nil) })
	if err == nil {
		<-a.life.Done()
	}
	return err
}

// ends returns the action of the kinds above; nil for other kinds.
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

// outside calls do once the pod is reported as running.
func (p *process) outside(do func(ctx context.Context) error) {
	select {
	case <-p.reported:
	case <-p.alive.Done():
	}
	p.complain(p.persistently(do))
}
