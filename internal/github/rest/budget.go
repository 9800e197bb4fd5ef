// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
)

const (
	// mostWait is the longest wait that Corral accepts from GitHub. The primary limit asks for an hour at most.
	mostWait = time.Hour
	// secondaryWait is the wait after a "secondary rate limit" answer without a time. GitHub's documentation asks for
	// "at least one minute", and for longer waits each time. The wait doubles each time, up to secondaryMost.
	secondaryWait, secondaryMost = time.Minute, 15 * time.Minute

	// GitHub allows 900 points a minute. A GET costs one point, any other method five. Half of the points can be spent
	// at once, and the other half is spread over the minute.
	pointsAtOnce    = 450
	pointsPerSecond = 7.5
	pointsToRead    = 1
	pointsToWrite   = 5
)

// reserve is the share of the primary limit and of the points that calls of a rank leave for more urgent calls.
// Listings and placeholders stop first. Calls that register or remove a runner can use everything that is left.
var reserve = map[turns.Rank]float64{turns.Changing: 0.02, turns.Looking: 0.05, turns.Listing: 0.2}

// budget tracks GitHub's limits for one identity.
type budget struct {
	now   func() time.Time
	paced bool   // GitHub counts points; Enterprise Server usually does not
	name  string // the label in metrics; empty for none

	mu sync.Mutex
	// hours holds the latest state of each primary limit, by GitHub's name for the limited resource. counted maps the
	// name of a kind of calls to the resource that the kind counts towards; for most kinds, this is core.
	hours    map[string]*hour
	counted  map[string]string
	underWay int // calls that GitHub has not answered yet; each may use one of the remaining calls
	// until is when GitHub may be called again after it asked to wait. struck is when a call that hit the secondary
	// limit was last counted, and limited is the number of consecutive such calls for which GitHub gave no time.
	until   time.Time
	limited int
	struck  time.Time
	points  float64
	filled  time.Time // when points were last added

	// silences holds the failures and pauses of kinds, by name; there are about twenty kinds. whole is the pause of all
	// calls. failing holds the kinds that have failed since GitHub last answered any call.
	silences map[string]*silence
	whole    silence
	failing  map[string]bool
}

// core is GitHub's name for the primary limit of most calls.
const core = "core"

// mostHours limits how many resources are kept. GitHub has about a dozen.
const mostHours = 32

// hour is the state of a primary limit.
type hour struct {
	limit, remaining int
	reset            time.Time
}

func newBudget(now func() time.Time, paced bool, name string) *budget {
	return &budget{
		now: now, paced: paced, name: name, points: pointsAtOnce, filled: now(),
		hours: map[string]*hour{}, counted: map[string]string{},
		silences: map[string]*silence{}, failing: map[string]bool{},
	}
}

// admit returns an error if a call is not allowed now.
func (b *budget) admit(k kind, doing string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal(k, doing)
}

// spend does what admit does, and accounts for a call that is about to be sent. It returns the start time for learn and
// end. The caller must call end.
func (b *budget) spend(k kind, doing string) (began time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refusal(k, doing); err != nil {
		return time.Time{}, err
	}
	b.points -= costOf(k)
	b.underWay++
	began = b.now()
	b.silences[k.name].send(began)
	if decides(k) {
		b.whole.send(began)
	}
	return began, nil
}

// end accounts for the end of a call. learn records its result.
func (b *budget) end(k kind, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	b.silences[k.name].over(began)
	b.whole.over(began)
}

func costOf(k kind) float64 {
	if !k.writes && (k.rank == turns.Looking || k.rank == turns.Listing) {
		return pointsToRead
	}
	return pointsToWrite
}

func (b *budget) refusal(k kind, doing string) error {
	now := b.now()
	if now.Before(b.until) {
		return github.NewError(github.KindRateLimited, doing, 0, b.until.Sub(now), "GitHub asked to wait", nil)
	}
	if left := max(b.silences[k.name].left(now), b.whole.left(now)); left > 0 {
		return github.NewError(github.KindUnavailable, doing, 0, left, "GitHub doesn't answer", nil)
	}
	if h := b.hourOf(k); h != nil && float64(h.remaining-b.underWay) <= reserve[k.rank]*float64(h.limit) {
		return github.NewError(github.KindRateLimited, doing, 0, min(mostWait, h.reset.Sub(now)), h.shortage(k.rank), nil)
	}
	if missing := b.missing(k); missing > 0 {
		return github.NewError(github.KindRateLimited, doing, 0, missing, "GitHub allows so many calls a minute, and they are used up", nil)
	}
	return nil
}

// hourOf returns the primary limit that a kind of calls counts towards, or nil while it is unknown.
func (b *budget) hourOf(k kind) *hour {
	resource := b.counted[k.name]
	if resource == "" {
		resource = core
	}
	if h := b.hours[resource]; h != nil && b.now().Before(h.reset) {
		return h
	}
	return nil
}

func (h *hour) shortage(r turns.Rank) string {
	if h.remaining <= 0 {
		return "GitHub's limit of calls an hour is used up"
	}
	if r == turns.Listing {
		return "GitHub's limit of calls an hour is near: listings and placeholders wait"
	}
	return "GitHub's limit of calls an hour is near: what is left is for runners to start and to end"
}

// pause returns how long a call has to wait for points.
func (b *budget) pause(k kind) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.missing(k)
}

// missing returns the time until there are enough points for a call; 0 if there are.
func (b *budget) missing(k kind) time.Duration {
	if !b.paced {
		return 0
	}
	now := b.now()
	b.points = min(pointsAtOnce, b.points+pointsPerSecond*max(0, now.Sub(b.filled).Seconds()))
	b.filled = now
	short := costOf(k) + reserve[k.rank]*pointsAtOnce - b.points
	if short <= 0 {
		return 0
	}
	return time.Duration(short / pointsPerSecond * float64(time.Second))
}

// note records the primary limit from an answer's headers. Answers can overtake each other, so within one hour the
// smallest number is the current one.
func (b *budget) note(k kind, h http.Header) {
	limit, err1 := strconv.Atoi(h.Get(gogithub.HeaderRateLimit))
	remaining, err2 := strconv.Atoi(h.Get(gogithub.HeaderRateRemaining))
	reset, err3 := strconv.ParseInt(h.Get(gogithub.HeaderRateReset), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || limit <= 0 {
		return
	}
	resource, at := cmp.Or(h.Get("X-Ratelimit-Resource"), core), time.Unix(reset, 0)
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.hours[resource]
	if known == nil {
		if len(b.hours) >= mostHours {
			return
		}
		known = &hour{}
		b.hours[resource] = known
	}
	b.counted[k.name] = resource
	// The end of the hour differs by about a second between GitHub's servers.
	if same := at.Sub(known.reset).Abs() < time.Minute; !same || remaining < known.remaining {
		known.remaining = remaining
	}
	known.limit, known.reset = limit, at
	if b.name != "" && resource == core {
		remainingCalls.WithLabelValues(b.name).Set(float64(known.remaining))
	}
}

// learn records the result of a call that began at the given time. Calls that were already in flight when another call
// hit the secondary limit do not count again. A call that hit the primary limit does not count either, because note has
// read its header.
func (b *budget) learn(k kind, err error, began time.Time) {
	after, away := github.ComeBack(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if github.IsUnavailable(err) {
		b.unanswered(k, after, began)
		return
	}
	b.answered(k)
	if !away {
		b.limited = 0
		return
	}
	h := b.hourOf(k)
	usedUp := h != nil && h.remaining <= 0
	if began.Before(b.struck) || usedUp {
		return
	}
	b.struck = b.now()
	if after <= 0 {
		after = min(secondaryMost, secondaryWait<<min(b.limited, 10))
		b.limited++
	}
	if until := b.now().Add(min(mostWait, after)); until.After(b.until) {
		b.until = until
	}
}

// unanswered pauses the calls of a kind, after several failures or when GitHub asks to wait. It pauses all calls when
// calls of several kinds fail in a row and the last failed call starts or removes runners.
func (b *budget) unanswered(k kind, after time.Duration, began time.Time) {
	s := b.silences[k.name]
	if s == nil {
		s = &silence{}
		b.silences[k.name] = s
	}
	s.fail(began, b.now(), silentCalls, after)
	b.failing[k.name] = true
	if decides(k) && len(b.failing) >= silentKinds {
		b.whole.fail(began, b.now(), 1, 0)
	}
}

// answered ends the pause of a kind. If all calls are paused, it ends every pause.
func (b *budget) answered(k kind) {
	if b.whole.isPaused() {
		clear(b.silences)
	}
	delete(b.silences, k.name)
	clear(b.failing)
	b.whole = silence{}
}

// decides reports whether a failed call of this kind can pause all calls. Only calls that start or remove runners can.
// Otherwise, failures of listings and lookups alone would stop them.
func decides(k kind) bool { return k.rank <= turns.Registering }
