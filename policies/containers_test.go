// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/corral-dev/corral/internal/policy"
)

var regoBlock = regexp.MustCompile("(?ms)^```rego\n(.*?)^```")

// Rego that users copy gives no reason for a doubt: it looks at every container, compares no quantity as text, and expects no field that pods
// may lack.
func TestRulesThatUsersCopy(t *testing.T) {
	modules := map[string]string{}
	for _, pattern := range []string{"cookbook/*/policy.rego", "../examples/*/policies/*.rego", "../internal/cli/new/*/policies/*.rego", "../docs/policies/*.md", "../docs/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(file) == ".rego" {
				modules[file] = string(text)
				continue
			}
			for i, block := range regoBlock.FindAllStringSubmatch(string(text), -1) {
				modules[fmt.Sprintf("%s, block %d", file, i+1)] = block[1]
			}
		}
	}
	for name, text := range modules {
		if strings.HasSuffix(name, "_test.rego") {
			continue
		}
		p, diagnostics := policy.Load(policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "a", Partial: true, Modules: map[string]string{"a.rego": text}})
		if len(diagnostics) > 0 {
			t.Errorf("%s: %v", name, diagnostics)
		}
		for _, d := range p.Facts().Doubts {
			t.Errorf("%s:%d: %s", name, d.Line, d.Message)
		}
	}
	if len(modules) < 20 {
		t.Errorf("only %d modules were found", len(modules))
	}
}
