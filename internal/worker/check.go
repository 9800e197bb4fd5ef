// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/podspec"
)

// Check returns the reasons why an API server or the controller would refuse an object. For a pool, it also checks the
// pod that Corral builds from the pool's template.
func Check(object map[string]any) field.ErrorList {
	if errs := admission.Check(object); len(errs) > 0 || (&unstructured.Unstructured{Object: object}).GetKind() != "RunnerPool" {
		return errs
	}
	pool := &v1alpha1.RunnerPool{}
	if err := v1alpha1.FromUnstructured(object, pool); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), nil, err.Error())}
	}
	var errs field.ErrorList
	pod, err := podspec.Specimen(pool)
	if err != nil {
		errs = append(errs, refusal(err))
		pod = podspec.Sketch(pool)
	} else if err := podspec.CheckSecrets(pod, nil); err != nil {
		errs = append(errs, refusal(err))
	}
	if pod == nil {
		return errs
	}
	found := admission.CheckPod(pod)
	for _, e := range found {
		if !isFilledIn(e, found) {
			at := podspec.DeclaredPath(pool, "spec.template."+e.Field)
			errs = append(errs, &field.Error{Type: e.Type, Field: at, BadValue: e.BadValue, Detail: e.Detail})
		}
	}
	return errs
}

// isFilledIn reports whether an error concerns a request that defaults to a limit, and the same error is reported for
// that limit.
func isFilledIn(e *field.Error, all field.ErrorList) bool {
	limit := strings.Replace(e.Field, ".requests[", ".limits[", 1)
	return limit != e.Field && slices.ContainsFunc(all, func(o *field.Error) bool { return o.Field == limit && o.Detail == e.Detail })
}

// refusal converts an error of podspec to a field error.
func refusal(err error) *field.Error {
	at, message, ok := strings.Cut(err.Error(), ": ")
	if !ok || !strings.HasPrefix(at, "spec.") {
		at, message = "spec.template", err.Error()
	}
	return field.Invalid(field.NewPath(at), nil, message)
}
