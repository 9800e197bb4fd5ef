// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnAllowanceIsUsedUpAndComesBack(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	a := &allowances{full: map[string]time.Time{}}
	var got []time.Duration
	charge := func(namespace string, bytes int) { got = append(got, a.charge(namespace, bytes, now)) }
	charge("a", allowanceBurst)
	charge("a", allowanceRate) // the callers take turns
	charge("a", 2*allowanceRate)
	charge("b", allowanceBurst)
	now = now.Add(2 * time.Second)
	charge("a", 0)
	charge("b", 0)
	now = now.Add(time.Hour) // more than enough, and still not more than the burst
	charge("a", allowanceBurst)
	charge("a", allowanceRate)
	want := []time.Duration{0, time.Second, 3 * time.Second, 0, time.Second, 0, 0, time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// However many sessions a hostile server has in a namespace, and however soon it answers, the namespace gets no more than
// its allowance.
func TestSessionsWithoutEndGetOneAllowance(t *testing.T) {
	const sessions, message, minutes = 500, 120 << 10, 5
	a := &allowances{full: map[string]time.Time{}}
	begun := time.Unix(1_000_000, 0)
	next, bytes := make([]time.Time, sessions), 0
	for i := range next {
		next[i] = begun
	}
	for now := begun; now.Before(begun.Add(minutes * time.Minute)); now = now.Add(125 * time.Millisecond) { // 8 polls a second
		for i := range next {
			if !now.Before(next[i]) {
				bytes += message
				next[i] = now.Add(a.charge("greedy", message, now))
			}
		}
	}
	most := allowanceBurst + minutes*60*allowanceRate + sessions*message
	if bytes > most || bytes < most/2 {
		t.Errorf("%d MiB in %d minutes, want %d", bytes>>20, minutes, most>>20)
	}
}

// A burst of 2,000 jobs in a namespace with 1,000 pools never waits, even if each event has its own message.
func TestAnHonestBurstFitsIntoTheAllowance(t *testing.T) {
	const jobs, events, perMessage = 2000, 4, 1500 + 2<<10 + 128
	a, now := &allowances{full: map[string]time.Time{}}, time.Unix(1_000_000, 0)
	for i := range jobs * events {
		if wait := a.charge("honest", perMessage, now); wait > 0 {
			t.Fatalf("message %d waits for %s", i, wait)
		}
	}
}

// Namespaces that need no allowance any more are not remembered.
func TestAllowancesAreForgotten(t *testing.T) {
	a, now := &allowances{full: map[string]time.Time{}}, time.Unix(1_000_000, 0)
	for i := range 10_000 {
		a.charge(fmt.Sprint(i), allowanceRate, now)
		now = now.Add(10 * time.Millisecond)
	}
	if n := len(a.full); n > 300 {
		t.Errorf("%d namespaces are remembered", n)
	}
}
