// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/corral-dev/corral/internal/memfs"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// maxDepth is the maximum depth of nested folders.
	maxDepth = 64
	// maxName is the maximum length of a file's or folder's name in bytes, as in file systems.
	maxName = 255
	// maxHeaders is the maximum size of a commit's headers in bytes, including its signature and a merged tag's signature.
	maxHeaders = 64 << 10
)

// readCommit reads a commit. It first checks the size of the headers, which end at the first empty line, because go-git's
// parser takes quadratic time.
func readCommit(objects storer.EncodedObjectStorer, hash plumbing.Hash) (commit *object.Commit, err error) {
	encoded, err := objects.EncodedObject(plumbing.CommitObject, hash)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, fmt.Errorf("%w: the repository has no commit %s", ErrRefNotFound, hash)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: reading commit %s: %w", ErrUnusable, hash, err)
	}
	content, err := encoded.Reader()
	if err != nil {
		return nil, fmt.Errorf("%w: reading commit %s: %w", ErrUnusable, hash, err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	start, err := io.ReadAll(io.LimitReader(content, maxHeaders))
	if err == nil && len(start) == maxHeaders && !bytes.Contains(start, []byte("\n\n")) {
		return nil, fmt.Errorf("%w: the headers of commit %s are more than %d bytes", ErrTooLarge, hash, maxHeaders)
	}
	if err == nil {
		commit, err = object.DecodeCommit(objects, encoded)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: reading commit %s: %w", ErrUnusable, hash, err)
	}
	return commit, nil
}

// reader collects the files of one commit.
type reader struct {
	objects storer.EncodedObjectStorer
	limits  Limits
	files   memfs.FS
	entries int
	bytes   int64
}

// readTree reads a commit's files. A folder that occurs in a tree several times is counted each time, so that a small
// repository cannot expand into a large one.
func readTree(ctx context.Context, objects storer.EncodedObjectStorer, hash plumbing.Hash, limits Limits) (fs.FS, error) {
	commit, err := readCommit(objects, hash)
	if err != nil {
		return nil, err
	}
	return readFiles(ctx, objects, commit.TreeHash, limits)
}

// readFiles reads the files of a tree. Its errors escape control characters, because anyone with push access chooses the
// file names that they contain.
func readFiles(ctx context.Context, objects storer.EncodedObjectStorer, tree plumbing.Hash, limits Limits) (fs.FS, error) {
	r := &reader{objects: objects, limits: limits, files: memfs.FS{}}
	if err := r.readFolder(ctx, ".", tree, 0); err != nil {
		return nil, inOneLine{err}
	}
	return r.files, nil
}

// inOneLine is an error whose text has no line breaks and no control characters for terminals.
type inOneLine struct{ error }

func (e inOneLine) Error() string { return wording.Escape(e.error.Error(), "") }
func (e inOneLine) Unwrap() error { return e.error }

func (r *reader) readFolder(ctx context.Context, folder string, hash plumbing.Hash, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %s: folders are nested more than %d deep", ErrTooLarge, folder, maxDepth)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := r.check(folder, hash, largeFolder); err != nil {
		return err
	}
	tree, err := object.GetTree(r.objects, hash)
	if err != nil {
		return fmt.Errorf("%w: reading %s: %w", ErrUnusable, folder, err)
	}
	for _, entry := range tree.Entries {
		if err := r.readEntry(ctx, folder, entry, depth); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) readEntry(ctx context.Context, folder string, entry object.TreeEntry, depth int) error {
	if r.entries++; r.entries > r.limits.Objects {
		return fmt.Errorf("%w: the revision has more than %d files and folders; %s", ErrTooLarge, r.limits.Objects, advice)
	}
	if len(entry.Name) > maxName || entry.Name == "." || strings.Contains(entry.Name, "/") || !fs.ValidPath(entry.Name) {
		return fmt.Errorf("%w: %s: %.300q is not a file name", ErrUnusable, folder, entry.Name)
	}
	name := path.Join(folder, entry.Name)
	switch entry.Mode {
	case filemode.Dir:
		return r.readFolder(ctx, name, entry.Hash, depth+1)
	case filemode.Regular, filemode.Executable, filemode.Deprecated:
		data, err := r.readFile(name, entry.Hash)
		if err != nil {
			return err
		}
		return r.add(name, &fstest.MapFile{Data: data, Mode: 0o444})
	case filemode.Symlink:
		target, err := r.readFile(name, entry.Hash)
		if err != nil {
			return err
		}
		return r.add(name, memfs.Link(string(target)))
	case filemode.Submodule:
		return r.add(name, memfs.Submodule)
	}
	return nil
}

func (r *reader) add(name string, file *fstest.MapFile) error {
	if _, err := r.files.Add(name, file); err != nil {
		return fmt.Errorf("%w: in the commit, %w", ErrUnusable, err)
	}
	return nil
}

func (r *reader) readFile(name string, hash plumbing.Hash) (data []byte, err error) {
	if err := r.check(name, hash, largeFile); err != nil {
		return nil, err
	}
	blob, err := object.GetBlob(r.objects, hash)
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrUnusable, name, err)
	}
	if r.bytes += blob.Size; r.bytes > r.limits.TotalBytes {
		return nil, fmt.Errorf("%w: the revision's files are more than %d bytes in total; %s", ErrTooLarge, r.limits.TotalBytes, advice)
	}
	content, err := blob.Reader()
	if err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrUnusable, name, err)
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	data = make([]byte, blob.Size)
	if _, err := io.ReadFull(content, data); err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrUnusable, name, err)
	}
	return data, nil
}

// Messages about a folder with too many files, and about a file that is too large.
const (
	largeFolder = "%w: the folder %s has too many files: their list is %d bytes, more than %d; %s"
	largeFile   = "%w: %s is %d bytes, more than %d a file; %s"
)

// check checks the size of a file, or of a folder's list of files, before the caller reads it.
func (r *reader) check(name string, hash plumbing.Hash, tooLarge string) error {
	size, err := r.objects.EncodedObjectSize(hash)
	if err != nil {
		return fmt.Errorf("%w: reading %s: %w", ErrUnusable, name, err)
	}
	if size > r.limits.FileBytes {
		return fmt.Errorf(tooLarge, ErrTooLarge, name, size, r.limits.FileBytes, advice)
	}
	return nil
}
