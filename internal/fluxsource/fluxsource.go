// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package fluxsource reads an artifact of Flux's source-controller into memory, within hard limits. It fetches the
// artifact, verifies its digest, and only then unpacks it. The content is not trusted.
//
// An artifact is a gzipped tar archive behind a URL in the cluster, as described in
// https://fluxcd.io/flux/components/source/ and, for other producers, in RFC-0012.
package fluxsource

import (
	"bytes"
	"cmp"
	"context"
	_ "crypto/sha256" // the supported digests
	_ "crypto/sha512"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/opencontainers/go-digest"

	"github.com/corral-dev/corral/internal/neterr"
)

// Causes of errors. Callers test for them with errors.Is.
var (
	// ErrNotFound: the artifact no longer exists. source-controller keeps only the latest artifacts.
	ErrNotFound = errors.New("artifact not found")
	// ErrDigest: the content does not match the digest.
	ErrDigest = errors.New("digest does not match")
	// ErrTooLarge: the artifact exceeds one of the Limits.
	ErrTooLarge = errors.New("too large")
	// ErrUnusable: the URL or the digest is invalid, or the content is not a gzipped tar archive of files.
	ErrUnusable = errors.New("unusable")
	// ErrTimeout: the server did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrUnavailable: the server cannot be reached, or answers with an error.
	ErrUnavailable = errors.New("server unavailable")
)

// advice is what to do about an artifact that is too large.
const advice = "exclude files with the source's spec.ignore, or use a separate repository for definitions"

// maxRedirects is the maximum number of redirects that Client follows, all of them on the same host.
const maxRedirects = 3

// Limits of one artifact. A field that is zero has its default.
type Limits struct {
	// DownloadBytes is the maximum size of the download in bytes. Default: 8 MiB.
	DownloadBytes int64
	// UnpackedBytes is the maximum size of the inflated archive in bytes. Default: 32 MiB.
	UnpackedBytes int64
	// Files is the maximum number of files and folders. Default: 50,000.
	Files int
}

func (l Limits) orDefaults() Limits {
	return Limits{
		DownloadBytes: cmp.Or(l.DownloadBytes, 8<<20),
		UnpackedBytes: cmp.Or(l.UnpackedBytes, 32<<20),
		Files:         cmp.Or(l.Files, 50_000),
	}
}

// Artifact is the location and the digest of an artifact.
type Artifact struct {
	// URL of the artifact, http:// or https://.
	URL string
	// Digest of the content, as ALGORITHM:HEX; sha256, sha384 or sha512.
	Digest string
}

// Client fetches artifacts. The zero value has the default limits. It keeps nothing between calls except idle
// connections and is safe for concurrent use.
type Client struct {
	// Limits of each artifact.
	Limits Limits
	// Host, if set, replaces the host of each URL, as HOST or HOST:PORT. Set it if the program runs outside of the cluster,
	// where the cluster's names do not resolve.
	Host string
}

// transport is shared to reuse idle connections.
var transport = newTransport()

// maxHeader is the maximum size of a response's headers in bytes. Go accepts 10 MiB by default, which take many times as
// much memory when they are parsed.
const maxHeader = 32 << 10

func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = maxHeader
	return t
}

// Fetch downloads an artifact, verifies its digest and returns its files. An error wraps one of the causes above; if the
// context was canceled, it is the context's error. Links in the artifact become memfs.Link.
func (c *Client) Fetch(ctx context.Context, artifact Artifact) (fs.FS, error) {
	sum, err := digest.Parse(artifact.Digest)
	if err != nil {
		return nil, fmt.Errorf("%w: the artifact's digest %.100q: %w", ErrUnusable, artifact.Digest, err)
	}
	location, err := c.location(artifact.URL)
	if err != nil {
		return nil, err
	}
	limits := c.Limits.orDefaults()
	content, err := download(ctx, location.String(), limits.DownloadBytes)
	if err != nil {
		return nil, explain(ctx, location.Host, err)
	}
	if got := sum.Algorithm().FromBytes(content); got != sum {
		return nil, fmt.Errorf("%w: the artifact is announced as %s and is %s", ErrDigest, sum, got)
	}
	return unpack(ctx, bytes.NewReader(content), limits)
}

// location returns the URL to fetch an artifact from.
func (c *Client) location(text string) (*url.URL, error) {
	location, err := url.Parse(text)
	if err != nil || location.Host == "" || (location.Scheme != "http" && location.Scheme != "https") {
		return nil, fmt.Errorf("%w: the artifact's URL %.200q is not an http URL", ErrUnusable, text)
	}
	if c.Host != "" {
		location.Host = c.Host
	}
	return location, nil
}

// download returns the content of a URL. If there are more than limit bytes, it returns ErrTooLarge.
func download(ctx context.Context, location string, limit int64) (content []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	client := &http.Client{Transport: transport, CheckRedirect: sameHost}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	switch {
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone:
		return nil, fmt.Errorf("%w at %s", ErrNotFound, location)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: %s answers with status %d", ErrUnavailable, request.URL.Host, response.StatusCode)
	case response.ContentLength > limit:
		return nil, tooMuch(limit)
	}
	content, err = io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, tooMuch(limit)
	}
	return content, err
}

func tooMuch(limit int64) error {
	return fmt.Errorf("%w: the artifact is more than %d bytes; %s", ErrTooLarge, limit, advice)
}

// sameHost refuses redirects to other hosts. Otherwise anyone who can write a source's status could make the controller
// send requests to arbitrary hosts.
func sameHost(request *http.Request, via []*http.Request) error {
	if request.URL.Host != via[0].URL.Host {
		return fmt.Errorf("%w: the server redirects to another host, %s", ErrUnusable, request.URL.Host)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: the server redirects more than %d times", ErrUnusable, maxRedirects)
	}
	return nil
}

// explain adds one of this package's causes to a network error.
func explain(ctx context.Context, host string, err error) error {
	for _, cause := range []error{ErrNotFound, ErrTooLarge, ErrUnusable, ErrUnavailable} {
		if errors.Is(err, cause) {
			return err
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: source-controller did not answer in time; check that it runs and that network policies let the controller reach it", ErrTimeout)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s: %s", ErrUnavailable, host, neterr.Describe(err))
}
