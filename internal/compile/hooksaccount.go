// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Kinds that Corral generates for pools. Users never declare them.
const (
	accountKind = "ServiceAccount"
	roleKind    = "Role"
	bindingKind = "RoleBinding"
)

// addHooksAccounts adds a ServiceAccount, a Role and a RoleBinding for each pool whose jobs run in pods and whose
// template names no ServiceAccount. The Role contains the permissions of the runner's container hooks. The objects have
// the position of the pool.
func (c *compilation) addHooksAccounts() {
	for _, o := range slices.Clone(c.objects) {
		pool := &v1alpha1.RunnerPool{}
		if o.Manifest.GetKind() != "RunnerPool" || o.Manifest.Object["spec"] == nil || v1alpha1.FromUnstructured(o.Manifest.Object, pool) != nil {
			continue
		}
		name := pool.GetHooksAccount()
		if name == "" {
			continue
		}
		ofGroup := rbacv1.SchemeGroupVersion.String()
		for _, made := range []map[string]any{
			{"apiVersion": "v1", "kind": accountKind},
			{"apiVersion": ofGroup, "kind": roleKind, "rules": hooksRules(pool.Spec.ContainerMode.Type)},
			{
				"apiVersion": ofGroup, "kind": bindingKind,
				"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": roleKind, "name": name},
				"subjects": []any{map[string]any{"kind": accountKind, "name": name}}, // in the binding's namespace
			},
		} {
			manifest := unstructured.Unstructured{Object: made}
			manifest.SetName(name)
			if pool.Namespace != "" {
				manifest.SetNamespace(pool.Namespace)
			}
			labels := map[string]string{v1alpha1.PoolLabel: pool.Name}
			maps.Copy(labels, pool.Spec.LabelsOfObjects())
			manifest.SetLabels(labels)
			if annotations := pool.Spec.AnnotationsOfObjects(); len(annotations) > 0 {
				manifest.SetAnnotations(annotations)
			}
			if !c.fits(len(c.objects), 0) {
				return
			}
			c.objects = append(c.objects, Object{Manifest: manifest, File: o.File, Line: o.Line, Column: o.Column, Path: o.Path})
		}
	}
}

// hooksRules returns the permissions that the hooks need, which the hooks' source lists in requiredPermissions. In
// KubernetesNoVolume mode, the hooks create no Jobs.
// https://github.com/actions/runner-container-hooks/blob/main/packages/k8s/README.md
func hooksRules(mode v1alpha1.ContainerModeType) []any {
	rule := func(group, resource string, verbs ...any) map[string]any {
		return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
	}
	rules := []any{
		rule("", "pods", "get", "list", "create", "delete"),
		rule("", "pods/exec", "get", "create"),
		rule("", "pods/log", "get", "list", "watch"),
		rule("", "secrets", "get", "list", "create", "delete"),
	}
	if mode == v1alpha1.KubernetesMode {
		rules = append(rules, rule("batch", "jobs", "get", "list", "create", "delete"))
	}
	return rules
}
