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
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/corral-dev/corral/internal/turns"
)

// Bodies that GitHub signed are decoded in two lanes, so that large ones leave room for the others.
const (
	// smallBody is the size up to which a body is a small one, in bytes: events of jobs have some 20 kB.
	smallBody = 256 << 10
	// smallSlots and largeSlots are how many are decoded at once.
	smallSlots, largeSlots = 128, 2
	// smallWithin is when a body must have begun to arrive at bodyRate, and crowdedWithin when many arrive, and for a suspect source.
	// largeWithin is when all of it must have arrived.
	smallWithin, largeWithin, crowdedWithin = 2 * time.Second, 8 * time.Second, 500 * time.Millisecond
	// laneWait is how long a request waits for its turn.
	laneWait = 2 * time.Second
)

const signatureSize = sha256.Size

// lanes bound how many bodies are decoded. Namespaces take turns at large ones.
type lanes struct {
	small *semaphore.Weighted
	large *turns.Limiter
}

func newLanes() *lanes {
	return &lanes{small: semaphore.NewWeighted(smallSlots), large: turns.New(largeSlots)}
}

// enter waits for a slot for a verified body and returns how to leave it; nil and an answer if there was none in time.
func (l *lanes) enter(d *delivery) (leave func(), a answer) {
	ctx, cancel := context.WithTimeout(d.Context(), laneWait)
	defer cancel()
	if d.ContentLength > smallBody {
		if round, err := l.large.Enter(ctx, turns.Looking, d.connection.Namespace); err == nil {
			return func() { l.large.Leave(round, turns.Unknown) }, answer{}
		}
	} else if l.small.Acquire(ctx, 1) == nil {
		return func() { l.small.Release(1) }, answer{}
	}
	return nil, tooMany
}

// tooMany is the answer to a request that has to be made again, as others are worked on.
var tooMany = answer{result: busy, status: http.StatusServiceUnavailable, text: "Too many events at once.", retry: retryAfter}

// buffers are used again for small bodies.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// bufferFor returns an empty buffer for a body.
func bufferFor(size int64) *bytes.Buffer {
	if size > smallBody {
		return new(bytes.Buffer)
	}
	return buffers.Get().(*bytes.Buffer)
}

// reuse gives a buffer back that nobody reads any more, unless a large body made it grow.
func reuse(b *bytes.Buffer) {
	if b != nil && b.Cap() <= 2*smallBody {
		b.Reset()
		buffers.Put(b)
	}
}

// read takes the body in and shows that one of the secrets signed it. Large bodies of events that aren't used
// are only looked at, not kept: then the body is nil. If there are no secrets, it answers as if the signature were another, and only the log is
// told why.
func (s *Server) read(d *delivery, from *arrival, secrets [][]byte, why error) (*bytes.Buffer, answer) {
	size := d.ContentLength
	if why != nil {
		secrets = nil
	}
	var body *bytes.Buffer
	if size <= smallBody || IsDecoded(d.event) {
		body = bufferFor(size)
	}
	sums, err := readBody(from, size, body, s.keys(secrets))
	if err == nil {
		_ = from.deadline(time.Now().Add(answerWithin))
	}
	switch {
	case errors.Is(err, errCrowded):
		reuse(body)
		return nil, tooMany
	case err != nil:
		reuse(body)
		return nil, answer{result: slow, status: http.StatusRequestTimeout, text: "The body arrived too slowly, or not all of it."}
	case fits(sums, d.claimed), s.fitsAnew(d, body):
		from.verified()
		return body, answer{}
	}
	reuse(body)
	a := answer{result: forged, status: http.StatusUnauthorized, text: fmt.Sprintf("The signature isn't by the secret of GitHubConnection %s.", d.connection)}
	if why != nil {
		a.result, a.cause = unknown, why.Error()
	}
	return nil, a
}

// keys returns what a body is compared with: two secrets, whatever a connection has, so that the time that it takes doesn't tell whether there
// is one. Nothing is signed with the decoy.
func (s *Server) keys(secrets [][]byte) [][]byte {
	for secrets = slices.Clip(secrets); len(secrets) < 2; {
		secrets = append(secrets, s.decoy)
	}
	return secrets
}

// readBody reads size bytes into body, which may be nil, and sums them up with each secret.
func readBody(from io.Reader, size int64, body *bytes.Buffer, secrets [][]byte) (sums []hash.Hash, err error) {
	from = io.LimitReader(from, size)
	for _, secret := range secrets {
		sums = append(sums, hmac.New(sha256.New, secret))
	}
	var n int64
	if body != nil {
		n, err = body.ReadFrom(from)
		sumUp(sums, body.Bytes())
	} else {
		n, err = io.Copy(sumWriter(sums), from)
	}
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	return sums, nil
}

// sumWriter sums up what is written.
type sumWriter []hash.Hash

func (w sumWriter) Write(p []byte) (int, error) {
	sumUp(w, p)
	return len(p), nil
}

func sumUp(sums []hash.Hash, p []byte) {
	for _, sum := range sums {
		// A hash.Hash never fails.
		_, _ = sum.Write(p)
	}
}

// fits reports whether one of the sums is the signature. It takes as long whichever it is.
func fits(sums []hash.Hash, claimed [signatureSize]byte) bool {
	ok := false
	for _, sum := range sums {
		if hmac.Equal(sum.Sum(nil), claimed[:]) {
			ok = true
		}
	}
	return ok
}

// fitsAnew looks whether the secret was changed since it was read.
func (s *Server) fitsAnew(d *delivery, body *bytes.Buffer) bool {
	if body == nil {
		return false
	}
	secrets, err := s.Secrets.Of(d.Context(), d.connection, true)
	if err != nil {
		secrets = nil
	}
	sums, err := readBody(bytes.NewReader(body.Bytes()), int64(body.Len()), nil, s.keys(secrets))
	return err == nil && fits(sums, d.claimed)
}

// parseSignature reads the header X-Hub-Signature-256.
func parseSignature(header string) (sum [signatureSize]byte, ok bool) {
	digits, ok := strings.CutPrefix(header, "sha256=")
	if !ok || len(digits) != hex.EncodedLen(signatureSize) {
		return sum, false
	}
	_, err := hex.Decode(sum[:], []byte(digits))
	return sum, err == nil
}

// Sign returns the header X-Hub-Signature-256 of a body.
func Sign(secret, body []byte) string {
	sum := hmac.New(sha256.New, secret)
	sum.Write(body)
	return "sha256=" + hex.EncodeToString(sum.Sum(nil))
}

// payloadOf returns the JSON of a body: GitHub sends it as such or, where a webhook's content type wasn't
// changed, in a form.
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
