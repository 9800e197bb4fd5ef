// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

var (
	// revisionForm matches the supported forms of gitrevisions(7): a name, followed by steps to ancestors.
	// git-check-ref-format(1) allows no other characters in names.
	revisionForm = regexp.MustCompile(`^([^\x00-\x20\x7f~^:?*\[\\]+)((?:~[0-9]*|\^[0-9]*|\^\{(?:commit)?\})*)$`)
	revisionStep = regexp.MustCompile(`\^\{(?:commit)?\}|[~^][0-9]*`)
	pseudoRef    = regexp.MustCompile(`^[A-Z_]+$`)
	hashForm     = regexp.MustCompile(`^[0-9a-f]{4,40}$`)
)

// mostSteps is the maximum number in a step such as ~N.
const mostSteps = 100_000

// commitNamed finds the commit for a revision. It refuses forms of Git that it does not support: the reflog, a file's
// content, a search, a range.
func commitNamed(repository *git.Repository, revision string) (*object.Commit, error) {
	parts := revisionForm.FindStringSubmatch(revision)
	if parts == nil || strings.HasPrefix(revision, "-") || strings.Contains(revision, "@{") || strings.Contains(revision, "..") {
		return nil, fmt.Errorf("%w: %q is not a supported revision: give a branch, a tag, a hash, or HEAD~1; git rev-parse finds the hash of others", ErrRefNotFound, revision)
	}
	commit, err := commitBy(repository, parts[1])
	for _, step := range revisionStep.FindAllString(parts[2], -1) {
		if err != nil {
			break
		}
		commit, err = stepFrom(commit, step)
	}
	switch {
	case errors.Is(err, plumbing.ErrReferenceNotFound) && isUnborn(repository) && strings.HasPrefix(revision, "HEAD"):
		return nil, fmt.Errorf("%w: the repository has no commit yet: make one, or compare two folders", ErrRefNotFound)
	case errors.Is(err, plumbing.ErrReferenceNotFound), errors.Is(err, plumbing.ErrObjectNotFound), errors.Is(err, io.EOF), errors.Is(err, object.ErrParentNotFound):
		return nil, fmt.Errorf("%w: the repository has no revision %q; a shallow clone has to fetch it first", ErrRefNotFound, revision)
	case err != nil:
		return nil, fmt.Errorf("%w: revision %q: %w", ErrRefNotFound, revision, err)
	}
	return commit, nil
}

func isUnborn(repository *git.Repository) bool {
	_, err := repository.Head()
	return errors.Is(err, plumbing.ErrReferenceNotFound)
}

// commitBy finds the commit for a name. It tries the interpretations in the order of gitrevisions(7): a complete hash,
// a reference, an abbreviated hash.
func commitBy(repository *git.Repository, name string) (*object.Commit, error) {
	if name == "@" {
		name = "HEAD"
	}
	if plumbing.IsHash(name) {
		return peelCommit(repository, plumbing.NewHash(name))
	}
	for _, rule := range plumbing.RefRevParseRules {
		if rule == "%s" && !strings.HasPrefix(name, "refs/") && !pseudoRef.MatchString(name) {
			continue
		}
		found, err := repository.Reference(plumbing.ReferenceName(fmt.Sprintf(rule, name)), true)
		if err == nil {
			return peelCommit(repository, found.Hash())
		}
		if !errors.Is(err, plumbing.ErrReferenceNotFound) {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	if lower := strings.ToLower(name); hashForm.MatchString(lower) {
		return abbreviated(repository, lower)
	}
	return nil, plumbing.ErrReferenceNotFound
}

// abbreviated finds the commit for the prefix of a commit's or a tag's hash. It fails if several hashes have the
// prefix.
func abbreviated(repository *git.Repository, prefix string) (*object.Commit, error) {
	var found []plumbing.Hash
	for _, kind := range []plumbing.ObjectType{plumbing.CommitObject, plumbing.TagObject} {
		objects, err := repository.Storer.IterEncodedObjects(kind)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", prefix, err)
		}
		err = objects.ForEach(func(o plumbing.EncodedObject) error {
			if strings.HasPrefix(o.Hash().String(), prefix) && !slices.Contains(found, o.Hash()) {
				found = append(found, o.Hash())
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", prefix, err)
		}
	}
	switch len(found) {
	case 0:
		return nil, plumbing.ErrReferenceNotFound
	case 1:
		return peelCommit(repository, found[0])
	}
	return nil, fmt.Errorf("%d objects match, such as %s and %s: give more digits", len(found), found[0], found[1])
}

// peelCommit returns the commit with a hash. If the hash is the hash of a tag, it returns the commit to which the tag
// points.
func peelCommit(repository *git.Repository, hash plumbing.Hash) (*object.Commit, error) {
	for range maxTagDepth {
		tag, err := object.GetTag(repository.Storer, hash)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return object.GetCommit(repository.Storer, hash)
		}
		if err != nil {
			return nil, fmt.Errorf("reading tag %s: %w", hash, err)
		}
		hash = tag.Target
	}
	return nil, fmt.Errorf("tag %s points to too many nested tags", hash)
}

// maxTagDepth is the maximum length of a chain of tags.
const maxTagDepth = 10

// stepFrom returns an ancestor of a commit: ~N is the N-th ancestor along first parents, ^N the N-th parent, and ^0,
// ^{} and ^{commit} the commit itself.
func stepFrom(commit *object.Commit, step string) (*object.Commit, error) {
	if strings.HasPrefix(step, "^{") {
		return commit, nil
	}
	n, err := strconv.Atoi(cmp.Or(step[1:], "1"))
	if err != nil || n > mostSteps {
		return nil, object.ErrParentNotFound
	}
	if step[0] == '^' {
		if n == 0 {
			return commit, nil
		}
		return commit.Parent(n - 1)
	}
	for range n {
		if commit, err = commit.Parent(0); err != nil {
			return nil, err
		}
	}
	return commit, nil
}
