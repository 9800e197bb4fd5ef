// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// LeftOut returns what a clone would lack of a folder of a work tree: the submodules below the folder, and those of the files named that
// Git ignores and doesn't hold. All names are relative to the folder, with slashes. Of a folder in no work tree there are none. What is
// ignored is read from the repository, not from the user's configuration. Errors wrap ErrUnusable or ErrNotFound.
func LeftOut(folder string, files []string) (submodules, ignored []string, err error) {
	repository, top, err := repositoryOf(folder)
	if err != nil {
		return nil, nil, nil //nolint:nilerr // then there is no clone either
	}
	below, err := within(top, folder)
	if err != nil {
		return nil, nil, err
	}
	index, err := repository.Storer.Index()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: reading the index: %w", ErrUnusable, err)
	}
	held := map[string]bool{}
	for _, entry := range index.Entries {
		held[entry.Name] = true
		if name, err := filepath.Rel(below, entry.Name); entry.Mode == filemode.Submodule && err == nil && filepath.IsLocal(name) {
			submodules = append(submodules, filepath.ToSlash(name))
		}
	}
	others := slices.DeleteFunc(slices.Clone(files), func(file string) bool { return held[path.Join(below, file)] })
	if len(others) == 0 {
		return submodules, nil, nil
	}
	tree, err := repository.Worktree()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	patterns, err := gitignore.ReadPatterns(tree.Filesystem, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: reading what Git ignores: %w", ErrUnusable, err)
	}
	isIgnored := gitignore.NewMatcher(patterns)
	for _, file := range others {
		if isIgnored.Match(strings.Split(path.Join(below, file), "/"), false) {
			ignored = append(ignored, file)
		}
	}
	return submodules, ignored, nil
}
