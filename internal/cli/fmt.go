// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	cueerrors "cuelang.org/go/cue/errors"
	cueformat "cuelang.org/go/cue/format"
	cueparser "cuelang.org/go/cue/parser"
	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// formatters maps the extensions of file names to the functions that format such files.
var formatters = map[string]func(name string, text []byte) ([]byte, error){".cue": formatCUE, ".rego": policy.FormatRego}

// formatting holds the flags and results of fmt.
type formatting struct {
	check, diff bool
	out         io.Writer
	// unformatted is the number of files that were changed or, with --check or --diff, that are not formatted.
	unformatted int
	// problems joins the errors of files that could not be formatted.
	problems error
}

func newFmt() *cobra.Command {
	f := &formatting{}
	c := &cobra.Command{
		Use:   "fmt [FILE|DIR]...",
		Short: "Format definitions and rules, as cue fmt and opa fmt do",
		Long: `Format .cue and .rego files (default: all in and below the current folder), and print the name of
each file that changed. The result is the same as with cue fmt and opa fmt, whose libraries corral
contains.

The command skips cue.mod and folders whose names begin with . or _. A file with a syntax error
stays as it is. The command then formats the other files and exits with code 1.

With --check or --diff, write nothing, and exit with code 3 if a file is not formatted.`,
		Example: "  corral fmt\n  corral fmt --check\n  corral fmt -d pools/linux.cue",
	}
	c.Flags().BoolVar(&f.check, "check", f.check, "print the names of files that are not formatted, and write nothing")
	c.Flags().BoolVarP(&f.diff, "diff", "d", f.diff, "print the changes instead of names, and write nothing")
	c.RunE = func(c *cobra.Command, args []string) error {
		f.out = c.OutOrStdout()
		if len(args) == 0 {
			args = []string{"."}
		}
		for _, path := range args {
			_ = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error { return f.visit(path, name, entry, err) }) // visit records errors in f.problems
		}
		if f.problems == nil && (f.check || f.diff) && f.unformatted > 0 {
			return fmt.Errorf("%w: corral fmt formats %s", errChanged, wording.Count(f.unformatted, "file"))
		}
		return f.problems
	}
	return c
}

// visit formats a file, or skips a folder that fmt leaves out. It records errors and continues with the next
// file.
func (f *formatting) visit(path, name string, entry fs.DirEntry, err error) error {
	isLeftOut := func(base string) bool {
		return base == "cue.mod" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
	}
	switch {
	case err != nil:
	case !entry.IsDir():
		err = f.entry(name, entry.Type().IsRegular(), name == path)
	case name != path && isLeftOut(entry.Name()):
		return fs.SkipDir
	}
	f.problems = errors.Join(f.problems, err)
	return nil
}

// entry formats a file if fmt can format it. It returns an error if fmt cannot format a file that an argument
// names.
func (f *formatting) entry(name string, isFile, isArgument bool) error {
	format, known := formatters[filepath.Ext(name)]
	switch {
	case isArgument && !isFile:
		return fmt.Errorf("%s is neither a regular file nor a folder", name)
	case isArgument && !known:
		return fmt.Errorf("%s is neither a .cue nor a .rego file", name)
	case known && isFile:
		return f.file(name, format)
	}
	return nil
}

// file formats one file.
func (f *formatting) file(name string, format func(string, []byte) ([]byte, error)) error {
	text, err := readInput(nil, name, compile.MaxFileBytes)
	if err != nil {
		return err
	}
	formatted, err := formatInTime(name, text, format)
	if err != nil || bytes.Equal(text, formatted) {
		return err
	}
	f.unformatted++
	if f.diff {
		return difflib.WriteUnifiedDiff(f.out, difflib.UnifiedDiff{A: linesOf(text), B: linesOf(formatted),
			FromFile: name + ".orig", ToFile: name, Context: 3})
	}
	if !f.check {
		err = os.WriteFile(name, formatted, 0o644) // an existing file keeps its mode
	}
	if err == nil {
		_, err = fmt.Fprintln(f.out, name)
	}
	return err
}

// formatTime limits the time for one file, because the time of the libraries is much more than linear in the size
// of some files.
const formatTime = 15 * time.Second

// formatInTime formats a file, and returns an error after formatTime.
func formatInTime(name string, text []byte, format func(string, []byte) ([]byte, error)) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		formatted, err := format(name, text)
		done <- result{formatted, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-time.After(formatTime):
		return nil, fmt.Errorf("%s: formatting takes longer than %s, the limit", name, formatTime)
	}
}

// linesOf splits a text into lines. It removes the newline at the end, because SplitLines adds one.
func linesOf(text []byte) []string {
	return difflib.SplitLines(strings.TrimSuffix(string(text), "\n"))
}

func formatCUE(name string, text []byte) ([]byte, error) {
	file, err := cueparser.ParseFile(name, text, cueparser.ParseComments)
	if err == nil {
		text, err = cueformat.Node(file)
	}
	if err != nil {
		first := cueerrors.Errors(err)[0]
		return nil, fmt.Errorf("%s: %w", first.Position(), first)
	}
	return text, nil
}
