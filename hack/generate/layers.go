// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/corral-dev/corral/internal/archtest"
)

// writeLayers writes the list of layers in internal/archtest into the linter's settings and into docs/architecture.md.
func writeLayers() error {
	pure := slices.Concat(archtest.Shared.Packages, archtest.Pure.Packages, archtest.Review.Packages)
	var files, table strings.Builder
	for _, pkg := range pure {
		fmt.Fprintf(&files, "            - \"**/%s/*.go\"\n", pkg)
	}
	for _, layer := range archtest.Layers {
		fmt.Fprintf(&table, "| %s | `%s` | %s |\n", layer.Name, strings.Join(layer.Packages, "`, `"), layer.May)
	}
	except := fmt.Sprintf("        path-except: ^(%s)/\n", strings.Join(pure, "|"))
	return errors.Join(
		replace(".golangci.yml", "          files: &pure\n", "            - \"!$test\"\n", files.String()),
		replace(".golangci.yml", "        text: a clock is an argument here\n", "      - linters", except),
		replace("docs/architecture.md", "| layer | packages | may |\n|---|---|---|\n", "| controllers", table.String()),
	)
}

// replace replaces the text between two markers in a file.
func replace(path, before, after, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	head, rest, ok := strings.Cut(string(content), before)
	_, tail, found := strings.Cut(rest, after)
	if !ok || !found {
		return fmt.Errorf("%s has no place between %q and %q", path, before, after)
	}
	return os.WriteFile(path, []byte(head+before+text+after+tail), 0o644)
}
