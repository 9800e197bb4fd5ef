// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/podspec"
)

// Check says what an API server, and then the controller, would refuse an object for.
func Check(object map[string]any) field.ErrorList {
	errs := admission.Check(object)
	if len(errs) > 0 || (&unstructured.Unstructured{Object: object}).GetKind() != "RunnerPool" {
		return errs
	}
	pool := &v1alpha1.RunnerPool{}
	if err := v1alpha1.FromUnstructured(object, pool); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), nil, err.Error())}
	}
	pod, err := podspec.Specimen(pool)
	if err == nil {
		err = podspec.CheckSecrets(pod, nil)
	}
	if err == nil {
		return nil
	}
	at, message, ok := strings.Cut(err.Error(), ": ")
	if !ok || !strings.HasPrefix(at, "spec.") {
		at, message = "spec.template", err.Error()
	}
	return field.ErrorList{field.Invalid(field.NewPath(at), nil, message)}
}
