// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec builds a runner's pod from a pool's template. It does no I/O.
package podspec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// JITEnv is the environment variable from which a runner reads its JIT configuration.
	JITEnv = "ACTIONS_RUNNER_INPUT_JITCONFIG"
	// ReturnOutdatedEnv makes the runner's image exit with code 7 if GitHub refuses its version; without it, the
	// image's run-helper.sh exits with 0.
	ReturnOutdatedEnv = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"
	// SafeToEvictAnnotation controls whether cluster-autoscaler may evict a pod to remove its node. Corral allows this
	// while the runner has no job.
	SafeToEvictAnnotation = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// DoNotDisruptAnnotation prevents Karpenter from evicting a pod.
	DoNotDisruptAnnotation = "karpenter.sh/do-not-disrupt"
	// JITKey is the key of the JIT configuration in a runner's Secret, as in ARC.
	JITKey = "jitToken"
	// RunnerIDKey is the key of the registration's id in a runner's Secret.
	RunnerIDKey = "runnerID"
	// jitSuffix is the suffix of the name of every runner's Secret, so that Corral can detect a template that
	// references one.
	jitSuffix = "-jit"
	// revisionLength is the number of hexadecimal digits of a template's digest in the name of a revision.
	revisionLength = 10
	// revisionNames is the maximum number of templates whose digests begin with the same digits and that can be stored at
	// once.
	revisionNames = 10
)

// Runner describes the runner for which a pod is built.
type Runner struct {
	Namespace, Name, Pool, Revision string
	// UID is the UID of the Runner. NamespaceUID is the UID of its namespace; if it is empty, the pod gets no owners.
	UID, NamespaceUID types.UID
	// ID of the registration on GitHub; 0 if there is none yet.
	ID int64
	// Network determines the proxy settings and certificates that the pod gets from the connection.
	Network Network
	// Self is the registration of a persistent runner; nil for a runner that runs one job.
	Self *SelfRegistration
	// Claim is the cache claim that the pod mounts if its template has a cache; empty for none.
	Claim string
}

// BelongsTo reports whether a pod belongs to the Runner, and not to another Runner with the same name.
//
// A pod has two owners. Its Runner is the controller, so that "kubectl drain" evicts it and GitOps tools display it.
// The second owner is its Namespace: a foreground deletion of the pool, which some of these tools use, would otherwise
// pass through the Runner and end a pod with an active job. With a second owner, the garbage collector only removes the
// first reference. The Runner's finalizer ensures that the controller deletes the pod.
func BelongsTo(pod *corev1.Pod, r *v1alpha1.Runner) bool {
	return pod.Namespace == r.Namespace && pod.Annotations[v1alpha1.RunnerUIDAnnotation] == string(r.UID)
}

// SecretName returns the name of a runner's Secret, which contains its JIT configuration or registration token.
func SecretName(runner string) string { return runner + jitSuffix }

