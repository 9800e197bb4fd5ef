// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/turns"
)

const (
	// smallBody is the maximum size in bytes of a small body. Events about jobs have about 20 kB.
	smallBody = 256 << 10
	// largeSlots is how many larger bodies are decoded at once.
	largeSlots = 2
	// beginWithin is the grace period before bodyRate is enforced, and arriveWithin the maximum time for the whole
	// body.
	beginWithin  = 2 * time.Second
	arriveWithin = 8 * time.Second
	// turnWithin is how long a large body waits for its turn.
	turnWithin = 2 * time.Second
)

const signatureSize = sha256.Size

// enter waits until a verified body may be decoded. The caller calls leave after decoding, once or more. leave is nil
// if the turn of the body does not come in time, or if the body has to make room. Small bodies do not wait. Namespaces
// take turns at large bodies, so that one tenant does not delay others.
func (s *Server) enter(d *delivery, body *arrival) (leave func()) {
	ctx, cancel := context.WithTimeout(d.Context(), turnWithin)
	defer cancel()
	if !body.verified(d.connection.Namespace, cancel) {
		return nil
	}
	leave = func() {}
	if d.ContentLength > smallBody {
		round, err := s.large.Enter(ctx, turns.Looking, d.connection.Namespace)
		if err != nil {
			return nil
		}
		leave = sync.OnceFunc(func() { s.large.Leave(round, turns.Unknown) })
	}
	if !body.Keep(IntakeBytes, IntakeBytes) {
		leave()
		return nil
	}
	return leave
}

// tooMany is the answer to a request that must be repeated because there is no capacity for it.
var tooMany = answer{result: busy, status: http.StatusServiceUnavailable, text: "Too many events at once.", retry: retryAfter}

// buffers are reused for small bodies.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// bufferFor returns an empty buffer for a body.
func bufferFor(size int64) *bytes.Buffer {
	if size > smallBody {
		return new(bytes.Buffer)
	}
	return buffers.Get().(*bytes.Buffer)
}

// reuse returns a buffer that is no longer read to the pool, unless a large body has made it grow.
func reuse(b *bytes.Buffer) {
	if b != nil && b.Cap() <= 2*smallBody {
		b.Reset()
		buffers.Put(b)
	}
}

// read reads the body and verifies that one of the connection's secrets signed it.
func (s *Server) read(d *delivery, from *arrival) (*bytes.Buffer, answer) {
	body := bufferFor(d.ContentLength)
	n, err := body.ReadFrom(from)
	d.arrived = time.Now()
	a := answer{}
	switch {
	case errors.Is(err, errCrowded):
		a = tooMany
	case err != nil, n != d.ContentLength:
		a = answer{result: slow, status: http.StatusRequestTimeout, text: "The body arrived too slowly, or not all of it."}
	default:
		_ = from.deadline(time.Now().Add(answerWithin))
		a = s.verify(d, body.Bytes())
	}
	if a.status != 0 {
		reuse(body)
		return nil, a
	}
	return body, answer{}
}

// verify checks that one of the connection's secrets signed a body. If none did, it reads the secrets again, because
// they may have changed. Without any secret, it answers as if the signature were wrong, and only the log contains the
// reason.
func (s *Server) verify(d *delivery, body []byte) answer {
	var why error
	for _, fresh := range []bool{false, true} {
		secrets, err := s.Secrets.Of(d.Context(), d.connection, fresh)
		switch {
		case err == nil:
		case isHidden(err):
			secrets, why = nil, err
		case fresh:
			secrets = nil
		default:
			return answer{result: unready, status: http.StatusServiceUnavailable, text: "The secret can't be read now.", retry: retryAfter}
		}
		if s.isSigned(body, secrets, d.claimed) {
			return answer{}
		}
	}
	a := answer{result: forged, status: http.StatusUnauthorized, text: fmt.Sprintf("The signature doesn't match the secret of GitHubConnection %s.", d.connection)}
	if why != nil {
		a.result, a.cause = unknown, why.Error()
	}
	return a
}

// isSigned reports whether one of the secrets signed a body. It always compares with at least two secrets, so that its
// duration does not reveal whether a connection has one. In place of missing secrets, it uses the decoy, with which no
// body is signed.
func (s *Server) isSigned(body []byte, secrets [][]byte, claimed [signatureSize]byte) bool {
	for secrets = slices.Clip(secrets); len(secrets) < 2; {
		secrets = append(secrets, s.decoy)
	}
	ok := false
	for _, secret := range secrets {
		sum := newSum(secret)
		_, _ = sum.Write(body) // never fails
		if hmac.Equal(sum.Sum(nil), claimed[:]) {
			ok = true
		}
	}
	return ok
}

// newSum returns the hash for a body. Tests replace it to count bytes.
var newSum = func(secret []byte) hash.Hash { return hmac.New(sha256.New, secret) }

// parseSignature reads the header X-Hub-Signature-256.
func parseSignature(header string) (sum [signatureSize]byte, ok bool) {
	digits, ok := strings.CutPrefix(header, "sha256=")
	if !ok || len(digits) != hex.EncodedLen(signatureSize) {
		return sum, false
	}
	_, err := hex.Decode(sum[:], []byte(digits))
	return sum, err == nil
}

// Sign returns the header X-Hub-Signature-256 for a body.
func Sign(secret, body []byte) string {
	sum := hmac.New(sha256.New, secret)
	sum.Write(body)
	return "sha256=" + hex.EncodeToString(sum.Sum(nil))
}

// payloadOf returns the JSON in a body. GitHub sends it directly or, with a webhook's default content type, in a form.
func payloadOf(contentType string, body []byte) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, errors.New("the Content-Type is neither application/json nor application/x-www-form-urlencoded")
	}
	switch kind {
	case "application/json":
		return body, nil
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil || !form.Has("payload") {
			return nil, errors.New("the form has no field payload")
		}
		return []byte(form.Get("payload")), nil
	}
	return nil, errors.New("the Content-Type is neither application/json nor application/x-www-form-urlencoded")
}
