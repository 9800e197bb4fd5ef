// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/corral-dev/corral/internal/turns"
)

// dialTimeout limits the time to connect, and the time of the TLS handshake. GitHub accepts a connection within
// milliseconds or not at all.
const dialTimeout = 5 * time.Second

const (
	// maxHeaders is the maximum size of a response's headers. GitHub sends about 4 kB.
	maxHeaders = 64 << 10
	// maxUnread is how much of a response the HTTP/2 client buffers before it is read. Go's default is 4 MiB. Corral's
	// memory limits do not count this buffer, so it must be small.
	maxUnread = 256 << 10
)

// NewTransport returns the HTTP transport for GitHub clients. It uses the proxies of the environment, keeps many idle
// connections per host, and detects dead HTTP/2 connections.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = dialTimeout
	t.MaxResponseHeaderBytes = maxHeaders
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, turns.Most
	t.ResponseHeaderTimeout = 0 // GitHub answers a message poll after up to 90 s; each request has its own deadline
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: maxUnread}
	return t
}

// Meter counts requests by class and status code, and records their latency by class.
type Meter struct {
	Requests  *prometheus.CounterVec
	Latencies *prometheus.HistogramVec
}

// Send sends a request of a class and counts it. Reading the response fails with TooLarge if the body exceeds the
// bounds, and with ErrCrowded if other responses need its memory. The response counts against the memory limit until
// its body is closed.
func (m Meter) Send(o Options, req *http.Request, class string, bounds Bounds) (*http.Response, error) {
	begun := time.Now()
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := o.Transport.RoundTrip(req.WithContext(ctx))
	m.Latencies.WithLabelValues(class).Observe(time.Since(begun).Seconds())
	if err != nil {
		m.Requests.WithLabelValues(class, "error").Inc()
		cancel()
		return nil, err
	}
	m.Requests.WithLabelValues(class, codeLabel(resp.StatusCode)).Inc()
	body := &boundedBody{
		ReadCloser: resp.Body, scanner: scanner{Bounds: bounds}, hold: o.memory.answers.Hold(o.tenant, cancel), cancel: cancel,
		closed: func(large error) { o.NoteSize(class, resp.StatusCode, large) },
	}
	body.scanner.limit(int(resp.ContentLength), bounds.Bytes, &whole, unitBytes)
	resp.Body = body
	return resp, nil
}

// codeLabel returns the metric label of an HTTP status. HTTP/2 servers can send any number, and each would be a time series.
func codeLabel(status int) string {
	if status < http.StatusContinue || status > 599 {
		return "other"
	}
	return strconv.Itoa(status)
}

// flowKey is the context key of the flow's name.
type flowKey struct{}

// InFlow returns a context for the calls of a flow, which is named NAMESPACE/NAME. Waiting calls are served round-robin
// by namespace, and within a namespace round-robin by flow.
func InFlow(ctx context.Context, flow string) context.Context {
	return context.WithValue(ctx, flowKey{}, flow)
}

// Gate limits the concurrent calls of one client and sets a deadline for each.
type Gate struct {
	turns   *turns.Limiter
	timeout time.Duration
}

// NewGate returns a Gate with the limits from the options.
func NewGate(o Options) *Gate { return &Gate{turns: turns.New(o.Parallel), timeout: o.Timeout} }

// Enter waits for a turn, up to the timeout of a call. The caller must end the turn: it passes the returned round to
// Leave or Abandon.
func (g *Gate) Enter(ctx context.Context, rank turns.Rank, doing string) (round int, err error) {
	flow, _ := ctx.Value(flowKey{}).(string)
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if round, err = g.turns.Enter(ctx, rank, flow); err != nil {
		return 0, NewError(KindUnavailable, doing, 0, 0, "other calls to GitHub took too long", err)
	}
	return round, nil
}

// Do makes a call with a deadline.
func (g *Gate) Do(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	return call(ctx)
}

// Leave ends a turn. From the error of the call, it derives whether GitHub is overloaded, so that the limiter can adapt
// the number of concurrent calls.
func (g *Gate) Leave(ctx context.Context, round int, err error) {
	load := turns.Good
	if _, away := ComeBack(err); err != nil && ctx.Err() != nil {
		load = turns.Unknown
	} else if away {
		load = turns.Overloaded
	}
	g.turns.Leave(round, load)
}

// Abandon ends a turn in which no call was made.
func (g *Gate) Abandon(round int) { g.turns.Leave(round, turns.Unknown) }
