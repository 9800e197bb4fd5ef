// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

var (
	main   = types.NamespacedName{Namespace: "team", Name: "main"}
	secret = []byte("It's a Secret to Everybody")
)

const queued = `{"action":"queued","workflow_job":{"id":1,"labels":["linux"]},` + place + `}`

// tracker records accepted events, and returns the test's answers.
type tracker struct {
	mu    sync.Mutex
	taken []Delivery
	err   error
}

func (k *tracker) Accept(_ context.Context, d Delivery) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.taken = append(k.taken, d)
	}
	return k.err
}

func (k *tracker) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.taken)
}

// secrets holds the secrets of a test's connections. The fresh ones are only returned on request.
type secrets struct {
	known, fresh map[types.NamespacedName][][]byte
	err          error
	asked        atomic.Int32
	takes        time.Duration // for existing connections
}

func (s *secrets) Of(_ context.Context, connection types.NamespacedName, fresh bool) ([][]byte, error) {
	s.asked.Add(1)
	if s.known[connection] != nil || s.err != nil {
		time.Sleep(s.takes)
	}
	if fresh && s.fresh != nil {
		return s.fresh[connection], s.err
	}
	if s.known[connection] == nil && s.err == nil {
		return nil, ErrUnknownConnection
	}
	return s.known[connection], s.err
}

// leader is another process, or this process if the address is empty.
type leader struct {
	address string
	err     error
	failed  []string
}

func (l *leader) Leads() bool                        { return l.address == "" && l.err == nil }
func (l *leader) Peer(context.Context) (Peer, error) { return Peer{l.address, peerKey}, l.err }
func (l *leader) Failed(address string)              { l.failed = append(l.failed, address) }

// peerKey is the key of leaders.
const peerKey = "KEY"

