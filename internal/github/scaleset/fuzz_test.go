// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/corral-dev/corral/internal/github"
)

// oddGitHub answers calls to one endpoint with odd bytes until they are used up, and all other calls normally. Its
// queue then has one message until that is acknowledged.
type oddGitHub struct {
	odd         endpoint
	status      int
	header      http.Header
	lastMessage chan struct{} // closed when acknowledged

	mu    sync.Mutex
	odds  [][]byte // the remaining odd answers
	stale bool     // the next poll finds its token expired
	polls int
}

const lastMessage = `{"messageId":1,"messageType":"RunnerScaleSetJobMessages","statistics":{"totalAssignedJobs":7},"body":"[` +
	`{\"messageType\":\"JobAvailable\",\"runnerRequestId\":3},{\"messageType\":\"JobStarted\",\"jobId\":\"j\",\"runnerId\":1,\"runnerName\":\"linux-1\"}]"}`

func (g *oddGitHub) RoundTrip(req *http.Request) (*http.Response, error) {
	class := endpointOf(req)
	if req.URL.Host == "queue.github.test" {
		class = map[string]endpoint{http.MethodGet: endpointMessagePoll, http.MethodDelete: endpointMessageAck}[req.Method]
	}
	g.mu.Lock()
	status, body := g.answer(class)
	header := http.Header{}
	if class == g.odd && status == g.status {
		header = g.header
	}
	g.mu.Unlock()
	if status == 0 { // held
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: req}, nil
}

func (g *oddGitHub) answer(class endpoint) (status int, body []byte) {
	if class == g.odd && len(g.odds) > 0 {
		body, g.odds = g.odds[0], g.odds[1:]
		return g.status, body
	}
	expires := time.Now().Add(time.Hour)
	switch class {
	case endpointRegistrationToken:
		return 201, fmt.Appendf(nil, `{"token":"t","expires_at":%q}`, expires.Format(time.RFC3339))
	case endpointRunnerRegistration:
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(expires)}).SignedString([]byte("k"))
		if err != nil {
			panic(err)
		}
		return 200, fmt.Appendf(nil, `{"url":"http://service.github.test/t","token":%q}`, token)
	case endpointSessionCreate, endpointSessionRefresh:
		if g.odd == endpointScaleSetGet && len(g.odds) > 0 { // statistics are requested in the meantime
			return 409, []byte(`{"message":"has an active session for owner cluster/pool."}`)
		}
		return 200, []byte(`{"sessionId":"5ff7ca37-d25e-4b5e-8e3a-3e3dc9d4f3bb","messageQueueUrl":"http://queue.github.test/message","messageQueueAccessToken":"q","statistics":{}}`)
	case endpointMessagePoll:
		return g.poll()
	case endpointMessageAck:
		select {
		case <-g.lastMessage:
		default:
			if len(g.odds) == 0 && g.polls > 0 {
				close(g.lastMessage)
			}
		}
		return 204, nil
	case endpointAcquireJobs, endpointScaleSetGet:
		return 200, []byte(`{}`)
	}
	return 204, nil
}

func (g *oddGitHub) poll() (int, []byte) {
	select {
	case <-g.lastMessage:
		return 0, nil
	default:
	}
	if g.stale = !g.stale; g.stale && g.odd == endpointSessionRefresh {
		return 401, nil
	}
	g.polls++
	return 200, []byte(lastMessage)
}

// FuzzSession has GitHub answer a poll, or another call of a session, with arbitrary bytes. The session continues and
// receives the message after them. Answers are separated by "\x1e".
func FuzzSession(f *testing.F) {
	odd := []endpoint{endpointMessagePoll, endpointSessionCreate, endpointSessionRefresh, endpointMessageAck, endpointAcquireJobs, endpointScaleSetGet, endpointRunnerRegistration}
	for i := range odd {
		f.Add(uint8(i), uint16(200), "", "application/json", []byte(lastMessage))
		f.Add(uint8(i), uint16(202), "", "", []byte("\x1e\x1e\x1e"))
		f.Add(uint8(i), uint16(429), "99999999999", "", []byte("slow down"))
		f.Add(uint8(i), uint16(404), "", "application/json", []byte(`{"typeName":"RunnerScaleSetNotFoundException","message":"gone"}`))
		f.Add(uint8(i), uint16(409), "-5", "application/json", []byte(`{"typeName":"X","message":"has an active session for owner ."}`))
		f.Add(uint8(i), uint16(401), "Thu, 01 Jan 1970 00:00:00 GMT", "text/plain", []byte("no\x1e\xef\xbb\xbf{"))
	}
	for _, body := range []string{
		`{"messageId":-1,"messageType":"RunnerScaleSetJobMessages","body":"[null,{},[],7]"}`,
		`{"messageId":9223372036854775807,"messageType":"","body":"","statistics":null}`,
		`{"messageId":5,"messageType":"RunnerScaleSetJobMessages","body":"[{\"messageType\":\"JobAssigned\",\"queueTime\":\"x\"}]"}`,
		`{"messageId":5,"messageType":"RunnerScaleSetJobMessages","body":"{}","statistics":{"totalAssignedJobs":-9}}`,
		"\xef\xbb\xbf[]", "null", "", "<html>",
	} {
		f.Add(uint8(0), uint16(200), "", "application/json", []byte(body))
	}
	f.Fuzz(func(t *testing.T, at uint8, status uint16, retryAfter, contentType string, body []byte) {
		if status%1000 < 200 { // a transport never returns those
			status += 200
		}
		synctest.Test(t, func(t *testing.T) {
			g := &oddGitHub{
				odd: odd[int(at)%len(odd)], status: int(status % 1000), lastMessage: make(chan struct{}),
				header: http.Header{"Retry-After": {retryAfter}, "Content-Type": {contentType}}, odds: bytes.SplitN(body, []byte{'\x1e'}, 8),
			}
			surviveOddities(t, g)
		})
	})
}

func surviveOddities(t *testing.T, g *oddGitHub) {
	c, err := NewClient(github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}, github.Options{Transport: g})
	if err != nil {
		t.Fatal(err)
	}
	l := NewListener(Config{Client: c, SetID: 1, Owner: owner, Recorder: slowRecorder{}})
	l.Announce(5)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	select {
	case <-g.lastMessage:
	case <-ended:
		t.Error("the session has stopped")
	case <-time.After(24 * time.Hour):
		t.Errorf("the last message was never acknowledged: %+v", l.Snapshot())
	}
	if s := l.Snapshot(); s.Assigned != 7 && !t.Failed() {
		t.Errorf("%d jobs are known; want 7", s.Assigned)
	}
	if s := l.Snapshot(); len(s.Message) > 10*500 {
		t.Errorf("a message of %d bytes", len(s.Message))
	}
	cancel()
	<-ended
	time.Sleep(2 * clientRest)
}
