// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/go-git/go-git/v5/plumbing/format/index"
)

// LeftOut returns the parts of a folder in a work tree that a clone would not contain: the submodules below the folder,
// and the given files that Git ignores and does not track. All names are relative to the folder, with slashes. For a
// folder outside of a work tree, both lists are empty. The ignore rules come from the repository, not from the user's
// configuration. Errors wrap ErrUnusable or ErrNotFound.
func LeftOut(folder string, files []string) (submodules, ignored []string, err error) {
	repository, entries, below, err := indexed(folder)
	if repository == nil && errors.Is(err, ErrNotFound) {
		return nil, nil, nil // without a repository there is no clone
	}
	if err != nil {
		return nil, nil, err
	}
	held := map[string]bool{}
	for _, entry := range entries {
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

// Sparse returns the files below a folder that a sparse checkout leaves out of its work tree, relative to the folder,
// with slashes. If the folder is outside of a work tree, or if the repository cannot be read, it returns no files; in
// the second case, LeftOut returns the error.
func Sparse(folder string) ([]string, error) {
	repository, entries, below, err := indexed(folder)
	if repository == nil {
		return nil, nil //nolint:nilerr // see above
	}
	if err != nil {
		if isSparse(repository) {
			return nil, fmt.Errorf("%w; of a sparse checkout no sparse index is read: run git sparse-checkout reapply --no-sparse-index", err)
		}
		return nil, nil
	}
	var missing []string
	for _, entry := range entries {
		name, err := filepath.Rel(below, entry.Name)
		if !entry.SkipWorktree || err != nil || !filepath.IsLocal(name) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(folder, name)); errors.Is(err, fs.ErrNotExist) { // other files exist anyway
			missing = append(missing, filepath.ToSlash(name))
		}
	}
	return missing, nil
}

// isSparse reports whether a work tree may be a sparse checkout. git-sparse-checkout(1) enables this in the
// configuration of the repository or of the work tree. isSparse does not read the second file, and returns true if
// there may be one.
func isSparse(repository *git.Repository) bool {
	c, err := repository.Storer.(reading).Storage.Config()
	if err != nil {
		return true
	}
	return c.Raw.Section("core").Option("sparseCheckout") == "true" || c.Raw.Section(extensionsSection).Option("worktreeConfig") == "true"
}

// indexed reads the index of a folder's repository. If the repository cannot be opened, repository is nil. below is the
// folder's path relative to the top of the work tree.
func indexed(folder string) (repository *git.Repository, entries []*index.Entry, below string, err error) {
	repository, top, err := repositoryOf(folder)
	if err != nil {
		return nil, nil, "", err
	}
	if below, err = within(top, folder); err != nil {
		return repository, nil, "", err
	}
	read, err := repository.Storer.Index()
	if err != nil {
		return repository, nil, "", fmt.Errorf("%w: reading the index: %w", ErrUnusable, err)
	}
	return repository, read.Entries, below, nil
}
