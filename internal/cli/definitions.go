// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/compileworker"
)

// definitions says which definitions a command works on.
type definitions struct {
	tags map[string]string
}

func bindDefinitions(c *cobra.Command) *definitions {
	d := &definitions{}
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().StringToStringVarP(&d.tags, "tag", "t", nil, "value for the fields marked @tag(NAME), as NAME=VALUE; may be repeated")
	return d
}

// compile compiles the folder that a command was given, or the current one. The files
// of diagnostics and objects are named relative to the current folder. It compiles as the
// controller does, in a child process with its limits: what is checked in a pull request is
// not always the user's own. Links that leave the module are refused.
func (d *definitions) compile(ctx context.Context, args []string) (compile.Result, error) {
	folder := "."
	if len(args) > 0 {
		folder = args[0]
	}
	rootPath, path, err := locate(folder)
	if err != nil {
		return compile.Result{}, err
	}
	root, err := os.OpenRoot(rootPath)
	if err != nil {
		return compile.Result{}, fmt.Errorf("opening the definitions: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing was written
	compiler, err := compileworker.New(1, compileworker.DefaultLimits())
	if err != nil {
		return compile.Result{}, err
	}
	result, err := compiler.Compile(ctx, root.FS(), compile.Options{Path: path, Tags: d.tags})
	if err != nil {
		return compile.Result{}, err
	}
	shown := func(file string) string { return relative(filepath.Join(rootPath, filepath.FromSlash(file))) }
	for i := range result.Diagnostics {
		if result.Diagnostics[i].File != "" {
			result.Diagnostics[i].File = shown(result.Diagnostics[i].File)
		}
	}
	for i := range result.Objects {
		result.Objects[i].File = shown(result.Objects[i].File)
	}
	return result, nil
}

// locate returns the closest folder at or above folder with a CUE module, or else
// folder itself, and folder's path in it.
func locate(folder string) (root, path string, err error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", "", fmt.Errorf("finding the definitions: %w", err)
	}
	if _, err := os.Stat(absolute); err != nil {
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
func printDiagnostics(w io.Writer, result compile.Result) {
	for _, d := range result.Diagnostics {
		fmt.Fprintln(w, compile.Format(d))
	}
}

// problems is the error of a command that found some.
func problems(result compile.Result) error {
	if n := len(result.Diagnostics); n != 1 {
		return fmt.Errorf("%d problems", n)
	}
	return fmt.Errorf("1 problem")
}