// stage is a server with one connection.
type stage struct {
	*testing.T
	*Server
	tracker *tracker
	secrets *secrets
	now     time.Time
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, tracker: &tracker{}, secrets: &secrets{known: map[types.NamespacedName][][]byte{main: {secret}}}, now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
	s.Server = New(Options{Secrets: s.secrets, Tracker: s.tracker, Signatures: &Signatures{}, Key: peerKey, Log: logr.Discard(), Now: func() time.Time { return s.now }, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	s.pause = 0
	return s
}

// signed creates a request in GitHub's format.
func signed(event, guid, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/github/team/main", strings.NewReader(body))
	r.Header.Set(signatureHeader, Sign(secret, []byte(body)))
	r.Header.Set(eventHeader, event)
	r.Header.Set(guidHeader, guid)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (s *stage) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func (s *stage) want(w *httptest.ResponseRecorder, status int, text string) {
	s.Helper()
	if w.Code != status || strings.TrimSpace(w.Body.String()) != text {
		s.Errorf("got %d %q; want %d %q", w.Code, w.Body, status, text)
	}
}

func TestSignatureIsTheOneOfGitHubsDocumentation(t *testing.T) {
	// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
	if got := Sign(secret, []byte("Hello, World!")); got != "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17" {
		t.Error(got)
	}
}

func TestSignedEventIsTaken(t *testing.T) {
	s := newStage(t)
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
	want := []Delivery{{
		GUID: "guid-1", Connection: main, Event: WorkflowJobEvent, Action: "queued", At: s.now, Job: &WorkflowJob{ID: 1, Labels: []string{"linux"}},
		Repository: Repository{ID: 7, FullName: "acme/shop", OwnerType: "Organization"}, Organization: "acme", Enterprise: "works",
	}}
	if diff := cmp.Diff(want, s.tracker.taken); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFormIsTaken(t *testing.T) {
	s := newStage(t)
	r := signed(WorkflowJobEvent, "guid-1", "payload="+url.QueryEscape(queued))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.want(s.send(r), http.StatusAccepted, "taken")
}

func TestEitherSecretSigns(t *testing.T) {
	s := newStage(t)
	s.secrets.known[main] = [][]byte{[]byte("new"), secret}
	s.want(s.send(signed(PushEvent, "guid-1", `{`+place+`}`)), http.StatusAccepted, "taken")
	s.secrets.known[main] = [][]byte{secret, []byte("former")}
	s.want(s.send(signed(PushEvent, "guid-2", `{"ref":"x",`+place+`}`)), http.StatusAccepted, "taken")
}

func TestSecretThatWasChangedJustNowIsReadAgain(t *testing.T) {
	s := newStage(t)
	s.secrets.known[main], s.secrets.fresh = [][]byte{[]byte("old")}, map[types.NamespacedName][][]byte{main: {secret}}
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
}

// Bad requests and their answers. None of them reaches the job tracker.
func TestBadRequestsAreRefused(t *testing.T) {
	const token = "X-GitHub-Event and X-GitHub-Delivery must have 1 to 64 letters, digits, - and _."
	for name, tc := range map[string]struct {
		change func(*http.Request)
		status int
		text   string
	}{
		"no signature":      {func(r *http.Request) { r.Header.Del(signatureHeader) }, 401, "X-Hub-Signature-256 is missing: give the webhook a secret on GitHub, the same as in the connection's Secret."},
		"other signature":   {func(r *http.Request) { r.Header.Set(signatureHeader, Sign([]byte("x"), []byte(queued))) }, 401, "The signature doesn't match the secret of GitHubConnection team/main."},
		"other body":        {func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.ToUpper(queued))) }, 401, "The signature doesn't match the secret of GitHubConnection team/main."},
		"short signature":   {func(r *http.Request) { r.Header.Set(signatureHeader, "sha256=00") }, 400, "X-Hub-Signature-256 must be sha256= and 64 hexadecimal digits."},
		"SHA-1 alone":       {func(r *http.Request) { r.Header.Set(signatureHeader, "sha1="+strings.Repeat("0", 64)) }, 400, "X-Hub-Signature-256 must be sha256= and 64 hexadecimal digits."},
		"other connection":  {func(r *http.Request) { r.URL.Path = "/github/team/other" }, 401, "The signature doesn't match the secret of GitHubConnection team/other."},
		"no connection":     {func(r *http.Request) { r.URL.Path = "/github/team" }, 404, "The path must be /github/NAMESPACE/CONNECTION."},
		"longer path":       {func(r *http.Request) { r.URL.Path = "/github/team/main/" }, 404, "The path must be /github/NAMESPACE/CONNECTION."},
		"endless path":      {func(r *http.Request) { r.URL.Path = "/github/team/" + strings.Repeat("x", 1000) }, 404, "The path must be /github/NAMESPACE/CONNECTION."},
		"root":              {func(r *http.Request) { r.URL.Path = "/" }, 404, "The path must be /github/NAMESPACE/CONNECTION."},
		"GET":               {func(r *http.Request) { r.Method = http.MethodGet }, 405, "GitHub sends events with POST."},
		"no event":          {func(r *http.Request) { r.Header.Del(eventHeader) }, 400, token},
		"no GUID":           {func(r *http.Request) { r.Header.Del(guidHeader) }, 400, token},
		"odd GUID":          {func(r *http.Request) { r.Header.Set(guidHeader, "a b") }, 400, token},
		"endless GUID":      {func(r *http.Request) { r.Header.Set(guidHeader, strings.Repeat("x", 65)) }, 400, token},
		"no length":         {func(r *http.Request) { r.ContentLength = -1 }, 411, "Content-Length is missing."},
		"oversized":         {func(r *http.Request) { r.ContentLength = MaxBody + 1 }, 413, fmt.Sprintf("The body has %d bytes; GitHub sends %d at most.", MaxBody+1, MaxBody)},
		"body that ends":    {func(r *http.Request) { r.ContentLength++ }, 408, "The body arrived too slowly, or not all of it."},
		"no type":           {func(r *http.Request) { r.Header.Del("Content-Type") }, 400, "the Content-Type is neither application/json nor application/x-www-form-urlencoded."},
		"other type":        {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 400, "the Content-Type is neither application/json nor application/x-www-form-urlencoded."},
		"form without":      {func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 400, "the form has no field payload."},
		"job under push":    {func(r *http.Request) { r.Header.Set(eventHeader, CheckRunEvent) }, 400, "bad event: check_run is missing."},
		"signed but broken": {func(r *http.Request) { *r = *signed(PushEvent, "guid-1", "{") }, 400, "bad event: the body isn't JSON, at byte 1."},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			r := signed(WorkflowJobEvent, "guid-1", queued)
			tc.change(r)
			s.want(s.send(r), tc.status, tc.text)
			if s.tracker.count() != 0 {
				t.Errorf("taken: %+v", s.tracker.taken)
			}
			s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
		})
	}
}

