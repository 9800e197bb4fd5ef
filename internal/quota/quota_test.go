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
		"nothing is there":      {runner, 100, nil, nil, nil},
		"it fits to the core":   {runner, 25, []string{"hard: {requests.cpu: '50', pods: '25'}"}, nil, nil},
		"more cores":            {runner, 40, []string{"hard: {cpu: '50'}"}, nil, []string{".spec.scale.max: 40 runners need 80 of cpu, and ResourceQuota q has 50: at most 25 fit"}},
		"more pods":             {runner, 40, []string{"hard: {pods: '10', secrets: '20'}"}, nil, []string{".spec.scale.max: 40 runners need 40 of pods, and ResourceQuota q has 10: at most 10 fit", ".spec.scale.max: 40 runners need 40 of secrets, and ResourceQuota q has 20: at most 20 fit"}},
		"limits of memory":      {runner, 10, []string{"hard: {limits.memory: 64Gi}"}, nil, []string{".spec.scale.max: 10 runners need 80Gi of limits.memory, and ResourceQuota q has 64Gi: at most 8 fit"}},
		"no bound":              {runner, -1, []string{"hard: {pods: '1'}"}, nil, nil},
		"what must be set":      {runner, 1, []string{"hard: {limits.cpu: '10'}"}, nil, []string{".spec.template: ResourceQuota q wants limits.cpu of every container, and container runner has none"}},
		"what a range sets":     {runner, 3, []string{"hard: {limits.cpu: '10'}"}, []string{"limits: [{type: Container, default: {cpu: '4'}}]"}, []string{".spec.scale.max: 3 runners need 12 of limits.cpu, and ResourceQuota q has 10: at most 2 fit"}},
		"a request is a limit":  {"containers: [{name: runner, resources: {limits: {cpu: '1'}}}]", 3, []string{"hard: {requests.cpu: '2'}"}, nil, []string{".spec.scale.max: 3 runners need 3 of requests.cpu, and ResourceQuota q has 2: at most 2 fit"}},
		"a device":              {"containers: [{name: runner, resources: {limits: {nvidia.com/gpu: '2'}}}]", 3, []string{"hard: {requests.nvidia.com/gpu: '4'}"}, nil, []string{".spec.scale.max: 3 runners need 6 of requests.nvidia.com/gpu, and ResourceQuota q has 4: at most 2 fit"}},
		"sidecars count":        {"initContainers: [{name: dind, restartPolicy: Always, resources: {requests: {cpu: '1'}}}], " + runner, 2, []string{"hard: {cpu: '5'}"}, nil, []string{".spec.scale.max: 2 runners need 6 of cpu, and ResourceQuota q has 5: at most 1 fit"}},
		"volumes of their own":  {"volumes: [{name: w, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 10Gi}}}}}}], " + runner, 3, []string{"hard: {requests.storage: 20Gi, persistentvolumeclaims: '9'}"}, nil, []string{".spec.scale.max: 3 runners need 30Gi of requests.storage, and ResourceQuota q has 20Gi: at most 2 fit"}},
		"another scope":         {runner, 3, []string{"{scopes: [BestEffort], hard: {pods: '1'}}", "{scopes: [Terminating], hard: {pods: '1'}}", "{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}, hard: {pods: '1'}}"}, nil, nil},
		"its scope":             {"priorityClassName: high, " + runner, 3, []string{"{scopes: [NotTerminating, NotBestEffort], scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}, hard: {pods: '1'}}"}, nil, []string{".spec.scale.max: 3 runners need 3 of pods, and ResourceQuota q has 1: at most 1 fit"}},
		"more than a range has": {runner, 1, nil, []string{"limits: [{type: Container, max: {memory: 6Gi, cpu: '8'}, min: {cpu: '3'}}]"}, []string{".spec.template: LimitRange r: container runner requests 2 of cpu, at least 3 is asked for", ".spec.template: LimitRange r: container runner must have a limit of cpu, at most 8", ".spec.template: LimitRange r: container runner has a limit of 8Gi of memory, at most 6Gi is allowed"}},
		"more than a pod has":   {"containers: [{name: runner, resources: {limits: {cpu: '3'}}}, {name: db, resources: {limits: {cpu: '3'}}}]", 1, nil, []string{"limits: [{type: Pod, max: {cpu: '5'}}]"}, []string{".spec.template: LimitRange r: the pod has a limit of 6 of cpu, at most 5 is allowed"}},
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
			for _, p := range Check(pod, tc.most, quotas, ranges) {
				got = append(got, p.Field+": "+p.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
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
