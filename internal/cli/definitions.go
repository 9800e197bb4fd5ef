// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

// definitions says which definitions a command works on.
type definitions struct {
	tags tags
	// allowEmpty accepts a folder that declares no pool.
	allowEmpty bool
	// source applies the folder or one above, and sources apply folders below it. Only vet looks for them.
	source  *declaredSource
	sources []*declaredSource
	// lost reports sources of the same repository whose folder does not exist.
	lost []v1alpha1.Diagnostic
}

func bindDefinitions(c *cobra.Command) *definitions {
	d := &definitions{}
	c.Args = cobra.MaximumNArgs(1)
	d.tags = tags{}
	c.Flags().VarP(d.tags, "tag", "t", "set @tag(NAME) to VALUE, as NAME=VALUE, or make @if(NAME) true, as NAME; may be repeated")
	return d
}

// tags are the values of tags by name. They implement pflag.Value.
type tags map[string]string

// String is empty: there are none by default.
func (t tags) String() string { return "" }

// Type says how one is written.
func (t tags) Type() string { return "NAME[=VALUE]" }

// Set adds a tag.
func (t tags) Set(text string) error {
	name, value, hasValue := strings.Cut(text, "=")
	if name == "" {
		return errors.New("must be NAME=VALUE or NAME")
	}
	if !hasValue {
		value = "true"
	}
	t[name] = value
	return nil
}

// compiled is what definitions compile to, and where they lie.
type compiled struct {
	compile.Result
	// root is the folder that the names of modules are relative to; path is the folder
	// that was asked for, relative to it, with slashes.
	root, path string
	compiler   Compiler
	// uncommitted says what was read that a source would not have; nothing while there are diagnostics.
	uncommitted []v1alpha1.Diagnostic
	// unread says what a source would not read; nothing while there are diagnostics.
	unread []v1alpha1.Diagnostic
	// isAssigned is true if PoolSources of the tree apply the objects, each into its namespace.
	isAssigned bool
	// onlyPolicies is true for a folder with manifests of policies, and without definitions.
	onlyPolicies bool
}

// compile compiles the folder that a command was given, or the current one. The files
// of diagnostics and objects are named relative to the current folder. It compiles as the
// controller does, in a child process with its limits: what is checked in a pull request is
// not always the user's own. Links are followed neither there nor here.
func (d *definitions) compile(ctx context.Context, args []string) (compiled, error) {
	t, closeTree, err := openTree(folderOf(args))
	if err != nil {
		return compiled{}, err
	}
	defer closeTree()
	compiler, err := newCompiler(ctx, 1)
	if err != nil {
		return compiled{}, err
	}
	if err := t.checkWhole(); err != nil {
		return compiled{}, err
	}
	c, err := compileTree(ctx, compiler, t, compile.Options{Tags: d.tags, AllowEmpty: d.allowEmpty, Positions: true})
	if err != nil {
		return c, err
	}
	isEmpty := len(c.Objects) == 0 && !slices.ContainsFunc(c.Diagnostics, func(d v1alpha1.Diagnostic) bool { return d.Code != compile.PoolsMissing })
	if len(c.Diagnostics) > 0 && !isEmpty {
		return c, nil
	}
	if err := d.assign(ctx, t, &c); err != nil {
		return c, err
	}
	c.isAssigned = len(d.sources) > 0 || d.source != nil
	strays := t.look()
	c.onlyPolicies = isEmpty && strays.hasPolicies()
	c.uncommitted, c.unread = t.uncommitted(), strays.unread(c.Objects)
	return c, nil
}

// tree is a tree of definitions.
type tree struct {
	fsys fs.FS
	// root is the folder that its files are named as being in, and path the folder in it that is asked for.
	root, path string
}

// openTree opens the tree that a folder is in. Links in it lead nowhere else.
func openTree(folder string) (tree, func(), error) {
	rootPath, path, err := locate(folder)
	if err != nil {
		return tree{}, nil, err
	}
	root, err := os.OpenRoot(rootPath)
	if err != nil {
		return tree{}, nil, fmt.Errorf("opening the definitions: %w", err)
	}
	return tree{root.FS(), rootPath, path}, func() { _ = root.Close() }, nil // nothing is written
}

// compileTree compiles a tree in a child process, and names its files relative to the current folder.
func compileTree(ctx context.Context, compiler Compiler, t tree, options compile.Options) (compiled, error) {
	options.Path = t.path
	result, err := compiler.Compile(ctx, t.fsys, options)
	if err != nil {
		return compiled{}, err
	}
	names := map[string]string{}
	name := func(file string) string {
		if _, known := names[file]; !known {
			names[file] = shown(t.root, file)
		}
		return names[file]
	}
	for i, d := range result.Diagnostics {
		if d.File != "" {
			result.Diagnostics[i].File = name(d.File)
		}
	}
	for i := range result.Objects {
		result.Objects[i].Rename(name)
	}
	return compiled{Result: result, root: t.root, path: t.path, compiler: compiler}, nil
}

// shown names a file of a tree as seen from the current folder, in one line.
func shown(root, file string) string {
	return wording.Escape(filepath.ToSlash(relative(filepath.Join(root, filepath.FromSlash(file)))), "")
}

// locate returns the closest folder at or above folder with a CUE module, or else
// folder itself, and folder's path in it.
func locate(folder string) (root, path string, err error) {
	absolute, err := filepath.Abs(folder)
	if err == nil {
		_, err = os.Stat(absolute)
	}
	if err != nil {
		return "", "", fmt.Errorf("finding the definitions: %w", err)
	}
	for dir := absolute; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cue.mod", "module.cue")); err == nil {
			rel, err := filepath.Rel(dir, absolute)
			return dir, filepath.ToSlash(rel), err
		}
		if dir == filepath.Dir(dir) {
			return absolute, ".", nil
		}
	}
}

// relative names a file as seen from the current folder, where that is shorter.
func relative(file string) string {
	current, err := os.Getwd()
	if err != nil {
		return file
	}
	rel, err := filepath.Rel(current, file)
	if err != nil || len(rel) > len(file) {
		return file
	}
	return rel
}

// printDiagnostics writes one line for each diagnostic.
func printDiagnostics(w io.Writer, diagnostics []v1alpha1.Diagnostic) {
	for _, d := range diagnostics {
		fmt.Fprintln(w, compile.Format(d))
	}
}

// refuse prints diagnostics, and returns their error.
func refuse(c *cobra.Command, diagnostics []v1alpha1.Diagnostic) error {
	printDiagnostics(c.ErrOrStderr(), diagnostics)
	return problems(diagnostics)
}

// problems is the error of a command that found some.
func problems(diagnostics []v1alpha1.Diagnostic) error {
	return errors.New(wording.Count(len(diagnostics), "problem"))
}
