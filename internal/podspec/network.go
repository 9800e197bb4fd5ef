// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// caVolume and caFolder are where containers find their connection's certificates. What is below /usr/local/share/ca-certificates
	// is what update-ca-certificates(8) adds to the trusted ones.
	caVolume, caFolder = "corral-ca", "/usr/local/share/ca-certificates/corral"
	// caFile is one that ends as update-ca-certificates wants it.
	caFile = "ca.crt"
)

// Variables of a proxy, which are their keys in a runner's Secret, too. Programs read one spelling or the other.
const (
	HTTPProxyKey  = "HTTP_PROXY"
	HTTPSProxyKey = "HTTPS_PROXY"
	NoProxyKey    = "NO_PROXY"
)

// Network says what pods get of their connection's network. It is all that a pod differs in by its connection.
type Network struct{ Proxies, CA bool }

// NetworkOf is what a connection has its runners' pods get.
func NetworkOf(spec *v1alpha1.GitHubConnectionSpec) Network {
	return Network{Proxies: spec.Proxy != nil && spec.Proxy.GetScope() == v1alpha1.ProxyControllerAndRunners, CA: spec.CA != nil}
}

// useNetwork gives all containers what the runner's Secret holds of the connection's network: sidecars pull images by it, too. What the
// template sets stays. Keys that the Secret lacks, as the connection was another when it was made, are none of the containers'.
func useNetwork(pod *corev1.Pod, n Network) {
	secret := SecretName(pod.Name)
	n.CA = n.CA && !isWindows(&pod.Spec) // which has another way to trust them
	if n.CA {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: caVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: secret, Items: []corev1.KeyToPath{{Key: v1alpha1.CAKey, Path: caFile}}, Optional: new(true),
		}}})
	}
	for _, container := range containersOf(&pod.Spec) {
		for _, name := range []string{HTTPProxyKey, HTTPSProxyKey, NoProxyKey} {
			lower := strings.ToLower(name)
			if !n.Proxies || hasEnv(container, name) || hasEnv(container, lower) { // programs differ in which of the two they prefer
				continue
			}
			from := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: name, Optional: new(true),
			}}
			setEnv(container, name, corev1.EnvVar{ValueFrom: from})
			setEnv(container, lower, corev1.EnvVar{ValueFrom: from})
		}
		if n.CA && !hasOwnTrust(container) {
			trust(container)
		}
	}
}

// trust mounts the certificates where the image's run.sh has them trusted, and names them to programs of node, which don't look there.
func trust(container *corev1.Container) {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: caVolume, MountPath: caFolder, ReadOnly: true})
	setEnv(container, "NODE_EXTRA_CA_CERTS", corev1.EnvVar{Value: caFolder + "/" + caFile})
	if container.Name == v1alpha1.RunnerContainerName {
		setEnv(container, "RUNNER_UPDATE_CA_CERTS", corev1.EnvVar{Value: "1"})
	}
}

// hasOwnTrust says whether a template mounts something where the certificates would be, above or below: below a mount that is read-only, no
// mount point can be made, and the container wouldn't start (kubernetes/kubernetes#121294).
func hasOwnTrust(container *corev1.Container) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		own := path.Clean(m.MountPath) + "/"
		return m.Name != caVolume && (strings.HasPrefix(caFolder+"/", own) || strings.HasPrefix(own, caFolder+"/"))
	})
}

// OwnTrust says which containers don't get their connection's certificates; empty if all do.
func OwnTrust(pod *corev1.Pod) string {
	if isWindows(&pod.Spec) {
		return "the connection's certificates don't reach containers of Windows: put them into the image"
	}
	var names []string
	for _, container := range containersOf(&pod.Spec) {
		if hasOwnTrust(container) {
			names = append(names, container.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: not given the connection's certificates, as the template mounts something at %s, above or below", strings.Join(names, ", "), caFolder)
}

// containersOf are all containers of a pod.
func containersOf(spec *corev1.PodSpec) []*corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

func hasEnv(container *corev1.Container, name string) bool {
	return slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == name })
}

// setEnv sets a variable unless the template does.
func setEnv(container *corev1.Container, name string, value corev1.EnvVar) {
	if !hasEnv(container, name) {
		value.Name = name
		container.Env = append(container.Env, value)
	}
}