// Events from other senders are no evidence against a secret that signs GitHub's events.
func TestAnotherSecretShows(t *testing.T) {
	s := newStage(t)
	send := func(connection types.NamespacedName, signature string) {
		r := signed("ping", "guid-1", "{}")
		r.URL.Path = "/github/" + connection.String()
		if r.Header.Set(signatureHeader, signature); signature == "" {
			r.Header.Del(signatureHeader)
		}
		s.send(r)
	}
	isWrong := func(connection types.NamespacedName) bool {
		compared, isWrong := s.Signatures.Wrong(connection, s.now)
		return isWrong && compared == sha256.Sum256(secret)
	}
	right, forged, unsigned := Sign(secret, []byte("{}")), Sign([]byte("x"), []byte("{}")), ""
	for i, step := range []struct {
		after     time.Duration
		signature string
		wrong     bool
	}{
		{0, unsigned, true}, {0, right, false}, {rightWithin, forged, false}, {time.Second, unsigned, true}, {time.Second, right, false}, {time.Second, forged, false}, {2 * rightWithin, forged, true},
	} {
		s.now = s.now.Add(step.after)
		if send(main, step.signature); isWrong(main) != step.wrong {
			t.Errorf("step %d", i)
		}
	}
	if s.now = s.now.Add(wrongFor); isWrong(main) {
		t.Error("it is wrong for good")
	}
	nobody := types.NamespacedName{Namespace: "team", Name: "nobody"}
	if send(nobody, unsigned); isWrong(nobody) {
		t.Error("a connection that isn't there is remembered")
	}
	send(main, unsigned)
	if s.Signatures.Forget(main); isWrong(main) {
		t.Error("a connection that is gone is remembered")
	}
}

func TestEventsThatAreNotUsedAreAnswered(t *testing.T) {
	s := newStage(t)
	s.want(s.send(signed("ping", "guid-1", `{"zen":"."}`)), http.StatusOK, "pong: the signature is valid.")
	s.want(s.send(signed("issues", "guid-2", `{}`)), http.StatusAccepted, "Events of this name aren't used.")
	large := strings.Repeat(" ", smallBody+1)
	s.want(s.send(signed("issues", "guid-3", large)), http.StatusAccepted, "Events of this name aren't used.")
	forged := signed("issues", "guid-4", large)
	forged.Header.Set(signatureHeader, Sign([]byte("x"), []byte(large)))
	s.want(s.send(forged), http.StatusUnauthorized, "The signature doesn't match the secret of GitHubConnection team/main.")
	s.want(s.send(httptest.NewRequest(http.MethodGet, "/", nil)), http.StatusOK, "The webhook server accepts GitHub's events at /github/NAMESPACE/CONNECTION.")
	if s.tracker.count() != 0 {
		t.Errorf("taken: %+v", s.tracker.taken)
	}
}

func TestEventIsTakenOnceForEachConnection(t *testing.T) {
	s := newStage(t)
	other := types.NamespacedName{Namespace: "team", Name: "other"}
	s.secrets.known[other] = [][]byte{secret}
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "This event was already accepted.")
	// The GUID is not signed: anyone with a copy of an event could send it under another GUID.
	s.want(s.send(signed(WorkflowJobEvent, "guid-2", queued)), http.StatusAccepted, "This event was already accepted.")
	elsewhere := signed(WorkflowJobEvent, "guid-1", queued)
	elsewhere.URL.Path = "/github/team/other"
	s.want(s.send(elsewhere), http.StatusAccepted, "taken")
	s.now = s.now.Add(3 * seenFor)
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
}

