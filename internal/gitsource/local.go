// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// local is a repository on this machine, with or without a work tree. Corral reads its objects without copying them.
type local struct {
	repository *git.Repository
	limits     Limits
}

func openLocal(path string, limits Limits) (repository, error) {
	opened, err := git.PlainOpen(path)
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("%w: %s is not a Git repository", ErrNotFound, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: opening %s: %w", ErrUnusable, path, err)
	}
	return &local{repository: opened, limits: limits}, nil
}

func (l *local) close() {
	if storage, ok := l.repository.Storer.(io.Closer); ok {
		_ = storage.Close()
	}
}

func (l *local) tags() ([]string, error) {
	found, err := l.repository.Tags()
	if err != nil {
		return nil, fmt.Errorf("%w: reading the tags: %w", ErrUnusable, err)
	}
	var names []string
	err = found.ForEach(func(tag *plumbing.Reference) error {
		names = append(names, tag.Name().Short())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: reading the tags: %w", ErrUnusable, err)
	}
	return names, nil
}

func (l *local) resolve(ref Ref) (target, error) {
	switch {
	case ref.Commit != "":
		return target{commit: plumbing.NewHash(ref.Commit)}, nil
	case ref.Branch != "":
		commit, err := l.resolveName(plumbing.NewBranchReferenceName(ref.Branch))
		return target{commit: commit}, err
	}
	hash, err := l.resolveName(plumbing.NewTagReferenceName(ref.Tag))
	if err != nil {
		return target{}, err
	}
	return l.peel(hash)
}

func (l *local) resolveName(name plumbing.ReferenceName) (plumbing.Hash, error) {
	found, err := l.repository.Reference(name, true)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return plumbing.ZeroHash, fmt.Errorf("%w: the repository has no %s", ErrRefNotFound, name)
	}
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("%w: reading %s: %w", ErrUnusable, name, err)
	}
	return found.Hash(), nil
}

// peel returns the target of an annotated tag. Any other hash is a commit.
func (l *local) peel(hash plumbing.Hash) (target, error) {
	tag, err := object.GetTag(l.repository.Storer, hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return target{commit: hash}, nil
	}
	if err != nil {
		return target{}, fmt.Errorf("%w: reading tag %s: %w", ErrUnusable, hash, err)
	}
	return target{commit: tag.Target, tag: hash}, nil
}

func (l *local) fetch(context.Context, target) (storer.EncodedObjectStorer, error) {
	return l.repository.Storer, nil
}
