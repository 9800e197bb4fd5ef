// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Limits for the keys of signers. The keys come from a tenant's Secret, and verifying a signature takes longer with a
// larger key.
const (
	maxSignersBytes = 256 << 10
	maxKeyBits      = 8192
	// maxOwnSignatures is the maximum number of signatures that OpenPGP keys make of themselves, in one Secret. All of them
	// are verified when the keys are read. A key with ten user IDs and subkeys usually has about 20.
	maxOwnSignatures = 100
	// maxSignatureBytes is the maximum size of an armored signature of a commit or a tag.
	maxSignatureBytes = 64 << 10
)

var errSeveral = errors.New("carries several signatures; sign it once")

// Signers are the public keys of trusted signers.
type Signers struct {
	digest string
	pgp    openpgp.EntityList
	own    int                      // number of signatures that the OpenPGP keys may have made of themselves
	ssh    map[string]ssh.PublicKey // by fingerprint
}

// ParseSigners reads public keys from a Secret: armored OpenPGP keys under names that end in .asc, and SSH keys under
// names that end in .pub, one per line as in authorized_keys (sshd(8)) and without options. It ignores other names.
// Errors name the key of the Secret and wrap ErrNotAllowed.
func ParseSigners(files map[string][]byte) (*Signers, error) {
	s := &Signers{ssh: map[string]ssh.PublicKey{}}
	sum, size := sha256.New(), 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := files[name]
		read := s.readers()[path.Ext(name)]
		if read == nil {
			continue
		}
		if size += len(data); size > maxSignersBytes {
			return nil, fmt.Errorf("%w: the keys are more than %d bytes in total", ErrNotAllowed, maxSignersBytes)
		}
		if err := guarded(func() error { return read(data) }); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrNotAllowed, name, err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
	}
	if len(s.pgp)+len(s.ssh) == 0 {
		return nil, fmt.Errorf("%w: there is no public key under a name that ends in .asc (OpenPGP) or .pub (SSH)", ErrNotAllowed)
	}
	s.digest = hex.EncodeToString(sum.Sum(nil))
	return s, nil
}

// guarded returns a panic of do as an error. The OpenPGP library panics for some malformed keys and signatures.
func guarded(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read: the library panicked: %.100v", r)
		}
	}()
	return do()
}

func (s *Signers) readers() map[string]func([]byte) error {
	return map[string]func([]byte) error{".asc": s.readPGP, ".pub": s.readSSH}
}

func (s *Signers) readSSH(data []byte) error {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey(line)
		if err != nil {
			return fmt.Errorf("line %d is not an SSH public key", number)
		}
		if len(options) > 0 {
			return fmt.Errorf("line %d has options (%.60s), which are not supported; keep only the key on its line", number, strings.Join(options, ","))
		}
		s.ssh[ssh.FingerprintSHA256(key)] = key
	}
	return nil
}

// readPGP reads one or more armored blocks of keys.
func (s *Signers) readPGP(data []byte) error {
	const end = "-----END PGP PUBLIC KEY BLOCK-----"
	for {
		data = bytes.TrimSpace(data)
		if len(data) == 0 {
			return nil
		}
		block, rest, found := bytes.Cut(data, []byte(end))
		if !found {
			return errors.New("is not an armored OpenPGP public key (gpg --armor --export writes one)")
		}
		if err := s.readPGPBlock(append(block, end...)); err != nil {
			return err
		}
		data = rest
	}
}

func (s *Signers) readPGPBlock(data []byte) error {
	block, err := armor.Decode(bytes.NewReader(data))
	if err != nil || block.Type != openpgp.PublicKeyType {
		return errors.New("is not an armored OpenPGP public key (gpg --armor --export writes one)")
	}
	body, err := io.ReadAll(block.Body)
	if err != nil {
		return fmt.Errorf("is not an armored OpenPGP public key: %w", err)
	}
	packets, err := parsePackets(body, tagsOfKeys)
	if err != nil {
		return err
	}
	if err := s.checkCosts(packets); err != nil {
		return err
	}
	keys, err := openpgp.ReadKeyRing(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("reading the OpenPGP keys: %w", err)
	}
	s.pgp = append(s.pgp, keys...)
	return nil
}

// checkCosts limits the time that reading the keys takes, before any signature is verified with them. It refuses DSA keys,
// whose parameters have no limit.
func (s *Signers) checkCosts(packets []packet.Packet) error {
	var found []*packet.PublicKey
	for _, next := range packets {
		switch x := next.(type) {
		case *packet.PublicKey:
			if err := checkKey(x); err != nil {
				return err
			}
			found = append(found, x)
		case *packet.Signature:
			if !isForeign(x, found) {
				s.own++
			}
			if x.EmbeddedSignature != nil { // it is verified too
				s.own++
			}
			if s.own > maxOwnSignatures {
				return fmt.Errorf("the OpenPGP keys have more than %d signatures of their own; gpg --export-options export-minimal leaves out old ones", maxOwnSignatures)
			}
		}
	}
	return nil
}