// However many events other tenants send, a repeated event is not accepted again.
func TestOthersEventsHaveNoEventTakenAgain(t *testing.T) {
	s := newStage(t)
	if a := s.send(signed(WorkflowJobEvent, "guid", queued)); a.Code != http.StatusAccepted {
		t.Fatalf("answered %d", a.Code)
	}
	for tenant := range 5 { // four of them could have all places
		for i := range seenMost / 3 {
			s.seen.add(fmt.Sprint("greedy-", tenant), sighting{byte(i >> 16), byte(i >> 8), byte(i)}, s.now)
		}
	}
	s.send(signed(WorkflowJobEvent, "guid", queued))
	if n := s.tracker.count(); n != 1 {
		t.Errorf("it was taken %d times", n)
	}
}

func TestEventThatIsNotTakenIsTakenTheNextTime(t *testing.T) {
	s := newStage(t)
	s.tracker.err = ErrNotReady
	w := s.send(signed(WorkflowJobEvent, "guid-1", queued))
	s.want(w, http.StatusServiceUnavailable, "The leader can't accept events yet.")
	if got := w.Header().Get("Retry-After"); got != "5" {
		t.Errorf("Retry-After %q", got)
	}
	s.tracker.err = nil
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
}

func TestWithoutSecretNothingIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status int
		text   string
	}{
		"absent":     {fmt.Errorf("reading: %w", ErrNoSecret), http.StatusUnauthorized, "The signature doesn't match the secret of GitHubConnection team/main."},
		"no cluster": {errors.New("refused: 10.0.0.1"), http.StatusServiceUnavailable, "The secret can't be read now."},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.secrets.err = tc.err
			s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), tc.status, tc.text)
		})
	}
}

// counted counts the hashed bytes.
type counted struct {
	hash.Hash
	bytes *int
}

func (c counted) Write(p []byte) (int, error) {
	*c.bytes += len(p)
	return c.Hash.Write(p)
}

// A sender cannot find out which connections exist: the answer, the work, the time and the effect on its quota are the
// same. For existing connections, reading a Secret takes time.
func TestAnUnknownConnectionIsAnsweredAsAWrongSignature(t *testing.T) {
	const unsigned = -1
	for _, size := range []int{unsigned, 10, 2 * smallBody} {
		var want *httptest.ResponseRecorder
		for name, change := range map[string]func(*stage){
			"wrong signature": func(s *stage) { s.secrets.known[main] = [][]byte{[]byte("another")} },
			"rotated":         func(s *stage) { s.secrets.known[main] = [][]byte{[]byte("another"), []byte("former")} },
			"no secret":       func(s *stage) { s.secrets.err = fmt.Errorf("reading: %w", ErrNoSecret) },
			"no connection":   func(s *stage) { delete(s.secrets.known, main) },
			"signed by \"\"":  func(s *stage) { s.secrets.known = nil },
		} {
			synctest.Test(t, func(t *testing.T) {
				s, summed := newStage(t), 0
				newSum = func(secret []byte) hash.Hash { return counted{hmac.New(sha256.New, secret), &summed} }
				defer func() { newSum = func(secret []byte) hash.Hash { return hmac.New(sha256.New, secret) } }()
				change(s)
				s.pause, s.secrets.takes = hidePause, hidePause/10
				body := strings.Repeat("x", max(0, size))
				r := signed(PushEvent, "guid-1", body)
				r.Header.Set(signatureHeader, Sign(nil, []byte(body)))
				if size == unsigned {
					r.Header.Del(signatureHeader)
				}
				began := time.Now()
				got := s.send(r)
				if took := time.Since(began); took != hidePause {
					t.Errorf("%s, %d bytes: answered after %s", name, size, took)
				}
				if want == nil {
					want = got
				}
				if got.Code != http.StatusUnauthorized || got.Code != want.Code || got.Body.String() != want.Body.String() || cmp.Diff(want.Header(), got.Header()) != "" {
					t.Errorf("%s, %d bytes: answered %d %q %v", name, size, got.Code, got.Body, got.Header())
				}
				asked := 3 // for the body, again after a mismatch, and to record the result
				if size == unsigned {
					asked = 1
				}
				if n := s.secrets.asked.Load(); int(n) != asked || summed != 4*len(body) {
					t.Errorf("%s, %d bytes: secrets are asked for %d times, and %d bytes are summed up", name, size, n, summed)
				}
				if limiter := s.sources.bad[siteOf("192.0.2.1:80")]; limiter == nil || limiter.TokensAt(s.now) != badRate-1 {
					t.Errorf("%s: nothing is held against the sender", name)
				}
			})
		}
	}
}

