// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func TestTheKustomizeBaseIsTheChartsDefault(t *testing.T) {
	got := kustomized(t, "../../charts/kustomize")
	delete(got, "Namespace /"+namespace) // with Helm, --create-namespace creates it
	want := objects(t, render(t, nil))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Fatal(diff)
	}
	for key, object := range want {
		object.SetLabels(withoutHelm(object.GetLabels()))
		object.SetAnnotations(withoutHelm(object.GetAnnotations()))
		if object.GetKind() == "Deployment" {
			unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "labels", "helm.sh/chart")
			unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/managed-by")
		}
		if diff := cmp.Diff(plain(t, object), plain(t, got[key])); diff != "" {
			t.Errorf("%s in the chart (-) and in the base (+), which `make generate` regenerates:\n%s", key, diff)
		}
	}
}

// withoutHelm removes the labels that identify Helm as the installer.
func withoutHelm(labels map[string]string) map[string]string {
	for _, label := range []string{"helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by"} {
		delete(labels, label)
	}
	return labels
}

// plain normalizes an object through JSON: numbers have one type, and empty metadata fields are absent.
func plain(t *testing.T, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	again := &unstructured.Unstructured{}
	if err := again.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return again.Object
}

// kustomized returns the objects that `kubectl kustomize` prints.
func kustomized(t *testing.T, dir string) map[string]*unstructured.Unstructured {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []*unstructured.Unstructured
	for _, resource := range made.Resources() {
		content, err := resource.Map()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &unstructured.Unstructured{Object: content})
	}
	return byKey(t, list)
}
