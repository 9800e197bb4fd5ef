// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/corral-dev/corral/internal/github"
)

// Recorder stores job events durably. The Listener repeats the call with the same events until it returns nil, and only
// then deletes the message on GitHub. So events are delivered at least once.
type Recorder interface {
	RecordJobs(ctx context.Context, events []JobEvent) error
}

// Config of a Listener.
type Config struct {
	// Client calls GitHub.
	Client *Client
	// SetID is the scale set whose messages are read.
	SetID int64
	// Owner is the owner of the session, as CLUSTER/POOL_UID.
	Owner string
	// Recorder stores events durably before their message is acknowledged.
	Recorder Recorder
	// Changed is called after each change that a Snapshot shows, but never with a lock held. It must not block; nil for
	// none.
	Changed func()
	// OwnerGone reports whether an owner in this cluster is a deleted pool, whose session will expire; nil if no owner
	// is.
	OwnerGone func(owner string) bool
	// Earlier is the session that this pool had in a previous process.
	Earlier Earlier
	// Held reports whether this process may still use the session; nil for always. If it returns false, the Listener
	// neither polls nor closes the session, because another process may have resumed it.
	Held func() bool
	// Log gets one line per change of state; discarded if nil.
	Log *slog.Logger
	// Now is the clock for the times in a Snapshot; time.Now if nil.
	Now func() time.Time
	// Pace holds the timings; zero fields have defaults.
	Pace Pace
}

// Earlier is a session that may still be open on GitHub, because the process that had it ended without closing it.
type Earlier struct {
	// ID of the session; empty if there was none.
	ID string
	// Until is the time at which the session has certainly expired.
	Until time.Time
}

// SessionLife is how long Corral assumes that a session without polls stays open: 60 to 92 s were measured.
const SessionLife = 120 * time.Second

// SessionMemory is the approximate memory of a session that waits for messages, in bytes.
const SessionMemory = 100 << 10

// Listener keeps a message session of one scale set open, and opens another one whenever a session ends. It reads
// messages ahead, has their events recorded, and acknowledges the messages in order. It also fetches statistics, so
// that they are recent even while GitHub refuses it a session.
type Listener struct {
	config   Config
	log      *slog.Logger
	seen     *observation
	capacity atomic.Int64
	// announced has a token if the capacity has changed, or newer statistics were requested, since the poll began.
	announced chan struct{}

	// stale is true while newer statistics are requested.
	stale atomic.Bool

	// Used by Run's goroutine only:
	earlier   Earlier
	refused   string // the id of an earlier session that could not be resumed
	ended     bool   // GitHub ended a session, and no later one has lasted
	brokeOff  bool   // the last session failed after it was open, and no later one has worked
	backoff   wait.Backoff
	refreshed time.Time // when the statistics were last requested
	// warned is when a warning about a message was last logged.
	warned time.Time
}

// NewListener returns a Listener that does nothing until Run. It announces 0 if Announce is not called within
// Pace.Announcement.
func NewListener(config Config) *Listener {
	config.Pace = config.Pace.withDefaults()
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Changed == nil {
		config.Changed = func() {}
	}
	if config.Held == nil {
		config.Held = func() bool { return true }
	}
	if config.OwnerGone == nil {
		config.OwnerGone = func(string) bool { return false }
	}
	l := &Listener{
		config: config, log: config.Log.With("scaleSetID", config.SetID), seen: newObservation(config.Client.options.Keep),
		announced: make(chan struct{}, 1), backoff: config.Pace.Backoff, earlier: config.Earlier,
	}
	l.capacity.Store(-1) // not announced yet
	return l
}

// Announce sets the maximum number of assigned jobs, and interrupts a held poll so that the new number takes effect at
// once. An assigned job cannot be returned to GitHub.
func (l *Listener) Announce(capacity int) {
	if l.capacity.Swap(int64(max(0, capacity))) != int64(max(0, capacity)) {
		notify(l.announced)
	}
}

