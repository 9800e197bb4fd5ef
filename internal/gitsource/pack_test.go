// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/corral-dev/corral/internal/memfs"
)

const (
	blobType     = 3
	refDeltaType = 7
)

// packBuilder writes packfiles that git would not write.
type packBuilder struct {
	bytes.Buffer
}

func newPack(count uint32) *packBuilder {
	p := &packBuilder{}
	p.WriteString("PACK")
	p.Write(binary.BigEndian.AppendUint32(nil, 2))
	p.Write(binary.BigEndian.AppendUint32(nil, count))
	return p
}

// add writes an object with a declared size, whatever its content is.
func (p *packBuilder) add(kind byte, declared uint64, base, content []byte) *packBuilder {
	first := kind<<4 | byte(declared&0xf)
	for declared >>= 4; declared > 0; declared >>= 7 {
		p.WriteByte(first | 0x80)
		first = byte(declared & 0x7f)
	}
	p.WriteByte(first)
	p.Write(base)
	w := zlib.NewWriter(&p.Buffer)
	_, _ = w.Write(content)
	_ = w.Close()
	return p
}

func (p *packBuilder) end() *bytes.Reader {
	sum := sha1.Sum(p.Bytes())
	p.Write(sum[:])
	return bytes.NewReader(p.Bytes())
}

