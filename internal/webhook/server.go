// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/turns"
)

// Headers of a delivery, and the header with which replicas mark forwarded requests.
const (
	signatureHeader = "X-Hub-Signature-256"
	eventHeader     = "X-GitHub-Event"
	guidHeader      = "X-GitHub-Delivery"
	forwardedHeader = "X-Corral-Forwarded"
)

const (
	pathPrefix = "/github/"
	pingEvent  = "ping"
	// maxPath is the maximum length of NAMESPACE/NAME.
	maxPath = 63 + 1 + 253
	// maxHeader is the maximum length of an event's name or GUID. GitHub's have up to 40 bytes.
	maxHeader = 64
	// answerWithin is the timeout for an answer: GitHub gives up after 10 s.
	answerWithin = 9 * time.Second
	// hidePause is the time between the arrival of a body and an answer with the status 401. It hides whether a
	// connection exists: only for an existing connection does the server read a Secret from the API server, which
	// normally takes less than hidePause.
	hidePause = 500 * time.Millisecond
	// retryAfter is sent with answers to requests that may succeed later.
	retryAfter = 5 * time.Second
)

// Tracker accepts events. It runs in one process, the leader.
type Tracker interface {
	// Accept returns nil once it has the event in memory, and ErrNotReady while it cannot accept it.
	Accept(ctx context.Context, d Delivery) error
}

// Errors of Secrets.
var (
	// ErrUnknownConnection means that no connection with this name accepts events.
	ErrUnknownConnection = errors.New("no such GitHubConnection with spec.webhook")
	// ErrNoSecret means that a connection's Secret is missing or contains no secret.
	ErrNoSecret = errors.New("no secret")
)

// Secrets returns the secrets with which events are signed.
type Secrets interface {
	// Of returns a connection's secrets, the current one first; none of them is empty. If fresh is true, it reads them
	// again unless that was just done. Errors are ErrUnknownConnection, ErrNoSecret, or errors of an API server that
	// does not answer.
	Of(ctx context.Context, connection types.NamespacedName, fresh bool) ([][]byte, error)
}

// Options of a Server.
type Options struct {
	Secrets Secrets
	Tracker Tracker
	// Signatures records for each event whether its connection's secret signed it.
	Signatures *Signatures
	// Leader identifies the process that accepts events; nil if this process always does.
	Leader Leader
	// Key is the key with which other replicas prove that they forwarded a request; "" if there are none.
	Key string
	// TrustedProxies are the proxies whose X-Forwarded-For header is trusted.
	TrustedProxies []netip.Prefix
	Log            logr.Logger
	Now            func() time.Time
}

// Server receives GitHub's events at /github/NAMESPACE/CONNECTION. It limits its memory, whatever it receives.
type Server struct {
	Options
	intake  *intake
	large   *turns.Limiter // limits the decoding of large bodies
	sources *sources
	decoy   []byte // a random key with which no body is signed
	pause   time.Duration
	seen    *seen
	quiet   *quiet
	forward *http.Client
	passing sync.Map // by namespace: a chan struct{} whose elements are the events that are being forwarded
}

// New creates a server, which is an http.Handler. Serve runs it with timeouts.
func New(o Options) *Server {
	decoy := make([]byte, signatureSize)
	_, _ = rand.Read(decoy) // it never fails
	return &Server{Options: o, intake: newIntake(), large: turns.New(largeSlots), decoy: decoy, pause: hidePause, sources: &sources{bad: map[netip.Prefix]*rate.Limiter{}}, seen: newSeen(), quiet: &quiet{}, forward: newForwarder()}
}

// answer is the answer to a request.
type answer struct {
	// result is its label in metrics.
	result result
	status int
	text   string
	// retry is the delay after which the sender may try again; 0 if that does not help.
	retry time.Duration
	// cause is logged instead of the text; "" if the text is the cause.
	cause string
}

// delivery is a request in progress.
type delivery struct {
	*http.Request
	connection types.NamespacedName
	event      string
	guid       string
	// claimed is the signature in the request's header.
	claimed [signatureSize]byte
	source  netip.Prefix
	began   time.Time
	// arrived is when the whole request had arrived, on the monotonic clock.
	arrived time.Time
	// replica is true if another replica forwarded the request. The replica is not at fault if the request is bad.
	replica bool
	// passed is true once the body was passed to a transport, which may still read it later.
	passed bool
}

