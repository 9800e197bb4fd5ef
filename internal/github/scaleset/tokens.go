// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"github.com/corral-dev/corral/internal/github"
)

// tokenMargin is how long before their expiry tokens are renewed. The official client renews its admin token when less
// than 60 s are left. With a smaller margin, it would get the same token from the cache, and repeat the request before
// each call.
const tokenMargin = 90 * time.Second

// tokenSource answers the three kinds of token calls of all official clients of a connection, so that all clients
// together need one set of calls per renewal. It caches successful answers only.
type tokenSource struct {
	next    http.RoundTripper
	now     func() time.Time // GitHub's clock
	app     *github.App      // requests tokens as this App; nil for none
	timeout time.Duration
	flights singleflight.Group

	mu         sync.Mutex
	generation uint64 // grows when tokens turn out to be revoked
	answers    map[endpoint]*answer
}

// answer is an HTTP answer that can be returned many times.
type answer struct {
	status int
	header http.Header
	body   []byte
	until  time.Time
}

func newTokenSource(next http.RoundTripper, now func() time.Time, timeout time.Duration) *tokenSource {
	return &tokenSource{next: next, now: now, timeout: timeout, answers: map[endpoint]*answer{}}
}

// RoundTrip answers a token call from the cache, or joins the call in flight.
func (t *tokenSource) RoundTrip(req *http.Request) (*http.Response, error) {
	class := requestEndpoint(req)
	if !class.isToken() {
		return t.next.RoundTrip(req)
	}
	body, err := readRequest(req)
	if err != nil {
		return nil, err
	}
	generation, kept := t.kept(class)
	if kept != nil {
		return kept.response(req), nil
	}
	// The call continues if the caller that began it leaves, because other callers may wait for its result.
	flight := t.flights.DoChan(fmt.Sprintf("%d/%s", generation, class), func() (any, error) {
		if _, kept := t.kept(class); kept != nil { // from a call that finished in the meantime
			return kept, nil
		}
		return t.fetch(class, generation, req, body)
	})
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case landed := <-flight:
		if landed.Err != nil {
			return nil, landed.Err
		}
		return landed.Val.(*answer).response(req), nil
	}
}

func readRequest(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	return body, nil
}

func (t *tokenSource) kept(class endpoint) (uint64, *answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.answers[class]
	if a != nil && !t.now().Before(a.until) {
		delete(t.answers, class)
		a = nil
	}
	return t.generation, a
}

func (t *tokenSource) fetch(class endpoint, generation uint64, req *http.Request, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), t.timeout)
	defer cancel()
	out := req.Clone(ctx)
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if t.app != nil && class == endpointAccessToken { // the official client uses this machine's clock
		assertion, err := t.app.Assertion(t.now())
		if err != nil {
			return nil, fmt.Errorf("signing as an App: %w", err)
		}
		out.Header.Set("Authorization", "Bearer "+assertion)
	}
	resp, err := t.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	content, err := readAll(resp)
	if err != nil {
		return nil, err
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, body: content}
	if a.status < http.StatusMultipleChoices && isIncomplete(class, content) {
		return nil, errPartial
	}
	t.keep(class, generation, a)
	return a, nil
}

// isIncomplete reports whether an answer has no token, or a token without an expiry where the official client reads the
// expiry without a check.
func isIncomplete(class endpoint, body []byte) bool {
	var token struct {
		Token string `json:"token"`
	}
	if json.Unmarshal(trimBOM(body), &token) != nil {
		return false // the official client returns an error
	}
	return token.Token == "" || class == endpointRunnerRegistration && expiryOf(token.Token).IsZero()
}

// keep caches a successful answer. After a 401 or 403, it drops the tokens that the call used.
func (t *tokenSource) keep(class endpoint, generation uint64, a *answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if generation != t.generation {
		return
	}
	switch {
	case a.status < http.StatusMultipleChoices:
		if a.until = t.keepUntil(class, a.body); t.now().Before(a.until) {
			t.answers[class] = a
		}
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		delete(t.answers, endpointAccessToken)
		delete(t.answers, endpointRegistrationToken)
	}
}

// keepUntil returns when a token has to be renewed: tokenMargin before its expiry or, for a short-lived token, after
// half of its remaining time. It returns the zero time if the expiry cannot be read.
func (t *tokenSource) keepUntil(class endpoint, body []byte) time.Time {
	var token struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal(trimBOM(body), &token); err != nil {
		return time.Time{}
	}
	expires := token.ExpiresAt
	if class == endpointRunnerRegistration {
		expires = expiryOf(token.Token)
	}
	return expires.Add(-min(tokenMargin, expires.Sub(t.now())/2))
}

// expiryOf reads the exp claim without checking the signature, which only GitHub can check.
func expiryOf(token string) time.Time {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || claims.ExpiresAt == nil {
		return time.Time{}
	}
	return claims.ExpiresAt.Time
}

// current returns the generation of the current tokens.
func (t *tokenSource) current() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.generation
}

// discard drops the tokens of a generation that GitHub refused, and reports whether a retry can help. A retry cannot
// help if the refused tokens did not come from the cache.
func (t *tokenSource) discard(generation uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if generation != t.generation {
		return true
	}
	if len(t.answers) == 0 {
		return false
	}
	t.generation++
	clear(t.answers)
	return true
}

func (a *answer) response(req *http.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header.Clone(),
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: req,
	}
}