// A delayed refusal does not delay other events behind the same proxy.
func TestARefusalThatWaitsDelaysNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.pause = hidePause
		for range badRate / 2 {
			go s.send(bad("192.0.2.7"))
		}
		synctest.Wait()
		began, r := time.Now(), signed(WorkflowJobEvent, "guid-2", queued)
		r.RemoteAddr = "192.0.2.7:80"
		s.want(s.send(r), http.StatusAccepted, "taken")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("it waited for %s", waited)
		}
		time.Sleep(hidePause)
	})
}

// bad creates a forged request from an address.
func bad(address string) *http.Request {
	r := signed(WorkflowJobEvent, "guid-1", queued)
	r.Header.Set(signatureHeader, Sign([]byte("x"), nil))
	r.RemoteAddr = address + ":80"
	return r
}

// answers counts the answers to requests by status.
func (s *stage) answers(n int, request func() *http.Request) map[int]int {
	codes := map[int]int{}
	for range n {
		codes[s.send(request()).Code]++
	}
	return codes
}

// An address that floods the server is limited, and no other address is. GitHub's events still arrive from an address
// from which others send bad requests at a lower rate.
func TestBadRequestsOfAnAddressAreLimited(t *testing.T) {
	s := newStage(t)
	const attacker, other = "198.51.100.1", "198.51.100.2"
	want := map[int]int{http.StatusUnauthorized: badRate, http.StatusTooManyRequests: 50}
	if diff := cmp.Diff(want, s.answers(badRate+50, func() *http.Request { return bad(attacker) })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	asked := s.secrets.asked.Load()
	s.want(s.send(bad(attacker)), http.StatusTooManyRequests, "Too many bad requests from this address.")
	if s.secrets.asked.Load() != asked {
		t.Error("the secret was asked for")
	}
	want = map[int]int{http.StatusUnauthorized: badRate - 1}
	if diff := cmp.Diff(want, s.answers(badRate-1, func() *http.Request { return bad(other) })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	r := signed(PushEvent, "guid-1", `{"x":"`+strings.Repeat("x", smallBody)+`",`+place+`}`)
	r.RemoteAddr = other + ":80"
	s.want(s.send(r), http.StatusAccepted, "taken")
	// The limit refills with time.
	s.now = s.now.Add(time.Second)
	if w := s.send(bad(attacker)); w.Code != http.StatusUnauthorized {
		t.Errorf("got %d", w.Code)
	}
}

func TestWhatIsSignedIsNotHeldAgainstItsSource(t *testing.T) {
	s := newStage(t)
	want := map[int]int{http.StatusBadRequest: 3 * badRate}
	if diff := cmp.Diff(want, s.answers(3*badRate, func() *http.Request { return signed(PushEvent, "guid-1", "{") })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(s.sources.bad) != 0 {
		t.Error("it is")
	}
}

func TestWhatAReplicaWasSentIsNotHeldAgainstIt(t *testing.T) {
	s := newStage(t)
	want := map[int]int{http.StatusUnauthorized: 5 * badRate}
	got := s.answers(5*badRate, func() *http.Request {
		r := bad("198.51.100.1")
		r.Header.Set(forwardedHeader, peerKey)
		return r
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(s.sources.bad) != 0 {
		t.Error("it is")
	}
	// A client without the key does not count as a replica.
	got = s.answers(5*badRate, func() *http.Request {
		r := bad("198.51.100.1")
		r.Header.Set(forwardedHeader, "1")
		return r
	})
	if got[http.StatusTooManyRequests] == 0 {
		t.Errorf("got %v", got)
	}
}

func TestSourceIsWhoeverIsBehindTrustedProxies(t *testing.T) {
	for name, tc := range map[string]struct{ remote, forwarded, want string }{
		"direct":             {"198.51.100.1:80", "", "198.51.100.1/32"},
		"not trusted":        {"198.51.100.1:80", "203.0.113.9", "198.51.100.1/32"},
		"proxy":              {"192.0.2.1:80", "203.0.113.9", "203.0.113.9/32"},
		"proxy says nothing": {"192.0.2.1:80", "", "192.0.2.1/32"},
		"proxy says nobody":  {"192.0.2.1:80", "unknown", "192.0.2.1/32"},
		"made up in front":   {"192.0.2.1:80", "10.1.1.1, 203.0.113.9", "203.0.113.9/32"},
		"two proxies":        {"192.0.2.1:80", "10.1.1.1, 203.0.113.9 , 192.0.2.7", "203.0.113.9/32"},
		"IPv6":               {"[2001:db8::1]:80", "", "2001:db8::/48"},
		"IPv4 in IPv6":       {"[::ffff:198.51.100.1]:80", "", "198.51.100.1/32"},
		"no address":         {"@", "", "invalid Prefix"},
		"endless":            {"192.0.2.1:80", strings.Repeat("192.0.2.1,", 10000) + "192.0.2.1", "192.0.2.1/32"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.RemoteAddr = tc.remote
			if tc.forwarded != "" {
				r.Header.Set("X-Forwarded-For", tc.forwarded)
			}
			if got := sourceOf(r, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}).String(); got != tc.want {
				t.Errorf("got %s; want %s", got, tc.want)
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := newStage(t)
	for i := range 3 * maxSources {
		s.sources.charge(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32), s.now)
	}
	if n := len(s.sources.bad); n > maxSources {
		t.Errorf("%d sources", n)
	}
	for i := range 2 * seenMost {
		s.seen.add("greedy", sighting{byte(i >> 16), byte(i >> 8), byte(i)}, s.now)
	}
	if n := s.seen.known.Len("greedy"); n != seenMost/4 {
		t.Errorf("%d events of a namespace", n)
	}
	before := testutil.CollectAndCount(requests)
	for i := range 1000 {
		r := signed(fmt.Sprintf("event%d", i), "guid", queued)
		r.URL.Path = fmt.Sprintf("/github/team/c%d", i)
		s.send(r)
	}
	if testutil.CollectAndCount(requests) != before || testutil.CollectAndCount(events) > 20 {
		t.Error("something grows with what is sent")
	}
}

// newPair returns a replica and the leader to which it forwards events.
func newPair(t *testing.T) (replica, lead *stage, l *leader) {
	lead = newStage(t)
	server := httptest.NewServer(lead)
	t.Cleanup(server.Close)
	replica, l = newStage(t), &leader{address: strings.TrimPrefix(server.URL, "http://")}
	replica.Leader = l
	return replica, lead, l
}

func TestReplicaPassesEventsOnToTheLeader(t *testing.T) {
	replica, lead, _ := newPair(t)
	replica.want(replica.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
	replica.want(replica.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "This event was already accepted.")
	if replica.tracker.count() != 0 || lead.tracker.count() != 1 || lead.tracker.taken[0].GUID != "guid-1" {
		t.Errorf("replica %+v, leader %+v", replica.tracker.taken, lead.tracker.taken)
	}
}

func TestReplicaPassesOnOnlyWhatIsSignedAndUsed(t *testing.T) {
	replica, lead, _ := newPair(t)
	forged := signed(WorkflowJobEvent, "guid-1", queued)
	forged.Header.Set(signatureHeader, Sign([]byte("x"), nil))
	replica.send(forged)
	replica.send(signed("issues", "guid-2", `{}`))
	if lead.secrets.asked.Load() != 0 {
		t.Error("the leader was asked")
	}
}

func TestReplicaSaysWhatTheLeaderSays(t *testing.T) {
	replica, lead, l := newPair(t)
	unready := func(text string) {
		t.Helper()
		replica.want(replica.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusServiceUnavailable, text)
	}
	lead.tracker.err = ErrNotReady
	unready("The leader answered 503.")
	lead.tracker.err = nil
	lead.secrets.known[main] = [][]byte{[]byte("newer")}
	replica.want(replica.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusUnauthorized, "The signature doesn't match the secret of GitHubConnection team/main.")
	lead.secrets.known[main] = [][]byte{secret}
	l.err = errors.New("nobody")
	unready("There is no leader now.")
	l.err, l.address = nil, "127.0.0.1:1"
	unready("The leader doesn't answer.")
	if diff := cmp.Diff([]string{"127.0.0.1:1"}, l.failed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	l.address = ""
	replica.want(replica.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusAccepted, "taken")
}

// Failed requests of one sender do not mark the leader as failed for others.
func TestOnlyALeaderThatCannotBeReachedHasFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		leader http.HandlerFunc
		sender func(context.Context) context.Context
	}{
		"it ends the connection": {
			leader: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			sender: func(ctx context.Context) context.Context { return ctx },
		},
		"the sender is gone": {
			leader: func(http.ResponseWriter, *http.Request) {},
			sender: func(ctx context.Context) context.Context {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tc.leader)
			defer server.Close()
			s, l := newStage(t), &leader{address: strings.TrimPrefix(server.URL, "http://")}
			s.Leader = l
			r := signed(WorkflowJobEvent, "guid-1", queued)
			body := new(bytes.Buffer)
			body.WriteString(queued)
			a := s.pass(&delivery{Request: r.WithContext(tc.sender(t.Context())), began: s.now}, body.Bytes())
			if a.status != http.StatusServiceUnavailable || len(l.failed) != 0 {
				t.Errorf("answered %d, failed %v", a.status, l.failed)
			}
		})
	}
}

func TestEventIsPassedOnOnce(t *testing.T) {
	// The previous leader forwards the event to itself.
	s, passes := newStage(t), atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passes.Add(1)
		s.ServeHTTP(w, r)
	}))
	defer server.Close()
	s.Leader = &leader{address: strings.TrimPrefix(server.URL, "http://")}
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusServiceUnavailable, "The leader answered 503.")
	if n := passes.Load(); n != 1 {
		t.Errorf("passed on %d times", n)
	}
}

func TestLeaderIsNotFollowedElsewhere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer elsewhere.Close()
	liar := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer liar.Close()
	s := newStage(t)
	s.Leader = &leader{address: strings.TrimPrefix(liar.URL, "http://")}
	s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusServiceUnavailable, "The leader answered 307.")
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestSlowSenderIsCutOff(t *testing.T) {
	head := "POST /github/team/main HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nX-GitHub-Event: push\r\nX-GitHub-Delivery: g\r\nX-Hub-Signature-256: " + Sign(secret, nil) + "\r\n\r\n{"
	for name, tc := range map[string]struct {
		head  string
		bytes bool // more of them follow, one after another
		want  string
		after time.Duration
	}{
		"no request": {"", false, "", headWithin},
		"head":       {"POST /github/team/main HTTP/1.1\r\n", false, "", headWithin},
		"body":       {head, false, "HTTP/1.1 408 Request Timeout", beginWithin},
		"garbage":    {head, true, "HTTP/1.1 408 Request Timeout", beginWithin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				ctx, cancel := context.WithCancel(t.Context())
				listener, ended := make(pipes, 1), make(chan error, 1)
				go func() { ended <- s.Serve(ctx, listener) }()
				ours, theirs := net.Pipe()
				listener <- theirs
				began := time.Now()
				written := make(chan struct{})
				go func() {
					defer close(written)
					_, err := io.WriteString(ours, tc.head)
					for err == nil && tc.bytes {
						time.Sleep(100 * time.Millisecond)
						_, err = io.WriteString(ours, "x")
					}
				}()
				answer, _ := io.ReadAll(ours)
				if first, _, _ := strings.Cut(string(answer), "\r\n"); first != tc.want {
					t.Errorf("got %q", answer)
				}
				<-written
				if took := time.Since(began); took < tc.after || took > tc.after+time.Second {
					t.Errorf("after %s", took)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Verified bodies of an address fill its part of the memory. Its next body is then refused, and another address's body
// is accepted.
func TestWhenTooManyAreAtWorkOthersAreToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		full := s.intake.begin(nil, siteOf("192.0.2.1:80").String(), func(time.Time) error { return nil })
		full.Add(IntakeBytes / 4)
		full.Keep(IntakeBytes, IntakeBytes)
		s.want(s.send(signed(WorkflowJobEvent, "guid-1", queued)), http.StatusServiceUnavailable, "Too many events at once.")
		large := signed(PushEvent, "guid-1", `{"x":"`+strings.Repeat("x", smallBody)+`",`+place+`}`)
		large.RemoteAddr = "198.51.100.1:80"
		s.want(s.send(large), http.StatusAccepted, "taken")
		for range largeSlots {
			if s.enter(&delivery{Request: large}, s.intake.begin(nil, "198.51.100.2", func(time.Time) error { return nil })) == nil {
				t.Fatal("there is no turn")
			}
		}
		large = signed(PushEvent, "guid-2", `{"y":"`+strings.Repeat("x", smallBody)+`",`+place+`}`)
		large.RemoteAddr = "198.51.100.1:80"
		s.want(s.send(large), http.StatusServiceUnavailable, "Too many events at once.")
		small := signed(WorkflowJobEvent, "guid-3", queued)
		small.RemoteAddr = "198.51.100.1:80"
		s.want(s.send(small), http.StatusAccepted, "taken")
	})
}

// stuck is a tracker that does not accept events of one connection until its gate is closed.
type stuck struct {
	*tracker
	gate chan struct{}
}

func (k stuck) Accept(ctx context.Context, d Delivery) error {
	if d.Connection == main {
		<-k.gate
	}
	return k.tracker.Accept(ctx, d)
}

// quietMain is the connection of another namespace.
var quietMain = types.NamespacedName{Namespace: "quiet", Name: "main"}

// Large events of a namespace whose events take long, once they are decoded, keep no large event of another namespace waiting.
func TestLargeEventsThatAreDecodedFreeTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.secrets.known[quietMain] = [][]byte{secret}
		k := stuck{s.tracker, make(chan struct{})}
		s.Tracker = k
		large := func(connection types.NamespacedName, guid string) *http.Request {
			r := signed(PushEvent, guid, `{"x":"`+guid+strings.Repeat("x", smallBody)+`",`+place+`}`)
			r.URL.Path = "/github/" + connection.String()
			return r
		}
		for i := range largeSlots {
			go s.send(large(main, fmt.Sprint("guid-", i)))
		}
		synctest.Wait()
		s.want(s.send(large(quietMain, "guid")), http.StatusAccepted, "taken")
		close(k.gate)
		synctest.Wait()
		if n := s.tracker.count(); n != 1+largeSlots {
			t.Errorf("%d events are taken", n)
		}
	})
}

