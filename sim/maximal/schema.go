// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/charts"
)

// schemas are the schemas of the specs of the CustomResourceDefinitions, by kind.
var schemas = sync.OnceValues(func() (map[string]*apiextensionsv1.JSONSchemaProps, error) {
	const folder = "corral/files/crds"
	files, err := charts.CRDs.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	all := map[string]*apiextensionsv1.JSONSchemaProps{}
	for _, file := range files {
		text, err := charts.CRDs.ReadFile(path.Join(folder, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the chart: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Name(), err)
		}
		all[crd.Spec.Names.Kind] = new(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	}
	return all, nil
})

// size is the used share of each bound, from 0 to 1.
type size float64

// of returns a share of a bound, but at least the minimum and 1.
func (s size) of(most *int64, least *int64) int64 {
	n := int64(0)
	if most != nil {
		n = int64(float64(s) * float64(*most))
	}
	if least != nil {
		n = max(n, *least)
	}
	return max(n, 1)
}

// item is the index of the list item that a value belongs to, so that items differ; 0 outside lists.
type item int

// value returns the largest value that a schema allows at a size, or nil if the field must be omitted. Pins, by the
// path of the field, take precedence.
func value(s *apiextensionsv1.JSONSchemaProps, at string, n item, by size, pins map[string]Pin) any {
	if pin, ok := pins[at]; ok {
		return pin(int(n), float64(by))
	}
	switch {
	case s.XIntOrString:
		return text(s, n, by)
	case len(s.Enum) > 0:
		var last any
		_ = yaml.Unmarshal(s.Enum[int(n)%len(s.Enum)].Raw, &last) // always valid JSON
		return last
	}
	switch s.Type {
	case "object":
		return object(s, at, n, by, pins)
	case "array":
		var list []any
		for i := range by.of(s.MaxItems, s.MinItems) {
			list = append(list, value(s.Items.Schema, at+"[]", item(i), by, pins))
		}
		return distinct(list)
	case "string":
		return text(s, n, by)
	case "integer":
		return integer(s)
	case "boolean":
		return true
	}
	return nil
}

// distinct removes duplicates: an enumeration can have fewer values than its list has items.
func distinct(list []any) []any {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(v any) bool {
		text := fmt.Sprint(v)
		known := seen[text]
		seen[text] = true
		return known
	})
}

func object(s *apiextensionsv1.JSONSchemaProps, at string, n item, by size, pins map[string]Pin) any {
	all := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if v := value(new(s.Properties[name]), at+"."+name, n, by, pins); v != nil {
			all[name] = v
		}
	}
	if s.AdditionalProperties == nil {
		return all
	}
	for i := range by.of(s.MaxProperties, s.MinProperties) {
		key := fmt.Sprintf("%s-%d", strings.Repeat("a", 40), i)
		if pin, ok := pins[at+"{key}"]; ok {
			key, _ = pin(int(i), float64(by)).(string)
		}
		all[key] = value(s.AdditionalProperties.Schema, at+"{}", item(i), by, pins)
	}
	return all
}

func integer(s *apiextensionsv1.JSONSchemaProps) any {
	if s.Maximum != nil {
		return int64(*s.Maximum)
	}
	if s.Format == "int32" {
		return int64(math.MaxInt32)
	}
	return int64(math.MaxInt64)
}

// text returns a long text of repeated letters that ends with a number, so that texts differ.
func text(s *apiextensionsv1.JSONSchemaProps, n item, by size) string {
	if s.Format == "date-time" {
		return "2036-12-31T23:59:59.999999999Z"
	}
	length := int(by.of(s.MaxLength, s.MinLength))
	if s.MaxLength == nil {
		length = 64
	}
	if isDuration(s) {
		return "1h"
	}
	if s.Pattern != "" {
		return matching(s.Pattern, length, n)
	}
	number := fmt.Sprint(int(n))
	return strings.Repeat("a", max(0, length-len(number))) + number
}

// isDuration reports whether the validation rule of a text requires a duration. Only such rules have their own message.
func isDuration(s *apiextensionsv1.JSONSchemaProps) bool {
	return slices.ContainsFunc(s.XValidations, func(r apiextensionsv1.ValidationRule) bool { return strings.HasPrefix(r.Rule, "self.matches(") })
}

// matching returns a text that matches a pattern, at most as long as length if possible.
func matching(pattern string, length int, n item) string {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	whole := regexp.MustCompile(pattern)
	best := sample(tree.Simplify(), 1)
	for open := length; open > 1; open = open * 7 / 8 {
		if long := sample(tree.Simplify(), open); len(long) <= length && whole.MatchString(long) {
			best = long
			break
		}
	}
	number := fmt.Sprint(int(n))
	if numbered := best[:max(0, len(best)-len(number))] + number; whole.MatchString(numbered) {
		return numbered
	}
	return best
}

// sample returns a text that matches a pattern, with open repetitions where they are unbounded, and the maximum number
// of repetitions elsewhere.
func sample(r *syntax.Regexp, open int) string {
	switch r.Op {
	case syntax.OpLiteral:
		return string(r.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return string(letter(r))
	case syntax.OpAlternate:
		longest := ""
		for _, sub := range r.Sub {
			if t := sample(sub, open); len(t) > len(longest) {
				longest = t
			}
		}
		return longest
	case syntax.OpConcat, syntax.OpCapture:
		var b strings.Builder
		for _, sub := range r.Sub {
			b.WriteString(sample(sub, open))
		}
		return b.String()
	case syntax.OpStar, syntax.OpPlus:
		return strings.Repeat(sample(r.Sub[0], open), open)
	case syntax.OpQuest:
		return sample(r.Sub[0], open)
	}
	return ""
}

// letter returns a character of a class: a letter or a digit if possible.
func letter(r *syntax.Regexp) rune {
	for _, preferred := range "a9A" {
		for i := 0; i+1 < len(r.Rune); i += 2 {
			if r.Rune[i] <= preferred && preferred <= r.Rune[i+1] {
				return preferred
			}
		}
	}
	if len(r.Rune) > 1 {
		return r.Rune[1]
	}
	return 'a'
}
