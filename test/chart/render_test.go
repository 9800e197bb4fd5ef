// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart as Helm renders it, and the permissions that it grants on a real API server.
package chart

import (
	"io/fs"
	"testing"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/hack/helmchart"
)

// release and namespace have the values from the documented `helm install`.
const (
	release   = helmchart.Release
	namespace = helmchart.Namespace
)

func load(t *testing.T) *chartv2.Chart {
	t.Helper()
	root, err := fs.Sub(charts.Corral, "corral")
	if err != nil {
		t.Fatal(err)
	}
	c, err := helmchart.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryRender(t *testing.T, release, namespace string, values map[string]any) (helmchart.Files, error) {
	t.Helper()
	return helmchart.Render(t.Context(), load(t), release, namespace, values)
}

func render(t *testing.T, values map[string]any) helmchart.Files {
	t.Helper()
	rendered, err := tryRender(t, release, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// objects returns the rendered objects by kind, namespace and name, such as "Role team-a/corral" or "ClusterRole
// /corral".
func objects(t *testing.T, rendered helmchart.Files) map[string]*unstructured.Unstructured {
	t.Helper()
	list, err := rendered.Objects()
	if err != nil {
		t.Fatal(err)
	}
	return byKey(t, list)
}

func byKey(t *testing.T, list []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, object := range list {
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if all[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		all[key] = object
	}
	return all
}
