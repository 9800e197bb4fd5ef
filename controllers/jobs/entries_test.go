// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

// crowdOf adds a connection in a namespace, and a number of pools.
func (k *JobTracker) crowdOf(namespace string, pools int) *space {
	conn := connOf("acme", "acme")
	conn.Namespace = namespace
	k.setConnection(conn)
	for i := range pools {
		k.setPool(poolOf(fmt.Sprint("p-", i), func(p *v1alpha1.RunnerPool) { p.Namespace = namespace }))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.space(spaceKey{namespace, namespace})
}

// largest returns a job without a pool, with as many and as long labels as allowed.
func largest(namespace string, id int64) webhook.Delivery {
	d := job(id, "queued", "x")
	d.Connection.Namespace = namespace
	for i := range webhook.MaxLabels - 2 {
		d.Job.Labels = append(d.Job.Labels, fmt.Sprint(i, strings.Repeat("x", 250)))
	}
	return d
}

// Jobs without a pool use a limited amount of memory, in each namespace and in total. Jobs of normal size are still
// remembered.
func TestRememberedJobsTakeLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := crowd(t)
		var spaces []*space
		bytes := func(s *space) (n int64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, j := range s.unmatched {
				for _, label := range j.update.job.Labels {
					n += int64(len(label))
				}
				if j.update.news.Labels != nil {
					t.Fatal("the labels are kept twice")
				}
			}
			if n > s.remembered {
				t.Errorf("%d bytes are counted as %d", n, s.remembered)
			}
			return n
		}
		for n := range 10 {
			namespace := fmt.Sprint("greedy-", n)
			s := k.crowdOf(namespace, 1)
			spaces = append(spaces, s)
			for i := range int64(300) {
				k.take(t, largest(namespace, 10+i))
			}
			synctest.Wait()
			if got := bytes(s); got > unmatchedEach || got < unmatchedEach/2 {
				t.Fatalf("%s: %d bytes are remembered", namespace, got)
			}
			all := int64(0)
			for _, s := range spaces {
				all += bytes(s)
			}
			if all > UnmatchedMemory {
				t.Fatalf("%d bytes are remembered of %d namespaces", all, n+1)
			}
		}
		s := k.crowdOf("late", 1)
		for i := range int64(maxUnmatched) {
			d := job(10+i, "queued", "x")
			d.Connection.Namespace = "late"
			k.take(t, d)
		}
		if len(s.unmatched) != maxUnmatched {
			t.Errorf("%d of %d jobs are remembered", len(s.unmatched), maxUnmatched)
		}
		for i := range int64(maxUnmatched) { // they leave
			d := job(10+i, "completed", "x")
			d.Connection.Namespace = "late"
			k.take(t, d)
		}
		if len(s.unmatched) != 0 || s.remembered != 0 {
			t.Errorf("%d bytes of %d jobs are left", s.remembered, len(s.unmatched))
		}
	})
}

// However many pools a namespace has, the number of jobs in their ledgers is limited in total. Jobs without room are
// compared with GitHub's lists.
func TestLedgersOfANamespaceAreBoundedTogether(t *testing.T) {
	k := crowd(t)
	now := time.Now()
	enter := func(s *space, id int64, state reservation.State) bool {
		p := s.members[fmt.Sprint("p-", id%int64(len(s.members)))]
		return s.enterAt(p, reservation.Event{ID: id, State: state, Repository: "acme/web"}, now)
	}
	known := func(s *space) (n int) {
		for _, p := range s.members {
			n += p.ledger.Len()
		}
		return n
	}
	s := k.crowdOf(greedy, 50)
	for id := range int64(2 * maxEntries) {
		enter(s, id+1, reservation.Done)
	}
	if n := known(s); n > maxEntries {
		t.Fatalf("%d jobs that ended are known", n)
	}
	for id := range int64(2 * maxEntries) {
		enter(s, id+10*maxEntries, reservation.Queued)
	}
	refused := 0
	for _, p := range s.members {
		refused += p.ledger.Counts().Dropped
	}
	if n := known(s); n > maxEntries || n < maxEntries*7/8 || refused == 0 || len(s.suspects) != 1 {
		t.Fatalf("%d jobs are known, %d had no room, %d repositories are to be compared", n, refused, len(s.suspects))
	}
	if p := s.members["p-0"]; !s.enterAt(p, reservation.Event{ID: 10 * maxEntries, State: reservation.Done}, now) {
		t.Error("a job that is known does not end")
	}
	for n := range 4 {
		other := k.crowdOf(fmt.Sprint("greedy-", n), 5)
		for id := range int64(maxEntries) {
			enter(other, id+1, reservation.Queued)
		}
	}
	if n := k.entries.Load(); n < MaxAllEntries || n > MaxAllEntries+fewEntries {
		t.Errorf("%d jobs are known in all", n)
	}
	late := k.crowdOf("late", 1)
	for id := range int64(2 * fewEntries) {
		enter(late, id+1, reservation.Queued)
	}
	if n := known(late); n != fewEntries {
		t.Errorf("another namespace's pools know %d jobs", n)
	}
	for _, p := range s.members { // they are moved, and removed
		k.setPool(poolOf(p.key.Name, func(p *v1alpha1.RunnerPool) { p.Namespace = greedy }))
		k.removePool(p.key)
	}
	if before := k.entries.Load(); s.entries.counted != 0 || before > 4*maxEntries {
		t.Errorf("%d jobs of the namespace are counted, and %d in all", s.entries.counted, before)
	}
	if !enter(late, 3*fewEntries, reservation.Queued) {
		t.Error("there is no room again")
	}
}

// While all namespaces together have too many jobs, a namespace may have few. Its ended jobs then make room for its waiting
// jobs.
func TestEndedJobsMakeRoomUnderPressure(t *testing.T) {
	k, now := crowd(t), time.Now()
	s := k.crowdOf("late", 5)
	k.entries.Add(MaxAllEntries) // the jobs of other namespaces
	for id := range int64(fewEntries) {
		s.members[fmt.Sprint("p-", id%5)].ledger.Record(reservation.Event{ID: id + 1, State: reservation.Done, Repository: "acme/web"}, now)
	}
	if !s.enterAt(s.members["p-0"], reservation.Event{ID: 2 * fewEntries, State: reservation.Queued, Repository: "acme/web"}, now) {
		t.Error("a waiting job has no room among ended ones")
	}
}

// heap returns how many bytes the result of make takes, and keeps it alive while measuring.
func heap[T any](make func() T) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	made := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(made)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // it is little
}

func TestWhatIsCountedTakesNoMore(t *testing.T) {
	seen := heap(func() *connection {
		c := newConnection(keyOf("acme"), "uid", time.Now())
		for i := range 2 * maxSeen {
			c.seen.add(fmt.Sprint(i), time.Now())
		}
		return c
	})
	if seen > github.ConnectionMemory {
		t.Errorf("the deliveries of a connection take %d bytes", seen)
	}
	const jobs = 20_000
	ledger := heap(func() *reservation.Ledger {
		l := reservation.New(time.Now())
		for id := range int64(jobs) {
			l.Record(reservation.Event{ID: id + 1, State: reservation.Running, Repository: "acme/web", Runner: fmt.Sprint("linux-abcde-", id)}, time.Now())
		}
		return l
	})
	if each := ledger / jobs; each > EntrySize {
		t.Errorf("a job that a pool knows takes %d bytes", each)
	}
}
