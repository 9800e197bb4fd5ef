// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// pgpPacket returns a packet with a header of the current format.
func pgpPacket(tag byte, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0xc0 | tag, 255}, uint32(len(body))), body...)
}

// signatureBody returns the body of a version 4 signature that has only the given subpackets, not hashed.
func signatureBody(subpackets ...byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{4, 0, 22, 8, 0, 0}, uint16(len(subpackets)))
	return append(append(body, subpackets...), 0, 0, 0, 0, 0, 0)
}

func pgpSignature(subpackets ...byte) []byte {
	return pgpPacket(tagSignature, signatureBody(subpackets...)...)
}

// embedded returns a subpacket that contains a signature.
func embedded(body []byte) []byte {
	length := binary.BigEndian.AppendUint32([]byte{255}, uint32(1+len(body)))
	return slices.Concat(length, []byte{typeEmbedded}, body)
}

func armored(t *testing.T, kind string, packets ...[]byte) []byte {
	t.Helper()
	text := &bytes.Buffer{}
	w, err := armor.Encode(text, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(slices.Concat(packets...))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// hostilePackets returns packets whose parsing takes gigabytes of memory or minutes.
func hostilePackets() map[string]struct {
	packets []byte
	want    string
} {
	// A signature of version 6 has lengths of four bytes. The library allocates what they claim.
	huge := []byte{6, 0, 22, 8, 0xff, 0xff, 0xff, 0xff}
	short := append([]byte{byte(1 + len(huge)), typeEmbedded | 0x80}, huge...) // critical, and with a length of one byte
	// The library keeps copies of all that a signature contains, at each level.
	nested := signatureBody()
	for len(nested) < 40_000 {
		nested = signatureBody(embedded(nested)...)
	}
	return map[string]struct {
		packets []byte
		want    string
	}{
		"version 6":                    {pgpPacket(tagSignature, huge...), "version 6"},
		"version 6, old header":        {append([]byte{0x80 | tagSignature<<2, byte(len(huge))}, huge...), "version 6"},
		"version 6, indeterminate":     {append([]byte{0x80 | tagSignature<<2 | 3}, huge...), "malformed"},
		"version 6, partial":           {append([]byte{0xc0 | tagSignature, 224 + 3}, huge...), "malformed"},
		"version 6, embedded":          {pgpSignature(embedded(huge)...), "version 6"},
		"version 6, embedded, short":   {pgpSignature(short...), "version 6"},
		"embedded twice":               {pgpPacket(tagSignature, nested...), "in an embedded signature"},
		"subpackets beyond the packet": {pgpPacket(tagSignature, 4, 0, 22, 8, 0xff, 0xff), "malformed"},
		"a packet beyond the end":      {[]byte{0xc0 | tagSignature, 255, 0xff, 0xff, 0xff, 0xff, 4}, "malformed"},
		"an empty packet":              {pgpPacket(tagSignature), "malformed"},
		"no packet":                    {[]byte{1, 2, 3}, "malformed"},
		"a private key":                {pgpPacket(tagSecretKey, 4), "private key"},
		"a private subkey":             {pgpPacket(tagSecretSubkey, 4), "private key"},
		"compressed data":              {pgpPacket(8, 1), "type 8"},
		"a subpacket without a value":  {pgpPacket(tagSignature, 4, 0, 1, 8, 0, 2, 1, 4, 0, 0), "panicked"},
	}
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHostilePacketsOfKeysAreRefused(t *testing.T) {
	for name, tc := range hostilePackets() {
		t.Run(name, func(t *testing.T) {
			files := map[string][]byte{"a.asc": armored(t, openpgp.PublicKeyType, tc.packets)}
			var err error
			took := allocated(func() { _, err = ParseSigners(files) })
			if !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if took > 1<<20 {
				t.Errorf("reading it took %d bytes", took)
			}
		})
	}
}

func TestHostilePacketsOfSignaturesAreRefused(t *testing.T) {
	s := newSigners(t)
	known, err := ParseSigners(map[string][]byte{"alice.asc": s.asc("alice")})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range hostilePackets() {
		t.Run(name, func(t *testing.T) {
			var err error
			took := allocated(func() { err = known.check([]byte("text"), armored(t, openpgp.SignatureType, tc.packets)) })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if took > 1<<20 {
				t.Errorf("reading it took %d bytes", took)
			}
		})
	}
	good, err := pgpSigner{s.pgp["alice"]}.Sign(strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	packets, _, err := unarmor(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := known.check([]byte("text"), armored(t, openpgp.SignatureType, packets, packets)); !errors.Is(err, errSeveral) {
		t.Errorf("two signatures in one block: %v", err)
	}
	if err := known.check([]byte("text"), append(good, bytes.Repeat([]byte(" "), maxSignatureBytes)...)); err == nil {
		t.Error("a large signature is accepted")
	}
	if err := known.check([]byte("text"), armored(t, openpgp.SignatureType)); err == nil {
		t.Error("no signature is accepted")
	}
	if err := known.check([]byte("text"), s.asc("alice")); err == nil || !strings.Contains(err.Error(), `armored as "PGP PUBLIC KEY BLOCK"`) {
		t.Errorf("a key in place of a signature: %v", err)
	}
}

// If the library stopped within a packet, it would read the rest as packets that parsePackets has not checked.
func TestPacketsAreReadToTheirEnd(t *testing.T) {
	key := &bytes.Buffer{}
	public := packet.NewRSAPublicKey(time.Unix(1, 0), &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1024), E: 65537})
	if err := public.Serialize(key); err != nil {
		t.Fatal(err)
	}
	_, header, _, ok := headerOf(key.Bytes())
	if !ok {
		t.Fatal("the header is not read")
	}
	beyond := pgpPacket(tagPublicKey, 4, 0, 0, 0, 0, 1, 0xff, 0xff)
	if _, err := parsePackets(beyond, tagsOfKeys); !errors.Is(err, errMalformedPacket) {
		t.Errorf("a number beyond the packet: %v", err)
	}
	hidden := append(key.Bytes()[header:], pgpPacket(tagSignature, 6, 0, 22, 8, 0xff, 0xff, 0xff, 0xff)...)
	took := allocated(func() {
		if _, err := parsePackets(pgpPacket(tagPublicKey, hidden...), tagsOfKeys); !errors.Is(err, errMalformedPacket) {
			t.Errorf("got %v", err)
		}
	})
	if took > 1<<20 {
		t.Errorf("reading it took %d bytes", took)
	}
}

// Other programs still use the key that the library supports.
func TestASubkeyOnAnUnknownCurveIsIgnored(t *testing.T) {
	s := newSigners(t)
	alice := &bytes.Buffer{}
	if err := s.pgp["alice"].Serialize(alice); err != nil {
		t.Fatal(err)
	}
	subkey := pgpPacket(tagSubkey, 4, 0, 0, 0, 0, 22, 1, 0)
	known, err := ParseSigners(map[string][]byte{"alice.asc": armored(t, openpgp.PublicKeyType, alice.Bytes(), subkey)})
	if err != nil {
		t.Fatal(err)
	}
	signature, err := pgpSigner{s.pgp["alice"]}.Sign(strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	if err := known.check([]byte("text"), signature); err != nil {
		t.Error(err)
	}
}

func TestPacketsOfUsualKeysAndSignaturesAreAccepted(t *testing.T) {
	for name, config := range map[string]*packet.Config{
		"EdDSA":   {Algorithm: packet.PubKeyAlgoEdDSA},
		"ECDSA":   {Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256},
		"Ed25519": {Algorithm: packet.PubKeyAlgoEd25519},
		"RSA":     {Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048},
	} {
		t.Run(name, func(t *testing.T) {
			s := &signers{t: t, pgp: map[string]*openpgp.Entity{}}
			s.addPGP("alice", config)
			if err := s.pgp["alice"].AddSigningSubkey(config); err != nil { // its binding has an embedded signature
				t.Fatal(err)
			}
			known, err := ParseSigners(map[string][]byte{"alice.asc": s.asc("alice")})
			if err != nil {
				t.Fatal(err)
			}
			signature, err := pgpSigner{s.pgp["alice"]}.Sign(strings.NewReader("text"))
			if err != nil {
				t.Fatal(err)
			}
			if err := known.check([]byte("text"), signature); err != nil {
				t.Error(err)
			}
			if err := known.check([]byte("other"), signature); err == nil {
				t.Error("a signature of another text is accepted")
			}
		})
	}
}