func TestPackBombsAreRefused(t *testing.T) {
	limits := Limits{FileBytes: 1000, TotalBytes: 2000, Objects: 10}.orDefaults()
	zeros := make([]byte, 1000)
	base := plumbing.ComputeHash(plumbing.BlobObject, zeros)
	// A delta: size of the base, size of the target, one copy instruction.
	delta := append(binary.AppendUvarint(binary.AppendUvarint(nil, 1000), 1<<40), 0x80|0x10, 1)
	nothing := append(binary.AppendUvarint(binary.AppendUvarint(nil, 1000), 0), make([]byte, 997)...)
	cases := map[string]struct {
		pack *bytes.Reader
		want error
	}{
		"within the limits":              {newPack(2).add(blobType, 1000, nil, zeros).add(blobType, 3, nil, []byte("abc")).end(), nil},
		"declares many objects":          {newPack(1 << 31).end(), ErrTooLarge},
		"declares a large object":        {newPack(1).add(blobType, 1<<50, nil, nil).end(), ErrTooLarge},
		"inflates beyond what it says":   {newPack(1).add(blobType, 10, nil, make([]byte, 1<<20)).end(), ErrUnusable},
		"many objects, each within":      {newPack(3).add(blobType, 1000, nil, zeros).add(blobType, 1000, nil, zeros).add(blobType, 1000, nil, zeros).end(), ErrTooLarge},
		"a delta that grows":             {newPack(2).add(blobType, 1000, nil, zeros).add(refDeltaType, uint64(len(delta)), base[:], delta).end(), ErrTooLarge},
		"deltas that make nothing":       {newPack(4).add(blobType, 1000, nil, zeros).add(refDeltaType, 1000, base[:], nothing).add(refDeltaType, 1000, base[:], nothing).add(refDeltaType, 1000, base[:], nothing).end(), ErrTooLarge},
		"a delta without sizes":          {newPack(1).add(refDeltaType, 1, base[:], []byte{0x80}).end(), ErrUnusable},
		"a delta with one size":          {newPack(1).add(refDeltaType, 1, base[:], []byte{0x01}).end(), ErrUnusable},
		"a delta on an object elsewhere": {newPack(1).add(refDeltaType, 4, base[:], []byte{1, 1, 1, 0}).end(), ErrUnusable},
		"fewer objects than declared":    {newPack(2).add(blobType, 3, nil, []byte("abc")).end(), ErrUnusable},
		"not a pack":                     {bytes.NewReader([]byte("<html>")), ErrUnusable},
		"nothing":                        {bytes.NewReader(nil), ErrUnusable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := unpack(t.Context(), tc.pack, limits); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestUnpackingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := unpack(ctx, newPack(1).add(blobType, 3, nil, []byte("abc")).end(), Limits{}.orDefaults())
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnusable) {
		t.Error(err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("PACK"))
	seed := newPack(1).add(blobType, 3, nil, []byte("abc")).end()
	content := make([]byte, seed.Len())
	_, _ = seed.Read(content)
	f.Add(content)
	f.Fuzz(func(_ *testing.T, pack []byte) {
		_, _ = unpack(context.Background(), bytes.NewReader(pack), Limits{FileBytes: 1 << 16, TotalBytes: 1 << 18, Objects: 100}.orDefaults())
	})
}

// tree stores a tree of entries and returns its hash.
func tree(t *testing.T, objects *memory.Storage, entries ...object.TreeEntry) plumbing.Hash {
	t.Helper()
	return store(t, objects, &object.Tree{Entries: entries})
}

func commitOf(t *testing.T, objects *memory.Storage, root plumbing.Hash) plumbing.Hash {
	t.Helper()
	return store(t, objects, &object.Commit{TreeHash: root, Author: *signature, Committer: *signature})
}

func store(t *testing.T, objects storer.EncodedObjectStorer, encoder interface {
	Encode(plumbing.EncodedObject) error
}) plumbing.Hash {
	t.Helper()
	encoded := objects.NewEncodedObject()
	if err := encoder.Encode(encoded); err != nil {
		t.Fatal(err)
	}
	hash, err := objects.SetEncodedObject(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// Ten folders that each contain the same folder ten times, nine levels deep, are a billion files in ten objects.
func TestTreeBombIsRefused(t *testing.T) {
	objects := memory.NewStorage()
	hash := tree(t, objects)
	for range 9 {
		entries := make([]object.TreeEntry, 10)
		for i := range entries {
			entries[i] = object.TreeEntry{Name: string(rune('a' + i)), Mode: filemode.Dir, Hash: hash}
		}
		hash = tree(t, objects, entries...)
	}
	_, err := readTree(t.Context(), objects, commitOf(t, objects, hash), Limits{Objects: 1000}.orDefaults())
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// go-git takes a minute to read a megabyte of continued headers.
func TestEndlessHeadersOfACommitAreRefused(t *testing.T) {
	objects := memory.NewStorage()
	commit := &object.Commit{TreeHash: tree(t, objects), Author: *signature, Committer: *signature, Message: strings.Repeat("\n", 1<<20)}
	long := store(t, objects, commit)
	if _, err := readTree(t.Context(), objects, long, Limits{}.orDefaults()); err != nil {
		t.Errorf("a long message: %v", err)
	}
	commit.ExtraHeaders = []object.ExtraHeader{{Key: "extra", Value: strings.Repeat("\n", 1<<20)}}
	bomb := store(t, objects, commit)
	if _, err := readTree(t.Context(), objects, bomb, Limits{}.orDefaults()); !errors.Is(err, ErrTooLarge) {
		t.Errorf("reading its files: %v", err)
	}
	if err := (&Verification{Commit: true}).check(objects, Ref{}, target{commit: bomb}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("verifying it: %v", err)
	}
}

func TestDeepTreeIsRefused(t *testing.T) {
	objects := memory.NewStorage()
	hash := tree(t, objects)
	for range maxDepth + 1 {
		hash = tree(t, objects, object.TreeEntry{Name: "a", Mode: filemode.Dir, Hash: hash})
	}
	_, err := readTree(t.Context(), objects, commitOf(t, objects, hash), Limits{}.orDefaults())
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestNamesThatLeaveTheTreeAreRefused(t *testing.T) {
	for _, name := range []string{"..", ".", "a/b", "\xff"} {
		objects := memory.NewStorage()
		hash := tree(t, objects, object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: tree(t, objects)})
		_, err := readTree(t.Context(), objects, commitOf(t, objects, hash), Limits{}.orDefaults())
		if !errors.Is(err, ErrUnusable) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestNamesInErrorsActOnNoTerminal(t *testing.T) {
	objects := memory.NewStorage()
	hash := tree(t, objects, object.TreeEntry{Name: "a\x1b[31m\n::error::b", Mode: filemode.Dir, Hash: plumbing.NewHash("1234")})
	_, err := readTree(t.Context(), objects, commitOf(t, objects, hash), Limits{}.orDefaults())
	if want := `unusable: reading a\u001b[31m\u000a::error::b: object not found`; !errors.Is(err, ErrUnusable) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAFileThatIsAFolderIsRefused(t *testing.T) {
	objects := memory.NewStorage()
	empty := &plumbing.MemoryObject{}
	empty.SetType(plumbing.BlobObject)
	blob, err := objects.SetEncodedObject(empty)
	if err != nil {
		t.Fatal(err)
	}
	file := object.TreeEntry{Name: "a", Mode: filemode.Regular, Hash: blob}
	hash := tree(t, objects, file, object.TreeEntry{Name: "a", Mode: filemode.Dir, Hash: tree(t, objects, file)})
	if _, err := readTree(t.Context(), objects, commitOf(t, objects, hash), Limits{}.orDefaults()); !errors.Is(err, ErrUnusable) {
		t.Errorf("got %v", err)
	}
}

func TestSubmodulesAreListed(t *testing.T) {
	objects := memory.NewStorage()
	hash := tree(t, objects, object.TreeEntry{Name: "module", Mode: filemode.Submodule, Hash: plumbing.ComputeHash(plumbing.CommitObject, nil)})
	files, err := readTree(t.Context(), objects, commitOf(t, objects, hash), Limits{}.orDefaults())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil || len(entries) != 1 || entries[0].Type() != memfs.Submodule.Mode || entries[0].IsDir() {
		t.Errorf("got %v, %v", entries, err)
	}
}
