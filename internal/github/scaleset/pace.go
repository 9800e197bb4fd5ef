// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// fullMessage is how many events GitHub puts into a message at most; more wait then.
const fullMessage = 50

// backlogMessages is how many full messages are read without a wait.
const backlogMessages = 100

// Pace is how long a Listener waits for what.
type Pace struct {
	// Hold is the longest GitHub holds a poll; 100 s if 0 (50 s is documented, 88 s was
	// measured). A poll without an answer has failed 20 s later.
	Hold time.Duration
	// Burst is how many polls may follow a message at once; 4 if 0. A pool with little to
	// do never waits; a busy one has several events in one message.
	Burst int
	// Refill is how long after one of them another may, in a pool with 8 jobs or more; 1 s
	// if 0. With fewer jobs it's that much shorter, as there is less to come that could
	// share a message. A new capacity is announced, and a backlog of 100 full messages is read, without waiting.
	Refill time.Duration
	// Backoff is the wait after errors; doubling from 1 s to 30 s, each of 75 to 100 % of that, if it is zero.
	Backoff wait.Backoff
	// Refused is the wait for a stale session of our own to expire; 7 s if 0.
	Refused time.Duration
	// Elsewhere is the wait while another owner has the session; 30 s if 0.
	Elsewhere time.Duration
	// Statistics is how often statistics are fetched while no session brings them; 7 s if 0.
	Statistics time.Duration
	// Verify is how often they are fetched although a session is open; 5 min if 0.
	Verify time.Duration
	// Full is how often they are while no more jobs are accepted, as GitHub sends no message of a job that waits; 30 s if 0.
	Full time.Duration
	// Patience is how long a session is kept over errors that pass: closing one and
	// failing to say so blocks the next for 60 to 92 s. 45 s if 0.
	Patience time.Duration
	// Gather is how long an acknowledgement is waited for before polling ahead; 100 ms if 0.
	Gather time.Duration
	// Blocked is the time between two polls while no more messages are taken in, because events can't be recorded; 10 s if 0.
	Blocked time.Duration
	// Linger is how long a poll is held before an acknowledgement interrupts it, which
	// costs another poll: more messages may come and be acknowledged with it. 2 s if 0.
	Linger time.Duration
	// Taken is how long a poll is held before it counts as one that works, after errors, and
	// how long a session lasts that counts as one after GitHub ended another; 10 s if 0.
	Taken time.Duration
	// Announcement is how long the first poll waits for a capacity; 2 s if 0.
	Announcement time.Duration
	// Close bounds the closing of the session; 5 s if 0.
	Close time.Duration
}

// arrival is how long a poll is given to reach GitHub before one with another capacity follows it.
const arrival = 250 * time.Millisecond

// pollMargin is the time for a poll's answer beyond GitHub's holding time.
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

// busyPool is the number of jobs in a pool from which on a poll costs a whole token.
const busyPool = 8

// cost is what a poll costs of a token that comes back after the given time, in a pool
// with so many jobs.
func cost(token time.Duration, jobs int) time.Duration {
	return token * time.Duration(min(busyPool, max(1, jobs))) / busyPool
}

// bucket has tokens: most of them at first and after a pause, then one each interval.
type bucket struct {
	most int
	each time.Duration
	full time.Time // when it is full again
}

// wait returns how long there will be no token; 0 or less when there is one.
func (b *bucket) wait(now time.Time) time.Duration {
	return max(0, b.full.Sub(now)) - time.Duration(b.most-1)*b.each
}

// spend takes a token out, or a part of one as long as that takes to come back; also one
// that isn't there yet.
func (b *bucket) spend(now time.Time, part time.Duration) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(part)
}
