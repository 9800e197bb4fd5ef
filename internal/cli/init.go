// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	cuemodule "cuelang.org/go/mod/module"
	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/schema"
)

// repository holds the files that init writes. MODULE and VERSION stand for values.
//
//go:embed all:repository
var repository embed.FS

func newInit(version string) *cobra.Command {
	var module, url string
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Begin a repository of pool definitions",
		Long: `Write a repository of pool definitions to DIR (default: the current folder): a CUE
module with a connection and a pool, a folder for policies, a workflow that checks
pull requests, and a copy of the schema, so that editors and the cue command work
without a network. A file that is there already is never overwritten: then nothing is written.`,
		Example: "  corral init runners --module github.com/acme/runners@v0 --url https://github.com/acme",
		Args:    cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&url, "url", exampleURL, "URL of the enterprise, organization or repository that runners are for")
	c.Flags().StringVar(&module, "module", "corral.local/pools@v0", "path of the CUE module")
	c.RunE = func(c *cobra.Command, args []string) error {
		folder := "."
		if len(args) > 0 {
			folder = args[0]
		}
		if err := cuemodule.CheckPath(module); err != nil {
			return fmt.Errorf("--module must be the path of a CUE module, as github.com/acme/runners@v0: %w", err)
		}
		if _, err := github.ParseURL(url); err != nil {
			return fmt.Errorf("--url must be that of an enterprise, an organization or a repository: %w", err)
		}
		files, err := newRepository(module, url, version)
		if err != nil {
			return err
		}
		if err := writeFiles(folder, files); err != nil {
			return err
		}
		next := "run corral vet"
		if url == exampleURL {
			next = fmt.Sprintf("put your organization's URL into %s, then run corral vet", filepath.Join(folder, "pools", "connections.cue"))
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %s to %s\nnext: %s\n", wording.Count(len(files), "file"), folder, next)
		return err
	}
	return c
}

// exampleURL is what stands in a new repository until somebody says better.
const exampleURL = "https://github.com/acme"

// newRepository returns the files of a new repository by path.
func newRepository(module, url, version string) (map[string][]byte, error) {
	if version == "" || version == "dev" {
		version = "latest"
	}
	values := strings.NewReplacer("MODULE", module, exampleURL, url, "@VERSION", "@"+version)
	files := map[string][]byte{}
	add := func(from fs.FS, root, below string, adapt func(string) string) error {
		return fs.WalkDir(from, root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := fs.ReadFile(from, name)
			if err != nil {
				return err
			}
			files[path.Join(below, strings.TrimPrefix(name, root+"/"))] = []byte(adapt(string(data)))
			return nil
		})
	}
	if err := add(repository, "repository", "", values.Replace); err != nil {
		return nil, fmt.Errorf("reading the files to write: %w", err)
	}
	same := func(text string) string { return text }
	if err := add(schema.FS, ".", path.Join("cue.mod/pkg", schema.ImportPath), same); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	// A module file inside cue.mod/pkg would only confuse the cue command.
	delete(files, path.Join("cue.mod/pkg", schema.ImportPath, "cue.mod/module.cue"))
	return files, nil
}

// writeFiles writes files below folder, or none if one of them is there.
func writeFiles(folder string, files map[string][]byte) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the repository: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("opening the repository: %w", err)
	}
	defer root.Close() //nolint:errcheck // each file was closed and checked
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := root.Lstat(name); err == nil {
			return fmt.Errorf("%s is there already, nothing was written", filepath.Join(folder, name))
		}
	}
	for _, name := range names {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fmt.Errorf("writing the repository: %w", err)
		}
		if err := root.WriteFile(name, files[name], 0o644); err != nil {
			return fmt.Errorf("writing the repository: %w", err)
		}
	}
	return nil
}
