// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// session is a git-upload-pack session (gitprotocol-pack(5)) over any transport.
type session interface {
	// AdvertisedReferencesContext returns the server's references.
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	// UploadPack requests objects.
	UploadPack(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
}

// carrier is the connection of a session.
type carrier interface {
	// explain returns the original cause of an error that go-git has wrapped or replaced.
	explain(error) error
	close()
}

// remote is a repository on a server.
type remote struct {
	session
	carrier
	limits     Limits
	advertised *packp.AdvRefs
}

// openHTTP requests the references of a server with Git's smart HTTP protocol (gitprotocol-http(5)).
func openHTTP(ctx context.Context, request Request, limits Limits) (repository, error) {
	endpoint, err := transport.NewEndpoint(request.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: the URL is malformed", ErrNotAllowed)
	}
	endpoint.Path = strings.TrimRight(endpoint.Path, "/") // like Git, which requests x.git/info/refs for x.git/
	connection, err := newConnection(request.Auth)
	if err != nil {
		return nil, err
	}
	meter := &meter{next: connection, limits: limits}
	// go-git follows redirects only for the first request.
	git := githttp.NewClient(&http.Client{Transport: meter, CheckRedirect: meter.checkRedirect})
	session, err := git.NewUploadPackSession(endpoint, authMethod(request.Auth))
	if err != nil {
		return nil, err
	}
	return newRemote(ctx, session, meter, limits)
}

// newRemote requests the references, and closes the carrier if that fails.
func newRemote(ctx context.Context, s session, c carrier, limits Limits) (repository, error) {
	advertised, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		err = c.explain(err)
		c.close()
		return nil, err
	}
	return &remote{session: s, carrier: c, limits: limits, advertised: advertised}, nil
}

func newConnection(auth Auth) (*http.Transport, error) {
	connection := http.DefaultTransport.(*http.Transport).Clone()
	connection.MaxResponseHeaderBytes = 1 << 20
	if auth.Proxy != nil {
		connection.Proxy = http.ProxyURL(auth.Proxy)
	}
	if len(auth.CAPEM) == 0 {
		return connection, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificates: %w", err)
	}
	if err := trust(roots, auth.CAPEM); err != nil {
		return nil, err
	}
	connection.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return connection, nil
}

// trust adds PEM certificates to the roots. Like x509.CertPool.AppendCertsFromPEM, it skips what it cannot read, because
// bundles of certificates often contain something else. But it refuses large keys: crypto/tls limits only the keys of the
// certificates that a server sends, and checking a signature with a key of a million bits takes minutes and cannot be
// canceled.
func trust(roots *x509.CertPool, data []byte) error {
	found := false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		if key, ok := certificate.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxKeyBits {
			return fmt.Errorf("%w: ca.crt has a certificate with an RSA key of %d bits, more than %d", ErrNotAllowed, key.N.BitLen(), maxKeyBits)
		}
		roots.AddCert(certificate)
		found = true
	}
	if !found {
		return fmt.Errorf("%w: ca.crt holds no PEM certificate", ErrNotAllowed)
	}
	return nil
}

func authMethod(auth Auth) transport.AuthMethod {
	switch {
	case auth.BearerToken != "":
		return &githttp.TokenAuth{Token: auth.BearerToken}
	case auth.Username != "" || auth.Password != "":
		return &githttp.BasicAuth{Username: auth.Username, Password: auth.Password}
	}
	return nil
}

func (r *remote) tags() ([]string, error) {
	var names []string
	for name := range r.advertised.References {
		if tag, ok := strings.CutPrefix(name, "refs/tags/"); ok {
			names = append(names, tag)
		}
	}
	return names, nil
}

func (r *remote) resolve(ref Ref) (target, error) {
	switch {
	case ref.Commit != "":
		commit, err := r.resolveCommit(plumbing.NewHash(ref.Commit))
		return target{commit: commit}, err
	case ref.Branch != "":
		return r.resolveName(plumbing.NewBranchReferenceName(ref.Branch))
	}
	return r.resolveName(plumbing.NewTagReferenceName(ref.Tag))
}

func (r *remote) resolveName(name plumbing.ReferenceName) (target, error) {
	hash, ok := r.advertised.References[name.String()]
	if !ok {
		return target{}, fmt.Errorf("%w: the repository has no %s", ErrRefNotFound, name)
	}
	if peeled, ok := r.advertised.Peeled[name.String()]; ok {
		return target{commit: peeled, tag: hash}, nil
	}
	return target{commit: hash}, nil
}

