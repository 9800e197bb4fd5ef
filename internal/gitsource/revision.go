// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/corral-dev/corral/internal/memfs"
)

// moduleFile marks the top folder of a CUE module.
const moduleFile = "cue.mod/module.cue"

// Revision holds the definitions of a commit of a local repository.
type Revision struct {
	// Commit is the hash of the commit.
	Commit string
	// Top is the absolute path of the top folder of the repository's work tree.
	Top string
	// Module is the folder of the definitions: the closest folder with a CUE module at or above the requested folder,
	// or else the requested folder. It is relative to Top, with slashes; "." is Top.
	Module string
	// Path is the requested folder, relative to Module.
	Path string
	// FS holds the files at and below Module, with paths relative to it. Symbolic links are memfs.Link, submodules
	// memfs.Submodule.
	FS fs.FS
	// Absent is true if the commit does not have the requested folder; FS is then empty.
	Absent bool
}

// ReadRevision reads the definitions of a folder at a revision of its repository. The revision is a name of a commit,
// such as main, origin/main, HEAD~2, v1.2 or a hash. It does not read the work tree, and the folder need not exist
// there. A bare repository is an error. Errors wrap ErrNotFound, ErrRefNotFound, ErrTooLarge or ErrUnusable.
func ReadRevision(ctx context.Context, folder, revision string, limits Limits) (*Revision, error) {
	repository, top, err := repositoryOf(folder)
	if err != nil {
		return nil, err
	}
	asked, err := within(top, folder)
	if err != nil {
		return nil, err
	}
	commit, err := commitNamed(repository, revision)
	if err != nil {
		return nil, lackOf(repository, err)
	}
	tree, err := commit.Tree()
	if err != nil {
		return nil, lackOf(repository, fmt.Errorf("%w: reading commit %s: %w", ErrUnusable, commit.Hash, err))
	}
	r := &Revision{Commit: commit.Hash.String(), Top: top, Module: asked, Path: ".", FS: memfs.FS{}}
	if asked != "." {
		switch _, err := tree.Tree(asked); {
		case errors.Is(err, object.ErrDirectoryNotFound):
			r.Absent = true
			return r, nil
		case err != nil:
			return nil, lackOf(repository, fmt.Errorf("%w: reading %s: %w", ErrUnusable, asked, err))
		}
	}
	r.Module, r.Path = moduleOf(tree, asked)
	r.FS, err = readBelow(ctx, repository, tree, r.Module, limits.orDefaults())
	return r, lackOf(repository, err)
}

// within returns a folder's path relative to top, with slashes. It resolves symbolic links if the folder is not below
// top otherwise.
func within(top, folder string) (string, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	for _, resolve := range []func(string) (string, error){func(p string) (string, error) { return p, nil }, filepath.EvalSymlinks} {
		from, errFrom := resolve(top)
		to, errTo := resolve(absolute)
		if errFrom != nil || errTo != nil {
			continue
		}
		if rel, err := filepath.Rel(from, to); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel), nil
		}
	}
	return "", fmt.Errorf("%w: %s is not below %s", ErrNotFound, folder, top)
}

// moduleOf returns the closest folder at or above asked that has a CUE module, or else asked, and the path from there
// to asked.
func moduleOf(tree *object.Tree, asked string) (module, rest string) {
	for dir := asked; ; dir = path.Dir(dir) {
		if _, err := tree.FindEntry(path.Join(dir, moduleFile)); err == nil {
			if dir == "." {
				return dir, asked
			}
			rest := strings.TrimPrefix(strings.TrimPrefix(asked, dir), "/")
			return dir, path.Clean(rest)
		}
		if dir == "." {
			return asked, "."
		}
	}
}

// readBelow reads the files at and below a folder of a tree.
func readBelow(ctx context.Context, repository *git.Repository, tree *object.Tree, folder string, limits Limits) (fs.FS, error) {
	hash := tree.Hash
	if folder != "." {
		entry, err := tree.FindEntry(folder)
		if err != nil {
			return nil, fmt.Errorf("%w: reading %s: %w", ErrUnusable, folder, err)
		}
		hash = entry.Hash
	}
	return readFiles(ctx, repository.Storer, hash, limits)
}
