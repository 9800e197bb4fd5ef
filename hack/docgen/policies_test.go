// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

func TestThePagesOfPoliciesAreCurrent(t *testing.T) {
	pages, err := policyPages(filepath.Join(top, "policies/cookbook"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		if read(t, filepath.Join(top, "docs/policies", name)) != want {
			t.Errorf("docs/policies/%s is not what hack/docgen writes: run make generate", name)
		}
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// Each example on the library's page is a policy, or part of spec.library.
func TestExamplesOfTheLibraryLoad(t *testing.T) {
	blocks := yamlBlock.FindAllStringSubmatch(libraryTemplate, -1)
	for _, block := range blocks {
		text := block[1]
		if !strings.HasPrefix(text, "apiVersion:") {
			text = "spec:\n  library:\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
		}
		var object v1alpha1.ClusterRunnerPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Errorf("%v in:\n%s", err, text)
			continue
		}
		source := policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "example", Library: object.Spec.Library}
		if _, diagnostics := policy.Load(source); len(diagnostics) > 0 {
			t.Errorf("%v in:\n%s", diagnostics, text)
		}
	}
	if len(blocks) < len(strings.Fields("one for each family")) {
		t.Errorf("there are %d examples", len(blocks))
	}
}

var regoBlock = regexp.MustCompile("(?ms)^```rego\n(.*?)^```")

func TestRulesOnTheLibrarysPageLoad(t *testing.T) {
	for _, block := range regoBlock.FindAllStringSubmatch(libraryTemplate, -1) {
		source := policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "example", Modules: map[string]string{"example.rego": block[1]}}
		if _, diagnostics := policy.Load(source); len(diagnostics) > 0 {
			t.Errorf("%v in:\n%s", diagnostics, block[1])
		}
	}
}

func TestRulesNeedAllOfTheirMetadata(t *testing.T) {
	for name, rules := range map[string][]policy.Annotation{
		"none":           nil,
		"no code":        {{Title: "a", Description: "b"}},
		"no title":       {{Code: "a", Description: "b"}},
		"no description": {{Title: "a", Code: "b"}},
	} {
		if table, err := ruleTable(rules); err == nil {
			t.Errorf("%s: got %s", name, table)
		}
	}
	table, err := ruleTable([]policy.Annotation{
		{Package: "corral.scaling", Rule: "limit", Code: "B", Title: "b", Description: "one\n two"},
		{Package: "corral.template", Rule: "deny", Code: "A", Title: "a", Description: "x|y"},
	})
	want := "| code | rule | meaning |\n|---|---|---|\n| `A` | `corral.template.deny` | **a.** x\\|y |\n| `B` | `corral.scaling.limit` | **b.** one two |"
	if err != nil || table != want {
		t.Error(fmt.Sprint(err), table)
	}
}
