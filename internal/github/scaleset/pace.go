// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// fullMessage is the maximum number of events in a message. If a message is full, more events usually wait behind it.
const fullMessage = 50

// backlogMessages is how many full messages are read without a wait.
const backlogMessages = 100

// Pace holds the timings of a Listener.
type Pace struct {
	// Hold is the longest time that GitHub holds a poll; 100 s if 0. (50 s is documented, 88 s was measured.) A poll
	// without an answer fails 20 s later.
	Hold time.Duration
	// Burst is how many polls may follow an answer without a wait; 4 if 0. So a quiet pool never waits, and a busy pool
	// gets several events in one message.
	Burst int
	// Refill is the time between two such polls in a pool with 8 jobs or more; 1 s if 0. With fewer jobs it is
	// proportionally shorter, because fewer events could share a message. Announcing a new capacity, and reading a
	// backlog of 100 full messages, never waits.
	Refill time.Duration
	// Backoff is the wait after errors. If zero, it doubles from 1 s to 30 s, and each wait is 75 to 100 % of that.
	Backoff wait.Backoff
	// Refused is the longest time between two attempts to open a session while an earlier session of this pool blocks
	// it; 7 s if 0. The shortest time is half of that.
	Refused time.Duration
	// Elsewhere is the same while another owner has the session; 30 s if 0.
	Elsewhere time.Duration
	// Statistics is how often statistics are fetched while no session delivers them; 7 s if 0.
	Statistics time.Duration
	// Verify is how often statistics are fetched while a session is open; 5 min if 0.
	Verify time.Duration
	// Full is how often statistics are fetched while the pool accepts no more jobs, because GitHub then sends no
	// message about waiting jobs; 30 s if 0.
	Full time.Duration
	// Patience is how long a session is kept open during temporary errors; 45 s if 0. Closing it could fail, and an
	// unclosed session blocks the next one for 60 to 92 s.
	Patience time.Duration
	// Gather is how long the next poll waits for the recorder while messages are not acknowledged; 100 ms if 0.
	Gather time.Duration
	// Blocked is the same while no more messages are accepted, because their events cannot be recorded; 10 s if 0.
	Blocked time.Duration
	// Linger is how long a poll is held before an acknowledgement interrupts it; 2 s if 0. An interruption costs
	// another poll, and until then more messages may arrive, which are then acknowledged together.
	Linger time.Duration
	// Taken is how long a poll must be held to count as a success after errors, and how long a session must last to
	// count as a success after GitHub ended another; 10 s if 0.
	Taken time.Duration
	// Announcement is how long the first poll waits for the first call of Announce; 2 s if 0.
	Announcement time.Duration
	// Close limits the time to close the session; 5 s if 0.
	Close time.Duration
}

// arrival is the minimum time between two polls with different capacities, so that the first one reaches GitHub before
// the second.
const arrival = 250 * time.Millisecond

// pollMargin is how long after GitHub's holding time an answer to a poll may arrive.
const pollMargin = 20 * time.Second

func (p Pace) withDefaults() Pace {
	for field, standard := range map[*time.Duration]time.Duration{
		&p.Hold: 100 * time.Second, &p.Refill: time.Second,
		&p.Refused: 7 * time.Second, &p.Elsewhere: 30 * time.Second, &p.Statistics: 7 * time.Second,
		&p.Verify: 5 * time.Minute, &p.Full: 30 * time.Second, &p.Patience: 45 * time.Second, &p.Gather: 100 * time.Millisecond, &p.Close: 5 * time.Second,
		&p.Blocked: 10 * time.Second, &p.Linger: 2 * time.Second, &p.Taken: 10 * time.Second, &p.Announcement: 2 * time.Second,
	} {
		if *field <= 0 {
			*field = standard
		}
	}
	if p.Burst <= 0 {
		p.Burst = 4
	}
	if p.Backoff.Duration <= 0 {
		p.Backoff = newBackoff(time.Second, 30*time.Second)
	}
	return p
}

// busyPool is the number of jobs at which a poll costs a whole token.
const busyPool = 8

// cost returns what a poll costs in a pool with the given number of jobs. The unit is the time in which a token is
// refilled: token is the cost of a whole token.
func cost(token time.Duration, jobs int) time.Duration {
	return token * time.Duration(min(busyPool, max(1, jobs))) / busyPool
}

// pauseAfter returns the additional time before the next poll after a message of a size. Decoding takes up to 0.1 s of CPU
// time per megabyte, and the server of a tenant can send any number of large messages. GitHub's messages are smaller.
func pauseAfter(bytes int) time.Duration {
	const (
		usual     = 64 << 10
		perSecond = 512 << 10
	)
	return time.Duration(max(0, bytes-usual)) * time.Second / perSecond
}

// The fixed costs of a new session, of an answer to a poll, and of an event, in bytes of the namespace's allowance (see
// github.Options.Charge). The size of an answer is added. Without these costs, a server could send any number of empty
// answers and short events. An event takes about 20 µs of CPU time, and an answer without a message about 0.3 ms with its
// request.
const (
	sessionCost = 8 << 10
	answerCost  = 2 << 10
	eventCost   = 128
)

// bucket is a token bucket. It starts with the number most of tokens, and gets another one after each interval of
// length each.
type bucket struct {
	most int
	each time.Duration
	full time.Time // when it is full again
}

// wait returns the time until there is a token; 0 or less if there is one.
func (b *bucket) wait(now time.Time) time.Duration {
	return max(0, b.full.Sub(now)) - time.Duration(b.most-1)*b.each
}

// spend takes a token, or a part of one. The balance may become negative.
func (b *bucket) spend(now time.Time, part time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(part)
}
