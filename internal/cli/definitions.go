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

// definitions selects the definitions that a command works on.
type definitions struct {
	tags tags
	// allowEmpty is true if the folder need not declare any pools.
	allowEmpty bool
	// source is the PoolSource that applies the folder or a parent folder. Without such a source, sources are the PoolSources
	// that apply folders below. Only vet and review set these fields.
	source  *declaredSource
	sources []*declaredSource
	// wrongSources reports PoolSources that apply a folder that does not exist, or that apply a folder into the wrong
	// namespace.
	wrongSources []v1alpha1.Diagnostic
	// badTags reports the folders that do not compile with the tags of their sources. assign sets it.
	badTags []v1alpha1.Diagnostic
}

func bindDefinitions(c *cobra.Command) *definitions {
	d := &definitions{tags: tags{}}
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().VarP(d.tags, "tag", "t", "NAME=VALUE sets @tag(NAME) to VALUE, and NAME alone makes @if(NAME) true; may be repeated")
	return d
}

// tags maps the names of tags to their values. It implements pflag.Value.
type tags map[string]string

// String implements pflag.Value. There are no tags by default.
func (t tags) String() string { return "" }

// Type implements pflag.Value.
func (t tags) Type() string { return "NAME[=VALUE]" }

// Set implements pflag.Value. It adds a tag.
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

// compiled is the result of compiling definitions, with their location.
type compiled struct {
	compile.Result
	// tree contains the definitions. It has no files if the objects come from manifests of another program.
	tree
	// uncommitted reports files that the command read, but that a source would not have. It is empty if the definitions have
	// diagnostics.
	uncommitted []v1alpha1.Diagnostic
	// unread reports files that a source would not read. It is empty if the definitions have diagnostics.
	unread []v1alpha1.Diagnostic
	// unreadable reports YAML files with objects of Corral that cannot be parsed. hidesSource is true if one of the objects
	// that could not be read may be a PoolSource.
	unreadable  []v1alpha1.Diagnostic
	hidesSource bool
	// isAssigned is true if PoolSources of the tree determine the namespaces of the objects.
	isAssigned bool
	// onlyPolicies is true for a folder that has manifests of policies but no definitions.
	onlyPolicies bool
}

// compile compiles the folder in args, or the current folder without args. The file names in diagnostics and objects are
// relative to the current folder. Like the controller, it compiles in a child process with limits and follows no links,
// because the author of a pull request may not be trusted.
func (d *definitions) compile(ctx context.Context, args []string) (compiled, error) {
	t, err := openTree(folderOf(args))
	if err == nil {
		err = t.checkWhole()
	}
	if err != nil {
		return compiled{}, err
	}
	c, err := compileTree(ctx, t, compile.Options{Tags: d.tags, AllowEmpty: d.allowEmpty, Positions: true})
	isEmpty := len(c.Objects) == 0 && !slices.ContainsFunc(c.Diagnostics, func(d v1alpha1.Diagnostic) bool { return d.Code != compile.PoolsMissing })
	if err != nil || len(c.Diagnostics) > 0 && !isEmpty {
		return c, err
	}
	if err := d.assign(ctx, &c); err != nil {
		return c, err
	}
	c.isAssigned = len(d.sources) > 0 || d.source != nil
	strays := t.findStrays()
	c.onlyPolicies = isEmpty && strays.hasPolicies()
	_, priced, err := (namedTree{tree: t}).prices()
	c.uncommitted, c.unread = t.uncommitted(), append(strays.unread(c.Objects), priced...)
	c.unreadable, c.hidesSource = strays.unreadable, strays.hidesSource
	return c, err
}

// tree is a file tree with definitions.
type tree struct {
	fsys fs.FS
	// root is the folder to which the names of files are relative. path is the requested folder relative to root, with slashes.
	root, path string
}

// openTree opens the tree that contains a folder. Symbolic links cannot lead out of the tree. The tree stays open until the
// command ends.
func openTree(folder string) (tree, error) {
	rootPath, path, err := locate(folder)
	if err != nil {
		return tree{}, err
	}
	root, err := os.OpenRoot(rootPath)
	if err != nil {
		return tree{}, fmt.Errorf("opening the definitions: %w", err)
	}
	return tree{root.FS(), rootPath, path}, nil
}

// compileTree compiles a tree in a child process, and names its files relative to the current folder.
func compileTree(ctx context.Context, t tree, options compile.Options) (compiled, error) {
	options.Path = t.path
	result, err := newCompiler(ctx).Compile(ctx, t.fsys, options)
	if err != nil {
		return compiled{}, err
	}
	names := map[string]string{}
	name := func(file string) string {
		if _, known := names[file]; !known {
			names[file] = displayPath(t.root, file)
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
	return compiled{Result: result, tree: t}, nil
}

// displayPath returns the name of a tree's file relative to the current folder, with control characters escaped.
func displayPath(root, file string) string {
	return wording.Escape(filepath.ToSlash(relativePath(filepath.Join(root, filepath.FromSlash(file)))), "")
}

// locate returns the closest folder with a CUE module, at or above the given folder, and the path of the given folder
// relative to it. If there is no module, root is the given folder itself.
func locate(folder string) (root, path string, err error) {
	absolute, err := filepath.Abs(folder)
	if err == nil {
		_, err = os.Stat(absolute)
	}
	if err != nil {
		return "", "", fmt.Errorf("finding the definitions: %w", err)
	}
	for dir, below := absolute, "."; ; dir, below = filepath.Dir(dir), filepath.Join(filepath.Base(dir), below) {
		if _, err := os.Stat(filepath.Join(dir, "cue.mod", "module.cue")); err == nil {
			return dir, filepath.ToSlash(below), nil
		}
		if dir == filepath.Dir(dir) {
			return absolute, ".", nil
		}
	}
}

// relativePath returns a file's name relative to the current folder, unless the relative name is longer than the full name.
func relativePath(file string) string {
	current, _ := os.Getwd() // without a current folder, Rel returns an error
	rel, err := filepath.Rel(current, file)
	if err != nil || len(rel) > len(file) {
		return file
	}
	return rel
}

// printDiagnostics writes a line for each diagnostic.
func printDiagnostics(w io.Writer, diagnostics []v1alpha1.Diagnostic) {
	for _, d := range diagnostics {
		fmt.Fprintln(w, compile.Format(d))
	}
}

// refuse prints diagnostics, and returns the error with which the command ends.
func refuse(c *cobra.Command, diagnostics []v1alpha1.Diagnostic) error {
	printDiagnostics(c.ErrOrStderr(), diagnostics)
	return problems(diagnostics)
}

// problems returns an error with the number of diagnostics.
func problems(diagnostics []v1alpha1.Diagnostic) error {
	return errors.New(wording.Count(len(diagnostics), "problem"))
}
