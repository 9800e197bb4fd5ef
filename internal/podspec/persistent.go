// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// TokenEnv is the environment variable from which config.sh reads its registration token.
	TokenEnv = "ACTIONS_RUNNER_INPUT_TOKEN"
	// RegistrationTokenKey is the key of the registration token in a persistent runner's Secret.
	RegistrationTokenKey = "registrationToken"
	// registrationVolume and registrationFolder are the volume and the folder in which a persistent runner's
	// registration survives restarts of its container.
	registrationVolume, registrationFolder = "corral-registration", "/opt/corral/registration"
	// specimenOwner is the owner's label in a specimen. In real pods it differs between runners.
	specimenOwner = "corral-owner-00000000"
	// specimenURL is the registration URL in a specimen, because a pool alone does not determine it.
	specimenURL = "https://github.com/acme"
	// idlePrefix is the prefix of annotations that save the template's eviction settings while the runner has a job.
	idlePrefix = "corral.dev/idle-"
)

// registerScript registers a persistent runner once and then runs it.
//
//go:embed persistent.sh
var registerScript string

// SelfRegistration contains the data with which a persistent runner registers itself.
type SelfRegistration struct {
	// URL is the URL at which the runner registers, and Group its runner group on GitHub.
	URL, Group string
	Labels     []string
}

// RegistrationFor returns the registration of a persistent runner; nil for a runner that takes one job.
func RegistrationFor(r *v1alpha1.Runner) *SelfRegistration {
	if !r.Persists() {
		return nil
	}
	return &SelfRegistration{URL: r.Spec.REST.URL, Group: r.Spec.REST.RunnerGroup, Labels: r.Spec.REST.Labels}
}

// RegistrationOfSpecimen returns the registration in a specimen of a pool's runners; nil if they take one job.
func RegistrationOfSpecimen(p *v1alpha1.RunnerPool) *SelfRegistration {
	if !p.Spec.Persists() {
		return nil
	}
	return &SelfRegistration{URL: specimenURL, Group: p.Spec.GetRunnerGroup(), Labels: append(p.GetRegisteredLabels(), specimenOwner)}
}

// persist makes the runner's container register the runner, and restart whenever it exits. If the template sets a
// command, that command must register the runner.
func persist(spec *corev1.PodSpec, runner int, r Runner) {
	spec.RestartPolicy = corev1.RestartPolicyAlways
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: registrationVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	container := &spec.Containers[runner]
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: registrationVolume, MountPath: registrationFolder})
	container.Env = append(slices.DeleteFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == TokenEnv }),
		secretEnv(TokenEnv, r.Name, RegistrationTokenKey))
	if len(container.Command) == 0 {
		container.Command = []string{"/bin/bash", "-c", registerScript, "corral"}
		container.Args = r.Self.arguments(r.Name)
	}
}

// arguments returns the arguments of config.sh.
func (s *SelfRegistration) arguments(name string) []string {
	args := []string{"--url", s.URL, "--name", name, "--labels", strings.Join(s.Labels, ",")}
	if !strings.EqualFold(s.Group, v1alpha1.DefaultRunnerGroup) { // GitHub may use another name for it
		args = append(args, "--runnergroup", s.Group)
	}
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "$(", "$$(") // Kubernetes would expand a variable there
	}
	return args
}

// checkPersistent refuses settings that would prevent a persistent runner from registering, or its container from
// restarting.
func checkPersistent(spec *corev1.PodSpec, runner int) error {
	container := &spec.Containers[runner]
	field := fmt.Sprintf("spec.template.spec.containers[%d]", runner)
	command := slices.Concat(container.Command, container.Args)
	switch p := cmp.Or(spec.RestartPolicy, corev1.RestartPolicyAlways); {
	case p != corev1.RestartPolicyAlways:
		return fmt.Errorf("spec.template.spec.restartPolicy: must be Always, because a persistent runner starts again; found %s", p)
	case container.RestartPolicy != nil && *container.RestartPolicy != corev1.ContainerRestartPolicyAlways:
		return fmt.Errorf("%s.restartPolicy: must be Always, because a persistent runner starts again; found %s", field, *container.RestartPolicy)
	case len(container.RestartPolicyRules) > 0:
		return fmt.Errorf("%s.restartPolicyRules: must not be set, because a persistent runner always starts again", field)
	case len(container.Command) == 0 && isWindows(spec):
		return fmt.Errorf("%s.command: must be set with os.name windows: one that registers a persistent runner and runs it", field)
	case len(container.Command) == 0 && len(container.Args) > 0:
		return fmt.Errorf("%s.args: leave them out: a persistent runner registers before it runs; or set a command that does both", field)
	case len(command) == 1 && path.Base(command[0]) == "run.sh":
		return fmt.Errorf("%s.command: leave it out: a persistent runner registers before it runs run.sh", field)
	}
	return nil
}

// idleAnnotations saves the template's eviction annotations under other keys, because Corral replaces them while the
// runner has a job.
func idleAnnotations(annotations map[string]string) map[string]string {
	for _, key := range []string{SafeToEvictAnnotation, DoNotDisruptAnnotation} {
		if value, set := annotations[key]; set {
			annotations = with(annotations, idlePrefix+path.Base(key), value)
		}
	}
	return annotations
}

// IdleAnnotations returns a pod's eviction annotations while its runner has no job; a nil value means that the
// annotation is absent.
func IdleAnnotations(pod *corev1.Pod) map[string]any {
	idle := map[string]any{SafeToEvictAnnotation: "true", DoNotDisruptAnnotation: nil}
	for key := range idle {
		if value, set := pod.Annotations[idlePrefix+path.Base(key)]; set {
			idle[key] = value
		}
	}
	return idle
}
