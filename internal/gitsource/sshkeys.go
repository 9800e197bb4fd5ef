// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// Limits for the private key and known_hosts, in bytes unless noted. Both come from a tenant's Secret, and processing
// some valid contents would take practically unlimited time.
const (
	maxIdentityBytes   = 16 << 10
	maxRounds          = 256 // rounds of bcrypt_pbkdf(3); ssh-keygen uses 16 or 24 by default
	maxKnownHostsBytes = 64 << 10
	maxWildcards       = 128
	maxWildcardsEach   = 2
)

// parseIdentity reads a private key. Its errors wrap ErrAuthRefused and reveal nothing about the key.
func parseIdentity(data []byte, passphrase string) (ssh.Signer, error) {
	switch {
	case len(data) == 0:
		return nil, fmt.Errorf("%w: there is no private key (identity)", ErrAuthRefused)
	case len(data) > maxIdentityBytes:
		return nil, fmt.Errorf("%w: identity is more than %d bytes", ErrAuthRefused, maxIdentityBytes)
	}
	if rounds := keyRounds(data); rounds > maxRounds {
		return nil, fmt.Errorf("%w: the passphrase of identity is hashed in %d rounds, more than %d; rewrite it with ssh-keygen -p -a 100", ErrAuthRefused, rounds, maxRounds)
	}
	signer, err := ssh.ParsePrivateKey(data)
	encrypted := &ssh.PassphraseMissingError{}
	switch {
	case err == nil:
		return signer, nil
	case !errors.As(err, &encrypted):
		return nil, fmt.Errorf("%w: identity is not a private key in a format of ssh-keygen", ErrAuthRefused)
	case passphrase == "":
		return nil, fmt.Errorf("%w: identity has a passphrase; put it under password", ErrAuthRefused)
	}
	if signer, err = ssh.ParsePrivateKeyWithPassphrase(data, []byte(passphrase)); err != nil {
		return nil, fmt.Errorf("%w: the passphrase in password does not open identity", ErrAuthRefused)
	}
	return signer, nil
}

// keyRounds returns the number of rounds with which a key's passphrase is hashed (PROTOCOL.key of OpenSSH); 0 if
// unknown.
func keyRounds(data []byte) uint32 {
	const magic = "openssh-key-v1\x00"
	block, _ := pem.Decode(data)
	if block == nil || !bytes.HasPrefix(block.Bytes, []byte(magic)) {
		return 0
	}
	var key struct {
		Cipher, KDF, Options string
		Rest                 []byte `ssh:"rest"`
	}
	var options struct {
		Salt   string
		Rounds uint32
	}
	if ssh.Unmarshal(block.Bytes[len(magic):], &key) != nil || key.KDF != "bcrypt" || ssh.Unmarshal([]byte(key.Options), &options) != nil {
		return 0
	}
	return options.Rounds
}

// hostKeys verifies servers by their host keys.
type hostKeys struct {
	known   *knownhosts.HostKeyDB
	refused error // the last refusal, which the handshake may hide
}

// parseKnownHosts reads a known_hosts file.
func parseKnownHosts(data []byte) (*hostKeys, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%w: there are no host keys (known_hosts); ssh-keyscan HOST writes them, compare the fingerprints before you use them", ErrUntrusted)
	case len(data) > maxKnownHostsBytes:
		return nil, fmt.Errorf("%w: known_hosts is more than %d bytes; keep the lines of this server", ErrUntrusted, maxKnownHostsBytes)
	}
	if err := checkWildcards(data); err != nil {
		return nil, err
	}
	name, err := writeTemporary(data)
	if err != nil {
		return nil, fmt.Errorf("writing known_hosts to a temporary file: %w", err)
	}
	defer func() { _ = os.Remove(name) }()
	known, err := knownhosts.NewDB(name)
	if err != nil {
		return nil, fmt.Errorf("%w: reading known_hosts: %s", ErrUntrusted, strings.ReplaceAll(err.Error(), name, "known_hosts"))
	}
	return &hostKeys{known: known}, nil
}

// checkWildcards refuses patterns whose matching takes practically unlimited time.
func checkWildcards(data []byte) error {
	total := 0
	for pattern := range strings.FieldsFuncSeq(string(data), func(r rune) bool { return r <= ' ' || r == ',' }) {
		each := strings.Count(pattern, "*")
		if total += each; each > maxWildcardsEach || total > maxWildcards {
			return fmt.Errorf("%w: known_hosts has more than %d * in one pattern, or more than %d in all", ErrUntrusted, maxWildcardsEach, maxWildcards)
		}
	}
	return nil
}

// writeTemporary writes a temporary file, because the library only reads files.
func writeTemporary(data []byte) (name string, err error) {
	file, err := os.CreateTemp("", "known_hosts-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(file, bytes.NewReader(data))
	return file.Name(), errors.Join(err, file.Close())
}

// check verifies the host key of a server. The ssh package calls it before authentication.
func (h *hostKeys) check(host string, remote net.Addr, key ssh.PublicKey) error {
	err := h.known.HostKeyCallback()(host, remote, key)
	if err == nil {
		return nil
	}
	name := fmt.Sprintf("%s key %s", key.Type(), ssh.FingerprintSHA256(key))
	unknown := &xknownhosts.KeyError{}
	switch {
	case errors.As(err, &unknown) && len(unknown.Want) > 0:
		err = fmt.Errorf("%w: %s shows the %s, and line %d of known_hosts has %s: the key changed, or another server intercepts the connection",
			ErrUntrusted, host, name, unknown.Want[0].Line, ssh.FingerprintSHA256(unknown.Want[0].Key))
	case errors.As(err, &unknown):
		err = fmt.Errorf("%w: %s is not in known_hosts; it shows the %s; if that is right, add the line %q",
			ErrUntrusted, host, name, xknownhosts.Line([]string{host}, key))
	default:
		err = fmt.Errorf("%w: %s shows the %s: %w", ErrUntrusted, host, name, err)
	}
	h.refused = err
	return err
}

// explain returns the error of check if check made the handshake fail, and err otherwise.
func (h *hostKeys) explain(err error) error {
	if h.refused != nil {
		return h.refused
	}
	return err
}
