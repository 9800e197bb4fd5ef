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
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/turns"
)

// Headers of a delivery, and the one by which replicas tell each other that they passed it on.
const (
	signatureHeader = "X-Hub-Signature-256"
	eventHeader     = "X-GitHub-Event"
	guidHeader      = "X-GitHub-Delivery"
	forwardedHeader = "X-Corral-Forwarded"
)

const (
	pathPrefix = "/github/"
	pingEvent  = "ping"
	// maxPath is the most bytes of a namespace and a name.
	maxPath = 63 + 1 + 253
	// maxHeader is the most bytes of an event's name or GUID: GitHub's have up to 40.
	maxHeader = 64
	// answerWithin is when an answer is due: GitHub gives up after 10 s.
	answerWithin = 9 * time.Second
	// hidePause is how long after its body arrived a refusal is sent that must not reveal whether there is a connection of that name. Only for
	// those that exist is a Secret read from the API server, which takes less.
	hidePause = 500 * time.Millisecond
	// retryAfter is told with answers that another attempt may change.
	retryAfter = 5 * time.Second
)

// Tracker takes in events; one process has it, the leader.
type Tracker interface {
	// Accept returns nil once it has the event in memory, and ErrNotReady while it can't have it.
	Accept(ctx context.Context, d Delivery) error
}

// Errors of Secrets.
var (
	// ErrUnknownConnection says that there is no connection of a name that takes in events.
	ErrUnknownConnection = errors.New("no such GitHubConnection with spec.webhook")
	// ErrNoSecret says that a connection's Secret is absent or has no secret in it.
	ErrNoSecret = errors.New("no secret")
)

// Secrets are what connections' events are signed with.
type Secrets interface {
	// Of returns a connection's secrets, the current one first; none of them is empty. With fresh, they are read
	// again unless that was just done. Errors are ErrUnknownConnection, ErrNoSecret, or those of a cluster that doesn't answer.
	Of(ctx context.Context, connection types.NamespacedName, fresh bool) ([][]byte, error)
}

// Options of a Server.
type Options struct {
	Secrets Secrets
	Tracker Tracker
	// Signatures is told of each event whether its connection's secret signed it.
	Signatures *Signatures
	// Leader says who takes events; nil if that is always this process.
	Leader Leader
	// Key by which other replicas tell that they passed a request on; "" if there are none.
	Key string
	// TrustedProxies are believed what they say in X-Forwarded-For.
	TrustedProxies []netip.Prefix
	Log            logr.Logger
	Now            func() time.Time
}

// Server answers GitHub's deliveries at /github/NAMESPACE/CONNECTION. What it holds in memory is bounded, whatever it is sent.
type Server struct {
	Options
	intake  *intake
	large   *turns.Limiter // of large bodies that are decoded
	sources *sources
	decoy   []byte // a key that nothing is signed with
	pause   time.Duration
	seen    *seen
	quiet   *quiet
	forward *http.Client
}

// New makes a server. It is an http.Handler; Serve has it listen with limits in time.
func New(o Options) *Server {
	decoy := make([]byte, signatureSize)
	_, _ = rand.Read(decoy) // it never fails
	return &Server{Options: o, intake: newIntake(), large: turns.New(largeSlots), decoy: decoy, pause: hidePause, sources: &sources{bad: map[netip.Prefix]*rate.Limiter{}}, seen: newSeen(), quiet: &quiet{}, forward: newForwarder()}
}

// answer is what a request is told.
type answer struct {
	// result names it in metrics.
	result result
	status int
	text   string
	// retry is when another attempt may be made; 0 if that doesn't help.
	retry time.Duration
	// cause is told the log instead of the text; "" if that is the cause.
	cause string
}

// delivery is a request on its way.
type delivery struct {
	*http.Request
	connection types.NamespacedName
	event      string
	guid       string
	// claimed is the signature that the sender claims the body to have.
	claimed [signatureSize]byte
	source  netip.Prefix
	began   time.Time
	// arrived is when the whole request had arrived, on the monotonic clock.
	arrived time.Time
	// replica is true if another replica sent it, which isn't to blame for what it was sent.
	replica bool
	// passed is true once the body was given to a transport, which may read it even later.
	passed bool
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
		d.wait(s.pause) // after its bytes were released, so that no other event waits for it
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if a.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.retry.Round(time.Second).Seconds())))
	}
	w.WriteHeader(a.status)
	fmt.Fprintln(w, a.text)
}

// wait waits until so long after the request arrived.
func (d *delivery) wait(pause time.Duration) {
	timer := time.NewTimer(pause - time.Since(d.arrived))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.Context().Done():
	}
}

