// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// change is one fact about an observed pod.
type change func(p *corev1.Pod)

// observedPod returns a pod with a runner on node n1, in the form of the controllers' cache.
func observedPod(t *testing.T, changes ...change) *corev1.Pod {
	t.Helper()
	limit := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	p := &corev1.Pod{
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{
			{Name: v1alpha1.RunnerContainerName, Resources: corev1.ResourceRequirements{Limits: limit}}, {Name: "docker"},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range changes {
		c(p)
	}
	trimmed, err := podspec.Trim(p)
	if err != nil {
		t.Fatal(err)
	}
	return trimmed.(*corev1.Pod)
}

// phase and says set what a kubelet or a controller writes into the pod's status.
func phase(phase corev1.PodPhase) change { return func(p *corev1.Pod) { p.Status.Phase = phase } }

func says(reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

// rejected sets what Kubelet.rejectPod writes: no container, no condition.
func rejected(reason, message string) change { return says(reason, "Pod was rejected: "+message) }

func target(reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
	}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)} }

// exited sets the end of a container that ran for some time.
func exited(container string, code int32, reason string, ran time.Duration) change {
	return func(p *corev1.Pod) {
		began := time.Unix(500, 0)
		state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, StartedAt: metav1.Time{Time: began}, FinishedAt: metav1.Time{Time: began.Add(ran)},
		}}
		setState(p, container, state)
	}
}

func waits(container, reason, message string) change {
	return func(p *corev1.Pod) {
		setState(p, container, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
}

func runs(container string) change {
	return func(p *corev1.Pod) {
		setState(p, container, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(500, 0)}})
	}
}

func setState(p *corev1.Pod, container string, state corev1.ContainerState) {
	list := &p.Status.ContainerStatuses
	if strings.HasPrefix(container, "init-") {
		list = &p.Status.InitContainerStatuses
	}
	*list = append(*list, corev1.ContainerStatus{Name: container, State: state})
}

// unlimited removes the memory limit.
func unlimited(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }

// endCase is an observed pod, with the expected actor and cause of its end. blame is true if the template is at fault,
// lost if a job was lost.
type endCase struct {
	origin string // file:function in Kubernetes 1.37, or the program that writes it
	pod    []change
	with   poolstatus.Witness
	want   poolstatus.End
	blame  bool
}

func end(actor v1alpha1.RunnerActor, reason string, cause v1alpha1.RunnerCause) poolstatus.End {
	return poolstatus.End{Actor: actor, Reason: reason, Cause: cause}
}

func lost(e poolstatus.End) poolstatus.End {
	e.JobLost = true
	return e
}

const (
	runner = v1alpha1.RunnerContainerName
	minute = 61 * time.Second
	low    = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container runner was using 812Mi, request is 0, has larger consumption of memory. "
	gone   = "Pod was terminated in response to imminent node shutdown."
	late   = "Pod was active on the node longer than the specified deadline"
)

var hasJob = poolstatus.Witness{HasJob: true}

