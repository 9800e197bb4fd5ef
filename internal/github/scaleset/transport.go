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
	"net/http"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/neterr"
)

// answerBounds is for all answers but messages. GitHub filters lookups by name, so lists have one element or none.
var answerBounds = github.Bounds{Bytes: 1 << 20, List: 100, Values: 2_000}

// tokenBounds is for an answer that is cached for as long as its token lives.
var tokenBounds = github.Bounds{Bytes: 128 << 10, List: 100, Values: 2_000}

// sessionBounds is for a session, whose fields are kept for as long as it is open, and for the ids of acquired jobs, which
// may follow each message.
var sessionBounds = github.Bounds{Bytes: 32 << 10, List: 100, Values: 2_000}

// metered counts and times requests by class of endpoint, and limits the size of answers.
type metered struct{ options github.Options }

// RoundTrip sends the request and counts it.
func (m metered) RoundTrip(req *http.Request) (*http.Response, error) {
	class := string(requestEndpoint(req))
	bounds := answerBounds
	switch endpoint := requestEndpoint(req); {
	case endpoint == endpointMessagePoll:
		bounds = messageBounds
	case endpoint.isToken():
		bounds = tokenBounds
	case endpoint == endpointSessionCreate, endpoint == endpointSessionRefresh, endpoint == endpointAcquireJobs:
		bounds = sessionBounds
	}
	resp, err := traffic.Send(m.options, req, class, bounds)
	m.options.Note(req.Context(), class, resp, err)
	if requestEndpoint(req).isToken() {
		m.options.NoteRefusal(resp)
	}
	return resp, err
}

// asTransport wraps any RoundTripper in an *http.Transport, which is the only type that the official client accepts.
// http.Transport passes requests of a registered scheme to the RoundTripper.
func asTransport(next http.RoundTripper) *http.Transport {
	t := &http.Transport{
		// A map that is not nil keeps http.Transport from registering its own HTTP/2 for https. The transport below
		// does HTTP/2.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	t.RegisterProtocol("http", next)
	t.RegisterProtocol("https", next)
	return t
}

// exchange records GitHub's last answer during one call of the official client, whose errors contain it only as text.
type exchange struct {
	// mode is endpointMessagePoll or endpointMessageAck for calls whose URL GitHub chooses, because the path of such a
	// URL does not identify the call.
	mode endpoint
	// resumes is the id of the session to refresh instead of opening a new one; empty for none.
	resumes string
	// agent receives the fields of a runner that the official client does not read; nil if they are not needed.
	agent *agent

	endpoint endpoint
	status   int
	header   http.Header
	typeName string
	message  string
	silent   bool // no answer arrived
	// unknown are the unknown parts of a polled message.
	unknown []unknownPart
	// size is the number of bytes of answers that were read.
	size int
	// pause is the additional time before the next poll, because the message was large.
	pause time.Duration
	// bodies are the answers that the call has read. They count against the memory limit until the call ends.
	bodies []io.Closer
}

// close releases the memory of the call's answers.
func (x *exchange) close() {
	for _, body := range x.bodies {
		_ = body.Close() // the body was read to its end
	}
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

// observer records each answer in the exchange of its call, and rewrites messages that the official client could not
// parse.
type observer struct {
	next    http.RoundTripper
	options github.Options
}

// RoundTrip sends the request and records the answer.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x == nil {
		x = &exchange{}
	}
	req = x.resuming(req)
	x.endpoint, x.status, x.header, x.typeName, x.message, x.silent = requestEndpoint(req), 0, nil, "", "", false
	resp, err := o.next.RoundTrip(req)
	if err != nil {
		x.noteNoAnswer(err)
		return nil, err
	}
	if !x.endpoint.isRead(resp.StatusCode) {
		x.status, x.header = resp.StatusCode, resp.Header
		return resp, nil
	}
	isFailure := resp.StatusCode >= http.StatusBadRequest
	body, err := o.read(x, resp, x.endpoint == endpointMessagePoll && !isFailure)
	switch {
	case err != nil:
	case isFailure:
		x.typeName, x.message = explain(resp.Header.Get("Content-Type"), body)
	case x.endpoint.hasShape():
		err = x.readShape(body)
	}
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// isRead reports whether the observer reads an answer before the official client does: failures, messages, answers whose
// shape it checks, and answers to acquisitions, which follow each other as fast as the server answers and are therefore
// charged like messages.
func (e endpoint) isRead(status int) bool {
	return status >= http.StatusBadRequest || status == http.StatusOK && (e == endpointMessagePoll || e == endpointAcquireJobs || e.hasShape())
}

// noteNoAnswer records why there is no answer that can be used.
func (x *exchange) noteNoAnswer(err error) {
	if errors.As(err, new(github.ForeignHost)) || errors.Is(err, errPartial) {
		x.message = err.Error()
		return
	}
	x.message, x.silent = github.Excerpt(neterr.NoAnswer(err)), true
}

// read reads a whole answer and, if it is a message, makes it harmless. A truncated answer counts as no answer.
func (o *observer) read(x *exchange, resp *http.Response, isMessage bool) ([]byte, error) {
	x.bodies = append(x.bodies, resp.Body)
	body, err := io.ReadAll(resp.Body)
	x.size += len(body)
	if err != nil {
		err = fmt.Errorf("reading the answer: %w", err)
	}
	if err == nil && isMessage {
		x.pause = pauseAfter(len(body))
		body, err = x.readMessage(resp, body)
		o.options.NoteSize("message_body", resp.StatusCode, err)
	}
	if err == nil || isTooLarge(err) {
		x.status, x.header = resp.StatusCode, resp.Header
	}
	if err != nil {
		x.message = err.Error()
	}
	return body, err
}

// readMessage makes a message harmless (see harmless). An empty body counts as no message (see issue 4285 of
// actions-runner-controller).
func (x *exchange) readMessage(resp *http.Response, body []byte) (_ []byte, err error) {
	if len(bytes.TrimSpace(trimBOM(body))) == 0 {
		resp.StatusCode = http.StatusAccepted
		return body, nil
	}
	body, x.unknown, err = harmless(body)
	return body, err
}

// readShape checks that an answer is complete, and reads the fields that the official client does not read.
func (x *exchange) readShape(body []byte) error {
	if !isWhole(x.endpoint, body) {
		x.message = errPartial.Error()
		return errPartial
	}
	if x.agent != nil {
		_ = json.Unmarshal(trimBOM(body), x.agent) // isWhole has decoded it as an object
	}
	return nil
}

// resuming turns the request to open a session into the refresh of an existing one. The official client only refreshes
// sessions that it opened.
func (x *exchange) resuming(req *http.Request) *http.Request {
	if x.resumes == "" || endpointOf(req) != endpointSessionCreate {
		return req
	}
	req = req.Clone(req.Context())
	req.Method, req.URL.Path = http.MethodPatch, req.URL.Path+"/"+x.resumes
	req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	return req
}

func readAll(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return body, nil
}

// explain reads an error of the Actions service or of the REST API, or quotes the body.
func explain(contentType string, body []byte) (typeName, message string) {
	var e struct {
		TypeName string `json:"typeName"`
		Message  string `json:"message"`
	}
	if err := json.Unmarshal(trimBOM(body), &e); err == nil {
		return e.TypeName, github.Excerpt(e.Message)
	}
	if strings.HasPrefix(contentType, "text/plain") {
		return "", github.Excerpt(strings.TrimSpace(string(body)))
	}
	return "", ""
}

func trimBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")) }

// explanation returns GitHub's message, with the short name of the exception if there is one.
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
