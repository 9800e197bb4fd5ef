// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// seen is the last state of a pod that a controller sees.
type seen struct {
	look
	// Reason is the pod's reason, and Disruption the reason of its condition DisruptionTarget.
	Reason, Disruption string
	Deleted            bool
}

// source is where the text of a message is in Kubernetes: a file, and the format string in it.
type source struct{ file, format string }

var (
	lowOnMemory = source{"pkg/kubelet/eviction/helpers.go", "The node was low on resource: %v. "}
	shutdown    = source{"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go", "Pod was terminated in response to imminent node shutdown."}
	preempting  = source{"pkg/kubelet/preemption/preemption.go", "Preempted in order to admit critical pod"}
	preempted   = source{"pkg/kubelet/preemption/preemption.go", "Pod was preempted by Kubelet to accommodate a critical pod."}
	emptyDir    = source{"pkg/kubelet/eviction/helpers.go", "Usage of EmptyDir volume %q exceeds the limit %q. "}
	scheduler   = source{"pkg/scheduler/framework/preemption/executor.go", "%s: preempting to accommodate a higher priority %s"}
	taints      = source{"pkg/controller/tainteviction/taint_eviction.go", "Taint manager: deleting due to NoExecute taint"}
	evictionAPI = source{"pkg/registry/core/pod/storage/eviction.go", "Eviction API: evicting"}
	nothing     source
)

// playedEnd is a fault and the resulting state of the pod; message and disruption are the sources of the pod's texts.
type playedEnd struct {
	fault               nodeplay.Fault
	want                seen
	message, disruption source
}

func failed(container string) look {
	return look{corev1.PodFailed, corev1.ConditionFalse, container, "exit 0 Completed"}
}

func TestEndsArePlayedAsKubernetesWritesThem(t *testing.T) {
	kubelet := corev1.PodReasonTerminationByKubelet
	gone := look{corev1.PodSucceeded, corev1.ConditionFalse, "exit 0 Completed", "exit 0 Completed"}
	running := look{corev1.PodRunning, corev1.ConditionTrue, "running", "running"}
	ends := map[string]playedEnd{
		"the node evicts":          {nodeplay.Fault{Kind: nodeplay.NodeEvicts}, seen{failed("exit 0 Completed"), "Evicted", kubelet, false}, lowOnMemory, lowOnMemory},
		"the node evicts in a job": {nodeplay.Fault{Kind: nodeplay.NodeEvicts, InJob: true}, seen{failed("exit 0 Completed"), "Evicted", kubelet, false}, lowOnMemory, lowOnMemory},
		"the node shuts down":      {nodeplay.Fault{Kind: nodeplay.NodeShutsDown}, seen{gone, "Terminated", kubelet, false}, shutdown, shutdown},
		"a critical pod comes":     {nodeplay.Fault{Kind: nodeplay.CriticalPodComes}, seen{failed("exit 0 Completed"), "Preempting", kubelet, false}, preempting, preempted},
		"storage is exceeded":      {nodeplay.Fault{Kind: nodeplay.StorageExceeded}, seen{failed("exit 0 Completed"), "Evicted", "", false}, emptyDir, nothing},
		"a container is lost":      {nodeplay.Fault{Kind: nodeplay.ContainerLost}, seen{failed("exit 137 ContainerStatusUnknown"), "", "", false}, nothing, nothing},
		"out of memory":            {nodeplay.Fault{Kind: nodeplay.OutOfMemory}, seen{failed("exit 137 OOMKilled"), "", "", false}, nothing, nothing},
		"the scheduler preempts":   {nodeplay.Fault{Kind: nodeplay.SchedulerPreempts}, seen{gone, "", corev1.PodReasonPreemptionByScheduler, true}, nothing, scheduler},
		"the node is tainted":      {nodeplay.Fault{Kind: nodeplay.NodeTainted}, seen{gone, "", "DeletionByTaintManager", true}, nothing, taints},
		"evicted by the API":       {nodeplay.Fault{Kind: nodeplay.EvictedByAPI}, seen{gone, "", "EvictionByEvictionAPI", true}, nothing, evictionAPI},
		"deleted by force":         {nodeplay.Fault{Kind: nodeplay.ForceDeleted}, seen{running, "", "", true}, nothing, nothing},
		"deleted at once":          {nodeplay.Fault{Kind: nodeplay.DeletedAtOnce}, seen{look{Phase: corev1.PodPending}, "", "", true}, nothing, nothing},
	}
	for reason, message := range map[string]source{
		"UnexpectedAdmissionError": {"pkg/kubelet/cm/admission/errors.go", "Allocate failed due to %v, which is unexpected"},
		"OutOfcpu":                 {"pkg/kubelet/lifecycle/predicate.go", "Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d"},
		"NodeAffinity":             {"pkg/kubelet/lifecycle/predicate.go", "Predicate %s failed: %s"},
		"TopologyAffinityError":    {"pkg/kubelet/cm/topologymanager/topology_manager.go", "Resources cannot be allocated with Topology locality"},
		"NodeShutdown":             {"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go", "Pod was rejected as the node is shutting down."},
		"Evicted":                  {"pkg/kubelet/eviction/helpers.go", "The node had condition: %v. "},
		"SysctlForbidden":          {"pkg/kubelet/sysctl/allowlist.go", "forbidden sysctl: %v"},
	} {
		if !slices.Contains(nodeplay.Refusals(), reason) {
			t.Errorf("no node refuses for %s", reason)
		}
		ends["refused: "+reason] = playedEnd{nodeplay.Fault{Kind: nodeplay.Refused, Reason: reason}, seen{look{Phase: corev1.PodFailed}, reason, "", false}, message, nothing}
	}
	for name, tc := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			node, _ := playWith(t, nodeplay.Options{NodeName: namespace, Namespace: namespace, Run: runner})
			node.Inject(tc.fault)
			createSecret(t, namespace, "r", "has a job")
			got := seen{}
			var message, disruption string
			follow(t, createPod(t, namespace, "r"), func(p *corev1.Pod, deleted bool) bool {
				got = seen{look: lookAt(p), Reason: p.Status.Reason, Deleted: deleted}
				message, disruption = strings.TrimPrefix(p.Status.Message, "Pod was rejected: "), ""
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
						got.Disruption, disruption = c.Reason, c.Message
					}
				}
				return deleted || !tc.want.Deleted && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
			})
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			isOf(t, tc.message, message)
			isOf(t, tc.disruption, disruption)
		})
	}
}

var verb = regexp.MustCompile(`%[a-z]`)

// isOf checks that a text matches its source in Kubernetes.
func isOf(t *testing.T, s source, text string) {
	t.Helper()
	if s == nothing {
		if text != "" {
			t.Errorf("the pod has the text %q", text)
		}
		return
	}
	folder, err := localcluster.Source(t.Context(), "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, s.file))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), s.format) {
		t.Errorf("%s does not have %q", s.file, s.format)
	}
	if format := "^" + verb.ReplaceAllString(regexp.QuoteMeta(s.format), ".*"); !regexp.MustCompile(format).MatchString(text) {
		t.Errorf("%q is not of the format %q", text, s.format)
	}
}
