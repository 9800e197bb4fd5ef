// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"
)

// cancellable fails to read once its context has ended, because go-git takes no context while it unpacks.
type cancellable struct {
	ctx context.Context //nolint:containedctx // of one call
	io.ReadSeeker
}

// Read implements io.Reader.
func (c cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.ReadSeeker.Read(p)
}

// unpack checks the size of a packfile and decodes it into objects in memory. If ctx ends first, it returns the context's
// error, which does not blame the packfile.
func unpack(ctx context.Context, pack io.ReadSeeker, limits Limits) (storer.EncodedObjectStorer, error) {
	objects, err := unpackAll(cancellable{ctx, pack}, limits)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("unpacking: %w", ctx.Err())
	}
	return objects, err
}

func unpackAll(pack io.ReadSeeker, limits Limits) (storer.EncodedObjectStorer, error) {
	if err := weigh(pack, limits); err != nil {
		return nil, err
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("rewinding the packfile: %w", err)
	}
	objects := memory.NewStorage()
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(pack), objects)
	if err != nil {
		return nil, fmt.Errorf("%w: reading the packfile: %w", ErrUnusable, err)
	}
	if _, err := parser.Parse(); err != nil {
		return nil, fmt.Errorf("%w: reading the packfile: %w", ErrUnusable, err)
	}
	return objects, nil
}

// weigh reads a packfile without keeping its content. It refuses a packfile with too many objects, or a packfile
// that would inflate to too many bytes. An object inflates to the size in its header, which the scanner enforces. A delta also makes
// an object of the target size at its start, which the parser enforces when it applies the delta (gitformat-pack(5)).
func weigh(pack io.Reader, limits Limits) error {
	scanner := packfile.NewScanner(pack)
	_, count, err := scanner.Header()
	if err != nil {
		return fmt.Errorf("%w: reading the packfile: %w", ErrUnusable, err)
	}
	if int64(count) > int64(limits.Objects) {
		return fmt.Errorf("%w: the revision has %d objects (files, folders), more than %d; %s", ErrTooLarge, count, limits.Objects, advice)
	}
	total := int64(0)
	for range count {
		size, err := weighNext(scanner, limits)
		if err != nil {
			return err
		}
		if total += size; total > limits.TotalBytes {
			return fmt.Errorf("%w: the revision's files are more than %d bytes in total; %s", ErrTooLarge, limits.TotalBytes, advice)
		}
	}
	return nil
}

// weighNext returns the size of the next object after it is inflated. For a delta, it adds the size of the result.
func weighNext(scanner *packfile.Scanner, limits Limits) (int64, error) {
	header, err := scanner.NextObjectHeader()
	if err != nil {
		return 0, fmt.Errorf("%w: reading the packfile: %w", ErrUnusable, err)
	}
	if err := limits.checkFile(header.Length); err != nil {
		return 0, err
	}
	start := &prefix{}
	if _, _, err := scanner.NextObject(start); err != nil {
		return 0, fmt.Errorf("%w: reading the packfile: %w", ErrUnusable, err)
	}
	if !header.Type.IsDelta() {
		return header.Length, nil
	}
	size, err := start.deltaTarget()
	if err != nil {
		return 0, err
	}
	return header.Length + size, limits.checkFile(size)
}

func (l Limits) checkFile(size int64) error {
	if size < 0 || size > l.FileBytes {
		return fmt.Errorf("%w: a file, or the list of a folder's files, is %d bytes, more than %d; %s", ErrTooLarge, size, l.FileBytes, advice)
	}
	return nil
}

// prefix keeps the first bytes that are written to it, which are enough for the two sizes at the start of a delta.
type prefix struct {
	bytes [2 * binary.MaxVarintLen64]byte
	n     int
}

// Write keeps bytes while there is room and drops the rest.
func (p *prefix) Write(b []byte) (int, error) {
	p.n += copy(p.bytes[p.n:], b)
	return len(b), nil
}

// deltaTarget reads the second of the two sizes at the start of a delta.
func (p *prefix) deltaTarget() (int64, error) {
	_, first := binary.Uvarint(p.bytes[:p.n])
	if first <= 0 {
		return 0, fmt.Errorf("%w: %w", ErrUnusable, errDelta)
	}
	size, second := binary.Uvarint(p.bytes[first:p.n])
	if second <= 0 {
		return 0, fmt.Errorf("%w: %w", ErrUnusable, errDelta)
	}
	return int64(min(size, 1<<62)), nil
}

var errDelta = errors.New("a delta in the packfile is malformed")
