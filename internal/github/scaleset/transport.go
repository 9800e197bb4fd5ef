// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/clip"
	"github.com/corral-dev/corral/internal/silence"
	"github.com/corral-dev/corral/internal/turns"
)

// maxBody bounds an answer, in bytes. 50 events, the most a message has, are some 50 kB.
const maxBody = 8 << 20

// dialTimeout bounds the making of a connection: GitHub is up in milliseconds or not at all.
const dialTimeout = 5 * time.Second

// NewTransport returns the network as this package uses it: proxies from the
// environment, many connections per host, and dead HTTP/2 connections noticed.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = dialTimeout
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, turns.Most
	t.ResponseHeaderTimeout = 0 // a message poll is answered after up to 90 s; requests have deadlines
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

// Instrument counts and times requests by class of endpoint, and bounds the size of
// answers.
func Instrument(next http.RoundTripper) http.RoundTripper { return &instrumented{next: next} }

type instrumented struct{ next http.RoundTripper }

// RoundTrip sends the request and counts it.
func (i *instrumented) RoundTrip(req *http.Request) (*http.Response, error) {
	class, begun := requestEndpoint(req), time.Now()
	resp, err := i.next.RoundTrip(req)
	latencies.WithLabelValues(string(class)).Observe(time.Since(begun).Seconds())
	if err != nil {
		requests.WithLabelValues(string(class), "error").Inc()
		return nil, err
	}
	requests.WithLabelValues(string(class), strconv.Itoa(resp.StatusCode)).Inc()
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxBody}
	return resp, nil
}

// boundedBody fails, rather than ends, when an answer is too large.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read reads up to the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// asTransport makes any RoundTripper an *http.Transport, which is the only kind that
// the official client takes: http.Transport hands requests of a registered scheme on.
func asTransport(next http.RoundTripper) *http.Transport {
	t := &http.Transport{
		// Not nil: HTTP/2 must not claim https for itself. The real transport below has it.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	t.RegisterProtocol("http", next)
	t.RegisterProtocol("https", next)
	return t
}

// exchange notes what GitHub last answered during one call of the official client,
// whose errors carry it only as text.
type exchange struct {
	// mode is endpointMessagePoll or endpointMessageAck for calls whose URL GitHub
	// chooses; the path says nothing about those.
	mode endpoint

	endpoint endpoint
	status   int
	header   http.Header
	typeName string
	message  string
	silent   bool // there was no answer
	// unknown parts of a polled message.
	unknown []unknownPart
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

func requestEndpoint(req *http.Request) endpoint {
	x := exchangeOf(req.Context())
	if x == nil {
		return endpointOf(req)
	}
	switch {
	case x.mode == endpointMessagePoll && req.Method == http.MethodGet,
		x.mode == endpointMessageAck && req.Method == http.MethodDelete:
		return x.mode
	}
	return endpointOf(req)
}

// observer notes each answer in the exchange of its call, and makes messages safe for
// the official client to parse.
type observer struct{ next http.RoundTripper }

// RoundTrip sends the request and notes the answer.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x == nil {
		x = &exchange{}
	}
	x.endpoint, x.status, x.header, x.typeName, x.message, x.silent = requestEndpoint(req), 0, nil, "", "", false
	resp, err := o.next.RoundTrip(req)
	if err != nil {
		x.message, x.silent = clip.Bytes(silence.Of(err), maxExplanation), true
		return nil, err
	}
	isMessage := x.endpoint == endpointMessagePoll && resp.StatusCode == http.StatusOK
	if resp.StatusCode < http.StatusBadRequest && !isMessage {
		x.status, x.header = resp.StatusCode, resp.Header
		return resp, nil
	}
	body, err := readAll(resp)
	if err != nil {
		x.message = err.Error()
		return nil, err
	}
	x.status, x.header = resp.StatusCode, resp.Header
	if isMessage {
		body, x.unknown = harmless(body)
	} else {
		x.typeName, x.message = explain(resp.Header.Get("Content-Type"), body)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

func readAll(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return body, nil
}

// maxExplanation bounds what of an error's text is repeated, in bytes.
const maxExplanation = 500

// explain reads an error of the Actions service or of REST, or quotes what else it is.
func explain(contentType string, body []byte) (typeName, message string) {
	var e struct {
		TypeName string `json:"typeName"`
		Message  string `json:"message"`
	}
	if err := json.Unmarshal(trimBOM(body), &e); err == nil {
		return e.TypeName, clip.Bytes(e.Message, maxExplanation)
	}
	if strings.HasPrefix(contentType, "text/plain") {
		return "", clip.Bytes(strings.TrimSpace(string(body)), maxExplanation)
	}
	return "", ""
}

func trimBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")) }

// explanation is what GitHub said, with the exception's short name if it has one.
func (x *exchange) explanation() string {
	name, _, _ := strings.Cut(x.typeName, ",")
	name = name[strings.LastIndex(name, ".")+1:]
	switch {
	case name == "":
		return x.message
	case x.message == "":
		return name
	}
	return name + ": " + x.message
}

// rateLimited says whether the answer asks to come back later. GitHub's REST says so
// with 403 too: https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
func (x *exchange) rateLimited() bool {
	if x.status == http.StatusTooManyRequests {
		return true
	}
	return x.status == http.StatusForbidden && (x.header.Get("Retry-After") != "" ||
		x.header.Get("X-Ratelimit-Remaining") == "0" || strings.Contains(x.message, "secondary rate limit"))
}
