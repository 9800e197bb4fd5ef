// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec builds a runner's pod from a pool's template. It is pure.
package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// JITEnv is the environment variable a runner reads its JIT configuration from.
	JITEnv = "ACTIONS_RUNNER_INPUT_JITCONFIG"
	// JITKey is the key of the JIT configuration in a runner's Secret, as in ARC.
	JITKey = "jitToken"
	// RunnerIDKey is the key of the registration's id in a runner's Secret.
	RunnerIDKey = "runnerID"
	// jitSuffix ends the name of every runner's Secret, so that a template that names one is recognised.
	jitSuffix = "-jit"
	// revisionLength is how many hexadecimal digits of a template's hash name a revision.
	revisionLength = 10
)

// Runner is the identity a pod is built for.
type Runner struct {
	Namespace, Name, Pool, Revision string
	UID                             types.UID
	// ID of the registration on GitHub; 0 before there is one.
	ID int64
}

// BelongsTo says whether a pod is the Runner's, and not another's of the same name.
//
// A pod has no owner reference: a foreground deletion of the pool, as some GitOps
// tools do it, would reach through the Runner and end a pod whose job goes on. Its
// Runner deletes it, held by a finalizer until it did.
func BelongsTo(pod *corev1.Pod, r *v1alpha1.Runner) bool {
	return pod.Namespace == r.Namespace && pod.Annotations[v1alpha1.RunnerUIDAnnotation] == string(r.UID)
}

// SecretName returns the name of the Secret with a runner's JIT configuration.
func SecretName(runner string) string { return runner + jitSuffix }

// Hash identifies a template by its content; formatting and key order do not matter.
func Hash(template []byte) (string, error) {
	var content any
	if err := json.Unmarshal(template, &content); err != nil {
		return "", fmt.Errorf("decoding the template: %w", err)
	}
	canonical, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding the template: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])[:revisionLength], nil
}

// Build makes the pod of a runner. An error names the field of the template.
func Build(r Runner, template []byte) (*corev1.Pod, error) {
	t, err := decode(template)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(t.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.RunnerContainerName })
	if i < 0 {
		return nil, fmt.Errorf("spec.template.spec.containers: a container named %q is required", v1alpha1.RunnerContainerName)
	}
	container := &t.Spec.Containers[i]
	container.Env = append(slices.DeleteFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == JITEnv }), jitEnv(r.Name))
	switch t.Spec.RestartPolicy {
	case "", corev1.RestartPolicyNever:
		t.Spec.RestartPolicy = corev1.RestartPolicyNever
	default:
		return nil, fmt.Errorf("spec.template.spec.restartPolicy: must be Never, a runner takes one job; found %s", t.Spec.RestartPolicy)
	}
	if t.Spec.AutomountServiceAccountToken == nil {
		t.Spec.AutomountServiceAccountToken = new(bool)
	}
	annotations := with(t.Annotations, v1alpha1.RunnerUIDAnnotation, string(r.UID))
	if r.ID != 0 {
		annotations[v1alpha1.RunnerIDAnnotation] = strconv.FormatInt(r.ID, 10)
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Labels: Labels(r, t.Labels), Annotations: annotations},
		Spec:       t.Spec,
	}, nil
}

// Trim leaves of a pod what the controllers read, as a cache.TransformFunc: whose it is,
// its marks, and how its containers are. A pod of the API server's is twenty times that.
func Trim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: ours(pod.Labels), Annotations: ours(pod.Annotations),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message,
			Conditions: pod.Status.Conditions, ContainerStatuses: trimStatuses(pod.Status.ContainerStatuses),
		},
	}, nil
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, 0, len(statuses))
	for _, s := range statuses {
		trimmed = append(trimmed, corev1.ContainerStatus{Name: s.Name, State: s.State})
	}
	return trimmed
}

// ours leaves the labels or annotations that are Corral's.
func ours(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
	return kept
}

