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
	// away is how many calls in a row go without an answer before GitHub is left alone for a while.
	away = 3
	// awayMost bounds that while.
	awayMost = 30 * time.Second

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
	// until is when GitHub may be called again, and why it may not before.
	until time.Time
	why   string
	kind  github.Kind
	// silent counts calls without an answer, limited those that met the secondary limit, in a row.
	silent, limited int
	struck          time.Time // when one was last counted
	points          float64
	filled          time.Time // when points were added last
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
	return &budget{now: now, paced: paced, name: name, points: pointsAtOnce, filled: now(), hours: map[string]*hour{}, counted: map[string]string{}}
}

// admit says whether a call may be made now.
func (b *budget) admit(k kind, doing string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refusal(k, doing)
}

// spend is admit for a call that is about to be made; end has to follow.
func (b *budget) spend(k kind, doing string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refusal(k, doing); err != nil {
		return err
	}
	b.points -= costOf(k)
	b.underWay++
	return nil
}

// end is for a call that was made; how it ended is another matter.
func (b *budget) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
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
		return github.NewError(b.kind, doing, 0, b.until.Sub(now), b.why, nil)
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

// learn takes in how a call ended that began at a time. Those that were under way when one
// failed tell nothing new, nor does one that met the primary limit: its header did.
func (b *budget) learn(k kind, err error, began time.Time) {
	after, leave := github.ComeBack(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !leave {
		b.silent, b.limited = 0, 0
		return
	}
	usedUp := !github.IsUnavailable(err) && b.hourOf(k) != nil && b.hourOf(k).remaining <= 0
	if began.Before(b.struck) || usedUp {
		return
	}
	now := b.now()
	b.struck = now
	if github.IsUnavailable(err) {
		b.silent++
		if b.silent >= away {
			after = max(after, min(awayMost, time.Second<<min(b.silent-away, 10)))
		}
		b.hold(github.KindUnavailable, "GitHub doesn't answer", after)
		return
	}
	if after <= 0 {
		after = min(secondaryMost, secondaryWait<<min(b.limited, 10))
		b.limited++
	}
	b.hold(github.KindRateLimited, "GitHub asked to wait", after)
}

func (b *budget) hold(kind github.Kind, why string, after time.Duration) {
	if until := b.now().Add(min(mostWait, after)); after > 0 && until.After(b.until) {
		b.until, b.kind, b.why = until, kind, why
	}
}