// sender returns the account of the intake for which a body counts while it arrives: the sender's address or, if
// another replica has verified the body, the namespace of the event.
func (d *delivery) sender() string {
	if d.replica {
		return d.connection.Namespace
	}
	return d.source.String()
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	d := &delivery{Request: r.WithContext(ctx), began: s.Now(), arrived: time.Now(), source: sourceOf(r, s.TrustedProxies)}
	d.replica = s.Key != "" && subtle.ConstantTimeCompare([]byte(s.Key), []byte(r.Header.Get(forwardedHeader))) == 1
	a := s.answer(w, d)
	if a.result.isBad() && !d.replica {
		s.sources.charge(d.source, d.began)
	}
	if a.result.isRefused() {
		s.logRefusal(d, a)
	}
	requests.WithLabelValues(string(a.result)).Inc()
	durations.WithLabelValues(string(a.result)).Observe(s.Now().Sub(d.began).Seconds())
	if a.status == http.StatusUnauthorized {
		d.wait(s.pause) // after its memory was released, so that no other event waits for it
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if a.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.retry.Round(time.Second).Seconds())))
	}
	w.WriteHeader(a.status)
	fmt.Fprintln(w, a.text)
}

// wait waits until the given time after the request arrived.
func (d *delivery) wait(pause time.Duration) {
	timer := time.NewTimer(pause - time.Since(d.arrived))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.Context().Done():
	}
}

// answer runs the cheap checks first: the path, the headers, the size. Nothing depends on the connection before the
// body has arrived, because hidePause counts from then on.
func (s *Server) answer(w http.ResponseWriter, d *delivery) answer {
	if d.URL.Path == "/" && (d.Method == http.MethodGet || d.Method == http.MethodHead) {
		return answer{result: probed, status: http.StatusOK, text: "The webhook server accepts GitHub's events at " + pathPrefix + "NAMESPACE/CONNECTION."}
	}
	if !d.replica && s.sources.isExhausted(d.source, d.began) {
		return answer{result: limited, status: http.StatusTooManyRequests, text: "Too many bad requests from this address.", retry: retryAfter}
	}
	if a := d.readHead(w); a.status != 0 {
		s.noteWrong(d, a)
		return a
	}
	// In tests, the writer may be a recorder, which does not support deadlines and needs none.
	arrival := s.intake.begin(http.MaxBytesReader(w, d.Body, MaxBody), d.sender(), http.NewResponseController(w).SetReadDeadline)
	defer func() { arrival.Leave() }()
	body, a := s.read(d, arrival)
	if a.status != 0 {
		s.noteWrong(d, a)
		return a
	}
	leave := s.enter(d, arrival)
	if leave == nil {
		return tooMany
	}
	defer leave()
	s.Signatures.noteRight(d.connection, d.began)
	a = s.dispatch(d, body, leave)
	if !d.passed {
		reuse(body)
	}
	return a
}

// isHidden reports whether an error must not be revealed to senders: the connection does not exist or has no secret.
func isHidden(err error) bool {
	return errors.Is(err, ErrUnknownConnection) || errors.Is(err, ErrNoSecret)
}

// noteWrong records that an event of an existing connection was not signed with its secret.
func (s *Server) noteWrong(d *delivery, a answer) {
	if a.status != http.StatusUnauthorized {
		return
	}
	if secrets, err := s.Secrets.Of(d.Context(), d.connection, false); err == nil {
		s.Signatures.noteWrong(d.connection, secrets[0], d.began)
	}
}

