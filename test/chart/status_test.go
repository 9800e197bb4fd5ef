// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What has no status counts as done for tools that follow kstatus: a Kustomization that waits would be ready before
// the controller has had a look. Flux's own kinds do the same.
func TestANewObjectIsNotYetObserved(t *testing.T) {
	for file, object := range generated(t, "crds") {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition); err != nil {
			t.Fatal(err)
		}
		for _, version := range definition.Spec.Versions {
			status := version.Schema.OpenAPIV3Schema.Properties["status"]
			got := ""
			if status.Default != nil {
				got = string(status.Default.Raw)
			}
			if diff := cmp.Diff(`{"observedGeneration":-1}`, got); diff != "" {
				t.Errorf("%s, %s: the default of status: %s", file, version.Name, diff)
			}
		}
	}
}
