// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	regoformat "github.com/open-policy-agent/opa/v1/format"
)

const top = "../.."

// starts are the folders with the files that people start from: the examples, and what corral init writes.
var starts = []string{filepath.Join(top, "examples"), filepath.Join(top, "internal/cli/new")}

// definitionsOf returns the files of starts with an extension, by their path.
func definitionsOf(t *testing.T, extension string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, start := range starts {
		must(t, filepath.WalkDir(start, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != extension || filepath.Base(filepath.Dir(name)) == "cue.mod" {
				return err
			}
			files[name], err = os.ReadFile(name)
			return err
		}))
	}
	return files
}

// The cue command takes all definitions as they are: cue vet finds nothing, and cue fmt changes nothing.
func TestCUETakesTheDefinitions(t *testing.T) {
	cue, folder := buildCUE(t), newModule(t)
	files := definitionsOf(t, ".cue")
	if len(files) < 25 {
		t.Fatalf("only %d files", len(files))
	}
	for name, text := range files {
		write(t, filepath.Join(folder, strings.TrimPrefix(strings.TrimPrefix(name, top), "/examples")), text)
	}
	for _, args := range [][]string{{"vet", "-c", "./..."}, {"fmt", "--check", "--files", "."}} {
		command := exec.CommandContext(t.Context(), cue, args...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("cue %v: %v\n%s", args, err, out)
		}
	}
}

// opa check --strict takes the policies of each folder, and opa fmt changes nothing.
func TestOPATakesThePolicies(t *testing.T) {
	folders := map[string]map[string]*ast.Module{}
	for name, text := range definitionsOf(t, ".rego") {
		module, err := ast.ParseModuleWithOpts(name, string(text), ast.ParserOptions{ProcessAnnotation: true})
		must(t, err)
		formatted, err := regoformat.Source(name, text)
		if err != nil || !bytes.Equal(formatted, text) {
			t.Errorf("opa fmt would change %s: %v", name, err)
		}
		folder := filepath.Dir(name)
		if folders[folder] == nil {
			folders[folder] = map[string]*ast.Module{}
		}
		folders[folder][name] = module
	}
	if len(folders) < 3 {
		t.Fatalf("only %d folders", len(folders))
	}
	for folder, modules := range folders {
		compiler := ast.NewCompiler().WithStrict(true)
		if compiler.Compile(modules); compiler.Failed() {
			t.Error(fmt.Errorf("%s: %w", folder, compiler.Errors))
		}
	}
}
