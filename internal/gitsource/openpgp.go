// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// The tags of OpenPGP packets (RFC 9580, section 5), and the type of a signature's subpacket that contains a signature
// (section 5.2.3.7).
const (
	tagSignature     = 2
	tagSecretKey     = 5
	tagPublicKey     = 6
	tagSecretSubkey  = 7
	tagMarker        = 10
	tagTrust         = 12
	tagUserID        = 13
	tagSubkey        = 14
	tagUserAttribute = 17
	typeEmbedded     = 32
)

var (
	tagsOfKeys       = []byte{tagSignature, tagPublicKey, tagMarker, tagTrust, tagUserID, tagSubkey, tagUserAttribute}
	tagsOfSignatures = []byte{tagSignature}
)

var errMalformedPacket = errors.New("contains a malformed OpenPGP packet")

// parsePackets checks and parses OpenPGP packets. A packet that the OpenPGP library does not support is nil in the result,
// for example a key on an unknown curve.
//
// While the library parses a packet, it takes as much memory as a signature of version 6 claims to need, up to 8 GiB, and
// validates private keys, which takes minutes for some numbers. parsePackets therefore refuses both before it parses them,
// and all other packets that do not belong there.
func parsePackets(data []byte, tags []byte) (packets []packet.Packet, err error) {
	for len(data) > 0 {
		tag, header, size, ok := headerOf(data)
		if !ok || size > uint64(len(data)-header) {
			return nil, errMalformedPacket
		}
		whole := data[:header+int(size)] //nolint:gosec // at most len(data)
		switch body := whole[header:]; {
		case tag == tagSecretKey, tag == tagSecretSubkey:
			return nil, errors.New("contains a private key; export only the public key")
		case !slices.Contains(tags, tag):
			return nil, fmt.Errorf("contains an OpenPGP packet of type %d, which does not belong there", tag)
		case tag == tagSignature || tag == tagPublicKey || tag == tagSubkey:
			if err := guardVersion(body, tag == tagSignature, false); err != nil {
				return nil, err
			}
		}
		// The library looks for the next packet where it stopped reading, so it must not stop within a packet.
		rest := bytes.NewReader(whole)
		parsed, err := packet.Read(rest)
		switch {
		case errors.As(err, new(pgperrors.UnsupportedError)):
			parsed = nil // the library returns a part of the packet
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errMalformedPacket, err)
		case rest.Len() > 0:
			return nil, errMalformedPacket
		}
		packets = append(packets, parsed)
		data = data[len(whole):]
	}
	return packets, nil
}

// headerOf returns the tag of the first packet, and the sizes of its header and of its body. It returns false for a packet
// whose size is not known at its beginning.
func headerOf(data []byte) (tag byte, header int, size uint64, ok bool) {
	if data[0]&0x80 == 0 {
		return 0, 0, 0, false
	}
	if data[0]&0x40 != 0 {
		size, n, ok := lengthOf(data[1:], 224)
		return data[0] & 0x3f, 1 + n, size, ok
	}
	n := 1 << (data[0] & 3)
	if n == 8 || len(data) < 1+n {
		return 0, 0, 0, false
	}
	padded := make([]byte, 8)
	copy(padded[8-n:], data[1:1+n])
	return data[0] & 0x3f >> 2, 1 + n, binary.BigEndian.Uint64(padded), true
}

// lengthOf reads a length of one, two or five bytes. A first byte below 192 is the length itself. A first byte below limit is
// the first of two. Other first bytes below 255 are not valid.
func lengthOf(data []byte, limit byte) (length uint64, n int, ok bool) {
	switch {
	case len(data) >= 1 && data[0] < 192:
		return uint64(data[0]), 1, true
	case len(data) >= 2 && data[0] < limit:
		return uint64(data[0]-192)<<8 + uint64(data[1]) + 192, 2, true
	case len(data) >= 5 && data[0] == 255:
		return uint64(binary.BigEndian.Uint32(data[1:])), 5, true
	}
	return 0, 0, false
}

// guardVersion refuses keys and signatures of version 6, and signatures that contain such a signature. It also refuses
// signatures in embedded signatures, because the library keeps copies of a signature at each level.
func guardVersion(body []byte, isSignature, isEmbedded bool) error {
	const hashed = 4 // where the hashed subpackets begin in versions 4 and 5, after the version, two algorithms and the type
	switch {
	case len(body) == 0:
		return errMalformedPacket
	case body[0] > 5:
		return fmt.Errorf("contains an OpenPGP packet of version %d, which is not supported", body[0])
	case !isSignature || body[0] < 4: // the library ignores older signatures
		return nil
	}
	rest := body[min(len(body), hashed):]
	for range 2 { // the subpackets that are hashed, and those that are not
		if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
			return errMalformedPacket
		}
		size := int(binary.BigEndian.Uint16(rest))
		if err := guardSubpackets(rest[2:2+size], isEmbedded); err != nil {
			return err
		}
		rest = rest[2+size:]
	}
	return nil
}

func guardSubpackets(data []byte, isEmbedded bool) error {
	for len(data) > 0 {
		size, n, ok := lengthOf(data, 255)
		if !ok || size == 0 || size > uint64(len(data)-n) {
			return errMalformedPacket
		}
		body := data[n : n+int(size)] //nolint:gosec // at most len(data)
		if body[0]&0x7f == typeEmbedded {
			if isEmbedded {
				return errors.New("contains an OpenPGP signature in an embedded signature")
			}
			if err := guardVersion(body[1:], true, true); err != nil {
				return err
			}
		}
		data = data[n+len(body):]
	}
	return nil
}
