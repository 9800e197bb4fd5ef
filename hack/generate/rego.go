// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/open-policy-agent/opa/v1/format"
)

// formatRego formats every .rego file as opa fmt does.
func formatRego() error {
	return filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".rego"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 { // OPA refuses to format an empty file
			return err
		}
		formatted, err := format.Source(path, text)
		if err != nil || bytes.Equal(text, formatted) {
			return err
		}
		return os.WriteFile(path, formatted, 0o644)
	})
}
