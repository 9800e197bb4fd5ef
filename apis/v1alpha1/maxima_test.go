// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// unbounded returns the strings, lists and maps below a field that have no maximum, by their path.
func unbounded(s *schema.Structural, path string) (all []string) {
	v := s.ValueValidation
	if v == nil {
		v = &schema.ValueValidation{}
	}
	switch {
	case s.Type == "string" && v.MaxLength == nil && len(v.Enum) == 0 && v.Format != "date-time" && !hasEnd(v.Pattern),
		s.Type == "array" && v.MaxItems == nil,
		s.Type == "object" && s.AdditionalProperties != nil && v.MaxProperties == nil:
		all = append(all, path)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, unbounded(new(s.Properties[name]), path+"."+name)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		all = append(all, unbounded(s.AdditionalProperties.Structural, path+".*")...)
	}
	if s.Items != nil {
		all = append(all, unbounded(s.Items, path+"[]")...)
	}
	if s.XPreserveUnknownFields {
		all = append(all, path+" (any)")
	}
	return all
}

// hasEnd reports whether a pattern is of the whole text, and of a text that has a maximum.
func hasEnd(pattern string) bool {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || !strings.HasPrefix(pattern, "^") || !strings.HasSuffix(pattern, "$") {
		return false
	}
	var isOpen func(*syntax.Regexp) bool
	isOpen = func(r *syntax.Regexp) bool {
		repeats := r.Op == syntax.OpStar || r.Op == syntax.OpPlus || r.Op == syntax.OpRepeat && r.Max < 0
		return repeats || slices.ContainsFunc(r.Sub, isOpen)
	}
	return tree.Op == syntax.OpConcat && !isOpen(tree)
}

// whole are the fields in which anything may stand, and what bounds each in bytes, before anything of it is parsed. The API server takes what
// etcd does.
var whole = map[string]string{
	"RunnerPool.spec.template (any)":                       "internal/podspec: 128 KiB, else the pool is TemplateInvalid",
	"RunnerPool.spec.template.spec (any)":                  "as part of template",
	"RunnerPool.spec.template.spec.containers[] (any)":     "as part of template",
	"RunnerPool.spec.template.spec.initContainers[] (any)": "as part of template",
	"RunnerPool.spec.template.spec.volumes[] (any)":        "as part of template",
	"RunnerPolicy.spec.data (any)":                         "internal/policy: MaxPolicyBytes with modules and parameters, else the policy is PolicyInvalid",
	"RunnerPolicy.spec.data.library (any)":                 "as part of data",
	"RunnerPolicy.spec.data.parameters (any)":              "as part of data",
	"RunnerPolicy.spec.parameters (any)":                   "the same",
	"ClusterRunnerPolicy.spec.data (any)":                  "the same",
	"ClusterRunnerPolicy.spec.data.library (any)":          "as part of data",
	"ClusterRunnerPolicy.spec.data.parameters (any)":       "as part of data",
	"ClusterRunnerPolicy.spec.parameters (any)":            "the same",
}

// Each string, list and map has a maximum, items included, or is in a field that is bounded as a whole.
func TestEachFieldHasABound(t *testing.T) {
	for _, c := range readCRDs(t) {
		for _, part := range []string{"spec", "status"} {
			for _, path := range unbounded(new(c.schema.Properties[part]), c.kind+"."+part) {
				if whole[path] == "" {
					t.Errorf("%s has no maximum", path)
				}
			}
		}
	}
}

func TestPatternsWithoutAnEndAreNoBounds(t *testing.T) {
	for pattern, want := range map[string]bool{
		`^[0-9]{1,5}(a|b)?$`: true, `^a+$`: false, `^a*$`: false, `^[a-z]{2,}$`: false, `a`: false, `^a|b$`: false, `^a`: false, `(`: false, ``: false,
	} {
		if got := hasEnd(pattern); got != want {
			t.Errorf("%s: %t", pattern, got)
		}
	}
}

// No definition may use the label prefix by which the controller recognizes its own runners.
func TestReservedLabelsAreRefused(t *testing.T) {
	pool := readCRDs(t)[slices.IndexFunc(readCRDs(t), func(c crd) bool { return c.kind == "RunnerPool" })]
	mark := v1alpha1.OwnerLabel("cluster", "p1")
	for name, tc := range map[string]struct {
		name string
		spec map[string]any
		want bool
	}{
		"others":             {"linux", map[string]any{"runnerLabels": []any{"gpu", "corral", "my-corral-owner-1"}}, true},
		"a mark":             {"linux", map[string]any{"runnerLabels": []any{"gpu", mark}}, false},
		"a mark in capitals": {"linux", map[string]any{"runnerLabels": []any{strings.ToUpper(mark)}}, false},
		"a scale set's name": {"linux", map[string]any{"scaleSetName": "Corral-owner-1"}, false},
		"a pool's name":      {mark, map[string]any{}, false},
	} {
		tc.spec["connectionRef"] = map[string]any{"name": "acme"}
		tc.spec["template"] = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "runner"}}}}
		tc.spec["scale"] = map[string]any{"max": int64(1)}
		object := map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "RunnerPool", "metadata": map[string]any{"name": tc.name}, "spec": tc.spec,
		}
		if got := pool.takes(t, object); got != tc.want {
			t.Errorf("%s: taken: %t", name, got)
		}
	}
}

// An applier replaces a list without a type as a whole. Adding a type later changes the owners of its items.
func TestEachListHasAType(t *testing.T) {
	var untyped func(s *schema.Structural, path string)
	for _, c := range readCRDs(t) {
		untyped = func(s *schema.Structural, path string) {
			if s.Type == "array" && s.XListType == nil {
				t.Errorf("%s: %s has no list type", c.kind, path)
			}
			for name, property := range s.Properties {
				untyped(&property, path+"."+name)
			}
			if s.Items != nil {
				untyped(s.Items, path+"[]")
			}
			if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
				untyped(s.AdditionalProperties.Structural, path+".*")
			}
		}
		untyped(c.schema, "")
	}
}

// kubectl apply stores another copy of a definition in an annotation, and users read the files.
func TestEachDefinitionIsSmall(t *testing.T) {
	const most = 100_000
	files, err := filepath.Glob("../../charts/corral/files/crds/*.yaml")
	must(t, err)
	for _, file := range files {
		info, err := os.Stat(file)
		must(t, err)
		if info.Size() > most {
			t.Errorf("%s has %d bytes, more than %d", file, info.Size(), most)
		}
	}
}

// A rule on names holds for new objects only. It must not keep the controller from writing the status of an object that was there before.
func TestANameFromBeforeTheRuleIsKept(t *testing.T) {
	for _, c := range readCRDs(t) {
		name := map[string]string{"RunnerPool": strings.Repeat("a", 49), "PoolSource": strings.Repeat("a", 64)}[c.kind]
		if name == "" {
			continue
		}
		object := c.object(frames[c.kind][0], func(object map[string]any) { object["metadata"].(map[string]any)["name"] = name })
		defaulting.Default(object, c.schema)
		refused := func(was any) bool {
			errs, _ := c.rules.Validate(t.Context(), nil, c.schema, object, was, celconfig.RuntimeCELCostBudget)
			return len(errs) > 0
		}
		if !refused(nil) || refused(runtime.DeepCopyJSON(object)) {
			t.Errorf("%s %s: refused when new: %t, when it was there: %t", c.kind, name, refused(nil), refused(runtime.DeepCopyJSON(object)))
		}
	}
}
