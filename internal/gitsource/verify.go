// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Verification describes the required signatures of a revision. Nil requires none.
type Verification struct {
	// Commit is true if the commit must be signed.
	Commit bool
	// Tag is true if the tag must be annotated and signed. The Ref must be a tag or a range.
	Tag bool
	// Signers are the trusted signers.
	Signers *Signers
}

// Digest identifies the requirements, so that a revision that was accepted for one set of signers is verified again for
// another. The digest of nil is empty.
func (v *Verification) Digest() string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("commit=%t tag=%t %s", v.Commit, v.Tag, v.Signers.digest)
}

// checkRef refuses a verification that could never succeed.
func (v *Verification) checkRef(ref Ref) error {
	if v != nil && v.Tag && ref.Tag == "" && ref.SemVer == "" {
		return fmt.Errorf("%w: a signed tag is required (verify.mode), but ref names no tag; set ref.tag or ref.semver, or mode HEAD", ErrNotAllowed)
	}
	return nil
}

// check returns an error that wraps ErrUnsigned if a required signature is missing.
func (v *Verification) check(objects storer.EncodedObjectStorer, ref Ref, found target) error {
	if v == nil {
		return nil
	}
	if v.Tag {
		if err := v.checkTag(objects, ref.Tag, found); err != nil {
			return err
		}
	}
	if v.Commit {
		return v.checkCommit(objects, found.commit)
	}
	return nil
}

// checkTag also checks the content of the tag. Otherwise anyone with push access could present a tag that was signed
// under another name, and the server could present one for another commit.
func (v *Verification) checkTag(objects storer.EncodedObjectStorer, name string, found target) error {
	if found.tag.IsZero() {
		return fmt.Errorf("%w: tag %.100s is not signed: it is a lightweight tag; make it with git tag -s", ErrUnsigned, name)
	}
	tag, err := object.GetTag(objects, found.tag)
	if err != nil {
		return fmt.Errorf("%w: reading tag %.100s: %w", ErrUnusable, name, err)
	}
	switch {
	case tag.Name != name:
		return fmt.Errorf("%w: tag %.100s was made and signed as %.100q", ErrUnsigned, name, tag.Name)
	case tag.TargetType != plumbing.CommitObject || tag.Target != found.commit:
		return fmt.Errorf("%w: tag %.100s is of %s %s, not of commit %s", ErrUnsigned, name, tag.TargetType, tag.Target, found.commit)
	}
	what := fmt.Sprintf("tag %.100s by %s", name, author(tag.Tagger))
	return v.checkSignature(what, tag.PGPSignature, tag)
}

func (v *Verification) checkCommit(objects storer.EncodedObjectStorer, hash plumbing.Hash) error {
	commit, err := readCommit(objects, hash)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("commit %s by %s", hash, author(commit.Committer))
	return v.checkSignature(what, commit.PGPSignature, commit)
}

// author truncates names, because the author of a commit chooses them.
func author(who object.Signature) string {
	return fmt.Sprintf("%.60q <%.60s>", who.Name, who.Email)
}

// signed is a commit or a tag.
type signed interface {
	// EncodeWithoutSignature encodes the signed content.
	EncodeWithoutSignature(plumbing.EncodedObject) error
}

func (v *Verification) checkSignature(what, signature string, of signed) error {
	if signature == "" {
		return fmt.Errorf("%w: %s is not signed", ErrUnsigned, what)
	}
	encoded := &plumbing.MemoryObject{}
	if err := of.EncodeWithoutSignature(encoded); err != nil {
		return fmt.Errorf("%w: reading the signed content of %s: %w", ErrUnusable, what, err)
	}
	content, err := encoded.Reader()
	if err != nil {
		return fmt.Errorf("%w: reading the signed content of %s: %w", ErrUnusable, what, err)
	}
	defer func() { _ = content.Close() }()
	payload, err := io.ReadAll(content)
	if err != nil {
		return fmt.Errorf("%w: reading the signed content of %s: %w", ErrUnusable, what, err)
	}
	if err := v.Signers.check(payload, []byte(signature)); err != nil {
		return fmt.Errorf("%w: %s %w", ErrUnsigned, what, err)
	}
	return nil
}

// blocks counts signatures. With several, the signer would be ambiguous.
func blocks(signature []byte) int {
	count := 0
	for line := range bytes.Lines(signature) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			count++
		}
	}
	return count
}
