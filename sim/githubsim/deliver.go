// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the older of the two signatures that GitHub sends
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// keptDeliveries is how many deliveries of a webhook are kept.
	keptDeliveries = 20_000
	// keptFor is how long github.com keeps deliveries.
	keptFor = 72 * time.Hour
	// keptResponse is how many bytes of a receiver's answer are kept.
	keptResponse = 4 << 10
	// overtakenFor is the maximum time for which a delivery waits for others to overtake it.
	overtakenFor = time.Second
)

// post starts a delivery, subject to faults.
func (s *Server) post(h *hook, d *delivery) {
	f := s.useDeliveryFault(h, d)
	s.hooks.outstanding++
	switch {
	case f.Lose:
		d.code, d.status = http.StatusBadGateway, "failed to connect to host"
		s.record(h, d)
	case f.Swallow:
		d.code, d.status = http.StatusOK, "OK"
		s.record(h, d)
	case f.Delay > 0 || f.Behind > 0:
		d.behind = f.Behind
		wait := f.Delay
		if f.Behind > 0 {
			wait = overtakenFor
		}
		h.held = append(h.held, d)
		time.AfterFunc(wait, func() {
			s.lock()
			defer s.unlock()
			s.letGo(h, d)
		})
	default:
		s.send(h, d)
	}
	for range f.Duplicate {
		again := *d
		again.unlogged, again.behind = true, 0
		s.hooks.outstanding++
		s.send(h, &again)
	}
}

// send queues a delivery, and then the deliveries that it was to overtake.
func (s *Server) send(h *hook, d *delivery) {
	h.pending = append(h.pending, d)
	if h.active < h.Parallel {
		h.active++
		go s.sendAll(h)
	}
	for _, other := range slices.Clone(h.held) {
		if other.behind--; other.behind == 0 {
			s.letGo(h, other)
		}
	}
}

// letGo sends a held delivery, unless it has been sent already.
func (s *Server) letGo(h *hook, d *delivery) {
	at := slices.Index(h.held, d)
	if at < 0 {
		return
	}
	h.held = slices.Delete(h.held, at, at+1)
	s.send(h, d)
}

// sendAll posts the pending deliveries one after another.
func (s *Server) sendAll(h *hook) {
	for {
		s.lock()
		if len(h.pending) == 0 || s.sending.Err() != nil {
			h.active--
			s.unlock()
			return
		}
		d := h.pending[0]
		h.pending = h.pending[1:]
		as := h.Hook
		d.at = s.now()
		s.unlock()
		s.attempt(as, h.id, h.kind, d)
		s.lock()
		s.record(h, d)
		s.unlock()
	}
}

// record records the end of an attempt in the log.
func (s *Server) record(h *hook, d *delivery) {
	if h.gone {
		s.hooks.outstanding = max(s.hooks.outstanding-1, 0)
		return
	}
	s.hooks.outstanding--
	if d.unlogged {
		return
	}
	if d.at.IsZero() {
		d.at = s.now()
	}
	s.hooks.lastID++
	d.id = s.hooks.lastID
	h.log = append(h.log, d)
	old := max(len(h.log)-keptDeliveries, 0)
	for old < len(h.log) && h.log[old].at.Before(s.now().Add(-keptFor)) {
		old++
	}
	h.log = slices.Delete(h.log, 0, old)
}

// attempt posts a delivery and records the result. GitHub waits for ten seconds.
func (s *Server) attempt(as Hook, id int64, kind scopeKind, d *delivery) {
	began := time.Now()
	defer func() { d.took = time.Since(began) }()
	ctx, cancel := context.WithTimeout(s.sending, s.opts.DeliveryTimeout)
	defer cancel()
	body, contentType := d.payload, "application/json"
	if as.Form {
		body, contentType = []byte(url.Values{"payload": {string(d.payload)}}.Encode()), "application/x-www-form-urlencoded"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, as.URL, bytes.NewReader(body))
	if err != nil {
		d.code, d.status = http.StatusBadGateway, "failed to connect to host"
		return
	}
	s.sign256(req, as, id, kind, d, body)
	req.Header.Set("Content-Type", contentType)
	d.sent = req.Header
	client := s.hookClient
	if as.InsecureSSL {
		client = s.insecureClient
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.code, d.status = http.StatusGatewayTimeout, "timed out"
		return
	case err != nil:
		d.code, d.status = http.StatusBadGateway, "failed to connect to host"
		return
	}
	defer func() { _ = resp.Body.Close() }()                         // read up to the limit
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, keptResponse)) // a partial answer is kept as well
	d.code, d.received, d.answer = resp.StatusCode, resp.Header, string(answer)
	d.status = "OK"
	if resp.StatusCode >= http.StatusBadRequest {
		d.status = "Invalid HTTP Response: " + strconv.Itoa(resp.StatusCode)
	}
}

// sign256 sets the headers, including the signature.
func (s *Server) sign256(req *http.Request, as Hook, id int64, kind scopeKind, d *delivery, body []byte) {
	target := map[scopeKind]string{
		repoScope: "repository", orgScope: "organization", enterpriseScope: "business", appScope: "integration",
	}[kind]
	for key, value := range map[string]string{
		"User-Agent": "GitHub-Hookshot/sim", "Accept": "*/*",
		"X-GitHub-Event": d.event, "X-GitHub-Delivery": d.guid, "X-GitHub-Hook-ID": strconv.FormatInt(id, 10),
		"X-GitHub-Hook-Installation-Target-Type": target, "X-GitHub-Hook-Installation-Target-ID": "1",
	} {
		req.Header.Set(key, value)
	}
	if s.opts.ServerVersion != "" {
		req.Header.Set("X-GitHub-Enterprise-Version", s.opts.ServerVersion)
		_, host, _ := strings.Cut(s.home(), "://")
		req.Header.Set("X-GitHub-Enterprise-Host", host)
	}
	if as.Secret == "" {
		return
	}
	req.Header.Set("X-Hub-Signature", "sha1="+signature(sha1.New, as.Secret, body))
	req.Header.Set("X-Hub-Signature-256", "sha256="+signature(sha256.New, as.Secret, body))
}

func signature(algorithm func() hash.Hash, secret string, body []byte) string {
	mac := hmac.New(algorithm, []byte(secret))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// newHookClients creates the clients that deliver webhooks. They follow no redirects.
func newHookClients() (secure, insecure *http.Client) {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	trusting := transport.Clone()
	trusting.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the receiver is a test's
	return &http.Client{Transport: transport, CheckRedirect: stay}, &http.Client{Transport: trusting, CheckRedirect: stay}
}
