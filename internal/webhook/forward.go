// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// dialWithin and passWithin are the timeouts for reaching the leader and for its answer.
	dialWithin, passWithin = time.Second, 5 * time.Second
	// passSlots is how many events are forwarded at once. One namespace may use a quarter, because the leader may take
	// long for its events.
	passSlots = 48
	// maxAnswer is how many bytes of the leader's answer are returned.
	maxAnswer = 1 << 10
)

// Leader identifies the process that accepts events.
type Leader interface {
	// Leads reports whether this process is the leader.
	Leads() bool
	// Peer returns the address of the leader's server, or an error while it is unknown.
	Peer(ctx context.Context) (Peer, error)
	// Failed records that the address could not be reached.
	Failed(address string)
}

// Peer is the server of another replica.
type Peer struct {
	// Address is the host and port of the server.
	Address string
	// Key is the Options.Key of the server. With it, the sender of a request proves to the server that it is a replica.
	Key string
}

// newForwarder returns a client that uses neither proxies nor redirects.
func newForwarder() *http.Client {
	return &http.Client{
		Timeout:       passWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               nil,
			DialContext:         (&net.Dialer{Timeout: dialWithin}).DialContext,
			MaxIdleConnsPerHost: passSlots,
			MaxConnsPerHost:     passSlots,
			IdleConnTimeout:     time.Minute,
		},
	}
}

// pass forwards an event to the leader unchanged. The leader verifies the signature again, so it need not trust the
// replica.
func (s *Server) pass(d *delivery, body []byte) answer {
	if d.Header.Get(forwardedHeader) != "" {
		return answer{result: unready, status: http.StatusServiceUnavailable, text: "The leader has changed.", retry: retryAfter}
	}
	leader, err := s.Leader.Peer(d.Context())
	if err != nil {
		return answer{result: unready, status: http.StatusServiceUnavailable, text: "There is no leader now.", retry: retryAfter}
	}
	own, _ := s.passing.LoadOrStore(d.connection.Namespace, make(chan struct{}, passSlots/4))
	places := own.(chan struct{})
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-d.Context().Done():
		return tooMany
	}
	request, err := http.NewRequestWithContext(d.Context(), http.MethodPost, "http://"+leader.Address+d.URL.EscapedPath(), bytes.NewReader(body))
	if err != nil {
		return answer{result: unready, status: http.StatusServiceUnavailable, text: "The leader's address is none.", retry: retryAfter}
	}
	for _, header := range []string{signatureHeader, eventHeader, guidHeader, "Content-Type"} {
		request.Header.Set(header, d.Header.Get(header))
	}
	request.Header.Set(forwardedHeader, cmp.Or(leader.Key, "1"))
	d.passed = true
	response, err := s.forward.Do(request)
	if err != nil {
		if d.Context().Err() == nil && isDial(err) {
			s.Leader.Failed(leader.Address)
		}
		if s.quiet.speaks(passed, d.began) {
			s.Log.Error(err, "passing an event on to the leader", "address", leader.Address)
		}
		return answer{result: unready, status: http.StatusServiceUnavailable, text: "The leader doesn't answer.", retry: retryAfter}
	}
	defer response.Body.Close()
	return answerOf(response)
}

// isDial reports whether a connection could not be established. Other errors concern one request only: GitHub may have
// closed the connection, or the leader may have taken too long.
func isDial(err error) bool {
	op := new(net.OpError)
	return errors.As(err, &op) && op.Op == "dial"
}

// answerOf converts the leader's answer.
func answerOf(response *http.Response) answer {
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		text = nil
	}
	a := answer{result: passed, status: response.StatusCode, text: string(bytes.TrimSpace(text))}
	switch {
	case a.status == http.StatusAccepted:
	case a.status >= 400 && a.status < 500 && a.status != http.StatusTooManyRequests:
		// The event was signed, so its source is not at fault.
		a.result = unready
	default:
		a.result, a.status, a.retry = unready, http.StatusServiceUnavailable, retryAfter
		a.text = fmt.Sprintf("The leader answered %d.", response.StatusCode)
	}
	return a
}