// Digest returns the SHA-256 digest of a template's content, in hexadecimal digits. Formatting and key order do not
// matter.
func Digest(template []byte) (string, error) {
	var content any
	d := json.NewDecoder(bytes.NewReader(template))
	d.UseNumber() // two different large numbers may be the same float64
	if err := d.Decode(&content); err != nil {
		return "", fmt.Errorf("decoding the template: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("decoding the template: unexpected data after the JSON value")
	}
	canonical, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding the template: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// RevisionNames lists the names under which a template may be stored, in the order of preference. The first is short
// enough for a label. It is so short that a tenant could construct another template with the same name. The other names
// are for this case.
func RevisionNames(pool, digest string) []string {
	name := pool + "-" + digest[:min(len(digest), revisionLength)]
	names := []string{name}
	for i := 1; i < revisionNames && len(name)+2 <= validation.LabelValueMaxLength; i++ {
		names = append(names, name+"-"+strconv.Itoa(i))
	}
	return names
}

// Build builds the pod of a runner. An error names the field of the template.
func Build(r Runner, template []byte) (*corev1.Pod, error) {
	t, err := decode(template)
	if err != nil {
		return nil, err
	}
	i, err := runnerIndex(&t.Spec)
	if err != nil {
		return nil, err
	}
	if err := checkMetadata(t); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkRestarts(&t.Spec, i, r.Self != nil), checkVolumes(&t.Spec)); err != nil {
		return nil, err
	}
	hasClaim := mountCache(&t.Spec, i, r.Claim)
	container := &t.Spec.Containers[i]
	container.Env = slices.DeleteFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == JITEnv })
	if r.Self != nil {
		persist(&t.Spec, i, r)
		t.Annotations = idleAnnotations(t.Annotations)
	} else {
		container.Env = append(container.Env, secretEnv(JITEnv, r.Name, JITKey))
		t.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	setEnv(container, ReturnOutdatedEnv, corev1.EnvVar{Value: "1"})
	if container.TerminationMessagePolicy == "" {
		container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError // so that the last lines of its log survive the pod
	}
	if t.Spec.AutomountServiceAccountToken == nil {
		t.Spec.AutomountServiceAccountToken = new(bool)
	}
	annotations := with(t.Annotations, v1alpha1.RunnerUIDAnnotation, string(r.UID))
	if _, set := annotations[SafeToEvictAnnotation]; !set {
		annotations[SafeToEvictAnnotation] = "true"
	}
	if r.ID != 0 {
		annotations[v1alpha1.RunnerIDAnnotation] = strconv.FormatInt(r.ID, 10)
	}
	if hasClaim {
		annotations[v1alpha1.CacheClaimAnnotation] = r.Claim
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name, Labels: Labels(r, t.Labels), Annotations: annotations, OwnerReferences: owners(r),
		},
		Spec: t.Spec,
	}
	useNetwork(pod, r.Network)
	return pod, nil
}

// runnerIndex returns the index of the container that runs jobs.
func runnerIndex(spec *corev1.PodSpec) (int, error) {
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.RunnerContainerName })
	if i < 0 {
		return 0, fmt.Errorf("spec.template.spec.containers: a container named %q is required", v1alpha1.RunnerContainerName)
	}
	return i, nil
}

// owners returns the owners of a pod. BelongsTo explains them.
func owners(r Runner) []metav1.OwnerReference {
	if r.NamespaceUID == "" {
		return nil
	}
	return []metav1.OwnerReference{
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Runner", Name: r.Name, UID: r.UID, Controller: new(true)},
		{APIVersion: "v1", Kind: "Namespace", Name: r.Namespace, UID: r.NamespaceUID},
	}
}

// checkMetadata refuses labels and annotations with keys of Corral's domain, which identify Corral's own objects.
func checkMetadata(t *corev1.PodTemplateSpec) error {
	check := func(field string, of map[string]string) error {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			domain, _, ok := strings.Cut(key, "/")
			if ok && strings.HasSuffix("."+domain, "."+v1alpha1.GroupVersion.Group) {
				return fmt.Errorf("spec.template.metadata.%s[%s]: keys of %s are reserved for Corral", field, key, domain)
			}
		}
		return nil
	}
	return cmp.Or(check("labels", t.Labels), check("annotations", t.Annotations))
}

// checkRestarts refuses settings that would restart the container of a runner that takes one job, and applies
// checkPersistent to a persistent runner. For both, it refuses rules that restart all containers.
func checkRestarts(spec *corev1.PodSpec, runner int, persists bool) error {
	if persists {
		return cmp.Or(checkPersistent(spec, runner), checkRules("containers", spec.Containers), checkRules("initContainers", spec.InitContainers))
	}
	if p := spec.RestartPolicy; p != "" && p != corev1.RestartPolicyNever {
		return fmt.Errorf("spec.template.spec.restartPolicy: must be Never, because a runner takes only one job; found %s", p)
	}
	container := &spec.Containers[runner]
	if p := container.RestartPolicy; p != nil && *p != corev1.ContainerRestartPolicyNever {
		return fmt.Errorf("spec.template.spec.containers[%d].restartPolicy: must be Never, because a runner takes only one job; found %s", runner, *p)
	}
	if len(container.RestartPolicyRules) > 0 {
		return fmt.Errorf("spec.template.spec.containers[%d].restartPolicyRules: must not be set, because a runner takes only one job", runner)
	}
	return cmp.Or(checkRules("containers", spec.Containers), checkRules("initContainers", spec.InitContainers))
}

