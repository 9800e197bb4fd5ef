// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/corral-dev/corral/internal/policy"
)

// leastRecipes is the minimum number of policies in the cookbook.
const leastRecipes = 10

// recipe reads a policy of the cookbook, with the example parameters from its metadata.
func recipe(t *testing.T, name string) policy.Source {
	t.Helper()
	source := policy.Source{Name: name, Modules: map[string]string{}}
	for _, file := range []string{"policy.rego", "policy_test.rego"} {
		text, err := os.ReadFile(filepath.Join("cookbook", name, file))
		if err != nil {
			t.Fatal(err)
		}
		source.Modules[file] = string(text)
	}
	annotations, diagnostics := policy.Annotations(source.Modules)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	for _, a := range annotations {
		if a.Rule != "" || a.File != "policy.rego" {
			continue
		}
		source.Kind, _ = a.Custom["kind"].(string)
		source.Parameters, _ = a.Custom["parameters"].(map[string]any)
		if a.Title == "" || a.Description == "" {
			t.Error("the metadata has no title or no description")
		}
	}
	if source.Kind == policy.KindRunnerPolicy {
		source.Namespace = "ci"
	}
	return source
}

func TestTheCookbook(t *testing.T) {
	folders, err := os.ReadDir("cookbook")
	if err != nil || len(folders) < leastRecipes {
		t.Fatalf("there are %d recipes: %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			source := recipe(t, folder.Name())
			if _, diagnostics := policy.Load(source); len(diagnostics) > 0 {
				t.Fatal(diagnostics)
			}
			report, diagnostics := policy.Test(t.Context(), source, policy.TestOptions{Coverage: true})
			if len(diagnostics) > 0 {
				t.Fatal(diagnostics)
			}
			for _, result := range report.Tests {
				if !result.Passed {
					t.Errorf("%s:%d: %s failed: %s\n%s", result.File, result.Line, result.Name, result.Error, result.Output)
				}
			}
			for _, file := range report.Coverage {
				covered := len(file.Covered)
				if covered*100 < leastCoverage*(covered+len(file.NotCovered)) {
					t.Errorf("the tests do not cover the lines %v of %s", file.NotCovered, file.File)
				}
			}
			if len(report.Tests) == 0 {
				t.Error("the recipe has no tests")
			}
		})
	}
}

// Recipes are copied side by side into one folder, and then are one policy.
func TestRecipesOfTheCookbookLoadTogether(t *testing.T) {
	folders, err := os.ReadDir("cookbook")
	if err != nil {
		t.Fatal(err)
	}
	together := policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "all", Modules: map[string]string{}, Parameters: map[string]any{}}
	for _, folder := range folders {
		source := recipe(t, folder.Name())
		for file, text := range source.Modules {
			together.Modules[folder.Name()+"-"+file] = text
		}
		maps.Copy(together.Parameters, source.Parameters)
	}
	if _, diagnostics := policy.Load(together); len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	report, diagnostics := policy.Test(t.Context(), together, policy.TestOptions{})
	if len(diagnostics) > 0 || len(report.Tests) == 0 {
		t.Fatalf("%d tests; %v", len(report.Tests), diagnostics)
	}
}
