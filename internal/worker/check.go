// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/podspec"
)

// Check returns the errors for which the API server or the controller would refuse an object. It checks a pool's
// template as the controller expands it for runners.
func Check(object map[string]any) field.ErrorList {
	if (&unstructured.Unstructured{Object: object}).GetKind() != "RunnerPool" {
		return admission.Check(object)
	}
	pool := &v1alpha1.RunnerPool{}
	if err := v1alpha1.FromUnstructured(object, pool); err != nil {
		return checkedWithout(object, field.Invalid(field.NewPath("spec"), nil, err.Error()))
	}
	expanded, err := expand(object, pool)
	if err != nil {
		return checkedWithout(object, refusal(err))
	}
	if errs := admission.Check(expanded); len(errs) > 0 {
		for _, e := range errs {
			e.Field = podspec.DeclaredPath(pool, e.Field)
		}
		return errs
	}
	pod, err := podspec.Specimen(pool)
	if err == nil {
		err = podspec.CheckSecrets(pod, nil)
	}
	if err != nil {
		return field.ErrorList{refusal(err)}
	}
	return nil
}

// checkedWithout returns the error if it is about a conflict with the container mode: an API server could not detect
// this without the fields that the mode adds. Otherwise it returns the API server's errors for the declared object or,
// if there are none, the error.
func checkedWithout(object map[string]any, err *field.Error) field.ErrorList {
	if strings.HasPrefix(err.Field, "spec.template.") {
		return field.ErrorList{err}
	}
	if errs := admission.Check(object); len(errs) > 0 {
		return errs
	}
	return field.ErrorList{err}
}

// expand returns a pool with the template that is used for its runners.
func expand(object map[string]any, pool *v1alpha1.RunnerPool) (map[string]any, error) {
	if pool.Spec.ContainerMode == nil {
		return object, nil
	}
	text, err := podspec.Template(pool)
	if err != nil {
		return nil, err
	}
	var template map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &template); err != nil {
		return nil, err
	}
	spec := maps.Clone(object["spec"].(map[string]any)) // the pool was decoded from it
	spec["template"] = template
	expanded := maps.Clone(object)
	expanded["spec"] = spec
	return expanded, nil
}

// refusal converts an error of podspec to a field error.
func refusal(err error) *field.Error {
	at, message, ok := strings.Cut(err.Error(), ": ")
	if !ok || !strings.HasPrefix(at, "spec.") {
		at, message = "spec.template", err.Error()
	}
	return field.Invalid(field.NewPath(at), nil, message)
}
