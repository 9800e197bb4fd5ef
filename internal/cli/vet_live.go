// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/quota"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/rollout"
)

// quotaWarnings warns about pools whose pods exceed the quotas and limit ranges of their namespace in the cluster. It also
// warns about namespaces whose quotas it may not read.
func (w *workspace) quotaWarnings(ctx context.Context, c client.Reader, own string) (warnings []report.Finding, _ error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pools, fleets := map[string][]*declaredPool{}, map[string][]quota.Fleet{}
	for i := range w.pools {
		p := &w.pools[i]
		pod, err := podspec.Specimen(p.RunnerPool)
		if err != nil || p.Spec.GetMode() == v1alpha1.Observe {
			continue // another check reports an invalid template, and a pool that only observes has no pods
		}
		namespace := cmp.Or(p.Namespace, own)
		pools[namespace], fleets[namespace] = append(pools[namespace], p), append(fleets[namespace], p.fleet(pod))
	}
	for _, namespace := range slices.Sorted(maps.Keys(pools)) {
		quotas, ranges := &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}
		err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
		if !apierrors.IsNotFound(err) { // users who may not read the namespace may still list the quotas in it
			err = cmp.Or(c.List(ctx, quotas, client.InNamespace(namespace)), c.List(ctx, ranges, client.InNamespace(namespace)))
		}
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			warnings = append(warnings, pools[namespace][0].warning(ruleQuota, "Namespace not read", ".metadata.namespace", "the quotas of namespace "+namespace+" can't be read: "+err.Error()))
		case err != nil:
			return nil, fmt.Errorf("reading the quotas and limits of namespace %s: %w", namespace, err)
		}
		for _, x := range quota.Check(fleets[namespace], quotas.Items, ranges.Items) {
			warnings = append(warnings, pools[namespace][x.Fleet].warning(ruleQuota, "Pods don't fit the namespace", x.Field, "namespace "+namespace+": "+x.Message))
		}
	}
	return warnings, nil
}

// fleet returns the maximum number of pods of a pool, according to its max, the max of its schedules and its maxSurge. A
// negative number means that there is no maximum.
func (p *declaredPool) fleet(pod *corev1.Pod) quota.Fleet {
	f := quota.Fleet{Pod: pod, Most: -1}
	if p.Spec.Scale.Max == nil {
		return f
	}
	f.Most, f.Says = *p.Spec.Scale.Max, ".spec.scale.max"
	for i, s := range p.Spec.Scale.Schedules {
		if s.Scale.Max != nil && *s.Scale.Max > f.Most {
			f.Most, f.Says = *s.Scale.Max, fmt.Sprintf(".spec.scale.schedules[%d].scale.max", i)
		}
	}
	bounds := rollout.Declared(p.Spec.Update, f.Most)
	if bounds.Strategy == v1alpha1.RollingUpdate {
		f.Surge = bounds.MaxSurge
	}
	return f
}