// Refresh requests newer statistics, and interrupts a held poll to get them.
func (l *Listener) Refresh() {
	if !l.stale.Swap(true) {
		notify(l.announced)
	}
}

// Snapshot returns the current state.
func (l *Listener) Snapshot() Snapshot { return l.seen.get() }

// Brief returns the Snapshot without the events of runners. It is for callers that hold a lock, because there may be
// many events.
func (l *Listener) Brief() Snapshot { return l.seen.brief() }

// Retain forgets the events of runners for which keep returns false. The caller must call it regularly, or memory grows
// with each runner. keep must not call the Listener.
func (l *Listener) Retain(keep func(runnerName string) bool) { l.seen.retain(keep) }

// Run holds sessions, one after another, until ctx ends. It then closes the session within Pace.Close and returns. It
// returns for no other reason, and may be called once only.
func (l *Listener) Run(ctx context.Context) {
	defer l.seen.end()
	for ctx.Err() == nil {
		opened, err := l.hold(ctx)
		if ctx.Err() != nil {
			return
		}
		l.pause(ctx, l.fail(err, opened))
	}
}

// unsure lists the statuses after which GitHub may or may not have executed a failed call.
var unsure = []int{http.StatusOK, http.StatusBadGateway, http.StatusGatewayTimeout}

// hold opens a session and listens until an error. It reports whether the session was opened.
func (l *Listener) hold(ctx context.Context) (opened bool, err error) {
	s, statistics, err := l.config.Client.OpenSession(ctx, l.config.SetID, l.config.Owner)
	if owner, conflict := github.IsSessionConflict(err); conflict && l.isOurs(owner) && l.earlier.ID != l.refused {
		s, statistics, err = l.resume(ctx, err)
	} else if err == nil {
		sessions.WithLabelValues("opened").Inc()
	}
	if err != nil {
		// The answer is missing, unreadable or a gateway's: the session may be open.
		if e := new(github.Error); errors.As(err, &e) && (e.Silent || slices.Contains(unsure, e.Status)) {
			l.earlier.Until = l.config.Now().Add(SessionLife)
		}
		return false, err
	}
	a := newSessionLoop(l, s)
	defer func() { l.earlier = a.end(ctx) }()
	l.opened(s, statistics)
	return true, a.listen(ctx)
}

// resume continues the session that this pool had in a previous process, because that session blocks a new one. If
// GitHub refuses, the Listener waits for the session to expire and does not try to resume it again. If the session
// belongs to another owner, the Listener forgets it.
func (l *Listener) resume(ctx context.Context, conflict error) (*Session, *Statistics, error) {
	s, statistics, err := l.config.Client.ResumeSession(ctx, l.config.SetID, l.config.Owner, l.earlier.ID)
	if err == nil {
		sessions.WithLabelValues("resumed").Inc()
		return s, statistics, nil
	}
	l.log.Warn("Earlier session wasn't resumed", "session", l.earlier.ID, "reason", err.Error())
	switch {
	case errors.Is(err, errOtherOwner):
		l.earlier = Earlier{}
	case !passes(err):
		l.refused = l.earlier.ID
	}
	return nil, nil, conflict
}

func (l *Listener) opened(s *Session, statistics *Statistics) {
	messages, _ := l.seen.progress()
	l.refreshed = time.Now()
	if statistics == nil { // an empty poll has no statistics either, so fetch them
		l.stale.Store(true)
	}
	another := l.seen.opened(s.ID())
	changed := l.seen.count(statistics, messages, l.config.Now())
	if (l.brokeOff || !l.enter(Listening, "", nil)) && (changed || another) {
		l.config.Changed()
	}
}

// enter sets the state, and logs and reports a change. It returns whether the state changed.
func (l *Listener) enter(state State, owner string, err error) bool {
	if !l.seen.setState(state, owner, err, l.config.Now()) {
		return false
	}
	attrs := []any{"state", string(state)}
	if err != nil {
		attrs = append(attrs, "reason", err.Error())
	}
	l.log.Info("Session state changed", attrs...) // the Ready condition of the RunnerScaleSet reports the problem
	l.config.Changed()
	return true
}

