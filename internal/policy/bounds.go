// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/schedule"
	"github.com/corral-dev/corral/internal/yamldoc"
)

// maxNesting is the maximum depth of data and parameters.
const maxNesting = 64

// testFile reports whether a module contains tests, according to its name. Decisions never read such modules.
func testFile(name string) bool { return strings.HasSuffix(name, "_test.rego") }

// checkSource runs the checks that need no parsing.
func checkSource(s *Source, d *diagnostics) {
	checkModules(s, d)
	for _, pattern := range s.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil {
			d.add(nil, "namespaces: %q is no pattern; write a name, with * for any characters", pattern)
		}
	}
	checkNames(s.Data, "spec.data", d)
	if s.Library != nil && s.Library.Hours != nil {
		if _, err := schedule.Location(s.Library.Hours.TimeZone); err != nil {
			d.add(nil, "spec.library.hours.timeZone: %v", err)
		}
	}
	checkDepth(s.Data, "spec.data", d)
	checkDepth(s.Parameters, "spec.parameters", d)
}

// checkNames reports the keys of data that are reserved.
func checkNames(data map[string]any, where string, d *diagnostics) {
	for _, key := range slices.Sorted(maps.Keys(reserved)) {
		if _, ok := data[key]; ok {
			d.add(nil, "%s must not have the key %s: %s; rename it", where, key, reserved[key])
		}
	}
}

// mergeFiles merges the content of files into data.
func mergeFiles(data map[string]any, files map[string]string, d *diagnostics) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := yamldoc.Object([]byte(files[name]))
		if err != nil {
			d.add(nil, "%s: it can't be read as a JSON or YAML object: %v", name, err)
			continue
		}
		checkNames(content, name, d)
		checkDepth(content, name, d)
		for key, value := range content {
			if _, taken := data[key]; taken {
				d.add(nil, "%s: data.%s already exists", name, key)
			}
			data[key] = value
		}
	}
}

// checkModules checks the names and encoding of modules, their number, and the size of modules and data.
func checkModules(s *Source, d *diagnostics) {
	count := 0
	for _, name := range slices.Sorted(maps.Keys(s.Modules)) {
		text := s.Modules[name]
		if !strings.HasSuffix(name, ".rego") {
			d.add(&ast.Location{File: name}, "a module is named NAME.rego: rename it")
		}
		if !utf8.ValidString(text) {
			d.add(&ast.Location{File: name}, "the module isn't UTF-8 text: save it as UTF-8")
		}
		if !testFile(name) {
			count++
		}
	}
	if count > v1alpha1.MaxPolicyModules {
		d.add(nil, "the policy has %d modules, more than %d: join some, or make two policies of it", count, v1alpha1.MaxPolicyModules)
	}
	if size := s.Size(); size > v1alpha1.MaxPolicyBytes {
		d.add(nil, "the policy's modules and data take %d bytes, more than %d: make two policies of it", size, v1alpha1.MaxPolicyBytes)
	}
}

// reserved contains the keys that a policy's data must not have, each with the purpose that it already has.
var reserved = map[string]string{
	"library":    "data.library is what spec.library says",
	"parameters": "data.parameters is what spec.parameters says",
	"corral":     "data.corral has the packages of the decisions",
}

func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil || string(text) == "null" {
		return nil
	}
	return text
}

func checkDepth(v any, where string, d *diagnostics) {
	if !shallow(v, maxNesting) {
		d.add(nil, "%s is nested more than %d deep: make it flatter", where, maxNesting)
	}
}

func shallow(v any, depth int) bool {
	elements, _ := v.([]any)
	if m, ok := v.(map[string]any); ok {
		elements = slices.Collect(maps.Values(m))
	}
	return !slices.ContainsFunc(elements, func(element any) bool { return depth == 0 || !shallow(element, depth-1) })
}
