// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/encoding/yaml"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/internal/compile"
)

// example is a block of CUE in docs/cue-primer.md, and the block below it: the YAML that it evaluates to, or its error.
var example = regexp.MustCompile("(?s)```cue\n(.*?)```\n\n```(yaml|text)\n(.*?)```")

func TestExamplesOfThePrimer(t *testing.T) {
	page, err := os.ReadFile("../../docs/cue-primer.md")
	if err != nil {
		t.Fatal(err)
	}
	found := example.FindAllStringSubmatch(string(page), -1)
	if blocks := strings.Count(string(page), "```cue\n"); len(found) != blocks {
		t.Errorf("%d of %d examples have a result below them", len(found), blocks)
	}
	for _, match := range found {
		evaluate := evaluateCUE
		if strings.HasPrefix(match[1], "package ") {
			evaluate = evaluatePools
		}
		if diff := cmp.Diff(match[3], evaluate(t, match[1])); diff != "" {
			t.Errorf("%s\nthe page has -, it evaluates to +:\n%s", match[1], diff)
		}
	}
}

// evaluateCUE returns a file's value as YAML, or the first error.
func evaluateCUE(t *testing.T, text string) string {
	t.Helper()
	value := cuecontext.New().CompileString(text)
	if err := value.Validate(); err != nil {
		return err.Error() + "\n"
	}
	out, err := yaml.Encode(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// evaluatePools compiles a file as Corral does, and returns a line for each pool.
func evaluatePools(t *testing.T, text string) string {
	t.Helper()
	result := compile.Compile(compile.Files{"pools.cue": []byte(text)}, compile.Options{})
	if len(result.Diagnostics) > 0 {
		t.Fatalf("%+v", result.Diagnostics)
	}
	var lines []string
	for _, o := range result.Objects {
		most, _, err := unstructured.NestedInt64(o.Manifest.Object, "spec", "scale", "max")
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("  - %s max %d", o.Manifest.GetName(), most))
	}
	slices.Sort(lines)
	return "pools:\n" + strings.Join(lines, "\n") + "\n"
}
