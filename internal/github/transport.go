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

// dialTimeout bounds the making of a connection: GitHub is up in milliseconds or not at all.
const dialTimeout = 5 * time.Second

// maxHeaders is the most bytes of an answer's headers. GitHub's have some 4 kB.
const maxHeaders = 64 << 10

// NewTransport returns the network as clients of GitHub use it: proxies from the
// environment, many connections per host, and dead HTTP/2 connections noticed.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = dialTimeout
	t.MaxResponseHeaderBytes = maxHeaders
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, turns.Most
	t.ResponseHeaderTimeout = 0 // a message poll is answered after up to 90 s; requests have deadlines
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

// Meter counts requests by class and status code, and times them by class.
type Meter struct {
	Requests  *prometheus.CounterVec
	Latencies *prometheus.HistogramVec
}

// Send sends a request of a class and counts it. An answer beyond its bounds fails to be read, with TooLarge, and
// one that has to make room for others with ErrCrowded. It counts until its body is closed.
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
	m.Requests.WithLabelValues(class, strconv.Itoa(resp.StatusCode)).Inc()
	body := &boundedBody{
		ReadCloser: resp.Body, scanner: scanner{Bounds: bounds}, hold: o.memory.answers.Hold(o.tenant, cancel), cancel: cancel,
		closed: func(large error) { o.NoteSize(class, resp.StatusCode, large) },
	}
	body.scanner.limit(int(resp.ContentLength), bounds.Bytes, &whole, unitBytes)
	resp.Body = body
	return resp, nil
}

// flowKey is the context key of whom a call is made for.
type flowKey struct{}

// InFlow says for whom calls are made, as NAMESPACE/NAME. Calls that wait for their turn are
// served one namespace after the other, and one flow of it after the other.
func InFlow(ctx context.Context, flow string) context.Context {
	return context.WithValue(ctx, flowKey{}, flow)
}

// Gate lets the calls of one client through: when it is their turn, and each with a deadline.
type Gate struct {
	turns   *turns.Limiter
	timeout time.Duration
}

// NewGate returns a Gate that lets at most so many calls be under way as the options say.
func NewGate(o Options) *Gate { return &Gate{turns: turns.New(o.Parallel), timeout: o.Timeout} }

// Enter waits for a turn, for the time of a call at most. The round is to be given to Leave.
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

// Leave ends a turn whose call ended with an error or nil, which tells of GitHub's load.
func (g *Gate) Leave(ctx context.Context, round int, err error) {
	bearing := turns.Good
	if _, away := ComeBack(err); err != nil && ctx.Err() != nil {
		bearing = turns.Unknown
	} else if away {
		bearing = turns.Overloaded
	}
	g.turns.Leave(round, bearing)
}

// Abandon ends a turn whose call was not made.
func (g *Gate) Abandon(round int) { g.turns.Leave(round, turns.Unknown) }
