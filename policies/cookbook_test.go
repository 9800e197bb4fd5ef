// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/corral-dev/corral/internal/policy"
)

// leastRecipes is how many policies the cookbook has at least.
const leastRecipes = 10

// recipe reads a policy of the cookbook, with the parameters that its metadata gives as an example.
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
			t.Error("its metadata has no title, or no description")
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
					t.Errorf("lines %v of %s are not covered", file.NotCovered, file.File)
				}
			}
			if len(report.Tests) == 0 {
				t.Error("it has no tests")
			}
		})
	}
}
