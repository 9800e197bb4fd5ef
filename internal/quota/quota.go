// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package quota checks whether the pods of pools fit the ResourceQuotas and LimitRanges of a namespace. It is pure.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
	"k8s.io/utils/ptr"
)

// Fleet describes the pods of a pool.
type Fleet struct {
	Pod *corev1.Pod
	// Most is the maximum number of pods. Surge is how many more pods there may be during an update. A negative Most means
	// that the number is not limited.
	Most, Surge int32
	Says        string
}

// Problem is a reason for which the API server would refuse to create pods.
type Problem struct {
	// Fleet is the index of the affected fleet.
	Fleet int
	// Field is the field of the pool to change, such as .spec.scale.max.
	Field   string
	Message string
}

// Check returns the reasons why the pods of the pools cannot run in a namespace: LimitRanges refuse a pod, or a
// ResourceQuota is too small for the maximum number of pods of one pool or of all pools. It assumes that the namespace
// contains nothing else.
func Check(fleets []Fleet, quotas []corev1.ResourceQuota, ranges []corev1.LimitRange) []Problem {
	var problems []Problem
	totals := make([]corev1.ResourceList, len(quotas))
	for i, f := range fleets {
		report := func(field, format string, args ...any) {
			problems = append(problems, Problem{i, field, fmt.Sprintf(format, args...)})
		}
		f.Pod = f.Pod.DeepCopy()
		setDefaults(f.Pod, ranges)
		for _, r := range ranges {
			for _, limit := range r.Spec.Limits {
				for _, message := range outOfRange(f.Pod, limit) {
					report(".spec.template", "LimitRange %s: %s", r.Name, message)
				}
			}
		}
		for j := range quotas {
			if covers(&quotas[j], f.Pod) {
				totals[j] = beyond(&quotas[j], f, totals[j], report)
			}
		}
	}
	return problems
}

// Requests returns the requests of a pod as the scheduler counts them. A container's limit replaces a missing request.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	pod = pod.DeepCopy()
	setDefaults(pod, nil)
	return helpers.PodRequests(pod, helpers.PodResourcesOptions{})
}

// setDefaults sets the defaults that the API server sets. The missing request of a container defaults to its limit. If
// the pod as a whole has limits, its missing requests default to the sum over its containers, or to its limits. Other
// missing values of a container default to the values of LimitRanges.
func setDefaults(pod *corev1.Pod, ranges []corev1.LimitRange) {
	all := containers(pod)
	for _, c := range all {
		missing(&c.Resources.Requests, c.Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil && len(r.Limits) > 0 {
		missing(&r.Requests, helpers.AggregateContainerRequests(pod, helpers.PodResourcesOptions{}))
		missing(&r.Requests, r.Limits)
	}
	for _, r := range ranges {
		for _, limit := range r.Spec.Limits {
			for _, c := range all {
				if limit.Type == corev1.LimitTypeContainer {
					missing(&c.Resources.Limits, limit.Default)
					missing(&c.Resources.Requests, limit.DefaultRequest)
				}
			}
		}
	}
}

// missing adds those entries of from to list that list does not contain.
func missing(list *corev1.ResourceList, from corev1.ResourceList) {
	all := corev1.ResourceList{}
	maps.Copy(all, from)
	maps.Copy(all, *list)
	*list = all
}

func containers(pod *corev1.Pod) (all []*corev1.Container) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// outOfRange returns a message for each reason why an item of a LimitRange refuses a pod.
func outOfRange(pod *corev1.Pod, limit corev1.LimitRangeItem) (messages []string) {
	switch limit.Type {
	case corev1.LimitTypeContainer:
		for _, c := range containers(pod) {
			messages = append(messages, refused(limit, "container "+c.Name, c.Resources.Requests, c.Resources.Limits)...)
		}
	case corev1.LimitTypePod:
		messages = append(messages, refused(limit, "the pod", helpers.PodRequests(pod, helpers.PodResourcesOptions{}), helpers.PodLimits(pod, helpers.PodResourcesOptions{}))...)
	case corev1.LimitTypePersistentVolumeClaim:
		for _, v := range pod.Spec.Volumes {
			if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
				requests := v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests // compared with both bounds
				messages = append(messages, refused(limit, "volume "+v.Name, requests, requests)...)
			}
		}
	}
	return messages
}

func refused(limit corev1.LimitRangeItem, what string, requests, limits corev1.ResourceList) (messages []string) {
	for _, name := range sorted(limit.Min) {
		if q, least := requests[name], limit.Min[name]; q.Cmp(least) < 0 {
			messages = append(messages, fmt.Sprintf("%s requests %s of %s, at least %s is asked for", what, &q, name, &least))
		}
	}
	for _, name := range sorted(limit.Max) {
		most := limit.Max[name]
		if q, set := limits[name]; !set {
			messages = append(messages, fmt.Sprintf("%s must have a limit of %s, at most %s", what, name, &most))
		} else if q.Cmp(most) > 0 {
			messages = append(messages, fmt.Sprintf("%s has a limit of %s of %s, at most %s is allowed", what, &q, name, &most))
		}
	}
	for _, name := range sorted(limit.Default) {
		if q, most := requests[name], limits[name]; q.Cmp(most) > 0 {
			messages = append(messages, fmt.Sprintf("%s requests %s of %s, more than its limit of %s, which may be the default", what, &q, name, &most))
		}
	}
	for _, name := range sorted(limit.MaxLimitRequestRatio) {
		ratio, q, most := limit.MaxLimitRequestRatio[name], requests[name], limits[name]
		if q.IsZero() || most.IsZero() || most.AsApproximateFloat64()/q.AsApproximateFloat64() > ratio.AsApproximateFloat64() {
			messages = append(messages, fmt.Sprintf("%s requests %s of %s with a limit of %s: it must have both, and the limit be at most %s times the request", what, &q, name, &most, &ratio))
		}
	}
	return messages
}

// beyond reports which pods a quota refuses: pods of this pool, or pods of this and the previous pools together. before
// is the total of the previous pools; beyond returns the total including this pool.
func beyond(q *corev1.ResourceQuota, f Fleet, before corev1.ResourceList, report func(field, format string, args ...any)) corev1.ResourceList {
	one, total := usage(f.Pod), corev1.ResourceList{}
	for _, name := range sorted(q.Spec.Hard) {
		hard, each, others := q.Spec.Hard[name], one[name], before[name]
		for _, c := range unset(f.Pod, name) {
			report(".spec.template", "ResourceQuota %s wants %s of every container, and container %s has none", q.Name, name, c)
		}
		all, surged, sum := each.DeepCopy(), each.DeepCopy(), others.DeepCopy()
		all.Mul(int64(max(0, f.Most)))
		surged.Mul(int64(max(0, f.Most)) + int64(f.Surge))
		sum.Add(all)
		total[name] = sum
		has, fit := fmt.Sprintf("of %s, and ResourceQuota %s has %s", name, q.Name, &hard), int64(hard.AsApproximateFloat64()/each.AsApproximateFloat64()+1e-9)
		switch {
		case all.Cmp(hard) > 0:
			report(f.Says, "%d runners need %s %s: at most %d fit", f.Most, &all, has, fit)
		case sum.Cmp(hard) > 0 && others.Cmp(hard) <= 0:
			report(f.Says, "%d runners, with those of other pools here, need %s %s", f.Most, &sum, has)
		case surged.Cmp(hard) > 0:
			report(".spec.update.maxSurge", "%d runners, and %d more during an update, need %s %s: at most %d fit", f.Most, f.Surge, &surged, has, fit)
		}
	}
	return total
}

// usage returns the resources that one runner takes from a quota, by their names in quotas:
// https://kubernetes.io/docs/concepts/policy/resource-quotas/
func usage(pod *corev1.Pod) corev1.ResourceList {
	used, one := corev1.ResourceList{}, *resource.NewQuantity(1, resource.DecimalSI)
	add := func(q resource.Quantity, names ...corev1.ResourceName) {
		for _, name := range names {
			sum := used[name].DeepCopy()
			sum.Add(q)
			used[name] = sum
		}
	}
	add(one, corev1.ResourcePods, "count/pods", corev1.ResourceSecrets, "count/secrets", "count/runners.corral.dev")
	for name, q := range helpers.PodRequests(pod, helpers.PodResourcesOptions{}) {
		add(q, "requests."+name)
		if !strings.Contains(string(name), "/") {
			add(q, name)
		}
	}
	for name, q := range helpers.PodLimits(pod, helpers.PodResourcesOptions{}) {
		add(q, "limits."+name)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			claim := v.Ephemeral.VolumeClaimTemplate.Spec
			class := corev1.ResourceName(ptr.Deref(claim.StorageClassName, "") + ".storageclass.storage.k8s.io/")
			add(one, corev1.ResourcePersistentVolumeClaims, "count/persistentvolumeclaims", class+corev1.ResourcePersistentVolumeClaims)
			add(claim.Resources.Requests[corev1.ResourceStorage], corev1.ResourceRequestsStorage, class+corev1.ResourceRequestsStorage)
		}
	}
	return used
}

