// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
)

var (
	// answerBounds is for one page or less. A page of 100 workflow runs has 1.2 MB and about 2,000 values.
	answerBounds = github.Bounds{Bytes: 8 << 20, List: pageSize, Values: 10_000}
	// jobsBounds is for a page of 100 jobs with their steps, which is about 1 MB. Corral keeps little of a step.
	jobsBounds = github.Bounds{Bytes: 8 << 20, List: pageSize, Values: 50_000}
	// payloadBounds is for a delivery with its payload. GitHub's maximum is 25 MB, but only pushes of thousands of
	// commits exceed a megabyte. The payload is decoded separately from the delivery.
	payloadBounds = github.Bounds{Bytes: 4 << 20, List: pageSize, Inner: 10_000, Values: 200_000, Text: 2 << 20}
	// verifyBounds is for answers about credentials and for a server's own metadata, which can contain lists of
	// addresses.
	verifyBounds = github.Bounds{Bytes: 1 << 20, List: 5_000, Inner: 5_000, Values: 10_000}
)

const (
	// mostKept is the maximum size of the cached answers of one identity of a client, and mostKeptOne the maximum size
	// of each, in bytes. A page of 100 runs with their repositories has about 1.2 MB.
	mostKept, mostKeptOne = 8 << 20, 2 << 20
)

// exchange describes a call to the transport.
type exchange struct {
	token string
	kind  kind
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) exchange {
	x, _ := ctx.Value(exchangeKey{}).(exchange)
	return x
}

// transport adds the token, counts requests, limits answers and sends conditional requests, because GitHub does not
// count answers that did not change.
type transport struct {
	options github.Options
	budget  *budget
	base    string // of the API; only URLs below it get the token
	kept    answers
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	out := req.Clone(req.Context())
	out.Header.Del("Authorization") // left over from a redirect
	if strings.HasPrefix(out.URL.String(), t.base) {
		out.Header.Set("Authorization", "Bearer "+x.token)
	}
	key := out.URL.String()
	known, body := t.kept.get(key)
	mayKeep := x.kind.keep && req.Method == http.MethodGet
	if known != nil && mayKeep {
		out.Header.Set("If-None-Match", known.tag)
	}
	resp, err := meter.Send(t.options, out, x.kind.name, cmp.Or(x.kind.bounds, answerBounds))
	if x.kind.rank == turns.Removing || x.kind.rank == turns.Registering { // they prove that runners can start and end
		t.options.Note(req.Context(), x.kind.name, resp, err)
		t.options.NoteRefusal(resp)
	}
	if err != nil {
		return nil, err
	}
	t.budget.note(x.kind, resp.Header)
	if resp.StatusCode == http.StatusNotModified && known != nil {
		return known.again(req, resp, body), nil
	}
	if mayKeep && resp.StatusCode == http.StatusOK {
		return t.keep(key, resp), nil
	}
	return resp, nil
}

// keep returns the answer with a body that caches the answer when it is closed. Until then, the answer counts against the
// memory limit.
func (t *transport) keep(key string, resp *http.Response) *http.Response {
	tag, header := resp.Header.Get("ETag"), resp.Header.Clone()
	if tag == "" {
		return resp
	}
	resp.Body = &recorder{ReadCloser: resp.Body, done: func(text []byte) {
		if len(text) > mostKeptOne {
			return
		}
		body := bytes.Clone(text) // a buffer has up to twice the capacity, which the account of memory does not include
		t.kept.put(&answer{key: key, tag: tag, header: header, size: len(body), body: github.Keep(t.options, body, len(body)+sizeOf(header))})
	}}
	return resp
}

// recorder is a body that keeps what is read from it, and passes the whole text to done when it is closed.
type recorder struct {
	io.ReadCloser
	text bytes.Buffer
	done func(text []byte)
}

// Read implements io.Reader.
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.text.Write(p[:n])
	return n, err
}

// Close implements io.Closer. It reads the rest of the text first, because a decoder may stop before the end.
func (r *recorder) Close() error {
	if _, err := io.Copy(io.Discard, r); err == nil {
		r.done(r.text.Bytes())
	}
	return r.ReadCloser.Close()
}

// answer is a cached answer.
type answer struct {
	key, tag string
	header   http.Header
	body     *github.Kept[[]byte]
	size     int
}

// sizeOf returns the size of a header in bytes.
func sizeOf(header http.Header) (size int) {
	for name, values := range header {
		size += len(name) + len(strings.Join(values, ""))
	}
	return size
}

// again returns the cached answer in place of a "not modified" answer. Its body counts against the memory limit like one
// that was received.
func (a *answer) again(req *http.Request, unchanged *http.Response, body []byte) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: unchanged.Proto, ProtoMajor: unchanged.ProtoMajor, ProtoMinor: unchanged.ProtoMinor,
		Header: a.header.Clone(), Body: github.WithText(unchanged.Body, body), ContentLength: int64(len(body)), Request: req,
	}
}

// answers is a cache of answers, which evicts the least recently used. The zero value is ready for use.
type answers struct {
	mu    sync.Mutex
	byKey map[string]*list.Element
	order list.List // of *answer, most recently used first
	size  int
}

func (a *answers) get(key string) (*answer, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byKey[key]
	if e == nil {
		return nil, nil
	}
	x := e.Value.(*answer)
	body, isThere := x.body.Get()
	if !isThere { // dropped to free memory
		a.drop(e)
		return nil, nil
	}
	a.order.MoveToFront(e)
	return x, body
}

func (a *answers) put(x *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey == nil {
		a.byKey = map[string]*list.Element{}
	}
	a.drop(a.byKey[x.key])
	if x.size > mostKeptOne {
		x.body.Leave()
		return
	}
	a.byKey[x.key] = a.order.PushFront(x)
	a.size += x.size
	for a.size > mostKept {
		a.drop(a.order.Back())
	}
}

func (a *answers) drop(e *list.Element) {
	if e == nil {
		return
	}
	x := a.order.Remove(e).(*answer)
	a.size -= x.size
	x.body.Leave()
	delete(a.byKey, x.key)
}