// RegistrationOf returns the id of the registration that a runner's pod was made for; 0
// if it isn't there.
func RegistrationOf(pod *corev1.Pod) int64 {
	id, err := strconv.ParseInt(pod.Annotations[v1alpha1.RunnerIDAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// Labels returns the labels of what belongs to a runner, over those given.
func Labels(r Runner, given map[string]string) map[string]string {
	labels := with(given, v1alpha1.PoolLabel, r.Pool)
	labels[v1alpha1.RunnerLabel] = r.Name
	labels[v1alpha1.RevisionLabel] = r.Revision
	return labels
}

func with(given map[string]string, key, value string) map[string]string {
	all := make(map[string]string, len(given)+1)
	maps.Copy(all, given)
	all[key] = value
	return all
}

func decode(template []byte) (*corev1.PodTemplateSpec, error) {
	t := &corev1.PodTemplateSpec{}
	content, faults, err := v1alpha1.Sift(template, reflect.TypeOf(t))
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	if template, err = json.Marshal(content); err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("spec.template.%s", strings.Join(faults, "\nspec.template."))
	}
	strict, err := kjson.UnmarshalStrict(template, t)
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	if len(strict) > 0 {
		return nil, fmt.Errorf("spec.template: %w", errors.Join(strict...))
	}
	return t, nil
}

func jitEnv(runner string) corev1.EnvVar {
	return corev1.EnvVar{Name: JITEnv, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: SecretName(runner)}, Key: JITKey,
	}}}
}

// CheckSecrets refuses a pod that references a Secret it must never see: one that
// holds credentials of ours (by name), or the JIT Secret of another runner.
func CheckSecrets(pod *corev1.Pod, credentials []string) error {
	own := SecretName(pod.Name)
	for _, ref := range secretRefs(&pod.Spec) {
		switch {
		case ref.name == own:
		case slices.Contains(credentials, ref.name):
			return fmt.Errorf("spec.template.%s: Secret %q holds the credentials of a GitHubConnection or a PoolSource; a runner may not read it", ref.path, ref.name)
		case strings.HasSuffix(ref.name, jitSuffix):
			return fmt.Errorf("spec.template.%s: Secret %q is named like a runner's registration (*%s); a runner may not read another's", ref.path, ref.name, jitSuffix)
		}
	}
	return nil
}

type secretRef struct{ path, name string }

// secretRefs lists every Secret a pod references by environment, volume,
// projection or image pull.
func secretRefs(spec *corev1.PodSpec) []secretRef {
	var refs []secretRef
	add := func(name, path string, args ...any) {
		if name != "" {
			refs = append(refs, secretRef{"spec." + fmt.Sprintf(path, args...), name})
		}
	}
	containers := func(list []corev1.Container, field string) {
		for i, c := range list {
			for j, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					add(e.ValueFrom.SecretKeyRef.Name, "%s[%d].env[%d]", field, i, j)
				}
			}
			for j, e := range c.EnvFrom {
				if e.SecretRef != nil {
					add(e.SecretRef.Name, "%s[%d].envFrom[%d]", field, i, j)
				}
			}
		}
	}
	containers(spec.Containers, "containers")
	containers(spec.InitContainers, "initContainers")
	for i, s := range spec.ImagePullSecrets {
		add(s.Name, "imagePullSecrets[%d]", i)
	}
	for i, v := range spec.Volumes {
		for _, name := range volumeSecrets(&v) {
			add(name, "volumes[%d]", i)
		}
	}
	return refs
}

// volumeSecrets lists the Secrets of one volume, whatever its kind.
func volumeSecrets(v *corev1.Volume) []string {
	var names []string
	if v.Secret != nil {
		names = append(names, v.Secret.SecretName)
	}
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				names = append(names, s.Secret.Name)
			}
		}
	}
	for _, ref := range driverSecrets(v) {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	if v.AzureFile != nil {
		names = append(names, v.AzureFile.SecretName)
	}
	return names
}

// driverSecrets lists the references of a volume's storage driver; unset ones are nil.
func driverSecrets(v *corev1.Volume) []*corev1.LocalObjectReference {
	switch {
	case v.CSI != nil:
		return []*corev1.LocalObjectReference{v.CSI.NodePublishSecretRef}
	case v.CephFS != nil:
		return []*corev1.LocalObjectReference{v.CephFS.SecretRef}
	case v.RBD != nil:
		return []*corev1.LocalObjectReference{v.RBD.SecretRef}
	case v.ISCSI != nil:
		return []*corev1.LocalObjectReference{v.ISCSI.SecretRef}
	case v.ScaleIO != nil:
		return []*corev1.LocalObjectReference{v.ScaleIO.SecretRef}
	case v.StorageOS != nil:
		return []*corev1.LocalObjectReference{v.StorageOS.SecretRef}
	case v.FlexVolume != nil:
		return []*corev1.LocalObjectReference{v.FlexVolume.SecretRef}
	case v.Cinder != nil:
		return []*corev1.LocalObjectReference{v.Cinder.SecretRef}
	}
	return nil
}