// fail handles the error that ended a session, or prevented it from opening. It sets the state, and returns the time
// until the next attempt. If GitHub ended a session, the state stays as it is: the result of the next attempt decides
// it.
func (l *Listener) fail(err error, opened bool) time.Duration {
	owner, conflict := github.IsSessionConflict(err)
	l.brokeOff = opened
	if !conflict {
		sessions.WithLabelValues("failed").Inc()
		if opened && !l.ended && github.KindOf(err) == github.KindUnexpected {
			l.ended = true
			l.log.Info("Session was ended by GitHub; opening another", "reason", err.Error())
		} else {
			l.enter(Failing, "", err)
		}
		return waitAfter(err, &l.backoff)
	}
	sessions.WithLabelValues("conflict").Inc()
	if l.isOurs(owner) {
		if owner == "" && l.earlier.ID != "" { // without an id, the only evidence is that no other owner was seen
			owner = l.config.Owner
		}
		l.enter(Refused, owner, fmt.Errorf("an earlier session of %s wasn't closed and expires within 92 s: %w", cmp.Or(owner, "ours"), err))
		return wait.Jitter(l.config.Pace.Refused/2, 1)
	}
	l.enter(OwnedElsewhere, owner, err)
	return wait.Jitter(l.config.Pace.Elsewhere/2, 1)
}

// isOurs reports whether a session's owner is this pool or a deleted pool of this cluster. If GitHub does not name the
// owner, isOurs assumes that it is this pool while the pool's earlier session may be open.
func (l *Listener) isOurs(owner string) bool {
	if owner == l.config.Owner || owner == "" && l.config.Now().Before(l.earlier.Until) {
		return true
	}
	ownPrefix, _, _ := strings.Cut(l.config.Owner, "/")
	prefix, _, named := strings.Cut(owner, "/")
	return named && ownPrefix == prefix && l.config.OwnerGone(owner)
}

// waitAfter returns the back-off, or GitHub's requested wait if that is longer.
func waitAfter(err error, b *wait.Backoff) time.Duration {
	next := b.Step()
	if e := new(github.Error); errors.As(err, &e) {
		next = max(next, min(e.RetryAfter, maxLimit))
	}
	return next
}

// pause waits, and updates the statistics in the meantime, unless the allowance of the namespace is used up.
func (l *Listener) pause(ctx context.Context, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		due := time.NewTimer(l.config.Pace.Statistics - time.Since(l.refreshed))
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case <-over.C:
			due.Stop()
			return
		case <-due.C:
			if l.config.Client.options.Charge(0, time.Now()) > 0 {
				l.refreshed = time.Now()
				continue
			}
			if err := l.refresh(ctx); github.IsNotFound(err) {
				l.enter(Failing, "", err)
			}
		}
	}
}

// refresh fetches the statistics, which needs no session.
func (l *Listener) refresh(ctx context.Context) error {
	messages, _ := l.seen.progress()
	asked := l.stale.Swap(false)
	set, err := l.config.Client.Get(ctx, l.config.SetID)
	l.refreshed = time.Now()
	if err != nil {
		return err
	}
	if set == nil || set.Statistics == nil {
		return nil // the caller would only ask again
	}
	if l.seen.count(set.Statistics, messages, l.config.Now()) || asked {
		l.config.Changed()
	}
	return nil
}

// newBackoff returns waits that double from least to most. Each wait is 75 to 100 % of its nominal time, so that pools
// do not call at the same time.
func newBackoff(least, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: least * 3 / 4, Cap: most * 3 / 4, Factor: 2, Jitter: 1.0 / 3, Steps: math.MaxInt32}
}

// notify adds the token unless it is already there.
func notify(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// drain removes the token if there is one.
func drain(tokens chan struct{}) {
	select {
	case <-tokens:
	default:
	}
}
