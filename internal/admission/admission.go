// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission says of an object what an API server would refuse it for, without one: by the CustomResourceDefinition of its kind,
// with the API server's own library, and for the pod of a pool by the rules that people break. It is pure.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/charts"
)

// definitions is where the chart has the CustomResourceDefinitions.
const definitions = "corral/files/crds"

// definition is what a CustomResourceDefinition says of its objects.
type definition struct {
	version    string
	namespaced bool
	schema     *schema.Structural
	values     validation.SchemaValidator
	// rules are compiled when they are first needed: that takes some 50 ms.
	rules func() *cel.Validator
}

// byKind reads all definitions, once.
var byKind = sync.OnceValues(func() (map[string]definition, error) {
	files, err := charts.CRDs.ReadDir(definitions)
	if err != nil {
		return nil, fmt.Errorf("reading the definitions: %w", err)
	}
	all := map[string]definition{}
	for _, file := range files {
		kind, d, err := read(path.Join(definitions, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Name(), err)
		}
		all[kind] = d
	}
	return all, nil
})

func read(file string) (kind string, d definition, err error) {
	text, err := charts.CRDs.ReadFile(file)
	if err != nil {
		return "", d, err
	}
	crd, inner := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return "", d, err
	}
	version := crd.Spec.Versions[0]
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, inner, nil); err != nil {
		return "", d, err
	}
	if d.schema, err = schema.NewStructural(inner); err != nil {
		return "", d, err
	}
	if d.values, _, err = validation.NewSchemaValidator(inner); err != nil {
		return "", d, err
	}
	d.version, d.namespaced = crd.Spec.Group+"/"+version.Name, crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	d.rules = sync.OnceValue(func() *cel.Validator { return cel.NewValidator(d.schema, true, celconfig.PerCallLimit) })
	return crd.Spec.Names.Kind, d, nil
}

// Kinds returns the kinds that have a definition, sorted.
func Kinds() []string {
	all, err := byKind()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(all))
}

// Check returns what an API server would refuse an object for that is to be created; nothing for a kind that isn't one of Corral's. The
// object's metadata.namespace may be left out. Unknown fields aren't told: an API server drops them, and the CUE schema refuses them.
func Check(object map[string]any) field.ErrorList {
	errs := check(object)
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	return errs
}

func check(object map[string]any) field.ErrorList {
	all, err := byKind()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	o := &unstructured.Unstructured{Object: object}
	d, known := all[o.GetKind()]
	if !known {
		return nil
	}
	if o.GetAPIVersion() != d.version {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), o.GetAPIVersion(), []string{d.version})}
	}
	errs := apivalidation.ValidateObjectMetaAccessor(o, d.namespaced && o.GetNamespace() != "", apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResource(nil, object, d.values)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.schema, object)...)
	if len(errs) > 0 {
		return errs // as an API server, which doesn't ask the rules then
	}
	if rules := d.rules(); rules != nil {
		broken, _ := rules.Validate(context.Background(), nil, d.schema, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	if o.GetKind() == "RunnerPool" {
		errs = append(errs, checkTemplate(object)...)
	}
	return errs
}
