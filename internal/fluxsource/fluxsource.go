// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package fluxsource reads an artifact of Flux's source-controller into memory, within hard limits:
// it is fetched, its digest verified, and only then unpacked. What stands in it is not trusted.
//
// An artifact is a gzipped tar archive behind a URL of the cluster, described in
// https://fluxcd.io/flux/components/source/ and in RFC-0012 for those of others.
package fluxsource

import (
	"bytes"
	"cmp"
	"context"
	_ "crypto/sha256" // the digests that are understood
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

// What can be wrong with an artifact. Every error of this package that has one of these causes wraps it.
var (
	// ErrNotFound is an artifact that is not there any more: source-controller keeps the latest ones only.
	ErrNotFound = errors.New("artifact not found")
	// ErrDigest is content that is not what the digest says.
	ErrDigest = errors.New("digest does not match")
	// ErrTooLarge is an artifact beyond one of the Limits.
	ErrTooLarge = errors.New("too large")
	// ErrUnusable is a URL or a digest that means nothing, or content that is no gzipped tar archive of files.
	ErrUnusable = errors.New("unusable")
	// ErrTimeout is a server that did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrUnavailable is a server that can't be reached, or answers with an error.
	ErrUnavailable = errors.New("server unavailable")
)

// advice is what to do about an artifact that is too large.
const advice = "leave out what isn't needed by spec.ignore of the source, or keep definitions in a repository of their own"

// maxRedirects a server may make, all of them to itself.
const maxRedirects = 3

// Limits bound one artifact. The zero value of a field stands for its default.
type Limits struct {
	// DownloadBytes is the most that is received, in bytes. Default: 8 MiB.
	DownloadBytes int64
	// UnpackedBytes is the most that the archive inflates to, in bytes. Default: 32 MiB.
	UnpackedBytes int64
	// Files is the most files and folders in it. Default: 50,000.
	Files int
}

func (l Limits) orDefaults() Limits {
	return Limits{
		DownloadBytes: cmp.Or(l.DownloadBytes, 8<<20),
		UnpackedBytes: cmp.Or(l.UnpackedBytes, 32<<20),
		Files:         cmp.Or(l.Files, 50_000),
	}
}

// Artifact says where an artifact is and what it must hold.
type Artifact struct {
	// URL it is fetched from, http:// or https://.
	URL string
	// Digest of the content, as ALGORITHM:HEX; sha256, sha384 or sha512.
	Digest string
}

// Client fetches artifacts. Its zero value has the default limits. It keeps nothing between calls but idle
// connections and may be used by several goroutines.
type Client struct {
	// Limits of each artifact.
	Limits Limits
	// Host, if set, replaces the host of each URL, as HOST or HOST:PORT: for running outside of the cluster, whose
	// names mean nothing there.
	Host string
}

// transport is shared, for the sake of idle connections.
var transport = http.DefaultTransport.(*http.Transport).Clone()

// Fetch reads an artifact until the context's deadline. Its errors wrap one of the causes above, or are the context's.
// Links are in what it returns as memfs.Link.
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

// location is where an artifact is asked for.
func (c *Client) location(text string) (*url.URL, error) {
	location, err := url.Parse(text)
	if err != nil || location.Host == "" || (location.Scheme != "http" && location.Scheme != "https") {
		return nil, fmt.Errorf("%w: the artifact's URL %.200q is no http URL", ErrUnusable, text)
	}
	if c.Host != "" {
		location.Host = c.Host
	}
	return location, nil
}

// download returns what is behind a URL, at most limit bytes.
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

// sameHost refuses to be sent elsewhere: who may write a status must not have the controller ask around.
func sameHost(request *http.Request, via []*http.Request) error {
	if request.URL.Host != via[0].URL.Host {
		return fmt.Errorf("%w: the server redirects to another host, %s", ErrUnusable, request.URL.Host)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: the server redirects more than %d times", ErrUnusable, maxRedirects)
	}
	return nil
}

// explain gives an error of the network, talking to a host, one of this package's causes.
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
