// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestPodsFitANamespace(t *testing.T) {
	const runner = "containers: [{name: runner, resources: {requests: {cpu: '2', memory: 4Gi}, limits: {memory: 8Gi}}}]"
	for name, tc := range map[string]struct {
		pod            string
		most           int32
		quotas, ranges []string
		want           []string
	}{
		"nothing is there":         {runner, 100, nil, nil, nil},
		"it fits to the core":      {runner, 25, []string{"hard: {requests.cpu: '50', pods: '25'}"}, nil, nil},
		"more cores":               {runner, 40, []string{"hard: {cpu: '50'}"}, nil, []string{".spec.scale.max: 40 runners need 80 of cpu, and ResourceQuota q has 50: at most 25 fit"}},
		"more pods":                {runner, 40, []string{"hard: {pods: '10', secrets: '20'}"}, nil, []string{".spec.scale.max: 40 runners need 40 of pods, and ResourceQuota q has 10: at most 10 fit", ".spec.scale.max: 40 runners need 40 of secrets, and ResourceQuota q has 20: at most 20 fit"}},
		"limits of memory":         {runner, 10, []string{"hard: {limits.memory: 64Gi}"}, nil, []string{".spec.scale.max: 10 runners need 80Gi of limits.memory, and ResourceQuota q has 64Gi: at most 8 fit"}},
		"no bound":                 {runner, -1, []string{"hard: {pods: '1'}"}, nil, nil},
		"what must be set":         {runner, 1, []string{"hard: {limits.cpu: '10'}"}, nil, []string{".spec.template: ResourceQuota q wants limits.cpu of every container, and container runner has none"}},
		"what a range sets":        {runner, 3, []string{"hard: {limits.cpu: '10'}"}, []string{"limits: [{type: Container, default: {cpu: '4'}}]"}, []string{".spec.scale.max: 3 runners need 12 of limits.cpu, and ResourceQuota q has 10: at most 2 fit"}},
		"a request is a limit":     {"containers: [{name: runner, resources: {limits: {cpu: '1'}}}]", 3, []string{"hard: {requests.cpu: '2'}"}, nil, []string{".spec.scale.max: 3 runners need 3 of requests.cpu, and ResourceQuota q has 2: at most 2 fit"}},
		"a device":                 {"containers: [{name: runner, resources: {limits: {nvidia.com/gpu: '2'}}}]", 3, []string{"hard: {requests.nvidia.com/gpu: '4'}"}, nil, []string{".spec.scale.max: 3 runners need 6 of requests.nvidia.com/gpu, and ResourceQuota q has 4: at most 2 fit"}},
		"sidecars count":           {"initContainers: [{name: dind, restartPolicy: Always, resources: {requests: {cpu: '1'}}}], " + runner, 2, []string{"hard: {cpu: '5'}"}, nil, []string{".spec.scale.max: 2 runners need 6 of cpu, and ResourceQuota q has 5: at most 1 fit"}},
		"volumes of their own":     {"volumes: [{name: w, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 10Gi}}}}}}], " + runner, 3, []string{"hard: {requests.storage: 20Gi, persistentvolumeclaims: '9'}"}, nil, []string{".spec.scale.max: 3 runners need 30Gi of requests.storage, and ResourceQuota q has 20Gi: at most 2 fit"}},
		"another scope":            {runner, 3, []string{"{scopes: [BestEffort], hard: {pods: '1'}}", "{scopes: [Terminating], hard: {pods: '1'}}", "{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}, hard: {pods: '1'}}"}, nil, nil},
		"its scope":                {"priorityClassName: high, " + runner, 3, []string{"{scopes: [NotTerminating, NotBestEffort], scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}, hard: {pods: '1'}}"}, nil, []string{".spec.scale.max: 3 runners need 3 of pods, and ResourceQuota q has 1: at most 1 fit"}},
		"more than a range has":    {runner, 1, nil, []string{"limits: [{type: Container, max: {memory: 6Gi, cpu: '8'}, min: {cpu: '3'}}]"}, []string{".spec.template: LimitRange r: container runner requests 2 of cpu, at least 3 is asked for", ".spec.template: LimitRange r: container runner must have a limit of cpu, at most 8", ".spec.template: LimitRange r: container runner has a limit of 8Gi of memory, at most 6Gi is allowed"}},
		"more than a pod has":      {"containers: [{name: runner, resources: {limits: {cpu: '3'}}}, {name: db, resources: {limits: {cpu: '3'}}}]", 1, nil, []string{"limits: [{type: Pod, max: {cpu: '5'}}]"}, []string{".spec.template: LimitRange r: the pod has a limit of 6 of cpu, at most 5 is allowed"}},
		"best effort, with a disk": {"containers: [{name: runner, resources: {requests: {ephemeral-storage: 1Gi, nvidia.com/gpu: '1'}}}]", 2, []string{"{scopes: [BestEffort], hard: {pods: '1'}}", "{scopes: [NotBestEffort], hard: {pods: '1'}}"}, nil, []string{".spec.scale.max: 2 runners need 2 of pods, and ResourceQuota q has 1: at most 1 fit"}},
		"resources of the pod":     {"resources: {limits: {cpu: '1'}}, containers: [{name: runner}]", 2, []string{"hard: {limits.cpu: '2', requests.cpu: '1'}"}, nil, []string{".spec.scale.max: 2 runners need 2 of requests.cpu, and ResourceQuota q has 1: at most 1 fit"}},
		"more than the default":    {"containers: [{name: runner, resources: {requests: {cpu: '2'}}}]", 1, nil, []string{"limits: [{type: Container, default: {cpu: '1'}, defaultRequest: {cpu: '1'}}]"}, []string{".spec.template: LimitRange r: container runner requests 2 of cpu, more than its limit of 1, which may be the default"}},
		"a ratio":                  {"containers: [{name: runner, resources: {requests: {cpu: '1'}, limits: {cpu: '8'}}}]", 1, nil, []string{"limits: [{type: Container, maxLimitRequestRatio: {cpu: '8'}}, {type: Pod, maxLimitRequestRatio: {cpu: '2'}}]"}, []string{".spec.template: LimitRange r: the pod requests 1 of cpu with a limit of 8: it must have both, and the limit be at most 2 times the request"}},
		"a ratio of nothing":       {"containers: [{name: runner}]", 1, nil, []string{"limits: [{type: Container, maxLimitRequestRatio: {cpu: '8'}}]"}, []string{".spec.template: LimitRange r: container runner requests 0 of cpu with a limit of 0: it must have both, and the limit be at most 8 times the request"}},
		"claims": {"volumes: [{name: w, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast, resources: {requests: {storage: 10Gi}}}}}}, {name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}}], " + runner, 3,
			[]string{"hard: {fast.storageclass.storage.k8s.io/requests.storage: 20Gi, fast.storageclass.storage.k8s.io/persistentvolumeclaims: '3', slow.storageclass.storage.k8s.io/requests.storage: '0'}"}, []string{"limits: [{type: PersistentVolumeClaim, min: {storage: 2Gi}, max: {storage: 9Gi}}]"},
			[]string{".spec.template: LimitRange r: volume w has a limit of 10Gi of storage, at most 9Gi is allowed", ".spec.template: LimitRange r: volume v requests 1Gi of storage, at least 2Gi is asked for", ".spec.scale.max: 3 runners need 30Gi of fast.storageclass.storage.k8s.io/requests.storage, and ResourceQuota q has 20Gi: at most 2 fit"}},
		"objects of Corral":        {runner, 3, []string{"hard: {count/runners.corral.dev: '2'}"}, nil, []string{".spec.scale.max: 3 runners need 3 of count/runners.corral.dev, and ResourceQuota q has 2: at most 2 fit"}},
		"a scope that isn't known": {runner, 3, []string{"{scopes: [CrossNamespacePodAffinity], hard: {pods: '1'}}"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			parse(t, "{"+tc.pod+"}", &pod.Spec)
			quotas, ranges := make([]corev1.ResourceQuota, len(tc.quotas)), make([]corev1.LimitRange, len(tc.ranges))
			for i, text := range tc.quotas {
				quotas[i].ObjectMeta = metav1.ObjectMeta{Name: "q"}
				parse(t, text, &quotas[i].Spec)
			}
			for i, text := range tc.ranges {
				ranges[i].ObjectMeta = metav1.ObjectMeta{Name: "r"}
				parse(t, text, &ranges[i].Spec)
			}
			var got []string
			for _, p := range Check([]Fleet{{Pod: pod, Most: tc.most, Says: ".spec.scale.max"}}, quotas, ranges) {
				got = append(got, p.Field+": "+p.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPoolsFitANamespaceTogether(t *testing.T) {
	pod := &corev1.Pod{}
	parse(t, "{containers: [{name: runner}]}", &pod.Spec)
	const says = ".spec.scale.max"
	for name, tc := range map[string]struct {
		fleets []Fleet
		want   []Problem
	}{
		"they do":               {[]Fleet{{pod, 4, 1, says}, {pod, 6, 2, says}}, nil},
		"they don't":            {[]Fleet{{pod, 4, 0, says}, {pod, 7, 0, ".spec.scale.schedules[0]"}, {pod, 1, 0, says}}, []Problem{{1, ".spec.scale.schedules[0]", "7 runners, with those of other pools here, need 11 of pods, and ResourceQuota q has 10"}}},
		"one doesn't by itself": {[]Fleet{{pod, 4, 0, says}, {pod, 11, 3, says}, {pod, 1, 0, says}}, []Problem{{1, says, "11 runners need 11 of pods, and ResourceQuota q has 10: at most 10 fit"}}},
		"one has no bound":      {[]Fleet{{pod, -1, 0, says}, {pod, 10, 0, says}}, nil},
		"updates":               {[]Fleet{{pod, 8, 3, says}}, []Problem{{0, ".spec.update.maxSurge", "8 runners, and 3 more during an update, need 11 of pods, and ResourceQuota q has 10: at most 10 fit"}}},
	} {
		t.Run(name, func(t *testing.T) {
			quota := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
			parse(t, "hard: {pods: '10'}", &quota.Spec)
			if diff := cmp.Diff(tc.want, Check(tc.fleets, []corev1.ResourceQuota{quota}, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