// unset returns the names of the containers without a request or limit that a quota on CPU or memory makes mandatory.
// It returns none if the pod as a whole has resources.
func unset(pod *corev1.Pod, quota corev1.ResourceName) []string {
	of, isLimit := strings.CutPrefix(string(quota), "limits.")
	name := corev1.ResourceName(strings.TrimPrefix(of, "requests."))
	if name != corev1.ResourceCPU && name != corev1.ResourceMemory || helpers.IsPodLevelResourcesSet(pod) {
		return nil
	}
	var names []string
	for _, c := range containers(pod) {
		_, requested := c.Resources.Requests[name]
		_, limited := c.Resources.Limits[name]
		if isLimit && !limited || !isLimit && !requested {
			names = append(names, c.Name)
		}
	}
	return names
}

// covers reports whether a quota counts a pod: https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
// It evaluates scopes like a label selector. A quota with an unknown scope covers no pod.
func covers(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	bestEffort, ends, class, in := qos.ComputePodQOS(pod) == corev1.PodQOSBestEffort, pod.Spec.ActiveDeadlineSeconds != nil, pod.Spec.PriorityClassName, labels.Set{}
	for scope, is := range map[corev1.ResourceQuotaScope]bool{
		corev1.ResourceQuotaScopeTerminating: ends, corev1.ResourceQuotaScopeNotTerminating: !ends,
		corev1.ResourceQuotaScopeBestEffort: bestEffort, corev1.ResourceQuotaScopeNotBestEffort: !bestEffort, corev1.ResourceQuotaScopePriorityClass: class != "",
	} {
		if is {
			in[string(scope)] = class
		}
	}
	wanted := ptr.Deref(q.Spec.ScopeSelector, corev1.ScopeSelector{}).MatchExpressions
	for _, scope := range q.Spec.Scopes {
		wanted = append(wanted, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	return !slices.ContainsFunc(wanted, func(w corev1.ScopedResourceSelectorRequirement) bool {
		s, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: string(w.ScopeName), Operator: metav1.LabelSelectorOperator(w.Operator), Values: w.Values}}})
		return err != nil || !s.Matches(in)
	})
}

func sorted(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }
