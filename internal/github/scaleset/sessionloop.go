// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/share"
)

// maxAhead is the maximum number of messages that are read before the first of them is acknowledged.
const maxAhead = 16

// sessionLoop runs one session of a Listener. Its methods are for one goroutine; the recorder records events in another
// goroutine.
type sessionLoop struct {
	*Listener
	session        *Session
	began          time.Time // when it was opened
	cursor         int       // the last message seen; the queue keeps it until it is acknowledged
	polledCapacity int       // the capacity of the last poll
	asked          time.Time // when the last poll began
	ahead          int       // number of messages that were seen and not acknowledged
	isBlocked      bool      // the last message was left in the queue, because there was no room for it
	due            []int     // messages to acknowledge, oldest first
	follows        bool      // the next poll follows an answer, and takes a token
	tokens         bucket
	backlog        bucket // limits how often the next poll may skip the wait after a full message

	retry wait.Backoff // separate from the Listener's back-off for opening a session

	recorder *recorder
	stop     context.CancelFunc // stops the recorder
}

// recorder stores the events of messages durably, in its own goroutine and in the order of the messages.
type recorder struct {
	*Listener
	unrecorded chan delivery
	recorded   chan struct{} // has a token if popDone has messages
	stopped    chan struct{}

	mu   sync.Mutex
	done []int
}

// delivery is a message with events to record.
type delivery struct {
	id     int
	events []JobEvent
	hold   *share.Hold
}

func newSessionLoop(l *Listener, s *Session) *sessionLoop {
	return &sessionLoop{
		Listener: l, session: s, began: time.Now(), recorder: &recorder{Listener: l, unrecorded: make(chan delivery, maxAhead), recorded: make(chan struct{}, 1), stopped: make(chan struct{})},
		retry: l.config.Pace.Backoff,
		stop:  func() {}, tokens: bucket{most: l.config.Pace.Burst, each: l.config.Pace.Refill}, backlog: bucket{most: backlogMessages, each: l.config.Pace.Refill},
	}
}

// listen reads messages until the session is lost or ctx ends. During temporary errors, it keeps the session for
// Pace.Patience.
func (a *sessionLoop) listen(ctx context.Context) error {
	recording, stop := context.WithCancel(ctx)
	a.stop = stop
	go a.recorder.run(recording)

	a.awaitAnnouncement(ctx)
	var failing time.Time
	for ctx.Err() == nil {
		err := a.step(ctx)
		switch {
		case err == nil:
			failing = time.Time{}
			continue
		case ctx.Err() != nil:
			return nil
		case failing.IsZero():
			failing = time.Now()
		}
		if !passes(err) || time.Since(failing) > a.config.Pace.Patience {
			return err
		}
		a.enter(Failing, "", err)
		a.pause(ctx, waitAfter(err, &a.retry))
	}
	return nil
}

// awaitAnnouncement waits briefly for the first capacity. A poll without one would have to be interrupted at once.
func (a *sessionLoop) awaitAnnouncement(ctx context.Context) {
	if a.capacity.Load() >= 0 {
		return
	}
	timer := time.NewTimer(a.config.Pace.Announcement)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-a.announced:
	case <-timer.C:
	}
}

// passes reports whether the session may still be usable after the error.
func passes(err error) bool {
	_, limited := github.IsRateLimited(err)
	return limited || github.IsUnavailable(err)
}

// step acknowledges recorded messages, then polls once.
func (a *sessionLoop) step(ctx context.Context) error {
	if err := a.acknowledgeDue(ctx); err != nil {
		return err
	}
	if a.awaitRecorder(ctx) {
		return nil
	}
	if a.awaitAllowance(ctx) {
		return nil
	}
	if again, err := a.awaitToken(ctx); again || err != nil {
		return err
	}
	drain(a.announced)
	if !a.config.Held() {
		a.pause(ctx, time.Second) // another process may poll, and this one is about to end
		return nil
	}
	if err := a.verify(ctx); err != nil {
		return err
	}
	m, interrupted, err := a.poll(ctx)
	if interrupted && err != nil {
		return nil
	}
	if err != nil {
		return err
	}
	a.retry = a.config.Pace.Backoff
	a.works()
	a.follows = !a.readsOn(m)
	if m == nil {
		return nil
	}
	a.tokens.spend(time.Now(), m.pause)
	return a.handle(ctx, m)
}

// readsOn reports whether the next poll can skip the wait, because more messages probably follow a full one. The
// backlog limits the rate for a server that sends only full messages.
func (a *sessionLoop) readsOn(m *message) bool {
	now := time.Now()
	if m == nil || m.size < fullMessage || m.pause > 0 || m.id <= a.cursor || a.backlog.wait(now) > 0 {
		return false
	}
	a.backlog.spend(now, a.backlog.each)
	return true
}

// works records that GitHub has answered a poll of the session, or holds it. After GitHub has ended a session, the next
// one counts as working only after Pace.Taken.
func (a *sessionLoop) works() {
	if a.ended && time.Since(a.began) < a.config.Pace.Taken {
		return
	}
	a.ended, a.brokeOff, a.backoff = false, false, a.config.Pace.Backoff
	a.enter(Listening, "", nil)
}

// awaitToken limits the rate of polls in a busy session, so that several events share a message. It returns true if the
// caller has to begin its step again instead of polling.
func (a *sessionLoop) awaitToken(ctx context.Context) (again bool, err error) {
	if !a.follows {
		return false, nil
	}
	if left := a.tokens.wait(time.Now()); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return true, nil
		case <-a.recorder.recorded:
			notify(a.recorder.recorded)
			return true, nil
		case <-a.announced:
			if a.announces() == a.polledCapacity { // a caller has asked for statistics
				return true, a.check(ctx)
			}
			a.follows = false
			return false, nil
		case <-timer.C:
		}
	}
	a.tokens.spend(time.Now(), cost(a.tokens.each, a.seen.jobs()))
	a.follows = false
	return false, nil
}

// awaitAllowance waits while the sessions of the namespace have received too many or too large answers. Even a new capacity
// does not end the wait, because a hostile server can cause new capacities by its statistics. It returns true if the caller
// has to begin its step again instead of polling.
func (a *sessionLoop) awaitAllowance(ctx context.Context) (again bool) {
	left := time.Until(a.session.rest)
	if left <= 0 {
		return false
	}
	a.warnRarely("The servers of this namespace's connections send too much; the next poll waits", "seconds", int(left.Seconds()))
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-a.recorder.recorded:
		notify(a.recorder.recorded)
		return true
	case <-timer.C:
		return false
	}
}

// announces returns the capacity to announce; 0 before the first call of Announce.
func (a *sessionLoop) announces() int { return max(0, int(a.capacity.Load())) }

// poll requests the next message. A new capacity and, after Pace.Linger, a pending acknowledgement interrupt the poll,
// because the session handles one request at a time. No message is lost, because the cursor only moves after a message
// has arrived.
func (a *sessionLoop) poll(ctx context.Context) (m *message, interrupted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	capacity := a.announces()
	a.letArrive(ctx, capacity)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		interrupted = a.isWanted(ctx)
		cancel()
	}()
	m, err = a.session.poll(ctx, a.config.Pace.Hold+pollMargin, a.cursor, capacity, a.config.Now)
	cancel()
	<-watched
	return m, interrupted, err
}

// isWanted waits for a reason to interrupt a poll. It returns false if ctx ends first.
func (a *sessionLoop) isWanted(ctx context.Context) bool {
	linger, taken := time.NewTimer(a.config.Pace.Linger), time.NewTimer(a.config.Pace.Taken)
	defer linger.Stop()
	defer taken.Stop()
	var recorded <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-linger.C:
			recorded = a.recorder.recorded
		case <-taken.C: // GitHub holds the poll, which proves that earlier trouble is over
			a.config.Client.holds()
			a.works()
		case <-recorded:
			return true
		case <-a.announced:
			return true
		}
	}
}

// letArrive waits until an interrupted poll with another capacity has surely reached GitHub. The two polls travel on
// different connections. If the older poll arrived last, GitHub would use its capacity for as long as it holds the
// newer poll.
func (a *sessionLoop) letArrive(ctx context.Context, capacity int) {
	if left := arrival - time.Since(a.asked); capacity != a.polledCapacity && left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	a.polledCapacity, a.asked = capacity, time.Now()
}

// handle processes a message. It acquires offered jobs first. If that fails temporarily, the cursor stays, so that the
// message arrives again.
func (a *sessionLoop) handle(ctx context.Context, m *message) error {
	messages.Inc()
	a.noteUnknown(m)
	if len(m.available) > 0 {
		if err := a.session.acquire(ctx, m.available); err != nil && (passes(err) || github.IsUnauthorized(err)) {
			return err
		} else if err != nil {
			a.warnRarely("Offered jobs weren't acquired", "messageID", m.id, "reason", err.Error())
		}
	}
	d, hasRoom := a.retain(m)
	isFull := a.ahead >= maxAhead || !hasRoom // then the message stays in the queue and arrives again
	a.isBlocked = isFull
	if !isFull {
		a.cursor = max(a.cursor, m.id)
	}
	suspect := isSuspect(m)
	if suspect {
		m.statistics = nil // the check below fetches them
	}
	if a.seen.add(m, a.config.Now()) {
		a.config.Changed()
	}
	if isFull {
		d.leave()
	} else {
		a.deliver(d)
	}
	if suspect {
		return a.check(ctx)
	}
	return nil
}

// noteUnknown counts and logs the unknown parts of a message.
func (a *sessionLoop) noteUnknown(m *message) {
	for _, u := range m.unknown {
		unknowns.WithLabelValues(u.part).Inc()
		a.warnRarely("Message not understood", "messageID", m.id, "part", u.part, "type", u.name)
	}
}

// warnRarely logs at most one warning about messages per minute, because a server can send several messages a second with
// hundreds of invalid parts.
func (a *sessionLoop) warnRarely(text string, about ...any) {
	if time.Since(a.warned) >= time.Minute {
		a.warned = time.Now()
		a.log.Warn(text, about...)
	}
}

// retain returns the events to record, with memory reserved for them. It returns false if too much data of the
// namespace is waiting to be recorded.
func (a *sessionLoop) retain(m *message) (d delivery, ok bool) {
	d = delivery{id: m.id, events: durable(m.events)}
	size := int64(0)
	for _, event := range d.events {
		size += event.size()
	}
	if size == 0 {
		return d, true
	}
	d.hold, ok = a.config.Client.options.Retain(size)
	return d, ok
}

func (d delivery) leave() {
	if d.hold != nil {
		d.hold.Leave()
	}
}

// deliver passes a message to the recorder, or queues its acknowledgement if there is nothing to record and no earlier
// message is pending.
func (a *sessionLoop) deliver(d delivery) {
	a.ahead++
	if len(d.events) == 0 && a.ahead == 1 {
		a.due = append(a.due, d.id)
		return
	}
	a.recorder.unrecorded <- d // never blocks, because awaitRecorder ensures that there is room
}

// isSuspect reports whether a message contains assigned jobs while its statistics count none, as seen in issues 3204
// and 3420 of actions-runner-controller.
func isSuspect(m *message) bool {
	if m.statistics != nil && m.statistics.AssignedJobs > 0 {
		return false
	}
	assigned := 0
	for _, event := range m.events {
		switch event.Type {
		case JobAssigned:
			assigned++
		case JobCompleted:
			assigned--
		}
	}
	return assigned > 0
}

// verify fetches the statistics if they were requested or are too old, because an empty poll has no statistics.
func (a *sessionLoop) verify(ctx context.Context) error {
	_, counted := a.seen.progress()
	if a.stale.Load() || counted.IsZero() && time.Since(a.refreshed) >= a.config.Pace.Statistics {
		return a.check(ctx)
	}
	often := a.config.Pace.Verify
	if a.seen.jobs() >= a.announces() {
		often = min(often, a.config.Pace.Full)
	}
	if age := a.config.Now().Sub(counted); age < often || time.Since(a.refreshed) < often {
		return nil
	}
	return a.check(ctx)
}

// check fetches the statistics. It returns an error only if the scale set does not exist.
func (a *sessionLoop) check(ctx context.Context) error {
	if err := a.refresh(ctx); github.IsNotFound(err) {
		return err
	}
	return nil
}

// acknowledgeDue deletes, in order, the messages whose events are durable.
func (a *sessionLoop) acknowledgeDue(ctx context.Context) error {
	drain(a.recorder.recorded)
	a.due = append(a.due, a.recorder.popDone()...)
	for len(a.due) > 0 {
		if err := a.session.acknowledge(ctx, a.due[0]); err != nil {
			return err
		}
		a.due = a.due[1:]
		a.ahead--
		a.isBlocked = false // there is room again
	}
	return nil
}

// awaitRecorder waits briefly for the recorder before the next poll, or longer if too many messages are pending. Even
// then, the session must be polled: GitHub ends a session without polls, and only a poll shows that the session has
// ended. It returns true if there may be something to acknowledge.
func (a *sessionLoop) awaitRecorder(ctx context.Context) bool {
	if a.ahead == 0 && !a.isBlocked {
		return false
	}
	patience := a.config.Pace.Gather
	if a.ahead >= maxAhead || a.isBlocked {
		patience = a.config.Pace.Blocked
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-a.recorder.recorded:
		return true
	case <-timer.C:
		return false
	}
}

// run records events, message by message, until ctx ends.
func (r *recorder) run(ctx context.Context) {
	defer close(r.stopped)
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-r.unrecorded:
			recorded := r.record(ctx, d)
			d.leave()
			if !recorded {
				return
			}
			r.mu.Lock()
			r.done = append(r.done, d.id)
			r.mu.Unlock()
			notify(r.recorded)
		}
	}
}

func (r *recorder) record(ctx context.Context, d delivery) bool {
	pause := r.config.Pace.Backoff
	for len(d.events) > 0 {
		err := r.config.Recorder.RecordJobs(ctx, d.events)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return false
		}
		r.log.Warn("Job events weren't recorded; trying again", "messageID", d.id, "reason", err.Error())
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause.Step()):
		}
	}
	return true
}

func (r *recorder) popDone() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := r.done
	r.done = nil
	return done
}

// end stops the recorder and closes the session, in limited time. If ctx has ended, it first acknowledges recorded
// messages, because the next session would otherwise receive them again. It returns the session if it may still be
// open.
func (a *sessionLoop) end(ctx context.Context) (open Earlier) {
	a.stop()
	<-a.recorder.stopped
	close(a.recorder.unrecorded)
	for d := range a.recorder.unrecorded {
		d.leave()
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.Pace.Close)
	defer cancel()
	if !a.config.Held() {
		a.log.Info("Session isn't closed: another process may have resumed it")
		return Earlier{}
	}
	if ctx.Err() != nil {
		if err := a.acknowledgeDue(closing); err != nil {
			a.log.Debug("Messages weren't acknowledged on the way out", "reason", err.Error())
		}
	}
	err := a.leave(closing)
	if err != nil && !github.IsNotFound(err) && github.KindOf(err) != github.KindUnexpected { // the session may still be open
		a.log.Warn("Session wasn't closed; it expires by itself within 92 s", "reason", err.Error())
		open = Earlier{ID: a.session.ID(), Until: a.config.Now().Add(SessionLife)}
	}
	return open
}

// leave closes the session. It retries after temporary errors until ctx ends, because an open session blocks the next
// one.
func (a *sessionLoop) leave(ctx context.Context) error {
	pause := a.config.Pace.Backoff
	for again := false; ; again = true {
		err := a.session.Close(ctx)
		switch {
		case err == nil, again && github.KindOf(err) == github.KindUnexpected: // gone: an earlier answer was lost
			return nil
		case !passes(err):
			return err
		}
		timer := time.NewTimer(waitAfter(err, &pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}
