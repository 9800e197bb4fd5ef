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

// Verification describes the signatures that a revision must have. A nil *Verification requires none.
type Verification struct {
	// Commit is true if the commit must be signed.
	Commit bool
	// Tag is true if the tag must be annotated and signed. The Ref must then name a tag or a version range.
	Tag bool
	// Signers are the trusted signers.
	Signers *Signers
}

// Digest identifies the requirements, so that Corral verifies an accepted revision again when they change. The digest of nil
// is empty.
func (v *Verification) Digest() string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("commit=%t tag=%t %s", v.Commit, v.Tag, v.Signers.digest)
}

// checkRef refuses a verification that cannot succeed for any revision of the Ref.
func (v *Verification) checkRef(ref Ref) error {
	if v != nil && v.Tag && ref.Tag == "" && ref.SemVer == "" {
		return fmt.Errorf("%w: verify.mode requires a signed tag, but ref names no tag: set ref.tag or ref.semver, or set verify.mode to HEAD", ErrNotAllowed)
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

// checkTag checks the signature, name and target of a tag. Without the last two checks, anyone with push access could
// reuse a tag that was signed under another name, and the Git server could return a tag of another commit.
func (v *Verification) checkTag(objects storer.EncodedObjectStorer, name string, found target) error {
	if found.tag.IsZero() {
		return fmt.Errorf("%w: tag %.100s is not signed: it is a lightweight tag; create it with git tag -s", ErrUnsigned, name)
	}
	tag, err := object.GetTag(objects, found.tag)
	if err != nil {
		return fmt.Errorf("%w: reading tag %.100s: %w", ErrUnusable, name, err)
	}
	switch {
	case tag.Name != name:
		return fmt.Errorf("%w: tag %.100s was signed under the name %.100q", ErrUnsigned, name, tag.Name)
	case tag.TargetType != plumbing.CommitObject || tag.Target != found.commit:
		return fmt.Errorf("%w: tag %.100s points to %s %s, not to commit %s", ErrUnsigned, name, tag.TargetType, tag.Target, found.commit)
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

// author formats a name and email address for messages. It truncates both, because the author can choose any text.
func author(who object.Signature) string {
	return fmt.Sprintf("%.60q <%.60s>", who.Name, who.Email)
}

// signed is a commit or a tag that may have a signature.
type signed interface {
	// EncodeWithoutSignature encodes the content that the signature covers.
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

// blocks counts the armored blocks of a signature. With more than one, the signer would be ambiguous.
func blocks(signature []byte) int {
	count := 0
	for line := range bytes.Lines(signature) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			count++
		}
	}
	return count
}
