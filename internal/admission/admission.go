// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission reports why an API server would refuse an object, without a request to an API server. It uses the
// API server's own libraries: the validation of custom resources for objects of Corral, and the validation of pods for
// the pods of runners. It is pure.
package admission

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/charts"
	"github.com/corral-dev/corral/internal/wording"
)

// definitions is the folder of the CustomResourceDefinitions in the chart.
const definitions = "corral/files/crds"

// definition is the part of a CustomResourceDefinition that is needed to validate objects.
type definition struct {
	version    string
	namespaced bool
	schema     *schema.Structural
	values     validation.SchemaValidator
	// rules are compiled on first use, because that takes about 20 ms.
	rules func() *cel.Validator
}

// byKind contains, for each kind, a function that returns its definition. It reads the definition on its first call,
// because reading takes about 5 ms.
var byKind = sync.OnceValue(func() map[string]func() (definition, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	all := map[string]func() (definition, error){}
	for kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		resource, _ := meta.UnsafeGuessKindToResource(v1alpha1.GroupVersion.WithKind(kind))
		file := path.Join(definitions, resource.Group+"_"+resource.Resource+".yaml")
		if _, err := fs.Stat(charts.CRDs, file); err == nil { // lists have no definition
			all[kind] = sync.OnceValues(func() (definition, error) { return read(file) })
		}
	}
	return all
})

func read(file string) (d definition, err error) {
	text, err := charts.CRDs.ReadFile(file)
	if err != nil {
		return d, fmt.Errorf("reading %s: %w", file, err)
	}
	crd, inner := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return d, fmt.Errorf("reading %s: %w", file, err)
	}
	version := crd.Spec.Versions[0]
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, inner, nil); err != nil {
		return d, fmt.Errorf("reading the schema of %s: %w", file, err)
	}
	if d.schema, err = schema.NewStructural(inner); err != nil {
		return d, fmt.Errorf("reading the schema of %s: %w", file, err)
	}
	if d.values, _, err = validation.NewSchemaValidator(inner); err != nil {
		return d, fmt.Errorf("reading the schema of %s: %w", file, err)
	}
	d.version, d.namespaced = crd.Spec.Group+"/"+version.Name, crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	d.rules = sync.OnceValue(func() *cel.Validator { return cel.NewValidator(d.schema, true, celconfig.PerCallLimit) })
	return d, nil
}

// Kinds returns the kinds that have a definition, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(byKind())) }

// Check returns the reasons why an API server would refuse to create an object. It returns none for a kind that does
// not belong to Corral. The object may omit metadata.namespace. Unknown fields are errors, as with server-side apply
// and kubectl's strict validation.
func Check(object map[string]any) field.ErrorList {
	return sorted(check(object))
}

// WithDefaults returns a copy of an object with the default values that an API server adds. It returns the object
// itself if its kind does not belong to Corral.
func WithDefaults(object map[string]any) map[string]any {
	definition, known := byKind()[(&unstructured.Unstructured{Object: object}).GetKind()]
	if !known {
		return object
	}
	d, err := definition()
	if err != nil {
		return object
	}
	full := runtime.DeepCopyJSON(object)
	defaulting.Default(full, d.schema)
	defaulting.PruneNonNullableNullsWithoutDefaults(full, d.schema)
	return full
}

// suggestion suggests a known field for the path of an unknown field.
func suggestion(s *schema.Structural, path string) string {
	labels := strings.Split(path, ".")
	last := len(labels) - 1
	for _, label := range labels[:last] {
		name, _, isList := strings.Cut(label, "[")
		next := s.Properties[name]
		if isList && next.Items != nil {
			next = *next.Items
		}
		s = &next
	}
	return wording.Suggestion(labels[last], slices.Sorted(maps.Keys(s.Properties)))
}

// followsFrom reports whether an error is only a consequence of an unknown field, because the author probably
// misspelled a known field. That field is then reported as missing, or its object as having too few fields.
func followsFrom(unknown field.ErrorList, err *field.Error) bool {
	name := path.Ext(err.Field)
	return slices.ContainsFunc(unknown, func(u *field.Error) bool {
		isMeant := strings.HasPrefix(u.Field, strings.TrimSuffix(err.Field, name)+".") && strings.HasSuffix(u.Detail, " "+name[min(1, len(name)):]+"?")
		return err.Type == field.ErrorTypeRequired && isMeant || strings.Contains(err.Detail, "should have at least") && strings.HasPrefix(u.Field, err.Field+".")
	})
}

func check(object map[string]any) field.ErrorList {
	o := &unstructured.Unstructured{Object: object}
	definition, known := byKind()[o.GetKind()]
	if !known {
		return nil
	}
	d, err := definition()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if o.GetAPIVersion() != d.version {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), o.GetAPIVersion(), []string{d.version})}
	}
	errs := apivalidation.ValidateObjectMetaAccessor(o, d.namespaced && o.GetNamespace() != "", apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	object = runtime.DeepCopyJSON(object)
	unknown := pruning.PruneWithOptions(object, d.schema, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		hint := cmp.Or(wording.FieldHint(path), suggestion(d.schema, path))
		errs = append(errs, &field.Error{Type: field.ErrorTypeForbidden, Field: path, Detail: "the field is not known" + hint})
	}
	defaulting.Default(object, d.schema)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, d.schema) // for an API server, null means that a field is not set
	follows := func(err *field.Error) bool { return followsFrom(errs, err) }
	errs = append(errs, slices.DeleteFunc(validation.ValidateCustomResource(nil, object, d.values), follows)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.schema, object)...)
	if len(errs) > 0 {
		return errs // an API server also skips the rules in this case
	}
	if rules := d.rules(); rules != nil {
		broken, _ := rules.Validate(context.Background(), nil, d.schema, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	if o.GetKind() == "RunnerPool" {
		errs = append(errs, checkSize(&unstructured.Unstructured{Object: object})...)
	}
	return errs
}
