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
	// caVolume and caFolder are the volume and the folder with the connection's certificates. update-ca-certificates(8)
	// adds the files below /usr/local/share/ca-certificates to the trusted certificates.
	caVolume, caFolder = "corral-ca", "/usr/local/share/ca-certificates/corral"
	// caFile has the extension that update-ca-certificates requires.
	caFile = "ca.crt"
)

// Environment variables of a proxy. They are also keys in a runner's Secret. Some programs read only the lower-case
// names, so containers get both.
const (
	HTTPProxyKey  = "HTTP_PROXY"
	HTTPSProxyKey = "HTTPS_PROXY"
	NoProxyKey    = "NO_PROXY"
)

// Network says which network settings of a connection its pods get: proxies, certificates, or both. Apart from a
// persistent runner's URL, nothing else in a pod depends on the connection.
type Network struct{ Proxies, CA bool }

// NetworkOf returns the network settings for the pods of a connection's runners.
func NetworkOf(spec *v1alpha1.GitHubConnectionSpec) Network {
	return Network{Proxies: spec.Proxy != nil && spec.Proxy.GetScope() == v1alpha1.ProxyControllerAndRunners, CA: spec.CA != nil}
}

// useNetwork passes the network settings in the runner's Secret to all containers, because sidecars such as a Docker
// daemon need them, too. Settings in the template take precedence. If the connection has changed since the Secret was
// created, keys may be missing from the Secret. Their variables are then not set.
func useNetwork(pod *corev1.Pod, n Network) {
	secret := SecretName(pod.Name)
	n.CA = n.CA && !isWindows(&pod.Spec) // Windows trusts certificates in a different way
	if n.CA {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: caVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: secret, Items: []corev1.KeyToPath{{Key: v1alpha1.CAKey, Path: caFile}}, Optional: new(true),
		}}})
	}
	for _, container := range containersOf(&pod.Spec) {
		for _, name := range []string{HTTPProxyKey, HTTPSProxyKey, NoProxyKey} {
			lower := strings.ToLower(name)
			if !n.Proxies || hasEnv(container, name) || hasEnv(container, lower) { // programs prefer one or the other
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

// trust mounts the certificates into the folder from which the image's run.sh adds them to the trusted certificates. It
// also sets the variable for Node.js programs, which do not use the system's trusted certificates.
func trust(container *corev1.Container) {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: caVolume, MountPath: caFolder, ReadOnly: true})
	setEnv(container, "NODE_EXTRA_CA_CERTS", corev1.EnvVar{Value: caFolder + "/" + caFile})
	if container.Name == v1alpha1.RunnerContainerName {
		setEnv(container, "RUNNER_UPDATE_CA_CERTS", corev1.EnvVar{Value: "1"})
	}
}

// hasOwnTrust reports whether a template mounts something at, above or below the path of the certificates. A mount
// point below a read-only mount cannot be created, and the container would not start (kubernetes/kubernetes#121294).
func hasOwnTrust(container *corev1.Container) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		own := path.Clean(m.MountPath) + "/"
		return m.Name != caVolume && (strings.HasPrefix(caFolder+"/", own) || strings.HasPrefix(own, caFolder+"/"))
	})
}

// OwnTrust describes the containers that do not get their connection's certificates; empty if all do.
func OwnTrust(pod *corev1.Pod) string {
	if isWindows(&pod.Spec) {
		return "the connection's certificates are not available in Windows containers: put them into the image"
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

// containersOf returns all containers of a pod.
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