func checkKey(key *packet.PublicKey) error {
	if key.PubKeyAlgo == packet.PubKeyAlgoDSA {
		return fmt.Errorf("OpenPGP key %s is a DSA key; only RSA, ECDSA and EdDSA keys are supported", key.KeyIdString())
	}
	if bits, err := key.BitLength(); err == nil && bits > maxKeyBits {
		return fmt.Errorf("OpenPGP key %s has %d bits, more than %d", key.KeyIdString(), bits, maxKeyBits)
	}
	return nil
}

// isForeign reports whether somebody else certified a user ID. Such a signature is not verified when the keys are read.
func isForeign(signature *packet.Signature, keys []*packet.PublicKey) bool {
	switch signature.SigType {
	case packet.SigTypeGenericCert, packet.SigTypePersonaCert, packet.SigTypeCasualCert, packet.SigTypePositiveCert, packet.SigTypeCertificationRevocation:
		return !slices.ContainsFunc(keys, signature.CheckKeyIdOrFingerprint)
	}
	return false
}

// check verifies a signature. Its error names the actual signer, and continues a sentence that begins with the commit
// or the tag.
func (s *Signers) check(payload, signature []byte) error {
	if blocks(signature) > 1 {
		return errSeveral
	}
	if len(signature) > maxSignatureBytes {
		return fmt.Errorf("has a signature of %d bytes, more than %d", len(signature), maxSignatureBytes)
	}
	switch {
	case bytes.HasPrefix(signature, []byte("-----BEGIN SSH SIGNATURE-----")):
		return s.checkSSH(payload, signature)
	case bytes.HasPrefix(signature, []byte("-----BEGIN PGP ")):
		return guarded(func() error { return s.checkPGP(payload, signature) })
	}
	return errors.New("is signed with neither OpenPGP nor an SSH key (gpg.format)")
}

// unknownSigner is an ErrUnknownSigner that names the key.
type unknownSigner string

func (u unknownSigner) Error() string { return string(u) }

// Is implements the interface of errors.Is.
func (u unknownSigner) Is(target error) bool { return target == ErrUnknownSigner }

// checkSSH verifies a signature in the format of OpenSSH's PROTOCOL.sshsig. Git signs in the namespace git.
func (s *Signers) checkSSH(payload, armored []byte) error {
	signature, err := sshsig.Unarmor(armored)
	if err != nil {
		return fmt.Errorf("carries a malformed SSH signature: %w", err)
	}
	name := fmt.Sprintf("SSH key %s (%s)", ssh.FingerprintSHA256(signature.PublicKey), signature.PublicKey.Type())
	key, known := s.ssh[ssh.FingerprintSHA256(signature.PublicKey)]
	if !known {
		return unknownSigner(fmt.Sprintf("is signed by %s, which is not among the %s", name, s))
	}
	if err := sshsig.Verify(bytes.NewReader(payload), signature, key, signature.HashAlgorithm, "git"); err != nil {
		return fmt.Errorf("claims to be signed by %s, but another key made the signature: %w", name, err)
	}
	return nil
}

func (s *Signers) checkPGP(payload, armored []byte) error {
	signature, packets, err := unarmor(armored)
	switch {
	case err != nil:
		return fmt.Errorf("carries an OpenPGP signature that can't be read: %w", err)
	case len(packets) > 1:
		return errSeveral
	}
	name := issuer(packets[0])
	_, err = openpgp.CheckDetachedSignature(s.pgp, bytes.NewReader(payload), bytes.NewReader(signature), nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return unknownSigner(fmt.Sprintf("is signed by %s, which is not among the %s, or may not sign", name, s))
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return fmt.Errorf("is signed by %s, which has expired", name)
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return fmt.Errorf("is signed by %s, which was revoked", name)
	}
	return fmt.Errorf("claims to be signed by %s, but the signature is not valid: %w", name, err)
}

// unarmor returns the content of an armored OpenPGP signature, and its packets. There is at least one packet.
func unarmor(armored []byte) (content []byte, packets []packet.Packet, err error) {
	block, err := armor.Decode(bytes.NewReader(armored))
	if err != nil {
		return nil, nil, err
	}
	if block.Type != openpgp.SignatureType {
		return nil, nil, fmt.Errorf("it is armored as %.40q", block.Type)
	}
	content, err = io.ReadAll(block.Body)
	if err == nil && len(content) == 0 {
		err = errMalformedPacket
	}
	if err != nil {
		return nil, nil, err
	}
	packets, err = parsePackets(content, tagsOfSignatures)
	return content, packets, err
}

// issuer returns a description of the key that an OpenPGP signature names as its issuer.
func issuer(p packet.Packet) string {
	signature, isSignature := p.(*packet.Signature)
	switch {
	case !isSignature:
		return "an unknown OpenPGP key"
	case len(signature.IssuerFingerprint) > 0:
		return fmt.Sprintf("OpenPGP key %X", signature.IssuerFingerprint)
	case signature.IssuerKeyId != nil:
		return fmt.Sprintf("OpenPGP key %016X", *signature.IssuerKeyId)
	}
	return "an unknown OpenPGP key"
}

// String returns the numbers of keys, for messages.
func (s *Signers) String() string {
	return fmt.Sprintf("%d OpenPGP and %d SSH keys of those who may sign", len(s.pgp), len(s.ssh))
}