// answer looks at what costs little first: the path, the headers, the size. Nothing depends on the connection until the body has arrived: by then
// it is known when a refusal is due.
func (s *Server) answer(w http.ResponseWriter, d *delivery) answer {
	if d.URL.Path == "/" && (d.Method == http.MethodGet || d.Method == http.MethodHead) {
		return answer{result: probed, status: http.StatusOK, text: "GitHub's events are taken in at " + pathPrefix + "NAMESPACE/CONNECTION."}
	}
	if !d.replica && s.sources.isExhausted(d.source, d.began) {
		return answer{result: limited, status: http.StatusTooManyRequests, text: "Too many bad requests from this address.", retry: retryAfter}
	}
	if a := d.readHead(w); a.status != 0 {
		s.noteWrong(d, a)
		return a
	}
	// A recorder in tests has no deadlines, and needs none.
	arrival := s.intake.begin(http.MaxBytesReader(w, d.Body, MaxBody), d.source, http.NewResponseController(w).SetReadDeadline)
	defer arrival.Leave()
	body, a := s.read(d, arrival)
	if a.status != 0 {
		s.noteWrong(d, a)
		return a
	}
	leave := s.enter(d)
	if leave == nil {
		return tooMany
	}
	defer leave()
	s.Signatures.noteRight(d.connection, d.began)
	a = s.dispatch(d, body)
	if !d.passed {
		reuse(body)
	}
	return a
}

// isHidden reports whether senders aren't told that a connection has no secret, or isn't there.
func isHidden(err error) bool {
	return errors.Is(err, ErrUnknownConnection) || errors.Is(err, ErrNoSecret)
}

// noteWrong remembers that an event of a connection that there is isn't signed with its secret.
func (s *Server) noteWrong(d *delivery, a answer) {
	if a.status != http.StatusUnauthorized {
		return
	}
	if secrets, err := s.Secrets.Of(d.Context(), d.connection, false); err == nil {
		s.Signatures.noteWrong(d.connection, secrets[0], d.began)
	}
}

// readHead takes what is needed of the path and the headers.
func (d *delivery) readHead(w http.ResponseWriter) answer {
	var ok bool
	if d.connection, ok = connectionOf(d.URL.Path); !ok {
		return answer{result: unknown, status: http.StatusNotFound, text: "The path must be " + pathPrefix + "NAMESPACE/CONNECTION."}
	}
	if d.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return answer{result: malformed, status: http.StatusMethodNotAllowed, text: "GitHub's events are POSTed."}
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

// connectionOf returns the connection that a path names.
func connectionOf(path string) (key types.NamespacedName, ok bool) {
	rest, ok := strings.CutPrefix(path, pathPrefix)
	if !ok || len(rest) > maxPath {
		return key, false
	}
	key.Namespace, key.Name, ok = strings.Cut(rest, "/")
	return key, ok && key.Namespace != "" && key.Name != "" && !strings.Contains(key.Name, "/")
}

// isToken reports whether a header has what GitHub puts in it, and nothing that spoils a log.
func isToken(value string) bool {
	return value != "" && len(value) <= maxHeader && !strings.ContainsFunc(value, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
}

// dispatch gives the leader a body that is shown to be GitHub's.
func (s *Server) dispatch(d *delivery, body *bytes.Buffer) answer {
	switch {
	case d.event == pingEvent:
		return answer{result: unused, status: http.StatusOK, text: "pong: the signature is right."}
	case !IsDecoded(d.event):
		return answer{result: unused, status: http.StatusAccepted, text: "Events of this name aren't used."}
	}
	if s.Leader != nil && !s.Leader.Leads() {
		return s.pass(d, body.Bytes())
	}
	this := sightingOf(d.connection, d.claimed)
	if s.seen.has(d.connection.Namespace, this, d.began) {
		return answer{result: duplicate, status: http.StatusAccepted, text: "This event was taken before."}
	}
	payload, err := payloadOf(d.Header.Get("Content-Type"), body.Bytes())
	if err != nil {
		return answer{result: unusable, status: http.StatusBadRequest, text: err.Error() + "."}
	}
	event, err := Parse(d.event, payload)
	if err != nil {
		return answer{result: unusable, status: http.StatusBadRequest, text: err.Error() + "."}
	}
	event.GUID, event.Connection, event.At = d.guid, d.connection, d.began
	if err := s.Tracker.Accept(d.Context(), event); err != nil {
		return answer{result: unready, status: http.StatusServiceUnavailable, text: "The leader can't take events yet.", retry: retryAfter}
	}
	s.seen.add(d.connection.Namespace, this, d.began)
	events.WithLabelValues(d.connection.Namespace, d.connection.Name, d.event).Inc()
	return answer{result: accepted, status: http.StatusAccepted, text: "taken"}
}

// Forget drops the metrics of a connection that is gone.
func Forget(connection types.NamespacedName) {
	events.DeletePartialMatch(map[string]string{"namespace": connection.Namespace, "connection": connection.Name})
}

// logRefusal says, once in a while for each way, what is refused: by that an administrator finds a wrong secret.
func (s *Server) logRefusal(d *delivery, a answer) {
	if s.quiet.speaks(a.result, d.began) {
		s.Log.Info("refused an event", "reason", string(a.result), "answer", cmp.Or(a.cause, a.text), "connection", d.connection.String(), "source", d.source.String())
	}
}