// kubeletEnds are ends of pods that a kubelet runs.
var kubeletEnds = map[string]endCase{
	"memory is low on the node": {"pkg/kubelet/eviction/eviction_manager.go:evictPod",
		[]change{says("Evicted", low), target("TerminationByKubelet", low), exited(runner, 137, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"memory is low, the runner heeds SIGTERM": {"pkg/kubelet/eviction/eviction_manager.go:evictPod",
		[]change{says("Evicted", low), target("TerminationByKubelet", low), exited(runner, 143, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"memory is low, the runner exits with 0": {"pkg/kubelet/eviction/eviction_manager.go:evictPod",
		[]change{says("Evicted", low), target("TerminationByKubelet", low), exited(runner, 0, "Completed", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"memory is low, and the kernel kills first": {"pkg/kubelet/eviction/eviction_manager.go:evictPod",
		[]change{says("Evicted", low), target("TerminationByKubelet", low), exited(runner, 137, "OOMKilled", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"memory is low, with a job": {"pkg/kubelet/eviction/eviction_manager.go:evictPod",
		[]change{says("Evicted", low), target("TerminationByKubelet", low), exited(runner, 137, "Error", minute)}, hasJob, lost(end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode)), false},
	"the disk is full": {"pkg/kubelet/eviction/helpers.go:evictionMessage",
		[]change{says("Evicted", "The node was low on resource: ephemeral-storage. "), target("TerminationByKubelet", "The node was low on resource: ephemeral-storage. "), exited(runner, 137, "Error", minute)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"inodes are used up": {"pkg/kubelet/eviction/helpers.go:evictionMessage",
		[]change{says("Evicted", "The node was low on resource: inodes. "), target("TerminationByKubelet", "The node was low on resource: inodes. "), exited(runner, 137, "Error", minute)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"process ids are used up": {"pkg/kubelet/eviction/helpers.go:evictionMessage",
		[]change{says("Evicted", "The node was low on resource: pids. "), target("TerminationByKubelet", "The node was low on resource: pids. "), exited(runner, 137, "Error", minute)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"evicted while an init container runs": {"pkg/kubelet/eviction/eviction_manager.go:evictPod",
		[]change{says("Evicted", low), target("TerminationByKubelet", low), exited("init-tools", 137, "Error", minute), waits(runner, "PodInitializing", "")},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "Evicted", v1alpha1.CauseNode), false},
	"an emptyDir exceeds its limit": {"pkg/kubelet/eviction/eviction_manager.go:emptyDirLimitEviction",
		[]change{says("Evicted", `Usage of EmptyDir volume "work" exceeds the limit "1Gi". `), exited(runner, 137, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorContainer, "Evicted", v1alpha1.CauseCrash), true},
	"a container exceeds its ephemeral storage": {"pkg/kubelet/eviction/eviction_manager.go:containerEphemeralStorageLimitEviction",
		[]change{says("Evicted", `Container runner exceeded its local ephemeral storage limit "2Gi". `), exited(runner, 137, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorContainer, "Evicted", v1alpha1.CauseCrash), true},
	"a pod exceeds its ephemeral storage, with a job": {"pkg/kubelet/eviction/eviction_manager.go:podEphemeralStorageLimitEviction",
		[]change{says("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "), exited(runner, 137, "Error", minute)},
		hasJob, lost(end(v1alpha1.ActorContainer, "Evicted", v1alpha1.CauseCrash)), true},
	"the node shuts down": {"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go:killPods",
		[]change{says("Terminated", gone), target("TerminationByKubelet", gone), exited(runner, 143, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "Terminated", v1alpha1.CauseNode), false},
	"the node shuts down, the runner exits with 0": {"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go:killPods",
		[]change{says("Terminated", gone), phase(corev1.PodSucceeded), target("TerminationByKubelet", gone), exited(runner, 0, "Completed", minute)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "Terminated", v1alpha1.CauseNode), false},
	"the node shuts down, with a job": {"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go:killPods",
		[]change{says("Terminated", gone), target("TerminationByKubelet", gone), exited(runner, 137, "Error", minute)}, hasJob, lost(end(v1alpha1.ActorNode, "Terminated", v1alpha1.CauseNode)), false},
	"a critical pod comes": {"pkg/kubelet/preemption/preemption.go:evictPodsToFreeRequests",
		[]change{says("Preempting", "Preempted in order to admit critical pod"), target("TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod."), exited(runner, 137, "Error", minute)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "Preempting", v1alpha1.CauseNode), false},
	"a deadline after the runner had its time": {"pkg/kubelet/active_deadline.go:ShouldEvict",
		[]change{says("DeadlineExceeded", late), exited(runner, 143, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeadlineExceeded", v1alpha1.CauseDeadline), false},
	"a deadline, the runner exits with 0": {"pkg/kubelet/active_deadline.go:ShouldEvict",
		[]change{says("DeadlineExceeded", late), exited(runner, 0, "Completed", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeadlineExceeded", v1alpha1.CauseDeadline), false},
	"a deadline, with a job": {"pkg/kubelet/active_deadline.go:ShouldEvict",
		[]change{says("DeadlineExceeded", late), exited(runner, 137, "Error", time.Hour)}, hasJob, lost(end(v1alpha1.ActorNode, "DeadlineExceeded", v1alpha1.CauseDeadline)), false},
	"a deadline that lets no runner start": {"pkg/kubelet/active_deadline.go:ShouldEvict",
		[]change{says("DeadlineExceeded", late), waits(runner, "ContainerCreating", "")}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeadlineExceeded", v1alpha1.CauseConfig), true},
	"a deadline that lets no runner take a job": {"pkg/kubelet/active_deadline.go:ShouldEvict",
		[]change{says("DeadlineExceeded", late), exited(runner, 143, "Error", 10*time.Second)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeadlineExceeded", v1alpha1.CauseConfig), true},
	"a deadline that Corral sets to keep the pod": {"pkg/kubelet/active_deadline.go:ShouldEvict",
		[]change{says("DeadlineExceeded", late), exited(runner, 143, "Error", 10*time.Second)}, poolstatus.Witness{Ending: true}, end(v1alpha1.ActorCorral, poolstatus.ReasonDeleted, ""), false},
	"a container that is lost with its node": {"pkg/kubelet/kubelet_pods.go:convertToAPIContainerStatuses",
		[]change{phase(corev1.PodFailed), exited(runner, 137, "ContainerStatusUnknown", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "ContainerStatusUnknown", v1alpha1.CauseNode), false},
	"a container that is lost, with a job": {"pkg/kubelet/status/status_manager.go:TerminatePod",
		[]change{phase(corev1.PodFailed), exited(runner, 137, "ContainerStatusUnknown", minute)}, hasJob, lost(end(v1alpha1.ActorNode, "ContainerStatusUnknown", v1alpha1.CauseNode)), false},
	"a node that starts anew": {"containerd, internal/cri/server/restart.go:loadContainer",
		[]change{phase(corev1.PodFailed), exited(runner, 255, "Unknown", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "Unknown", v1alpha1.CauseNode), false},
}

// refusals are pods that a kubelet does not admit.
var refusals = map[string]endCase{
	"a device is not healthy": {"pkg/kubelet/cm/admission/errors.go:GetPodAdmitResult",
		[]change{rejected("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected")},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "UnexpectedAdmissionError", v1alpha1.CauseNode), false},
	"plugins can't say what there is": {"pkg/kubelet/lifecycle/predicate.go:Admit",
		[]change{rejected("UnexpectedAdmissionError", "Update plugin resources failed due to no capacity, which is unexpected.")}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "UnexpectedAdmissionError", v1alpha1.CauseNode), false},
	"out of cpu":                 refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 3500, capacity: 4000"),
	"out of memory":              refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "OutOfmemory", "Node didn't have enough resource: memory, requested: 2, used: 3, capacity: 4"),
	"out of storage":             refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage, requested: 2, used: 3, capacity: 4"),
	"out of pods":                refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110"),
	"out of GPUs":                refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 1, capacity: 1"),
	"labels changed":             refusal("pkg/scheduler/eventhandlers.go:AdmissionCheck", "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"),
	"another node is named":      refusal("pkg/scheduler/eventhandlers.go:AdmissionCheck", "NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"),
	"a port is taken":            refusal("pkg/scheduler/eventhandlers.go:AdmissionCheck", "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"),
	"tainted meanwhile":          refusal("pkg/kubelet/lifecycle/predicate.go:generalFilter", "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"),
	"the node can't be read":     refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "InvalidNodeInfo", "Kubelet cannot get node info."),
	"no reason is given":         refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "UnknownReason", "GeneralPredicates failed due to unknown reason, which is unexpected."),
	"a reason of another type":   refusal("pkg/kubelet/lifecycle/predicate.go:Admit", "UnexpectedPredicateFailureType", "GeneralPredicates failed due to x, which is unexpected."),
	"resources are not aligned":  refusal("pkg/kubelet/cm/topologymanager/topology_manager.go:TopologyAffinityError.Type", "TopologyAffinityError", "Resources cannot be allocated with Topology locality"),
	"cores are not aligned":      refusal("pkg/kubelet/cm/cpumanager/policy_static.go:SMTAlignmentError.Type", "SMTAlignmentError", "SMT Alignment Error: not enough free physical CPUs"),
	"too many volumes":           refusal("pkg/kubelet/kubelet.go:SyncPod", "VolumeAttachmentLimitExceeded", "Node has reached its volume attachment limit, rejecting pod."),
	"the node is shutting down":  refusal("pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go:Admit", "NodeShutdown", "Pod was rejected as the node is shutting down."),
	"the node is under pressure": refusal("pkg/kubelet/eviction/eviction_manager.go:Admit", "Evicted", "The node had condition: [DiskPressure]. "),
	"a forbidden sysctl":         blamed("pkg/kubelet/sysctl/allowlist.go:Admit", "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`),
	"an AppArmor profile":        blamed("pkg/kubelet/lifecycle/handlers.go:appArmorAdmitHandler.Admit", "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
	"another system":             blamed("pkg/kubelet/lifecycle/predicate.go:rejectPodAdmissionBasedOnOSField", "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
	"a label of another system":  blamed("pkg/kubelet/lifecycle/predicate.go:rejectPodAdmissionBasedOnOSSelector", "PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"),
	"a policy of groups":         blamed("pkg/kubelet/lifecycle/predicate.go:rejectPodAdmissionBasedOnSupplementalGroupsPolicy", "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"),
	"resources of a pod":         blamed("pkg/kubelet/lifecycle/features_linux.go:isPodLevelResourcesSupported", "PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled"),
	"a feature that is not here": blamed("pkg/kubelet/lifecycle/handlers.go:declaredFeaturesAdmitHandler.Admit", "PodFeatureUnsupported", "Pod requires node features that are not available: X"),
	"no CPUs to share":           blamed("pkg/kubelet/cm/admission/errors.go:EmptyPodSharedPoolError.Type", "EmptyPodSharedPoolError", "pod shared pool is empty"),
	"a restart policy":           blamed("pkg/kubelet/lifecycle/predicate.go:InitContainerRestartPolicyForbidden", "InitContainerRestartPolicyForbidden", "x"),
}

func refusal(origin, reason, message string) endCase {
	return endCase{origin, []change{rejected(reason, message)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, reason, v1alpha1.CauseNode), false}
}

func blamed(origin, reason, message string) endCase {
	return endCase{origin, []change{rejected(reason, message)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, reason, v1alpha1.CauseConfig), true}
}

// otherEnds are ends caused by other components, by users, by Corral and by the containers themselves.
var otherEnds = map[string]endCase{
	"evicted by the API, still running": {"pkg/registry/core/pod/storage/eviction.go:addConditionAndDeletePod",
		[]change{target("EvictionByEvictionAPI", "Eviction API: evicting"), deleted, runs(runner)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, "EvictionByEvictionAPI", v1alpha1.CauseRemoved), false},
	"evicted by the API, ended": {"pkg/registry/core/pod/storage/eviction.go:addConditionAndDeletePod",
		[]change{target("EvictionByEvictionAPI", "Eviction API: evicting"), deleted, exited(runner, 143, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, "EvictionByEvictionAPI", v1alpha1.CauseRemoved), false},
	"evicted by the API, with a job": {"pkg/registry/core/pod/storage/eviction.go:addConditionAndDeletePod",
		[]change{target("EvictionByEvictionAPI", "Eviction API: evicting"), deleted, exited(runner, 143, "Error", minute)}, hasJob, lost(end(v1alpha1.ActorOutsider, "EvictionByEvictionAPI", v1alpha1.CauseRemoved)), false},
	"preempted by the scheduler": {"pkg/scheduler/framework/preemption/executor.go:NewExecutor",
		[]change{target("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"), deleted, runs(runner)},
		poolstatus.Witness{}, end(v1alpha1.ActorScheduler, "PreemptionByScheduler", v1alpha1.CauseRemoved), false},
	"preempted by the scheduler, exit code 0": {"pkg/scheduler/framework/preemption/executor.go:NewExecutor",
		[]change{target("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"), deleted, exited(runner, 0, "Completed", minute), phase(corev1.PodSucceeded)},
		poolstatus.Witness{}, end(v1alpha1.ActorScheduler, "PreemptionByScheduler", v1alpha1.CauseRemoved), false},
	"the node is tainted": {"pkg/controller/tainteviction/taint_eviction.go:addConditionAndDeletePod",
		[]change{target("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"), deleted, runs(runner)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeletionByTaintManager", v1alpha1.CauseNode), false},
	"a device is tainted": {"pkg/controller/devicetainteviction/device_taint_eviction.go:addConditionAndDeletePod",
		[]change{target("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"), deleted, runs(runner)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeletionByDeviceTaintManager", v1alpha1.CauseNode), false},
	"the node is gone": {"pkg/controller/podgc/gc_controller.go:gcOrphaned",
		[]change{phase(corev1.PodFailed), target("DeletionByPodGC", "PodGC: node no longer exists"), runs(runner)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "DeletionByPodGC", v1alpha1.CauseNode), false},
	"the node is gone, with a job": {"pkg/controller/podgc/gc_controller.go:gcOrphaned",
		[]change{phase(corev1.PodFailed), target("DeletionByPodGC", "PodGC: node no longer exists"), runs(runner)}, hasJob, lost(end(v1alpha1.ActorNode, "DeletionByPodGC", v1alpha1.CauseNode)), false},
	"the node stopped reporting": {"pkg/controller/util/node/controller_utils.go:SetPodTerminationReason",
		[]change{func(p *corev1.Pod) {
			p.Status.Reason, p.Status.Message = "NodeLost", "Node n1 which was running pod p is unresponsive"
		}, deleted, runs(runner)},
		poolstatus.Witness{}, end(v1alpha1.ActorNode, "NodeLost", v1alpha1.CauseNode), false},
	"the node stopped reporting, the pod may go on": {"pkg/controller/util/node/controller_utils.go:SetPodTerminationReason",
		[]change{func(p *corev1.Pod) { p.Status.Reason = "NodeLost" }, runs(runner)}, poolstatus.Witness{}, poolstatus.End{}, false},
	"another controller disrupts": {"any controller that sets DisruptionTarget",
		[]change{target("DeletionByAcme", "acme: rebalancing"), deleted, runs(runner)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, "DeletionByAcme", v1alpha1.CauseRemoved), false},
	"a disruption that was called off": {"pkg/controller/disruption/disruption.go:syncStalePodDisruption",
		[]change{func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, Reason: "EvictionByEvictionAPI"}}
		}, phase(corev1.PodFailed), exited(runner, 1, "Error", minute)},
		poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseCrash), true},
	"a disruption that has not come yet": {"pkg/scheduler/framework/preemption/executor.go:NewExecutor",
		[]change{target("PreemptionByScheduler", "x"), runs(runner)}, poolstatus.Witness{}, poolstatus.End{}, false},
	"kubectl delete pod": {"kubectl",
		[]change{deleted, runs(runner)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, poolstatus.ReasonDeleted, v1alpha1.CauseRemoved), false},
	"kubectl delete pod, exit code 0": {"kubectl",
		[]change{deleted, exited(runner, 0, "Completed", minute), phase(corev1.PodSucceeded)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, poolstatus.ReasonDeleted, v1alpha1.CauseRemoved), false},
	"kubectl delete pod, killed": {"kubectl",
		[]change{deleted, exited(runner, 137, "Error", minute), phase(corev1.PodFailed)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, poolstatus.ReasonDeleted, v1alpha1.CauseRemoved), false},
	"deleted before it has a node": {"a descheduler or a clean-up policy",
		[]change{deleted, phase(corev1.PodPending)}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, poolstatus.ReasonDeleted, v1alpha1.CauseRemoved), false},
	"deleted while its image can't be pulled": {"kubectl",
		[]change{deleted, phase(corev1.PodPending), waits(runner, "ImagePullBackOff", "x")}, poolstatus.Witness{}, end(v1alpha1.ActorOutsider, poolstatus.ReasonDeleted, v1alpha1.CauseRemoved), false},
	"Corral ends an idle runner": {"controllers/runners/finalize.go:deletePod",
		[]change{deleted, exited(runner, 143, "Error", minute)}, poolstatus.Witness{Ending: true}, end(v1alpha1.ActorCorral, poolstatus.ReasonDeleted, ""), false},
	"the node ends a runner that Corral ends": {"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go:killPods",
		[]change{says("Terminated", gone), target("TerminationByKubelet", gone), exited(runner, 143, "Error", minute)}, poolstatus.Witness{Ending: true}, end(v1alpha1.ActorNode, "Terminated", v1alpha1.CauseNode), false},
	"failed without a word": {"pkg/controller/podgc/gc_controller.go:markFailedAndDeletePod",
		[]change{phase(corev1.PodFailed)}, poolstatus.Witness{}, end(v1alpha1.ActorUnknown, "Unknown", v1alpha1.CauseRemoved), false},
	"a reason that no table has": {"a kubelet to come, or a virtual one",
		[]change{says("QuantumTunneled", "x"), exited(runner, 137, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorUnknown, "QuantumTunneled", v1alpha1.CauseRemoved), false},
	"a reason that no table has, with a disruption": {"a kubelet to come, or a virtual one",
		[]change{says("QuantumTunneled", "x"), target("TerminationByKubelet", "x"), exited(runner, 137, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "TerminationByKubelet", v1alpha1.CauseNode), false},

	"a crash": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodFailed), exited(runner, 1, "Error", time.Second)}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseCrash), true},
	"a crash of a signal": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodFailed), exited(runner, 139, "Error", time.Second)}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseCrash), true},
	"killed, and nobody says why": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodFailed), exited(runner, 137, "Error", time.Second)}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseCrash), true},
	"a crash while a sidecar stays": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{exited(runner, 1, "Error", time.Second), runs("docker")}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseCrash), true},
	"a crash with a job": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodFailed), exited(runner, 1, "Error", time.Second)}, hasJob, lost(end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseCrash)), true},
	"an outdated version": {"actions/runner, run-helper.sh",
		[]change{phase(corev1.PodFailed), exited(runner, 7, "Error", time.Second)}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Error", v1alpha1.CauseOutdated), true},
	"a good end": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodSucceeded), exited(runner, 0, "Completed", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Completed", ""), false},
	"a good end, another container fails": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodFailed), exited(runner, 0, "Completed", minute), exited("docker", 137, "Error", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorRunner, "Completed", ""), false},
	"out of its own memory": {"containerd, internal/cri/server/events.go:handleEvent",
		[]change{phase(corev1.PodFailed), exited(runner, 137, "OOMKilled", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorContainer, "OOMKilled", v1alpha1.CauseCrash), true},
	"out of its own memory, with a job": {"containerd, internal/cri/server/events.go:handleEvent",
		[]change{phase(corev1.PodFailed), exited(runner, 137, "OOMKilled", minute)}, hasJob, lost(end(v1alpha1.ActorContainer, "OOMKilled", v1alpha1.CauseCrash)), true},
	"out of the node's memory": {"the kernel, which kills in a cgroup without a limit",
		[]change{unlimited, phase(corev1.PodFailed), exited(runner, 137, "OOMKilled", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorNode, "OOMKilled", v1alpha1.CauseNode), false},
	"a command that is not there": {"containerd, internal/cri/server/container_start.go:StartContainer",
		[]change{phase(corev1.PodFailed), exited(runner, 128, "StartError", 0)}, poolstatus.Witness{}, end(v1alpha1.ActorContainer, "StartError", v1alpha1.CauseCrash), true},
	"a container that can't run": {"cri-dockerd",
		[]change{phase(corev1.PodFailed), exited(runner, 127, "ContainerCannotRun", 0)}, poolstatus.Witness{}, end(v1alpha1.ActorContainer, "ContainerCannotRun", v1alpha1.CauseCrash), true},
	"all containers start anew": {"pkg/kubelet/kubelet_pods.go:convertToAPIContainerStatuses",
		[]change{exited(runner, 137, "RestartingAllContainers", minute)}, poolstatus.Witness{}, end(v1alpha1.ActorContainer, "RestartingAllContainers", v1alpha1.CauseCrash), true},
	"an init container fails": {"pkg/kubelet/kubelet_pods.go:getPhase",
		[]change{phase(corev1.PodFailed), exited("init-tools", 1, "Error", time.Second), waits(runner, "PodInitializing", "")}, poolstatus.Witness{}, end(v1alpha1.ActorInitContainer, "Error", v1alpha1.CauseCrash), true},
	"a sidecar crashes before the runner starts": {"pkg/kubelet/kuberuntime/kuberuntime_manager.go:doBackOff",
		[]change{phase(corev1.PodPending), waits("init-docker", "CrashLoopBackOff", "back-off 10s"), waits(runner, "PodInitializing", "")},
		poolstatus.Witness{}, end(v1alpha1.ActorSidecar, "CrashLoopBackOff", v1alpha1.CauseCrash), true},
	"a sidecar crashes beside the runner": {"pkg/kubelet/kuberuntime/kuberuntime_manager.go:doBackOff",
		[]change{waits("init-docker", "CrashLoopBackOff", "back-off 10s"), runs(runner)}, poolstatus.Witness{}, poolstatus.End{}, false},
	"an image that can't be pulled": {"pkg/kubelet/images/types.go:ErrImagePull",
		[]change{phase(corev1.PodPending), waits(runner, "ErrImagePull", "x")}, poolstatus.Witness{}, poolstatus.End{}, false},
	"a runner that runs": {"pkg/kubelet/kubelet_pods.go:getPhase", []change{runs(runner)}, hasJob, poolstatus.End{}, false},
	"a pod that has no node": {"pkg/scheduler/schedule_one.go:handleSchedulingFailure",
		[]change{phase(corev1.PodPending)}, poolstatus.Witness{}, poolstatus.End{}, false},
}

func TestEndsOfPods(t *testing.T) {
	n := 0
	for _, table := range []map[string]endCase{kubeletEnds, refusals, otherEnds} {
		for name, tc := range table {
			n++
			t.Run(name+" ("+tc.origin+")", func(t *testing.T) {
				pod := observedPod(t, tc.pod...)
				got := poolstatus.EndOf(pod, tc.with)
				tc.want.Message = got.Message
				if got != tc.want || got.Cause.Permanent() != tc.blame {
					t.Errorf("got %+v, to blame: %t; want %+v", got, got.Cause.Permanent(), tc.want)
				}
				reached(t, pod, tc, got)
			})
		}
	}
	if n < 60 {
		t.Errorf("%d pods", n)
	}
}

// reached checks that the end of a runner without a job determines its state. With a job, GitHub's result decides.
func reached(t *testing.T, pod *corev1.Pod, tc endCase, e poolstatus.End) {
	t.Helper()
	if e == (poolstatus.End{}) || tc.with.HasJob || tc.with.Ending || tc.want.Actor == v1alpha1.ActorSidecar {
		return
	}
	now := time.Unix(10_000, 0)
	r := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(400, 0)}}
	o := poolstatus.Observe(r, pod, time.Hour, now)
	a := poolstatus.Assess(o, now)
	want := e.Cause
	if want == "" {
		want = v1alpha1.CauseCrash // it ended without a job
	}
	if a.State != v1alpha1.RunnerFailed || a.Cause != want {
		t.Errorf("state %s, cause %s: %s", a.State, a.Cause, a.Reason)
	}
	if e.Cause != "" && (o.Exit == nil || o.Exit.Actor != e.Actor || o.Exit.Reason != e.Reason || o.Exit.Node != "n1") {
		t.Errorf("exit %+v", o.Exit)
	}
	if e.Message != "" && !strings.Contains(a.Reason, e.Reason+": "+e.Message) {
		t.Errorf("the runner's reason is %q", a.Reason)
	}
	// The state is the same when it is read back after a restart of the controller.
	r.Status = v1alpha1.RunnerStatus{EndedAt: &metav1.Time{Time: o.EndedAt}, EndedClean: o.EndedClean, Exit: o.Exit, Reason: a.Reason, Cause: a.Cause}
	if !o.EndedAt.IsZero() {
		if again := poolstatus.Assess(poolstatus.Observe(r, pod, time.Hour, now), now); again.Cause != a.Cause || again.State != a.State || again.Reason != a.Reason {
			t.Errorf("read back: %+v, before: %+v", again, a)
		}
	}
}

// A runner that exits with code 0 because its node shuts down may have had a job, until GitHub had time to report it.
// After that, the node counts as the cause.
func TestAnEndByANodeWithExitCode0Settles(t *testing.T) {
	pod := observedPod(t, kubeletEnds["the node shuts down, the runner exits with 0"].pod...)
	r := &v1alpha1.Runner{}
	for _, after := range []time.Duration{time.Second, poolstatus.Settle} {
		now := time.Unix(500, 0).Add(minute + after)
		o := poolstatus.Observe(r, pod, time.Hour, now)
		a := poolstatus.Assess(o, now)
		isOver := after == poolstatus.Settle
		if a.Settling == isOver || (a.State == v1alpha1.RunnerFailed) != isOver || a.Cause != v1alpha1.CauseNode || isOver && a.Reason != "Terminated: "+gone {
			t.Errorf("after %s: %+v", after, a)
		}
		r.Status = v1alpha1.RunnerStatus{EndedAt: &metav1.Time{Time: o.EndedAt}, EndedClean: o.EndedClean, Exit: o.Exit, Reason: a.Reason, Cause: a.Cause}
	}
}

// If GitHub does not report that the job is over, the job is lost with the node, and the pool creates no other runner
// for it.
func TestAnEndByANodeWithExitCode0LosesTheJob(t *testing.T) {
	pod := observedPod(t, kubeletEnds["the node shuts down, the runner exits with 0"].pod...)
	r := &v1alpha1.Runner{Status: v1alpha1.RunnerStatus{Job: &v1alpha1.JobReference{ID: "1"}}}
	ended := time.Unix(500, 0).Add(minute)
	for after, want := range map[time.Duration]v1alpha1.RunnerState{
		time.Second: v1alpha1.RunnerFinished, poolstatus.Settle: v1alpha1.RunnerFailed, poolstatus.JobLost: v1alpha1.RunnerFinished,
	} {
		now := ended.Add(after)
		o := poolstatus.Observe(r, pod, time.Hour, now)
		a := poolstatus.Assess(o, now)
		if isLost := want == v1alpha1.RunnerFailed; a.State != want || a.Cause != "" || isLost && (!a.Settling || a.Reason != "Terminated: "+gone+", with a job: GitHub will fail it") {
			t.Errorf("after %s: %+v", after, a)
		}
		again := *r
		again.Status.EndedAt, again.Status.EndedClean, again.Status.Exit, again.Status.Reason = &metav1.Time{Time: o.EndedAt}, true, o.Exit, a.Reason
		if b := poolstatus.Assess(poolstatus.Observe(&again, nil, time.Hour, now), now); b != a {
			t.Errorf("after %s, read back: %+v", after, b)
		}
	}
}

func TestAPodsMessageIsHarmless(t *testing.T) {
	secret := "\x1b[31mlow\n\tHTTPS_PROXY=http://corral:hunter2@proxy:3128\n"
	for _, p := range []*corev1.Pod{
		observedPod(t, says("Evicted", secret+strings.Repeat("low ", 2000))),
		observedPod(t, phase(corev1.PodFailed), target("Acme", secret+strings.Repeat("low ", 2000))),
	} {
		got := poolstatus.EndOf(p, poolstatus.Witness{}).Message
		if len(got) > 1000 || !strings.HasPrefix(got, "[31mlow HTTPS_PROXY=http://***@proxy:3128 low low") {
			t.Errorf("%d bytes: %.80q", len(got), got)
		}
	}
}

// The template is never at fault for actions of a node or an outsider, whatever the exit code.
func TestNoExitCodeMovesBlameFromANode(t *testing.T) {
	for code := range int32(256) {
		for _, by := range [][]change{
			{says("Evicted", low), target("TerminationByKubelet", low)}, {says("Terminated", gone), target("TerminationByKubelet", gone)},
			{deleted}, {deleted, target("EvictionByEvictionAPI", "x")}, {deleted, target("PreemptionByScheduler", "x")},
		} {
			e := poolstatus.EndOf(observedPod(t, append(by, exited(runner, code, "Error", time.Second))...), poolstatus.Witness{})
			if e.Cause.Permanent() || !e.Cause.IsExternal() {
				t.Error(fmt.Sprint(code), e)
			}
		}
	}
}
