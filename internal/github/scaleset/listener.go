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

// Recorder makes job events durable. It is asked again, with the same events, until it
// returns nil; only then is the message deleted on GitHub. Events come at least once.
type Recorder interface {
	RecordJobs(ctx context.Context, events []JobEvent) error
}

// Config of a Listener.
type Config struct {
	// Client calls GitHub.
	Client *Client
	// SetID of the scale set whose messages are read.
	SetID int64
	// Owner of the session, as CLUSTER/POOL_UID.
	Owner string
	// Recorder makes events durable before their message is acknowledged.
	Recorder Recorder
	// Changed is called after each change that a Snapshot shows, never under a lock. It
	// must not block; nil for none.
	Changed func()
	// OwnerGone says whether an owner of this cluster is a pool that is no more, whose
	// session will expire; nil for never.
	OwnerGone func(owner string) bool
	// Earlier is the session that this pool held in another process.
	Earlier Earlier
	// Held says whether this process may still use the session; nil for always. It neither polls nor closes one that another process
	// may have gone on with.
	Held func() bool
	// Log gets a line per change of state; discarded if nil.
	Log *slog.Logger
	// Now is the clock that stamps what a Snapshot tells; time.Now if nil.
	Now func() time.Time
	// Pace is how long things take; zero fields have defaults.
	Pace Pace
}

// Earlier is a session that may still be open on GitHub: the process that held it ended without closing it.
type Earlier struct {
	// ID of the session; empty if there was none.
	ID string
	// Until is when it has expired for sure.
	Until time.Time
}

// SessionLife is how long a session that nobody polls is taken to be open: 60 to 92 s were measured.
const SessionLife = 120 * time.Second

// SessionMemory is about what a session takes while it waits for messages, in bytes.
const SessionMemory = 100 << 10

// Listener keeps a message session of one scale set open, whatever happens: it reads
// messages ahead, has their events made durable, acknowledges them in order, and
// knows the newest statistics, also while it is refused a session.
type Listener struct {
	config   Config
	log      *slog.Logger
	seen     *observation
	capacity atomic.Int64
	// announced has a token when capacity changed since the poll began.
	announced chan struct{}

	// stale is true when newer statistics are asked for.
	stale atomic.Bool

	// Of Run's goroutine:
	earlier   Earlier
	refused   string // the id of an earlier session that GitHub didn't resume
	ended     bool   // GitHub ended a session, and none has lasted since
	brokeOff  bool   // the last session failed once it was open, and none has worked since
	backoff   wait.Backoff
	refreshed time.Time // when statistics were last asked for
}

// NewListener returns a Listener that does nothing until Run. It announces 0 if no
// Announce comes within Pace.Announcement.
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

// Announce sets how many jobs may be assigned in total, and interrupts a held poll so
// that it takes effect at once. Announcing is accepting: a job can't be handed back.
func (l *Listener) Announce(capacity int) {
	if l.capacity.Swap(int64(max(0, capacity))) != int64(max(0, capacity)) {
		notify(l.announced)
	}
}

// Refresh asks for newer statistics than those known, and interrupts a held poll for it.
func (l *Listener) Refresh() {
	if !l.stale.Swap(true) {
		notify(l.announced)
	}
}

// Snapshot returns what is known now.
func (l *Listener) Snapshot() Snapshot { return l.seen.get() }

// Brief returns the Snapshot without the events of runners, of which there may be many: for callers that hold a lock.
func (l *Listener) Brief() Snapshot { return l.seen.brief() }

// Retain forgets the events of runners that keep doesn't want. It must be called now
// and then, or memory grows with each runner; keep must not call the Listener.
func (l *Listener) Retain(keep func(runnerName string) bool) { l.seen.retain(keep) }

// Run holds sessions, one after the other, until ctx ends; then it closes the session
// within Pace.Close and returns. No error ends it. It may be called once.
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

// unsure are statuses of answers that don't say whether GitHub did what it was asked.
var unsure = []int{http.StatusOK, http.StatusBadGateway, http.StatusGatewayTimeout}

