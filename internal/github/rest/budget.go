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
	// mostWait bounds how long GitHub's word to wait is taken for; the primary limit's hour is the longest.
	mostWait = time.Hour
	// secondaryWait is waited for when GitHub says "secondary rate limit" without a time: "at least
	// one minute", and longer each time, says its page on rate limits.
	secondaryWait, secondaryMost = time.Minute, 15 * time.Minute

	// GitHub allows 900 points a minute, of which a GET costs one and everything else five. All that
	// may come at once and all that may come in a minute after it are half of them each.
	pointsAtOnce    = 450
	pointsPerSecond = 7.5
	pointsToRead    = 1
	pointsToWrite   = 5
)

// reserve is the part of the primary limit, and of the points, that calls of a rank leave to those
// before them: listings stop first, and what frees or starts a runner never does.
var reserve = map[turns.Rank]float64{turns.Changing: 0.02, turns.Looking: 0.05, turns.Listing: 0.2}

// budget is what GitHub lets one identity do.
type budget struct {
	now   func() time.Time
	paced bool   // GitHub counts points; its Enterprise Server doesn't, as a rule
	name  string // in metrics; none if empty

	mu sync.Mutex
	// hours are the primary limits by GitHub's name for what they are of, as it told them last: core
	// for most calls. counted says by which a kind of calls is counted.
	hours    map[string]*hour
	counted  map[string]string
	underWay int // calls whose answers tell of it yet; those without a change cost none
	// until is when GitHub may be called again after it asked to wait. limited counts the calls in a row
	// that met the secondary limit, and struck is when one was last counted.
	until   time.Time
	limited int
	struck  time.Time
	points  float64
	filled  time.Time // when points were added last

	// silences are by the name of a kind, of which there are about twenty. whole is the silence that
	// pauses all calls. failing holds the kinds that failed since GitHub last answered any call.
	silences map[string]*silence
	whole    silence
	failing  map[string]bool
}

// core is GitHub's name for the primary limit of most calls.
const core = "core"

// mostHours bounds how many limits are kept; GitHub has about a dozen.
const mostHours = 32

// hour is a primary limit.
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

// admit says whether a call may be made now.
func (b *budget) admit(k kind, doing string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal(k, doing)
}

// spend is admit for a call that is about to be made. It returns when the call began, which learn and
// end need; end has to follow.
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

// end is for a call that was made; learn takes in how it ended.
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

// hourOf is the primary limit that a kind of calls is counted by; nil while it isn't known.
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
		return "GitHub's limit of calls an hour is near: listings wait"
	}
	return "GitHub's limit of calls an hour is near: what is left is for runners to start and to end"
}

// pause is how long a call has to wait for points; 0 for not at all.
func (b *budget) pause(k kind) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.missing(k)
}

// missing is how long it takes until there are points for a call; 0 when there are.
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

// note takes in what an answer's header tells of the primary limit. Answers overtake each other:
// within one hour the smallest number holds.
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
	// GitHub's servers differ by a second or so in when the hour ends.
	if same := at.Sub(known.reset).Abs() < time.Minute; !same || remaining < known.remaining {
		known.remaining = remaining
	}
	known.limit, known.reset = limit, at
	if b.name != "" && resource == core {
		remainingCalls.WithLabelValues(b.name).Set(float64(known.remaining))
	}
}

// learn takes in how a call ended that began at a time. Calls that were under way when another one met
// the secondary limit add nothing. Nor does one that met the primary limit: note has read its header.
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

// unanswered pauses the calls of a kind, after several failures or when GitHub asks for it. It pauses all
// calls when several kinds fail in a row and the last of them starts or removes runners.
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

// answered ends the pause of a kind. If all calls were paused, it ends every pause.
func (b *budget) answered(k kind) {
	if b.whole.isPaused() {
		clear(b.silences)
	}
	delete(b.silences, k.name)
	clear(b.failing)
	b.whole = silence{}
}

// decides reports whether a failure of such a call can pause all others. Only calls that start or remove
// runners can, so that these never wait because of lists and lookups alone.
func decides(k kind) bool { return k.rank <= turns.Registering }