// checkVolumes refuses volumes with the names of Corral's own volumes.
func checkVolumes(spec *corev1.PodSpec) error {
	own := map[string]string{caVolume: "with the connection's certificates", registrationVolume: "that keeps a persistent runner's registration"}
	for i, v := range spec.Volumes {
		if what := own[v.Name]; what != "" {
			return fmt.Errorf("spec.template.spec.volumes[%d].name: %s is the volume %s; choose another name", i, v.Name, what)
		}
	}
	return checkClaims(spec)
}

// checkRules refuses rules that restart all containers.
func checkRules(field string, list []corev1.Container) error {
	for i, c := range list {
		for _, rule := range c.RestartPolicyRules {
			if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return fmt.Errorf("spec.template.spec.%s[%d].restartPolicyRules: must not restart all containers: Corral manages the runner's container", field, i)
			}
		}
	}
	return nil
}

// Trim is a cache.TransformFunc that reduces a pod to the parts that the controllers read, such as Corral's labels and
// annotations, and the state of its containers. A complete pod is twenty times as large.
func Trim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: ownKeys(pod.Labels), Annotations: ownKeys(pod.Annotations),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: memoryLimits(pod.Spec.Containers), Resources: pod.Spec.Resources},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: short(pod.Status.Reason), Message: short(pod.Status.Message),
			Conditions: trimConditions(pod.Status.Conditions), ContainerStatuses: trimStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses: trimStatuses(pod.Status.InitContainerStatuses),
		},
	}, nil
}

// maxMessage is the maximum size of a text in a pod's status in bytes. Kubelets have the same limit, but other writers
// may exceed it.
const maxMessage = 4 << 10

func short(text string) string { return wording.Truncate(text, maxMessage) }

// trimConditions keeps the conditions that the controllers read, and truncates their texts.
func trimConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var trimmed []corev1.PodCondition
	for _, c := range conditions {
		if c.Type == corev1.PodScheduled || c.Type == corev1.DisruptionTarget {
			c.Reason, c.Message = short(c.Reason), short(c.Message)
			trimmed = append(trimmed, c)
		}
	}
	return trimmed
}

// trimState truncates the texts of a container's state. It keeps the end of a message, because that may be the end of a
// log.
func trimState(state corev1.ContainerState) corev1.ContainerState {
	if w := state.Waiting; w != nil {
		state.Waiting = &corev1.ContainerStateWaiting{Reason: short(w.Reason), Message: short(w.Message)}
	}
	if t := state.Terminated; t != nil {
		bounded := *t
		bounded.Reason, bounded.ContainerID, bounded.Message = short(t.Reason), short(t.ContainerID), wording.TruncateStart(t.Message, maxMessage)
		state.Terminated = &bounded
	}
	return state
}

// memoryLimits keeps the runner's container with its memory limit. If the container runs out of memory, Corral uses the
// limit to find the cause: a container without a limit was killed because the node had too little memory.
func memoryLimits(containers []corev1.Container) []corev1.Container {
	for _, c := range containers {
		if c.Name != v1alpha1.RunnerContainerName {
			continue
		}
		kept := corev1.Container{Name: c.Name}
		if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
			kept.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: limit}
		}
		return []corev1.Container{kept}
	}
	return nil
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, 0, len(statuses))
	for _, s := range statuses {
		kept := corev1.ContainerStatus{Name: s.Name, State: trimState(s.State)}
		if s.Name == v1alpha1.RunnerContainerName {
			kept.LastTerminationState = trimState(s.LastTerminationState) // a persistent runner's container restarts
		}
		trimmed = append(trimmed, kept)
	}
	return trimmed
}

// ownKeys keeps Corral's labels or annotations.
func ownKeys(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
	return kept
}

