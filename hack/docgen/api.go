// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// schema is the schema of a field.
type schema = apiextensionsv1.JSONSchemaProps

// apiPages writes a page for each CRD in a folder, and a list of them.
func apiPages(folder string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("finding CRDs in %s: %w", folder, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("there are no CRDs in %s; run this at the root of the repository", folder)
	}
	pages := map[string]string{}
	var index strings.Builder
	index.WriteString(notice + "# API reference\n\nAll kinds are of `corral.dev/v1alpha1`. See [kinds](../../README.md#kinds) for their meaning.\n\n| kind | short name | is |\n|---|---|---|\n")
	for _, path := range paths {
		crd, err := readCRD(path)
		if err != nil {
			return nil, err
		}
		names, version := crd.Spec.Names, crd.Spec.Versions[0]
		page := strings.ToLower(names.Kind) + ".md"
		pages[page] = kindPage(crd)
		fmt.Fprintf(&index, "| [%s](%s) | %s | %s |\n", names.Kind, page,
			strings.Join(names.ShortNames, ", "), cell(version.Schema.OpenAPIV3Schema.Description))
	}
	pages["README.md"] = index.String()
	return pages, nil
}

func readCRD(path string) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a CRD: %w", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	if len(crd.Spec.Versions) != 1 {
		return nil, fmt.Errorf("%s has %d versions, and a page describes only one", path, len(crd.Spec.Versions))
	}
	return crd, nil
}

func kindPage(crd *apiextensionsv1.CustomResourceDefinition) string {
	names, version := crd.Spec.Names, crd.Spec.Versions[0]
	root := version.Schema.OpenAPIV3Schema
	var b strings.Builder
	fmt.Fprintf(&b, "%s# %s\n\n%s\n\n`apiVersion: %s/%s`, `kind: %s`. See [%s](../../spec/%s.md) for its meaning and behavior.\n",
		notice, names.Kind, root.Description, crd.Spec.Group, version.Name, names.Kind, names.Kind, strings.ToLower(names.Kind))
	for _, part := range []string{"spec", "status"} {
		s, ok := root.Properties[part]
		if !ok {
			continue
		}
		f := fields{}
		f.add(part, s)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| field | type | |\n|---|---|---|\n%s", part, cell(s.Description), strings.Join(f.rows, ""))
		if len(f.rules) > 0 {
			fmt.Fprintf(&b, "\nRules:\n\n%s", strings.Join(f.rules, ""))
		}
	}
	b.WriteString("\n## Columns of kubectl get\n\n| column | shows |\n|---|---|\n")
	for _, c := range version.AdditionalPrinterColumns {
		wide := ""
		if c.Priority > 0 {
			wide = ", with `-o wide`"
		}
		fmt.Fprintf(&b, "| %s | `%s`%s |\n", c.Name, c.JSONPath, wide)
	}
	return b.String()
}

// fields flattens a schema into rows of a table, by the path of each field.
type fields struct {
	rows, rules []string
}

// add adds the fields below a field. It does not expand conditions, which are a Kubernetes type.
func (f *fields) add(path string, s schema) {
	for _, rule := range s.XValidations {
		f.rules = append(f.rules, fmt.Sprintf("- `%s`: %s\n", path, rule.Message))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property, below := s.Properties[name], path+"."+name
		relative := strings.SplitN(below, ".", 2)[1]
		f.rows = append(f.rows, fmt.Sprintf("| `%s` | %s | %s |\n", relative, typeOf(property), describe(property, slices.Contains(s.Required, name))))
		if name == "conditions" {
			continue
		}
		f.add(below, property)
		if property.Items != nil && property.Items.Schema != nil {
			f.add(below+"[]", *property.Items.Schema)
		}
	}
}

// quantityUnits is a part of the pattern of quantities, and of no other pattern.
const quantityUnits = "[KMGTPE]i"

func typeOf(s schema) string {
	switch {
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(*s.Items.Schema)
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*s.AdditionalProperties.Schema)
	case s.Format == "date-time":
		return "time"
	case s.XIntOrString && strings.Contains(s.Pattern, quantityUnits):
		return "quantity"
	case s.XIntOrString:
		return "integer or string"
	}
	return s.Type
}

// describe returns a field's description and the API server's checks.
func describe(s schema, required bool) string {
	parts := []string{cell(s.Description)}
	if required {
		parts = append(parts, "**Required.**")
	}
	parts = append(parts, constraints(s)...)
	if s.Items != nil && s.Items.Schema != nil {
		for _, c := range constraints(*s.Items.Schema) {
			parts = append(parts, "Each: "+c)
		}
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

func constraints(s schema) []string {
	var out []string
	bound := func(what string, n *int64) {
		if n != nil {
			out = append(out, fmt.Sprintf("%s %d.", what, *n))
		}
	}
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = "`" + strings.Trim(string(v.Raw), `"`) + "`"
		}
		out = append(out, "One of "+strings.Join(values, ", ")+".")
	}
	if s.Minimum != nil && s.Maximum != nil {
		out = append(out, fmt.Sprintf("%.0f to %.0f.", *s.Minimum, *s.Maximum))
	}
	bound("Length at least", s.MinLength)
	bound("Length at most", s.MaxLength)
	bound("Items at most", s.MaxItems)
	bound("Entries at most", s.MaxProperties)
	if s.Pattern != "" {
		out = append(out, "Matches `"+strings.ReplaceAll(s.Pattern, "|", `\|`)+"`.")
	}
	return out
}

// cell escapes a text for a table cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