// hold opens a session and listens until an error ends it, if it was opened.
func (l *Listener) hold(ctx context.Context) (opened bool, err error) {
	s, statistics, err := l.config.Client.OpenSession(ctx, l.config.SetID, l.config.Owner)
	if owner, conflict := github.IsSessionConflict(err); conflict && l.isOurs(owner) && l.earlier.ID != l.refused {
		s, statistics, err = l.resume(ctx, err)
	} else if err == nil {
		sessions.WithLabelValues("opened").Inc()
	}
	if err != nil {
		// The answer is missing, can't be read, or is a gateway's: the session may be open.
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

// resume goes on with the session that this pool held in another process, which keeps a new one from being opened. Refused, it isn't tried
// again: the session is waited for, unless GitHub says that it is another's.
func (l *Listener) resume(ctx context.Context, conflict error) (*Session, *Statistics, error) {
	s, statistics, err := l.config.Client.ResumeSession(ctx, l.config.SetID, l.config.Owner, l.earlier.ID)
	if err == nil {
		sessions.WithLabelValues("resumed").Inc()
		return s, statistics, nil
	}
	l.log.Warn("Earlier session wasn't resumed", "session", l.earlier.ID, "reason", err.Error())
	switch {
	case errors.Is(err, errAnothers):
		l.earlier = Earlier{}
	case !passes(err):
		l.refused = l.earlier.ID
	}
	return nil, nil, conflict
}

func (l *Listener) opened(s *Session, statistics *Statistics) {
	messages, _ := l.seen.progress()
	l.refreshed = time.Now()
	if statistics == nil { // they may be the only ones for long: an empty poll brings none
		l.stale.Store(true)
	}
	another := l.seen.opened(s.ID())
	changed := l.seen.count(statistics, messages, l.config.Now())
	if (l.brokeOff || !l.enter(Listening, "", nil)) && (changed || another) {
		l.config.Changed()
	}
}

// enter changes the state, and tells of it if it is another one.
func (l *Listener) enter(state State, owner string, err error) bool {
	if !l.seen.setState(state, owner, err, l.config.Now()) {
		return false
	}
	attrs := []any{"state", string(state)}
	if err != nil {
		attrs = append(attrs, "reason", err.Error())
	}
	l.log.Info("Session state changed", attrs...) // what is wrong, the ScaleSet's Ready warns of
	l.config.Changed()
	return true
}

// fail turns the error that ended a session, or kept it from opening, into a state
// and the time to the next attempt. That GitHub ended a session is no state: what comes of the next opening is.
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
		if owner == "" && l.earlier.ID != "" { // without an id all that is known is that nobody else was seen to open one
			owner = l.config.Owner
		}
		l.enter(Refused, owner, fmt.Errorf("an earlier session of %s wasn't closed and expires within 92 s: %w", cmp.Or(owner, "ours"), err))
		return wait.Jitter(l.config.Pace.Refused/2, 1)
	}
	l.enter(OwnedElsewhere, owner, err)
	return wait.Jitter(l.config.Pace.Elsewhere/2, 1)
}

// isOurs says whether the owner of a session is this pool, or one of this cluster that is no more. If GitHub doesn't name it, it's
// this pool as long as its earlier session may be open.
func (l *Listener) isOurs(owner string) bool {
	if owner == l.config.Owner || owner == "" && l.config.Now().Before(l.earlier.Until) {
		return true
	}
	ours, _, _ := strings.Cut(l.config.Owner, "/")
	theirs, _, named := strings.Cut(owner, "/")
	return named && ours == theirs && l.config.OwnerGone(owner)
}

// waitAfter is the back-off, or what GitHub asks for if that is longer.
func waitAfter(err error, b *wait.Backoff) time.Duration {
	next := b.Step()
	if e := new(github.Error); errors.As(err, &e) {
		next = max(next, min(e.RetryAfter, maxLimit))
	}
	return next
}

// pause waits, and keeps the statistics current meanwhile.
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
		return nil // who asked would only ask again
	}
	if l.seen.count(set.Statistics, messages, l.config.Now()) || asked {
		l.config.Changed()
	}
	return nil
}

// newBackoff returns waits that double from least to most. Each is 75 to 100 % of that, so that pools don't call in step.
func newBackoff(least, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: least * 3 / 4, Cap: most * 3 / 4, Factor: 2, Jitter: 1.0 / 3, Steps: math.MaxInt32}
}

// notify puts the one token in.
func notify(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// drain takes the token out, if there is one.
func drain(tokens chan struct{}) {
	select {
	case <-tokens:
	default:
	}
}