// RegistrationOf returns the id of the registration for which a runner's pod was created; 0 if it is missing.
func RegistrationOf(pod *corev1.Pod) int64 {
	id, err := strconv.ParseInt(pod.Annotations[v1alpha1.RunnerIDAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// Labels returns the labels of a runner's objects, merged over the given labels.
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
	if err := checkSize(template); err != nil {
		return nil, err
	}
	if !v1alpha1.MayTakeLong(template) {
		if t, err := strictly(template); err == nil {
			return t, checkCounts(&t.Spec)
		}
	}
	content, faults, err := v1alpha1.Sift(template, reflect.TypeFor[corev1.PodTemplateSpec]())
	if err == nil {
		template, err = json.Marshal(content)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("spec.template.%s", strings.Join(faults, "\nspec.template."))
	}
	t, err := strictly(template)
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	return t, checkCounts(&t.Spec)
}

// strictly decodes a template and refuses unknown fields.
func strictly(template []byte) (*corev1.PodTemplateSpec, error) {
	t := &corev1.PodTemplateSpec{}
	strict, err := kjson.UnmarshalStrict(template, t)
	return t, errors.Join(append(strict, err)...)
}

// secretEnv returns a variable from a runner's Secret.
func secretEnv(name, runner, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: SecretName(runner)}, Key: key,
	}}}
}

// FieldError is an error in one field of a pool.
type FieldError struct {
	// Path of the field, such as spec.template.spec.volumes[0].
	Path string
	// Problem describes the error.
	Problem string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Problem }

// CheckSecrets refuses a pod that references a Secret that it must never see, with a *FieldError: a Secret with
// Corral's credentials (given by name), or the JIT Secret of another runner.
func CheckSecrets(pod *corev1.Pod, credentials []string) error {
	own := SecretName(pod.Name)
	for _, ref := range secretRefs(&pod.Spec) {
		switch {
		case ref.name == own:
		case slices.Contains(credentials, ref.name):
			return &FieldError{"spec.template." + ref.path, fmt.Sprintf("Secret %q holds the credentials of a GitHubConnection or a PoolSource; a runner may not read it", ref.name)}
		case strings.HasSuffix(ref.name, jitSuffix):
			return &FieldError{"spec.template." + ref.path, fmt.Sprintf("Secret %q has a name that is reserved for runners' registrations (*%s): a runner may not read another runner's registration", ref.name, jitSuffix)}
		}
	}
	return nil
}

type secretRef struct{ path, name string }

// secretRefs lists every Secret that a pod references by environment, volume, projection or image pull.
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

// volumeSecrets lists the Secrets that one volume references.
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
	if ref := driverSecret(v); ref != nil {
		names = append(names, ref.Name)
	}
	if v.AzureFile != nil {
		names = append(names, v.AzureFile.SecretName)
	}
	return append(names, optionSecrets(v)...)
}

// optionSecrets lists the values of a volume's driver-specific options whose key contains "secret".
func optionSecrets(v *corev1.Volume) []string {
	var options map[string]string
	switch {
	case v.CSI != nil:
		options = v.CSI.VolumeAttributes
	case v.FlexVolume != nil:
		options = v.FlexVolume.Options
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if strings.Contains(strings.ToLower(key), "secret") {
			names = append(names, options[key])
		}
	}
	return names
}

// driverSecret returns the Secret reference of a volume's storage driver; nil if it has none.
func driverSecret(v *corev1.Volume) *corev1.LocalObjectReference {
	switch {
	case v.CSI != nil:
		return v.CSI.NodePublishSecretRef
	case v.CephFS != nil:
		return v.CephFS.SecretRef
	case v.RBD != nil:
		return v.RBD.SecretRef
	case v.ISCSI != nil:
		return v.ISCSI.SecretRef
	case v.ScaleIO != nil:
		return v.ScaleIO.SecretRef
	case v.StorageOS != nil:
		return v.StorageOS.SecretRef
	case v.FlexVolume != nil:
		return v.FlexVolume.SecretRef
	case v.Cinder != nil:
		return v.Cinder.SecretRef
	}
	return nil
}
