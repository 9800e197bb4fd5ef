// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/policy"
)

//go:embed library.md.tmpl
var libraryTemplate string

// policyPages returns the generated pages of docs/policies: the library, from the metadata of its rules, and the
// cookbook, from the folder of its recipes.
func policyPages(cookbook string) (map[string]string, error) {
	library, err := libraryPage()
	if err != nil {
		return nil, err
	}
	recipes, err := cookbookPage(cookbook)
	if err != nil {
		return nil, err
	}
	return map[string]string{"library.md": library, "cookbook.md": recipes}, nil
}

// libraryPage fills tables of rules into the template.
func libraryPage() (string, error) {
	modules := policy.LibraryModules()
	annotations, diagnostics := policy.Annotations(modules)
	if len(diagnostics) > 0 {
		return "", fmt.Errorf("reading the library: %s", diagnostics[0].Message)
	}
	families := map[string][]policy.Annotation{}
	for _, a := range annotations {
		if family, ok := a.Custom["family"].(string); ok {
			families[family] = append(families[family], a)
		}
	}
	shown := map[string]bool{}
	page, err := template.New("library").Funcs(template.FuncMap{"rules": func(family string) (string, error) {
		shown[family] = true
		return ruleTable(families[family])
	}}).Parse(libraryTemplate)
	if err != nil {
		return "", fmt.Errorf("parsing the page of the library: %w", err)
	}
	var text strings.Builder
	if err := page.Execute(&text, nil); err != nil {
		return "", fmt.Errorf("filling the page of the library: %w", err)
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		if !shown[family] {
			return "", fmt.Errorf("the page of the library says nothing of the family %s", family)
		}
	}
	return notice + text.String(), nil
}

// ruleTable lists rules by their code.
func ruleTable(rules []policy.Annotation) (string, error) {
	if len(rules) == 0 {
		return "", fmt.Errorf("there are no rules of that family")
	}
	slices.SortFunc(rules, func(a, b policy.Annotation) int { return strings.Compare(a.Code, b.Code) })
	table := "| code | rule | meaning |\n|---|---|---|\n"
	for _, rule := range rules {
		if rule.Code == "" || rule.Title == "" || rule.Description == "" {
			return "", fmt.Errorf("%s:%d: a rule needs a title, a description and a code", rule.File, rule.Line)
		}
		table += fmt.Sprintf("| `%s` | `%s.%s` | **%s.** %s |\n", rule.Code, rule.Package, rule.Rule, rule.Title,
			strings.ReplaceAll(strings.Join(strings.Fields(rule.Description), " "), "|", `\|`))
	}
	return strings.TrimSuffix(table, "\n"), nil
}

const cookbookIntroduction = `# Cookbook

These recipes are policies for common needs. Each has tests in [policies/cookbook](../../policies/cookbook). Copy a recipe into
` + "`spec.modules`" + ` of a RunnerPolicy or ClusterRunnerPolicy, or into a file next to the pools. For common rules, you need no Rego:
see [the library](library.md).

A RunnerPolicy applies a recipe to one namespace, and a ClusterRunnerPolicy to all namespaces. For guard rails, use a ClusterRunnerPolicy
from a source that the limited teams cannot change.
`

// cookbookPage shows each recipe: its purpose, its parameters, and its rules as they are in their file.
func cookbookPage(folder string) (string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", fmt.Errorf("listing recipes: %w", err)
	}
	page := notice + cookbookIntroduction
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(folder, entry.Name(), "policy.rego"))
		if err != nil {
			return "", fmt.Errorf("reading a recipe: %w", err)
		}
		section, err := recipeSection(entry.Name(), string(text))
		if err != nil {
			return "", fmt.Errorf("recipe %s: %w", entry.Name(), err)
		}
		page += section
	}
	return page, nil
}

func recipeSection(name, text string) (string, error) {
	annotations, diagnostics := policy.Annotations(map[string]string{name: text})
	if len(diagnostics) > 0 {
		return "", fmt.Errorf("line %d: %s", diagnostics[0].Line, diagnostics[0].Message)
	}
	if len(annotations) == 0 || annotations[0].Rule != "" {
		return "", fmt.Errorf("its package has no metadata")
	}
	of := annotations[0]
	section := fmt.Sprintf("\n## %s\n\n%s\n\nUse a %v with ", of.Title, strings.TrimSpace(of.Description), of.Custom["kind"])
	if parameters, ok := of.Custom["parameters"]; ok {
		data, err := yaml.Marshal(map[string]any{"parameters": parameters})
		if err != nil {
			return "", fmt.Errorf("writing its parameters: %w", err)
		}
		section += fmt.Sprintf("these parameters:\n\n```yaml\n%s```\n\nand ", data)
	}
	_, rules, found := strings.Cut(text, "\npackage ")
	if !found {
		return "", fmt.Errorf("it has no package")
	}
	return section + fmt.Sprintf("this module:\n\n```rego\npackage %s```\n\nThe recipe has [tests](../../policies/cookbook/%s/policy_test.rego).\n", rules, name), nil
}
