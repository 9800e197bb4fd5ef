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

// Check says what an API server, and then the controller, would refuse an object for. The template of a pool is judged as runners are made
// of it.
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

// checkedWithout is the error if it names a field of a container mode's conflict: without what the mode adds, an API server would miss it. Otherwise it
// is what an API server says of an object as it is declared or, if it says nothing, the error.
func checkedWithout(object map[string]any, err *field.Error) field.ErrorList {
	if strings.HasPrefix(err.Field, "spec.template.") {
		return field.ErrorList{err}
	}
	if errs := admission.Check(object); len(errs) > 0 {
		return errs
	}
	return field.ErrorList{err}
}

// expand returns a pool with the template that runners are made of.
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
	spec := maps.Clone(object["spec"].(map[string]any)) // the pool was read from it
	spec["template"] = template
	expanded := maps.Clone(object)
	expanded["spec"] = spec
	return expanded, nil
}

// refusal is an error of podspec at its field.
func refusal(err error) *field.Error {
	at, message, ok := strings.Cut(err.Error(), ": ")
	if !ok || !strings.HasPrefix(at, "spec.") {
		at, message = "spec.template", err.Error()
	}
	return field.Invalid(field.NewPath(at), nil, message)
}
