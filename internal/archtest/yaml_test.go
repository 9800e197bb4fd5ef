// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// harmlessYAML lists names of YAML packages that decode nothing, by package.
var harmlessYAML = map[string][]string{
	"go.yaml.in/yaml/v3": {"Node", "MappingNode", "SequenceNode", "ScalarNode", "LiteralStyle", "DoubleQuotedStyle", "NewEncoder"},
	"sigs.k8s.io/yaml":   {"Marshal", "JSONToYAML"},
}

// trustedYAML lists files that decode YAML embedded in the binary: without a check for aliases this takes half the
// time.
var trustedYAML = []string{"internal/admission/admission.go"}

// All YAML from users is decoded by one package, which refuses aliases.
func TestTheProductDecodesYAMLInOnePackage(t *testing.T) {
	for _, pkg := range deps(t, "cmd/corral") {
		folder, ours := strings.CutPrefix(pkg, module)
		if !ours || folder == "internal/yamldoc" {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			short, _ := filepath.Rel(filepath.Join("..", ".."), name)
			if strings.HasSuffix(name, "_test.go") || slices.Contains(trustedYAML, short) {
				continue
			}
			for _, use := range yamlUses(t, name) {
				t.Errorf("%s uses %s: call internal/yamldoc", short, use)
			}
		}
	}
}

// yamlUses returns a file's uses of YAML packages that may decode.
func yamlUses(t *testing.T, name string) (uses []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{} // by name in the file
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if !strings.Contains(imported, "yaml") || imported == module+"internal/yamldoc" {
			continue
		}
		local := filepath.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		packages[local] = imported
		if _, known := harmlessYAML[imported]; !known || local == "." || local == "_" {
			uses = append(uses, imported)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := selector.X.(*ast.Ident); ok && packages[of.Name] != "" && !slices.Contains(harmlessYAML[packages[of.Name]], selector.Sel.Name) {
			uses = append(uses, packages[of.Name]+"."+selector.Sel.Name)
		}
		return true
	})
	return uses
}

// The previous test must find actual decoders.
func TestTheLookForYAMLFindsDecoders(t *testing.T) {
	for _, name := range trustedYAML {
		if len(yamlUses(t, filepath.Join("..", "..", name))) == 0 {
			t.Errorf("%s decodes none: take it from the list", name)
		}
	}
	for _, imported := range slices.Sorted(maps.Keys(harmlessYAML)) {
		if used := yamlUses(t, filepath.Join("..", "yamldoc", "yamldoc.go")); !slices.ContainsFunc(used, func(use string) bool { return strings.HasPrefix(use, imported+".") }) {
			t.Errorf("nothing of %s is found in internal/yamldoc", imported)
		}
	}
}
