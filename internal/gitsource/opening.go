// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	format "github.com/go-git/go-git/v5/plumbing/format/config"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

const extensionsSection = "extensions"

// harmless lists the repository format extensions, in lower case, that do not affect reading: see extensions.* in
// git-config(1).
var harmless = []string{"noop", "noop-v1", "partialclone", "preciousobjects", "worktreeconfig"}

// reading is the storage of a repository that Corral only reads. go-git's own storage refuses repositories with
// extensions that do not affect reading, and does not support all ways to share objects with other repositories.
type reading struct {
	*filesystem.Storage
	// others are repositories that share their objects with this one (gitrepository-layout(5), info/alternates).
	others []*filesystem.ObjectStorage
}

// EncodedObject returns an object from any of the storages.
func (r reading) EncodedObject(kind plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	found, err := r.Storage.EncodedObject(kind, hash)
	for _, other := range r.others {
		if !errors.Is(err, plumbing.ErrObjectNotFound) {
			break
		}
		found, err = other.EncodedObject(kind, hash)
	}
	return found, err
}

// EncodedObjectSize returns the size of an object in any of the storages.
func (r reading) EncodedObjectSize(hash plumbing.Hash) (int64, error) {
	size, err := r.Storage.EncodedObjectSize(hash)
	for _, other := range r.others {
		if !errors.Is(err, plumbing.ErrObjectNotFound) {
			break
		}
		size, err = other.EncodedObjectSize(hash)
	}
	return size, err
}

// IterEncodedObjects iterates over the objects of a kind in all storages. An object may occur twice.
func (r reading) IterEncodedObjects(kind plumbing.ObjectType) (storer.EncodedObjectIter, error) {
	own, err := r.Storage.IterEncodedObjects(kind)
	all := []storer.EncodedObjectIter{own}
	for _, other := range r.others {
		if err != nil {
			return nil, err
		}
		own, err = other.IterEncodedObjects(kind)
		all = append(all, own)
	}
	return storer.NewMultiEncodedObjectIter(all), err
}

// Config returns the configuration without harmless extensions, so that go-git does not refuse the repository.
func (r reading) Config() (*config.Config, error) {
	c, err := r.Storage.Config()
	if err != nil || c.Raw == nil || !c.Raw.HasSection(extensionsSection) {
		return c, err
	}
	section := c.Raw.Section(extensionsSection)
	section.Options = slices.DeleteFunc(section.Options, func(o *format.Option) bool { return slices.Contains(harmless, strings.ToLower(o.Key)) })
	return c, nil
}

// repositoryOf opens the repository that contains a folder, and returns the top of its work tree.
func repositoryOf(folder string) (*git.Repository, string, error) {
	top, err := topOf(folder)
	if err != nil {
		return nil, "", err
	}
	files, common, err := gitFiles(top)
	if err != nil {
		return nil, "", fmt.Errorf("%w: opening the repository of %s: %w", ErrUnusable, folder, err)
	}
	recent := cache.NewObjectLRUDefault()
	others, err := alternates(common, recent, mostAlternates)
	if err != nil {
		return nil, "", fmt.Errorf("%w: the repository of %s: %w", ErrUnusable, folder, err)
	}
	repository, err := git.Open(reading{filesystem.NewStorage(files, recent), others}, osfs.New(top))
	switch {
	case errors.Is(err, git.ErrUnknownExtension) && strings.Contains(err.Error(), "objectformat"):
		return nil, "", fmt.Errorf("%w: the repository of %s uses SHA-256 object names, which are not supported: compare two folders", ErrUnusable, folder)
	case err != nil:
		return nil, "", fmt.Errorf("%w: opening the repository of %s: %w", ErrUnusable, folder, err)
	}
	return repository, top, nil
}

// topOf returns the closest folder, at or above the given folder, with a repository.
func topOf(folder string) (string, error) {
	top, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	for {
		if _, err := os.Stat(filepath.Join(top, git.GitDirName)); err == nil {
			return top, nil
		}
		if isBare(top) {
			return "", fmt.Errorf("%w: %s is in the bare repository %s: clone it, and compare there", ErrUnusable, folder, top)
		}
		if top == filepath.Dir(top) {
			return "", fmt.Errorf("%w: %s is in no Git repository: compare two folders, or run git init and commit", ErrNotFound, folder)
		}
		top = filepath.Dir(top)
	}
}

// isBare reports whether a folder has the content of a .git folder.
func isBare(folder string) bool {
	return !slices.ContainsFunc([]string{"HEAD", "objects", "refs"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err != nil
	})
}

// gitFiles returns the repository's files for a work tree: the .git folder, or the folder that the .git file names. For
// one of several work trees, it adds the files of the folder common, which all work trees share.
func gitFiles(top string) (files billy.Filesystem, common string, err error) {
	own := filepath.Join(top, git.GitDirName)
	if info, err := os.Stat(own); err == nil && !info.IsDir() {
		line, err := os.ReadFile(own)
		named, ok := strings.CutPrefix(string(line), "gitdir: ")
		if err != nil || !ok {
			return nil, "", errors.Join(errors.New("the file .git refers to no folder"), err)
		}
		if top, err = filepath.EvalSymlinks(top); err != nil {
			return nil, "", err
		}
		own = from(top, named)
	}
	line, err := os.ReadFile(filepath.Join(own, "commondir"))
	if errors.Is(err, os.ErrNotExist) {
		return osfs.New(own), own, nil
	}
	if err != nil {
		return nil, "", err
	}
	common = from(own, string(line))
	return dotgit.NewRepositoryFilesystem(osfs.New(own), osfs.New(common)), common, nil
}

// mostAlternates is the maximum length of a chain of alternates, as in Git.
const mostAlternates = 5

// alternates opens the object storages that a repository lists in info/alternates, and their own alternates, up to most
// levels. repository is the path of the .git folder.
func alternates(repository string, recent cache.Object, most int) ([]*filesystem.ObjectStorage, error) {
	list, err := os.ReadFile(filepath.Join(repository, "objects/info/alternates"))
	if errors.Is(err, os.ErrNotExist) || most == 0 {
		return nil, nil
	}
	var others []*filesystem.ObjectStorage
	for line := range strings.Lines(string(list)) {
		folder := from(filepath.Join(repository, "objects"), line)
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := os.Stat(folder); err != nil {
			return nil, fmt.Errorf("it shares objects with another: %w", err)
		}
		further, err := alternates(filepath.Dir(folder), recent, most-1)
		if err != nil {
			return nil, err
		}
		others = append(others, filesystem.NewObjectStorage(dotgit.New(osfs.New(filepath.Dir(folder))), recent))
		others = append(others, further...)
	}
	return others, err
}

// from resolves a path in one of Git's files.
func from(folder, named string) string {
	named = strings.TrimSpace(named)
	if filepath.IsAbs(named) {
		return filepath.Clean(named) // without a slash at the end, so that its parent is not the folder itself
	}
	return filepath.Join(folder, named)
}

// lackOf adds an explanation to an error about a missing object if the repository is a partial clone.
func lackOf(repository *git.Repository, err error) error {
	if !errors.Is(err, plumbing.ErrObjectNotFound) {
		return err
	}
	c, configErr := repository.Storer.(reading).Storage.Config()
	if configErr != nil {
		return err
	}
	for _, remote := range c.Raw.Section("remote").Subsections {
		if remote.Option("promisor") == "true" {
			return fmt.Errorf("%w; the clone leaves out objects of %s until Git needs them (--filter): run git fetch --refetch --no-filter, or clone without", err, remote.Name)
		}
	}
	return err
}
