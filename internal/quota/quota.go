// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota says whether a pool's pods fit the quotas and ranges of a namespace. It is pure.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// Problem is what the API server would refuse.
type Problem struct {
	// Field of the pool that it is about, as .spec.scale.max.
	Field   string
	Message string
}

// Check says what keeps most pods of a pool from being in a namespace at once, if nothing else is there. Most is below 0 if it has no bound.
func Check(pod *corev1.Pod, most int32, quotas []corev1.ResourceQuota, ranges []corev1.LimitRange) []Problem {
	pod = pod.DeepCopy()
	setDefaults(&pod.Spec, ranges)
	var problems []Problem
	for i := range ranges {
		for _, limit := range ranges[i].Spec.Limits {
			for _, message := range outOfRange(pod, limit) {
				problems = append(problems, Problem{".spec.template", fmt.Sprintf("LimitRange %s: %s", ranges[i].Name, message)})
			}
		}
	}
	for i := range quotas {
		if q := &quotas[i]; covers(q, pod) {
			problems = append(problems, beyond(q, pod, most)...)
		}
	}
	return problems
}

// Requests of a pod, as the scheduler counts them: what a container doesn't request is its limit.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	pod = pod.DeepCopy()
	setDefaults(&pod.Spec, nil)
	return helpers.PodRequests(pod, helpers.PodResourcesOptions{})
}

// setDefaults adds what the API server does: a request is the limit, and LimitRanges have defaults.
func setDefaults(spec *corev1.PodSpec, ranges []corev1.LimitRange) {
	for _, c := range containers(spec) {
		missing(&c.Resources.Requests, c.Resources.Limits)
		for i := range ranges {
			for _, limit := range ranges[i].Spec.Limits {
				if limit.Type == corev1.LimitTypeContainer {
					missing(&c.Resources.Limits, limit.Default)
					missing(&c.Resources.Requests, limit.DefaultRequest)
				}
			}
		}
	}
}

func missing(list *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, set := (*list)[name]; !set {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = quantity
		}
	}
}

func containers(spec *corev1.PodSpec) []*corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// outOfRange says what of a pod a LimitRange's item refuses.
func outOfRange(pod *corev1.Pod, limit corev1.LimitRangeItem) []string {
	var messages []string
	check := func(what string, requests, limits corev1.ResourceList) {
		for _, name := range sorted(limit.Min) {
			least := limit.Min[name]
			if q, set := requests[name]; !set {
				messages = append(messages, fmt.Sprintf("%s must request at least %s of %s", what, least.String(), name))
			} else if q.Cmp(least) < 0 {
				messages = append(messages, fmt.Sprintf("%s requests %s of %s, at least %s is asked for", what, q.String(), name, least.String()))
			}
		}
		for _, name := range sorted(limit.Max) {
			most := limit.Max[name]
			if q, set := limits[name]; !set {
				messages = append(messages, fmt.Sprintf("%s must have a limit of %s, at most %s", what, name, most.String()))
			} else if q.Cmp(most) > 0 {
				messages = append(messages, fmt.Sprintf("%s has a limit of %s of %s, at most %s is allowed", what, q.String(), name, most.String()))
			}
		}
	}
	switch limit.Type {
	case corev1.LimitTypeContainer:
		for _, c := range containers(&pod.Spec) {
			check("container "+c.Name, c.Resources.Requests, c.Resources.Limits)
		}
	case corev1.LimitTypePod:
		check("the pod", helpers.PodRequests(pod, helpers.PodResourcesOptions{}), helpers.PodLimits(pod, helpers.PodResourcesOptions{}))
	}
	return messages
}

// beyond says what a quota refuses of so many pods.
func beyond(q *corev1.ResourceQuota, pod *corev1.Pod, most int32) []Problem {
	one := usage(pod)
	var problems []Problem
	for _, name := range sorted(q.Spec.Hard) {
		hard := q.Spec.Hard[name]
		for _, c := range unset(pod, name) {
			problems = append(problems, Problem{".spec.template", fmt.Sprintf("ResourceQuota %s wants %s of every container, and container %s has none", q.Name, name, c)})
		}
		each, counted := one[name]
		if !counted || each.IsZero() || most < 0 {
			continue
		}
		all := each.DeepCopy()
		all.Mul(int64(most))
		if all.Cmp(hard) > 0 {
			fit := int64(hard.AsApproximateFloat64()/each.AsApproximateFloat64() + 1e-9)
			problems = append(problems, Problem{".spec.scale.max", fmt.Sprintf("%d runners need %s of %s, and ResourceQuota %s has %s: at most %d fit",
				most, all.String(), name, q.Name, hard.String(), fit)})
		}
	}
	return problems
}

// usage is what one runner takes of a quota, by the names that quotas have: https://kubernetes.io/docs/concepts/policy/resource-quotas/
func usage(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one, corev1.ResourceSecrets: one, "count/secrets": one}
	for name, q := range helpers.PodRequests(pod, helpers.PodResourcesOptions{}) {
		used[corev1.ResourceName("requests."+string(name))] = q
		if !strings.Contains(string(name), "/") {
			used[name] = q
		}
	}
	for name, q := range helpers.PodLimits(pod, helpers.PodResourcesOptions{}) {
		used[corev1.ResourceName("limits."+string(name))] = q
	}
	claims, storage := resource.NewQuantity(0, resource.DecimalSI), resource.NewQuantity(0, resource.BinarySI)
	for _, v := range pod.Spec.Volumes {
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			claims.Add(one)
			storage.Add(v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests[corev1.ResourceStorage])
		}
	}
	used[corev1.ResourcePersistentVolumeClaims], used["count/persistentvolumeclaims"], used[corev1.ResourceRequestsStorage] = *claims, *claims, *storage
	return used
}

// unset names the containers that lack what a quota on CPU or memory makes mandatory.
func unset(pod *corev1.Pod, quota corev1.ResourceName) []string {
	kind, name, dotted := strings.Cut(string(quota), ".")
	if !dotted {
		kind, name = "requests", string(quota)
	}
	if name != string(corev1.ResourceCPU) && name != string(corev1.ResourceMemory) {
		return nil
	}
	var names []string
	for _, c := range containers(&pod.Spec) {
		list := c.Resources.Requests
		if kind == "limits" {
			list = c.Resources.Limits
		}
		if _, set := list[corev1.ResourceName(name)]; !set {
			names = append(names, c.Name)
		}
	}
	return names
}

// covers says whether a quota counts a pod: https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
func covers(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, scope := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return !slices.ContainsFunc(all, func(wanted corev1.ScopedResourceSelectorRequirement) bool { return !inScope(wanted, pod) })
}

func inScope(wanted corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	isBestEffort := !slices.ContainsFunc(containers(&pod.Spec), func(c *corev1.Container) bool { return len(c.Resources.Requests)+len(c.Resources.Limits) > 0 })
	class := pod.Spec.PriorityClassName
	switch wanted.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		switch wanted.Operator {
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(wanted.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(wanted.Values, class)
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == ""
		}
		return class != ""
	}
	return false // one that isn't known here: nothing is claimed
}

func sorted(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}
