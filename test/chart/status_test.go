// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Tools that follow kstatus treat an object without a status as ready. A waiting Kustomization would then become
// ready before the controller has seen the object. Flux's own kinds use the same default status.
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
				t.Errorf("%s, %s: unexpected default of status: %s", file, version.Name, diff)
			}
		}
	}
}
