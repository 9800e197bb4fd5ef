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

	cueformat "cuelang.org/go/cue/format"
	opaformat "github.com/open-policy-agent/opa/v1/format"
	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/wording"
)

// errUnformatted is the error of fmt --check when a file is not formatted.
var errUnformatted = errors.New("not formatted")

func newFmt() *cobra.Command {
	isCheck := false
	c := &cobra.Command{
		Use:   "fmt [PATH...]",
		Short: "Format the CUE and Rego files of a repository",
		Long: `Format CUE and Rego files as cue fmt and opa fmt do: files, and all files in and below
folders (default: the current folder). Hidden folders and cue.mod are skipped. The command prints the
name of each file that it changes.

With --check, it changes nothing, and exits with code 1 if a file is not formatted.`,
		Example: "  corral fmt\n  corral fmt --check teams platform",
	}
	c.Flags().BoolVar(&isCheck, "check", false, "change nothing, and fail if a file is not formatted")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{"."}
		}
		f := &formatter{out: c.OutOrStdout(), isCheck: isCheck}
		for _, f.root = range args {
			if err := filepath.WalkDir(f.root, f.visit); err != nil {
				return err
			}
		}
		if isCheck && f.changed > 0 {
			return fmt.Errorf("%s %w: run corral fmt", wording.Count(f.changed, "file"), errUnformatted)
		}
		return nil
	}
	return c
}

// formatter formats the files below root.
type formatter struct {
	out     io.Writer
	root    string
	isCheck bool
	// changed is the number of files whose format differs.
	changed int
}

func (f *formatter) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	isSkipped := name != f.root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "cue.mod")
	switch {
	case entry.IsDir() && isSkipped:
		return fs.SkipDir
	case isSkipped || !entry.Type().IsRegular():
		return nil
	}
	isChanged, err := formatFile(name, f.isCheck)
	if isChanged {
		f.changed++
		_, err = fmt.Fprintln(f.out, name)
	}
	return err
}

// formatFile formats a file of CUE or Rego, and reports whether that changes it.
func formatFile(name string, isCheck bool) (bool, error) {
	format := func(text []byte) ([]byte, error) { return cueformat.Source(text) }
	switch filepath.Ext(name) {
	case ".cue":
	case ".rego":
		format = func(text []byte) ([]byte, error) { return opaformat.Source(filepath.Base(name), text) }
	default:
		return false, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return false, fmt.Errorf("reading a file to format: %w", err)
	}
	formatted, err := format(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if bytes.Equal(text, formatted) {
		return false, nil
	}
	if !isCheck {
		err = os.WriteFile(name, formatted, 0o644) //nolint:gosec // the file keeps its permissions
	}
	return err == nil, err
}