// resolveCommit fails only if the server would refuse to send the commit: without the capabilities below, a server
// sends only the tips of its references.
func (r *remote) resolveCommit(commit plumbing.Hash) (plumbing.Hash, error) {
	capabilities := r.advertised.Capabilities
	if capabilities.Supports(capability.AllowReachableSHA1InWant) || capabilities.Supports(capability.AllowTipSHA1InWant) {
		return commit, nil
	}
	for _, tips := range []map[string]plumbing.Hash{r.advertised.References, r.advertised.Peeled} {
		for _, tip := range tips {
			if tip == commit {
				return commit, nil
			}
		}
	}
	return plumbing.ZeroHash, fmt.Errorf("%w: no branch or tag points to %s, and the server serves no other commits; name a branch or a tag",
		ErrRefNotFound, commit)
}

// fetch receives the commit and the tag, without the history if the server supports that. It receives all objects
// before it inflates any, so that it can check the declared sizes against the limits first.
func (r *remote) fetch(ctx context.Context, found target) (storer.EncodedObjectStorer, error) {
	request, err := r.newUploadRequest(found)
	if err != nil {
		return nil, err
	}
	r.advertised = nil // allows the objects to use its memory
	response, err := r.UploadPack(ctx, request)
	if err != nil {
		return nil, r.explain(err)
	}
	defer func() { _ = response.Close() }()
	pack, err := io.ReadAll(demultiplexed(response, request.Capabilities))
	if err != nil {
		return nil, r.explain(err)
	}
	return unpack(ctx, bytes.NewReader(pack), r.limits)
}

func (r *remote) newUploadRequest(found target) (*packp.UploadPackRequest, error) {
	request := packp.NewUploadPackRequestFromCapabilities(r.advertised.Capabilities)
	request.Wants = []plumbing.Hash{found.commit}
	if !found.tag.IsZero() {
		request.Wants = []plumbing.Hash{found.tag} // the server sends the tag's commit as well
	}
	if r.advertised.Capabilities.Supports(capability.NoProgress) {
		if err := request.Capabilities.Set(capability.NoProgress); err != nil {
			return nil, err
		}
	}
	if r.advertised.Capabilities.Supports(capability.Shallow) {
		request.Depth = packp.DepthCommits(1)
		if err := request.Capabilities.Set(capability.Shallow); err != nil {
			return nil, err
		}
	}
	return request, nil
}

// demultiplexed returns a reader of the packfile in the response.
func demultiplexed(response io.Reader, capabilities *capability.List) io.Reader {
	switch {
	case capabilities.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, response)
	case capabilities.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, response)
	}
	return response
}

// meter sends requests over HTTP, and fails if a response is larger than its limit. It counts the bytes of a response
// after decompression.
type meter struct {
	next     *http.Transport
	limits   Limits
	exceeded atomic.Int64            // the limit that was exceeded
	astray   atomic.Pointer[url.URL] // the target of a refused redirect
	broken   atomic.Pointer[error]   // the last network error
}

// checkRedirect allows redirects on the same host, for example to another path or from http to https. It refuses
// redirects to other hosts: the user trusts only the server in the URL, and an external server could redirect the
// controller to a host that only the controller can reach.
func (m *meter) checkRedirect(request *http.Request, via []*http.Request) error {
	from, to := via[0].URL, request.URL
	upgraded := from.Scheme == "http" && to.Scheme == "https" && from.Hostname() == to.Hostname()
	if upgraded || from.Scheme == to.Scheme && strings.EqualFold(from.Host, to.Host) {
		return nil
	}
	m.astray.Store(to)
	return ErrNotAllowed
}

// RoundTrip sends a request and limits the size of the response.
func (m *meter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := m.next.RoundTrip(request)
	if err != nil {
		m.broken.Store(&err)
		return nil, err
	}
	limit := m.limits.DownloadBytes
	if strings.HasSuffix(request.URL.Path, "/info/refs") {
		limit = m.limits.ListBytes
	}
	response.Body = &meteredBody{ReadCloser: response.Body, meter: m, limit: limit, left: limit}
	return response, nil
}

func (m *meter) close() { m.next.CloseIdleConnections() }

// explain returns the original error if the limit, a refused redirect or the network caused err.
func (m *meter) explain(err error) error {
	if to := m.astray.Load(); to != nil {
		return fmt.Errorf("%w: the server redirects to another host, %.100s://%.200s; if that is right, name it in the URL", ErrNotAllowed, to.Scheme, to.Host)
	}
	if limit := m.exceeded.Load(); limit > 0 {
		return sentTooMuch(limit)
	}
	if broken := m.broken.Load(); broken != nil {
		return *broken
	}
	return err
}

func sentTooMuch(limit int64) error {
	return fmt.Errorf("%w: the server sent more than %d bytes; %s", ErrTooLarge, limit, advice)
}

type meteredBody struct {
	io.ReadCloser
	meter *meter
	limit int64
	left  int64
}

// Read fails at the first byte beyond the limit.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.meter.broken.Store(&err)
	}
	b.left -= int64(n)
	if b.left < 0 {
		b.meter.exceeded.Store(b.limit)
		return 0, ErrTooLarge
	}
	return n, err
}