// readHead reads the path and the headers. If they are valid, the status of its answer is 0.
func (d *delivery) readHead(w http.ResponseWriter) answer {
	var ok bool
	if d.connection, ok = connectionOf(d.URL.Path); !ok {
		return answer{result: unknown, status: http.StatusNotFound, text: "The path must be " + pathPrefix + "NAMESPACE/CONNECTION."}
	}
	if d.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return answer{result: malformed, status: http.StatusMethodNotAllowed, text: "GitHub sends events with POST."}
	}
	d.event, d.guid = d.Header.Get(eventHeader), d.Header.Get(guidHeader)
	if !isToken(d.event) || !isToken(d.guid) {
		return answer{result: malformed, status: http.StatusBadRequest, text: eventHeader + " and " + guidHeader + " must have 1 to 64 letters, digits, - and _."}
	}
	if d.Header.Get(signatureHeader) == "" {
		return answer{result: forged, status: http.StatusUnauthorized, text: signatureHeader + " is missing: give the webhook a secret on GitHub, the same as in the connection's Secret."}
	}
	if d.claimed, ok = parseSignature(d.Header.Get(signatureHeader)); !ok {
		return answer{result: malformed, status: http.StatusBadRequest, text: signatureHeader + " must be sha256= and 64 hexadecimal digits."}
	}
	switch {
	case d.ContentLength < 0:
		return answer{result: malformed, status: http.StatusLengthRequired, text: "Content-Length is missing."}
	case d.ContentLength > MaxBody:
		return answer{result: oversized, status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("The body has %d bytes; GitHub sends %d at most.", d.ContentLength, MaxBody)}
	}
	return answer{}
}

// connectionOf returns the connection in a path.
func connectionOf(path string) (key types.NamespacedName, ok bool) {
	rest, ok := strings.CutPrefix(path, pathPrefix)
	if !ok || len(rest) > maxPath {
		return key, false
	}
	key.Namespace, key.Name, ok = strings.Cut(rest, "/")
	return key, ok && key.Namespace != "" && key.Name != "" && !strings.Contains(key.Name, "/")
}

// isToken reports whether a header has only the characters that GitHub uses, and is safe to log.
func isToken(value string) bool {
	return value != "" && len(value) <= maxHeader && !strings.ContainsFunc(value, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}

// dispatch passes a verified event to the leader. It calls decoded as soon as the body need not be decoded any more.
// The next step may wait for other events of the same namespace, and large bodies of other namespaces must not wait for
// that.
func (s *Server) dispatch(d *delivery, body *bytes.Buffer, decoded func()) answer {
	switch {
	case d.event == pingEvent:
		return answer{result: unused, status: http.StatusOK, text: "pong: the signature is valid."}
	case !IsDecoded(d.event):
		return answer{result: unused, status: http.StatusAccepted, text: "Events of this name aren't used."}
	}
	if s.Leader != nil && !s.Leader.Leads() {
		decoded()
		return s.pass(d, body.Bytes())
	}
	this := sightingOf(d.connection, d.claimed)
	if s.seen.has(d.connection.Namespace, this, d.began) {
		return answer{result: duplicate, status: http.StatusAccepted, text: "This event was already accepted."}
	}
	payload, err := payloadOf(d.Header.Get("Content-Type"), body.Bytes())
	if err != nil {
		return answer{result: unusable, status: http.StatusBadRequest, text: err.Error() + "."}
	}
	event, err := Parse(d.event, payload)
	decoded()
	if err != nil {
		return answer{result: unusable, status: http.StatusBadRequest, text: err.Error() + "."}
	}
	event.GUID, event.Connection, event.At = d.guid, d.connection, d.began
	if err := s.Tracker.Accept(d.Context(), event); err != nil {
		return answer{result: unready, status: http.StatusServiceUnavailable, text: "The leader can't accept events yet.", retry: retryAfter}
	}
	s.seen.add(d.connection.Namespace, this, d.began)
	events.WithLabelValues(d.connection.Namespace, d.connection.Name, d.event).Inc()
	return answer{result: accepted, status: http.StatusAccepted, text: "taken"}
}

// Forget drops the metrics of a connection that is gone.
func Forget(connection types.NamespacedName) { events.Drop(connection.Namespace, connection.Name) }

// logRefusal logs refused events, at limited intervals for each kind, so that an administrator can find a wrong secret.
func (s *Server) logRefusal(d *delivery, a answer) {
	if s.quiet.speaks(a.result, d.began) {
		s.Log.Info("refused an event", "reason", string(a.result), "answer", cmp.Or(a.cause, a.text), "connection", d.connection.String(), "source", d.source.String())
	}
}
