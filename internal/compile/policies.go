// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/yamldoc"
)

// DefaultPolicyName is the default name of the policy for a tree's Rego files.
const DefaultPolicyName = "repository"

// policyKind is the kind of the policy for a tree's Rego files.
const policyKind = "RunnerPolicy"

// isPolicyFile reports whether a file may be part of a tree's policy: Rego, or data next to it.
func isPolicyFile(name string) bool { return isModule(name) || IsPolicyData(name) }

func isModule(name string) bool {
	base := path.Base(name)
	return path.Ext(base) == ".rego" && !strings.HasPrefix(base, ".") && !strings.HasPrefix(base, "_")
}

func isPolicyTest(name string) bool { return strings.HasSuffix(name, "_test.rego") }

// IsPolicyData reports whether a file contains data for rules.
func IsPolicyData(name string) bool {
	return slices.Contains([]string{"data.json", "data.yaml", "data.yml"}, path.Base(name))
}

// compilePolicy creates one RunnerPolicy from the Rego files of a tree, without their tests, and from the data in their
// folders. It does not check the rules, because the policy engine checks them when it loads the policy.
func (c *compilation) compilePolicy(t *tree, name string) {
	modules, data := map[string]any{}, map[string]any{}
	files := t.policyFiles()
	for _, f := range files {
		if isModule(f) && !isPolicyTest(f) {
			modules[f] = string(t.file(f))
		}
	}
	if len(modules) == 0 {
		return
	}
	origin, positions := map[string]string{}, map[string]Position{}
	for _, f := range files {
		if !IsPolicyData(f) {
			continue
		}
		c.mergeData(data, origin, f, t.file(f))
		if c.positions {
			YAMLPositions("spec.data", f, t.file(f), func(path string, at Position) { c.notePosition(positions, path, at) })
		}
	}
	spec := map[string]any{"modules": modules}
	if len(data) > 0 {
		spec["data"] = data
	}
	first := slices.IndexFunc(files, func(f string) bool { return modules[f] != nil })
	c.objects = append(c.objects, Object{
		File: files[first], Line: 1, Column: 1, Positions: positions,
		Manifest: unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": policyKind,
			"metadata": map[string]any{"name": cmp.Or(name, DefaultPolicyName)}, "spec": spec,
		}},
	})
}

// mergeData merges the content of one data file into the root of data.
func (c *compilation) mergeData(data map[string]any, origin map[string]string, file string, content []byte) {
	object, err := yamldoc.Object(content)
	if err != nil {
		c.report(v1alpha1.Diagnostic{File: file, Line: 1, Column: 1, Message: fmt.Sprintf("data of policies must be a JSON or YAML object: %v", err)})
		return
	}
	for key, value := range object {
		if other, taken := origin[key]; taken {
			c.report(v1alpha1.Diagnostic{File: file, Line: 1, Column: 1, Message: fmt.Sprintf("data.%s is in %s too; all files named data.* of a tree share one root", key, other)})
			continue
		}
		data[key], origin[key] = value, file
	}
}

// policyFiles returns the Rego files below the tree's path and the data files in their folders, sorted.
func (t *tree) policyFiles() []string {
	var names []string
	folders := map[string]bool{}
	for _, m := range t.modules {
		for name := range m.files {
			if isModule(name) && within(t.path, name) {
				names = append(names, name)
				folders[path.Dir(name)] = true
			}
		}
	}
	for _, m := range t.modules {
		for name := range m.files {
			if IsPolicyData(name) && folders[path.Dir(name)] && within(t.path, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *tree) file(name string) []byte {
	for _, m := range t.modules {
		if data, ok := m.files[name]; ok {
			return data
		}
	}
	return nil
}