// A leader that takes long for the events of one namespace is still passed those of others.
func TestANamespaceHasAQuarterOfThePlacesAtTheLeader(t *testing.T) {
	var all sync.WaitGroup
	atWork, gate := atomic.Int32{}, make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/github/team/main" {
			atWork.Add(1)
			<-gate
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	defer all.Wait()
	defer close(gate)
	s := newStage(t)
	s.secrets.known[quietMain] = [][]byte{secret}
	s.Leader = &leader{address: strings.TrimPrefix(server.URL, "http://")}
	for i := range passSlots {
		all.Go(func() { s.send(signed(WorkflowJobEvent, fmt.Sprint("guid-", i), queued)) })
	}
	for last := int32(-1); last != atWork.Load(); time.Sleep(300 * time.Millisecond) {
		last = atWork.Load()
	}
	r := signed(WorkflowJobEvent, "guid", queued)
	r.URL.Path = "/github/" + quietMain.String()
	s.want(s.send(r), http.StatusAccepted, "")
	if n := atWork.Load(); n != passSlots/4 {
		t.Errorf("the leader is at work on %d events of a namespace", n)
	}
}

func BenchmarkQueuedJob(b *testing.B) {
	s := newStage(nil)
	body := `{"action":"queued","workflow_job":{"id":1,"labels":["linux"]},` + place + `,"padding":"` + strings.Repeat(`{\"x\": 1}`, 1200) + `"}`
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		s.now = s.now.Add(3 * seenFor)
		s.send(signed(WorkflowJobEvent, "guid", body))
	}
}
