// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
)

const (
	// caVolume and caFolder are where the runner's container finds its connection's certificates. What is below /usr/local/share/ca-certificates
	// is what update-ca-certificates(8) adds to the trusted ones.
	caVolume, caFolder = "corral-ca", "/usr/local/share/ca-certificates/corral"
	// caFile is one that ends as update-ca-certificates wants it.
	caFile = "ca.crt"
)

// proxyEnv are the variables of a proxy, by their key in a runner's Secret. Programs read one spelling or the other.
var proxyEnv = []struct {
	key  string
	take func(github.Network) string
}{
	{"HTTP_PROXY", func(n github.Network) string { return n.HTTPProxy }},
	{"HTTPS_PROXY", func(n github.Network) string { return n.HTTPSProxy }},
	{"NO_PROXY", func(n github.Network) string { return n.NoProxy }},
}

// NetworkData is what a runner's Secret holds of its connection's network.
func NetworkData(n github.Network) map[string][]byte {
	data := map[string][]byte{}
	for _, v := range proxyEnv {
		if value := v.take(n); n.RunnersUseProxy && value != "" {
			data[v.key] = []byte(value)
		}
	}
	if len(n.CA) > 0 {
		data[v1alpha1.CAKey] = n.CA
	}
	return data
}

// UseNetwork gives the runner's container what its Secret holds of the connection's network. What the template sets stays. Keys that the
// Secret lacks, as the connection was another when it was made, are none of the container's.
func UseNetwork(pod *corev1.Pod, spec *v1alpha1.GitHubConnectionSpec) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.RunnerContainerName })
	if i < 0 {
		return
	}
	container := &pod.Spec.Containers[i]
	if spec.Proxy != nil && spec.Proxy.Runners {
		for _, v := range proxyEnv {
			from := corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: SecretName(pod.Name)}, Key: v.key, Optional: new(true),
			}}}
			setEnv(container, v.key, from)
			setEnv(container, strings.ToLower(v.key), from)
		}
	}
	if spec.CA != nil {
		trust(pod, container)
	}
}

// trust mounts the certificates where the image's run.sh has them trusted, and names them to programs of node, which don't look there.
func trust(pod *corev1.Pod, container *corev1.Container) {
	taken := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == caVolume }) ||
		slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == caFolder })
	if taken {
		return
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: caVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: SecretName(pod.Name), Items: []corev1.KeyToPath{{Key: v1alpha1.CAKey, Path: caFile}}, Optional: new(true),
	}}})
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: caVolume, MountPath: caFolder, ReadOnly: true})
	setEnv(container, "RUNNER_UPDATE_CA_CERTS", corev1.EnvVar{Value: "1"})
	setEnv(container, "NODE_EXTRA_CA_CERTS", corev1.EnvVar{Value: caFolder + "/" + caFile})
}

// setEnv sets a variable unless the template does.
func setEnv(container *corev1.Container, name string, value corev1.EnvVar) {
	if !slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
		value.Name = name
		container.Env = append(container.Env, value)
	}
}
