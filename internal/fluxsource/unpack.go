// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package fluxsource

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"

	"github.com/corral-dev/corral/internal/memfs"
)

const (
	// maxDepth is the maximum depth of nested folders.
	maxDepth = 64
	// maxName is the maximum length of a file's or folder's name in bytes, as in file systems.
	maxName = 255
)

// unpacker collects the files of one archive.
type unpacker struct {
	limits  Limits
	files   memfs.FS
	entries int // number of entries of the archive
	held    int // number of files and folders, because an archive may omit entries for its folders
	bytes   int64
}

// unpack reads a gzipped tar archive. It limits the inflated stream, including headers and padding, and also the sizes
// declared in headers, because a sparse file has no bytes in the stream.
func unpack(ctx context.Context, compressed io.Reader, limits Limits) (fs.FS, error) {
	inflated, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, fmt.Errorf("%w: the artifact is not a gzipped archive: %w; an OCIRepository must extract its layer (spec.layerSelector.operation)", ErrUnusable, err)
	}
	bounded := &boundedReader{from: inflated, left: limits.UnpackedBytes, all: limits.UnpackedBytes}
	u := &unpacker{limits: limits, files: memfs.FS{}}
	archive := tar.NewReader(bounded)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.add(header, archive)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, u.explain(ctx, err)
		}
	}
	return u.files, nil
}

func (u *unpacker) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrUnusable):
		return err
	case ctx.Err() != nil:
		return explain(ctx, "", err)
	}
	return fmt.Errorf("%w: reading the artifact's archive: %w", ErrUnusable, err)
}

func (u *unpacker) add(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if u.entries++; u.entries > u.limits.Files {
		return u.tooMany()
	}
	name, err := clean(header.Name)
	if err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.addFile(name, header.Size, content)
	case tar.TypeSymlink:
		return u.hold(name, memfs.Link(header.Linkname))
	case tar.TypeLink:
		return u.hold(name, memfs.Link("/"+header.Linkname)) // a hard link's target is relative to the root
	}
	return nil // folders are created with their files
}

func (u *unpacker) addFile(name string, size int64, content io.Reader) error {
	if u.bytes += size; size < 0 || u.bytes > u.limits.UnpackedBytes {
		return inflatesTooMuch(u.limits.UnpackedBytes)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(content, data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return u.hold(name, &fstest.MapFile{Data: data, Mode: 0o444})
}

func (u *unpacker) hold(name string, file *fstest.MapFile) error {
	added, err := u.files.Add(name, file)
	if err != nil {
		return fmt.Errorf("%w: in the artifact, %w", ErrUnusable, err)
	}
	if u.held += added; u.held > u.limits.Files {
		return u.tooMany()
	}
	return nil
}

func (u *unpacker) tooMany() error {
	return fmt.Errorf("%w: the artifact has more than %d files and folders; %s", ErrTooLarge, u.limits.Files, advice)
}

func inflatesTooMuch(limit int64) error {
	return fmt.Errorf("%w: the artifact's files are more than %d bytes; %s", ErrTooLarge, limit, advice)
}

// clean returns a name relative to the archive's root, and refuses names outside of it.
func clean(name string) (string, error) {
	cleaned := path.Clean(strings.TrimSuffix(name, "/"))
	bad := path.IsAbs(name) || !fs.ValidPath(cleaned) || strings.ContainsAny(name, "\\\x00")
	parts := strings.Split(cleaned, "/")
	for _, part := range parts {
		bad = bad || len(part) > maxName
	}
	if bad {
		return "", fmt.Errorf("%w: %.300q in the artifact is not the name of a file in it", ErrUnusable, name)
	}
	if len(parts) > maxDepth {
		return "", fmt.Errorf("%w: %.300s: folders are nested more than %d deep", ErrTooLarge, cleaned, maxDepth)
	}
	return cleaned, nil
}

// boundedReader fails with ErrTooLarge after left bytes, where io.LimitReader would return io.EOF.
type boundedReader struct {
	from io.Reader
	left int64
	all  int64
}

// Read reads from the stream until the limit.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, inflatesTooMuch(b.all)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
