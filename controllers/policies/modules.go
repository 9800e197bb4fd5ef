// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// collect gathers the source of a policy. It returns problems that a user must fix as diagnostics. An error means that
// the source could not be read now.
func (r *Reconciler) collect(ctx context.Context, obj object) (policy.Source, []v1alpha1.Diagnostic, error) {
	source, err := policy.SourceOf(obj)
	if err != nil {
		return source, []v1alpha1.Diagnostic{{Message: err.Error()}}, nil
	}
	for i, key := range obj.ConfigMaps() {
		diagnostics, err := r.merge(ctx, &source, key, fmt.Sprintf("spec.modulesFrom[%d]", i))
		if err != nil || len(diagnostics) > 0 {
			return source, diagnostics, err
		}
	}
	return source, nil, nil
}

// merge adds the modules and the data of a ConfigMap. It does not parse them, because that is done in a child process
// that can be stopped.
func (r *Reconciler) merge(ctx context.Context, source *policy.Source, key client.ObjectKey, field string) ([]v1alpha1.Diagnostic, error) {
	config := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, key, config)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return []v1alpha1.Diagnostic{{Path: field, Message: fmt.Sprintf("ConfigMap %s can't be read: %v", key, err)}}, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	for _, name := range slices.Sorted(maps.Keys(config.Data)) {
		complaint := source.Merge(key.Name, name, config.Data[name])
		if size := source.Size(); size > v1alpha1.MaxPolicyBytes && complaint == nil {
			complaint = fmt.Errorf("with it the policy has %d bytes of modules and data, more than %d: make two policies of it", size, v1alpha1.MaxPolicyBytes)
		}
		if complaint != nil {
			return []v1alpha1.Diagnostic{{Path: field, Message: fmt.Sprintf("ConfigMap %s, key %s: %v", key, name, complaint)}}, nil
		}
	}
	return nil, nil
}
