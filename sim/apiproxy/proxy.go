// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is a reverse proxy between one controller process and the API server. Tests use it to disturb the
// connection of that process only: to delay, refuse or lose requests, disturb watches, or disconnect the process.
package apiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// endTimeout bounds how long Inject waits for the watches that it cuts to end. A client that no longer reads keeps its
// watch open.
const endTimeout = time.Second

// errLost ends a request without a response.
var errLost = errors.New("the answer is lost")

// Proxy forwards requests to an API server over HTTP/2, the API server's own protocol, and applies the injected faults.
type Proxy struct {
	url       string
	ca        []byte
	server    *http.Server
	served    chan struct{} // closed when server accepts no more connections
	forward   *httputil.ReverseProxy
	transport *http.Transport
	running   sync.WaitGroup // requests and the goroutines of their streams

	mu          sync.Mutex
	closed      bool
	connections map[net.Conn]bool // connections of clients
	upstream    []net.Conn        // connections to the API server
	faults      []*injected       // oldest first
	streams     []*stream         // oldest first
	struck      map[Kind]int
	counts      map[tally]int
}

// Start runs a proxy on the loopback interface in front of the API server that config names. The proxy has no
// credentials of its own: each request keeps the bearer token of its client.
func Start(config *rest.Config) (*Proxy, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's address: %w", err)
	}
	upstream, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's certificates: %w", err)
	}
	// client-go sends tokens of kubeconfig files only over TLS.
	ca, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making the proxy's certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		return nil, fmt.Errorf("reading the proxy's certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening as a proxy: %w", err)
	}
	p := &Proxy{
		url: "https://" + listener.Addr().String(), ca: ca, served: make(chan struct{}),
		connections: map[net.Conn]bool{}, struck: map[Kind]int{}, counts: map[tally]int{},
	}
	p.transport = &http.Transport{DialContext: p.dial, TLSClientConfig: upstream, ForceAttemptHTTP2: true, DisableCompression: true}
	p.forward = p.forwarder(target)
	p.server = &http.Server{
		Handler: p, ConnState: p.track, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		_ = p.server.ServeTLS(listener, "", "") // returns because of Close
		close(p.served)
	}()
	return p, nil
}

// Config returns a copy of config whose requests go through the proxy. Tokens still reach the API server. Client
// certificates cannot, so they are removed.
func (p *Proxy) Config(config *rest.Config) *rest.Config {
	through := rest.CopyConfig(config)
	through.Host = p.url
	through.TLSClientConfig = rest.TLSClientConfig{CAData: p.ca}
	return through
}

// Close closes all connections and returns after all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.server.Close()
	<-p.served
	p.running.Wait()
	p.transport.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.upstream { // connections that are not yet marked idle
		_ = c.Close()
	}
}

// dial connects to the API server.
func (p *Proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	p.upstream = append(p.upstream, c)
	return c, nil
}

// forwarder returns a reverse proxy that applies no faults itself. It passes responses and errors to the Proxy.
func (p *Proxy) forwarder(target *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: p.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if requestOf(r.In.Context()).verb == Watch {
				readable(r.Out.Header)
			}
		},
		ModifyResponse: p.answered,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, _ error) {
			p.count(requestOf(r.Context()), NoAnswer)
			panic(http.ErrAbortHandler)
		},
	}
}

// readable requests events as lines of JSON, regardless of the encoding that the client prefers. Clients decode
// according to the content type of the response.
func readable(header http.Header) {
	accept := header.Get("Accept")
	for _, binary := range []string{"application/vnd.kubernetes.protobuf", "application/cbor-seq", "application/cbor"} {
		accept = strings.ReplaceAll(accept, binary, "application/json")
	}
	header.Set("Accept", accept)
	header.Del("Accept-Encoding")
}

// ServeHTTP applies the faults that strike before a request is forwarded, and then forwards it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.running.Done()
	req, err := parse(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := buffer(r); err != nil {
		p.count(req, NoAnswer)
		panic(http.ErrAbortHandler)
	}
	if f := p.strike(Delay, req); f != nil && !f.pause(r.Context()) {
		p.count(req, NoAnswer)
		panic(http.ErrAbortHandler)
	}
	if f := p.strike(Refuse, req); f != nil {
		p.refuse(w, req, f)
		return
	}
	req.loseAnswer = p.strike(LoseAnswer, req) != nil
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, req)))
}

// buffer reads the whole body of a request. If the API server rejects a request early, Go's HTTP/2 client stops sending
// the body, and a ReverseProxy that is still forwarding the body would wait forever.
func buffer(r *http.Request) error {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("reading a request's body: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	r.ContentLength = int64(len(content))
	return nil
}

// enter counts a running request, unless the proxy is closed.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}

// answered inspects the API server's response before the client receives it.
func (p *Proxy) answered(answer *http.Response) error {
	req := requestOf(answer.Request.Context())
	if req.loseAnswer {
		return errLost // handled by ErrorHandler
	}
	p.count(req, answer.StatusCode)
	if req.verb == Watch && answer.StatusCode == http.StatusOK {
		answer.Header.Del("Content-Length") // faults can add and drop events
		answer.Body = p.open(answer.Request, req, answer.Body)
	}
	return nil
}

// track maintains the set of open connections, and closes new connections while the process is disconnected.
func (p *Proxy) track(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case state == http.StateClosed:
		delete(p.connections, c)
	case state != http.StateNew:
	case p.strikeLocked(Cut, nil) != nil:
		sever(c)
	default:
		p.connections[c] = true
	}
}

// severAll closes all connections. Watches end first, so that each is cut between two events.
func (p *Proxy) severAll() {
	p.mu.Lock()
	streams := slices.Clone(p.streams)
	p.mu.Unlock()
	cut(streams)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.connections {
		sever(c)
	}
}

// sever closes a connection without a TLS close message, as a broken network would.
func sever(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_ = c.Close()
}
