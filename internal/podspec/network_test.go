// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/podspec"
)

func TestARunnerGetsOfTheNetworkWhatItNeeds(t *testing.T) {
	network := github.Network{HTTPSProxy: "http://user:word@proxy", NoProxy: "a,b", CA: []byte("pem")}
	keys := func(n github.Network) []string { return slices.Sorted(maps.Keys(podspec.NetworkData(n))) }
	if got := keys(network); !slices.Equal(got, []string{"ca.crt"}) {
		t.Errorf("keys %v", got)
	}
	network.RunnersUseProxy = true
	if got := keys(network); !slices.Equal(got, []string{"HTTPS_PROXY", "NO_PROXY", "ca.crt"}) {
		t.Errorf("keys with proxies %v", got)
	}
}

func TestUseNetworkLeavesWhatTheTemplateSets(t *testing.T) {
	pod, err := podspec.Build(runner, []byte(`{"spec": {"containers": [{"name": "x"}, {"name": "runner", "env": [{"name": "no_proxy", "value": "mine"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	plain := pod.DeepCopy()
	podspec.UseNetwork(pod, &v1alpha1.GitHubConnectionSpec{Proxy: &v1alpha1.ConnectionProxy{}})
	if len(pod.Spec.Containers[1].Env) != len(plain.Spec.Containers[1].Env) {
		t.Errorf("variables of a proxy that isn't for runners: %v", pod.Spec.Containers[1].Env)
	}
	podspec.UseNetwork(pod, &v1alpha1.GitHubConnectionSpec{Proxy: &v1alpha1.ConnectionProxy{Runners: true}, CA: &v1alpha1.ConnectionCA{}})
	env := map[string]corev1.EnvVar{}
	for _, e := range pod.Spec.Containers[1].Env {
		env[e.Name] = e
	}
	if env["no_proxy"].Value != "mine" || env["RUNNER_UPDATE_CA_CERTS"].Value != "1" || env["NODE_EXTRA_CA_CERTS"].Value != "/usr/local/share/ca-certificates/corral/ca.crt" {
		t.Errorf("environment %v", env)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY"} {
		if from := env[name].ValueFrom; from == nil || from.SecretKeyRef.Name != podspec.SecretName(pod.Name) || !*from.SecretKeyRef.Optional {
			t.Errorf("%s is from %+v", name, from)
		}
	}
	if len(pod.Spec.Containers[0].Env) > 0 || len(pod.Spec.Volumes) != 1 || pod.Spec.Containers[1].VolumeMounts[0].MountPath != "/usr/local/share/ca-certificates/corral" {
		t.Errorf("pod %+v", pod.Spec)
	}
	if err := podspec.CheckSecrets(pod, nil); err != nil {
		t.Error(err)
	}
}
