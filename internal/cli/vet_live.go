// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/quota"
	"github.com/corral-dev/corral/internal/report"
)

// room is what namespaces of the cluster leave to pods.
type room struct {
	quotas []corev1.ResourceQuota
	ranges []corev1.LimitRange
}

// unfitting warns of pools that don't fit the quotas and ranges of their namespaces, as the cluster has them.
func (w *workspace) unfitting(ctx context.Context, o *clusterOptions) ([]report.Finding, error) {
	c, own, err := o.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rooms := map[string]room{}
	var warnings []report.Finding
	for i := range w.pools {
		p := &w.pools[i]
		namespace := cmp.Or(p.Namespace, own)
		at, known := rooms[namespace]
		if !known {
			if at, err = roomOf(ctx, c, namespace); err != nil {
				return nil, err
			}
			rooms[namespace] = at
		}
		pod, err := podspec.Specimen(p.RunnerPool)
		if err != nil {
			continue // it is told elsewhere
		}
		for _, problem := range quota.Check(pod, ptr.Deref(p.Spec.Scale.Max, -1), at.quotas, at.ranges) {
			warnings = append(warnings, p.warning(ruleQuota, "Pods don't fit the namespace", problem.Field, fmt.Sprintf("namespace %s: %s", namespace, problem.Message)))
		}
	}
	return warnings, nil
}

func roomOf(ctx context.Context, c client.Reader, namespace string) (room, error) {
	quotas, ranges := &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}
	for _, list := range []client.ObjectList{quotas, ranges} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return room{}, fmt.Errorf("reading what namespace %s leaves to pods: %w", namespace, err)
		}
	}
	return room{quotas: quotas.Items, ranges: ranges.Items}, nil
}
