// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/clientgates"
)

func init() {
	capabilities.Setup(true, 0) // as on servers that allow privileged pods
	clientgates.Restore()
}

// checkSize returns errors if a pool's spec is too large, or if the pool has too many labels or annotations. The
// controller has the same limits. The chart's ValidatingAdmissionPolicy limits the size of the spec.
func checkSize(pool *unstructured.Unstructured) (errs field.ErrorList) {
	refuse := func(name string, err error) {
		errs = append(errs, field.Invalid(field.NewPath(name), field.OmitValueType{}, err.Error()))
	}
	text, err := json.Marshal(pool.Object["spec"])
	if err == nil {
		err = v1alpha1.CheckPoolSize(len(text))
	}
	if err != nil {
		refuse("spec", err)
	}
	if err := v1alpha1.CheckPoolMetadata(len(pool.GetLabels()), len(pool.GetAnnotations())); err != nil {
		refuse("metadata", err)
	}
	return errs
}

// CheckPod returns the reasons why an API server would refuse to create a pod. It applies the defaults and the
// validation of Kubernetes itself, with the feature gates that are on by default in the newest release that Corral
// supports.
func CheckPod(declared *corev1.Pod) field.ErrorList {
	given, pod := declared.DeepCopy(), &core.Pod{}
	given.Namespace = cmp.Or(given.Namespace, metav1.NamespaceDefault)
	given.Spec.ServiceAccountName = cmp.Or(given.Spec.ServiceAccountName, given.Spec.DeprecatedServiceAccount, "default") // like the admission plugin ServiceAccount
	defaults.SetObjectDefaults_Pod(given)
	if err := defaults.Convert_v1_Pod_To_core_Pod(given, pod, nil); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())}
	}
	podutil.DropDisabledPodFields(pod, nil)
	mergeLabelKeys(pod)
	podutil.DefaultPodLevelResources(pod)
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
	options.ResourceIsPod = true
	errs := validation.ValidatePodCreate(pod, options)
	if len(errs) == 0 && len(pod.Spec.Overhead) > 0 && pod.Spec.RuntimeClassName == nil { // like the admission plugin RuntimeClass
		errs = append(errs, field.Forbidden(field.NewPath("spec", "overhead"), "must not be set without runtimeClassName, whose RuntimeClass declares it"))
	}
	return sorted(errs)
}

// mergeLabelKeys adds the labels that matchLabelKeys and mismatchLabelKeys name to selectors. An API server does the same
// before validation.
func mergeLabelKeys(pod *core.Pod) {
	merge := func(selector *metav1.LabelSelector, operator metav1.LabelSelectorOperator, keys []string) {
		for _, key := range keys {
			if value, ok := pod.Labels[key]; ok && selector != nil {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		merge(c.LabelSelector, metav1.LabelSelectorOpIn, c.MatchLabelKeys)
	}
	for _, term := range affinityTerms(pod.Spec.Affinity) {
		merge(term.LabelSelector, metav1.LabelSelectorOpIn, term.MatchLabelKeys)
		merge(term.LabelSelector, metav1.LabelSelectorOpNotIn, term.MismatchLabelKeys)
	}
}

// affinityTerms returns the terms of pod affinity and anti-affinity.
func affinityTerms(affinity *core.Affinity) []core.PodAffinityTerm {
	if affinity == nil {
		return nil
	}
	near, far := cmp.Or(affinity.PodAffinity, &core.PodAffinity{}), cmp.Or(affinity.PodAntiAffinity, &core.PodAntiAffinity{})
	terms := slices.Concat(near.RequiredDuringSchedulingIgnoredDuringExecution, far.RequiredDuringSchedulingIgnoredDuringExecution)
	for _, preferred := range slices.Concat(near.PreferredDuringSchedulingIgnoredDuringExecution, far.PreferredDuringSchedulingIgnoredDuringExecution) {
		terms = append(terms, preferred.PodAffinityTerm)
	}
	return terms
}

func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	return errs
}
