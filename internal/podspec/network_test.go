// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/internal/podspec"
)

// over builds a runner's pod from a template with parts of a pod's spec.
func over(t *testing.T, n podspec.Network, spec string) *corev1.Pod {
	t.Helper()
	r := runner
	r.Network = n
	pod, err := podspec.Build(r, []byte(`{"spec":`+spec+`}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := podspec.CheckSecrets(pod, nil); err != nil {
		t.Error(err)
	}
	return pod
}

var all = podspec.Network{Proxies: true, CA: true}

func TestEachContainerGetsTheNetworkButWhatTheTemplateSets(t *testing.T) {
	const spec = `{"initContainers":[{"name":"dind"}],"containers":[{"name":"x","env":[{"name":"https_proxy","value":"mine"},{"name":"NODE_EXTRA_CA_CERTS","value":"mine"}]},
		{"name":"runner","env":[{"name":"NO_PROXY","value":"mine"}]}]}`
	plain, pod := over(t, podspec.Network{}, spec), over(t, all, spec)
	if len(plain.Spec.Volumes)+len(plain.Spec.InitContainers[0].Env)+len(plain.Spec.Containers[0].VolumeMounts) > 0 {
		t.Errorf("a connection without proxy and CA gives %+v", plain.Spec)
	}
	runner := pod.Spec.Containers[1]
	for name, tc := range map[string]struct {
		container corev1.Container
		secret    []string // variables from the runner's Secret
		value     map[string]string
	}{
		"dind":   {pod.Spec.InitContainers[0], []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}, map[string]string{"NODE_EXTRA_CA_CERTS": "/usr/local/share/ca-certificates/corral/ca.crt"}},
		"x":      {pod.Spec.Containers[0], []string{"HTTP_PROXY", "NO_PROXY", "http_proxy", "no_proxy"}, map[string]string{"https_proxy": "mine", "NODE_EXTRA_CA_CERTS": "mine"}},
		"runner": {runner, []string{"ACTIONS_RUNNER_INPUT_JITCONFIG", "HTTPS_PROXY", "HTTP_PROXY", "http_proxy", "https_proxy"}, map[string]string{"NO_PROXY": "mine", "RUNNER_UPDATE_CA_CERTS": "1", "NODE_EXTRA_CA_CERTS": "/usr/local/share/ca-certificates/corral/ca.crt", podspec.ReturnOutdatedEnv: "1"}},
	} {
		var secret []string
		value := map[string]string{}
		for _, e := range tc.container.Env {
			if e.ValueFrom == nil {
				value[e.Name] = e.Value
			} else if from := e.ValueFrom.SecretKeyRef; from.Name == podspec.SecretName(pod.Name) && (from.Key == podspec.JITKey || *from.Optional) {
				secret = append(secret, e.Name)
			}
		}
		slices.Sort(secret)
		if !slices.Equal(secret, tc.secret) || !maps.Equal(value, tc.value) {
			t.Errorf("%s: of the Secret %v, set %v", name, secret, value)
		}
		if m := tc.container.VolumeMounts; len(m) != 1 || m[0].MountPath != "/usr/local/share/ca-certificates/corral" || m[0].Name != pod.Spec.Volumes[0].Name {
			t.Errorf("%s mounts %v", name, m)
		}
	}
	if said := podspec.OwnTrust(pod); said != "" {
		t.Error(said)
	}
}

// A mount point below a read-only mount cannot be created: kubernetes/kubernetes#121294.
func TestNoMountIsMadeBelowTheTemplates(t *testing.T) {
	for at, taken := range map[string]bool{
		"/usr/local/share/ca-certificates/": true, "/usr/local/share/ca-certificates/corral": true, "/usr/local/share": true,
		"/usr/local/share/ca-certificates/corral-2": false, "/usr/local/share/ca-certificates/corral/x": true, "/opt": false,
	} {
		pod := over(t, all, `{"volumes":[{"name":"ca","emptyDir":{}}],"containers":[{"name":"runner","volumeMounts":[{"name":"ca","readOnly":true,"mountPath":"`+at+`"}]}]}`)
		if n := len(pod.Spec.Containers[0].VolumeMounts); (n == 1) != taken || (podspec.OwnTrust(pod) != "") != taken {
			t.Errorf("%s: %d mounts, %q", at, n, podspec.OwnTrust(pod))
		}
	}
}

func TestTheVolumeOfCertificatesIsTheControllers(t *testing.T) {
	_, err := podspec.Build(runner, []byte(`{"spec":{"volumes":[{"name":"a"},{"name":"corral-ca","emptyDir":{}}],"containers":[{"name":"runner"}]}}`))
	if err == nil || !strings.HasPrefix(err.Error(), "spec.template.spec.volumes[1].name: corral-ca is") {
		t.Error(err)
	}
}
