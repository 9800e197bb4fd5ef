// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package reservation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// running returns a ledger whose clock is not paused.
func running() *Ledger {
	l := New(start)
	l.Pause(false, start)
	return l
}

func live(l *Ledger) map[int64]State {
	all := map[int64]State{}
	l.All(func(id int64, s State) bool {
		if s.live() {
			all[id] = s
		}
		return true
	})
	return all
}

// life is the actual history of a job.
type life struct {
	id   int64
	repo string
	past []State
}

func (j *life) now() State { return j.past[len(j.past)-1] }

func lives(r *rand.Rand, n int) []life {
	paths := [][]State{{Queued}, {Waiting}, {Waiting, Queued}, {Queued, Running}, {Queued, Elsewhere}, {Queued, Running, Done}, {Queued, Elsewhere, Done}, {Queued, Done}, {Waiting, Queued, Running}}
	all := make([]life, n)
	for i := range all {
		all[i] = life{id: 50_000_000_000 + int64(i)*7919, repo: fmt.Sprintf("acme/repo-%d", r.IntN(12)), past: paths[r.IntN(len(paths))]}
	}
	return all
}

func (j *life) event(s State) Event {
	e := Event{ID: j.id, State: s, Repository: j.repo}
	if s == Running {
		e.Runner = fmt.Sprintf("pool-abcde-%d", j.id)
	}
	return e
}

// truth returns GitHub's lists of each repository.
func truth(all []life, began time.Time) []Truth {
	by := map[string][]Event{}
	for i := range all {
		list := by[all[i].repo] // of all repositories, including those without unfinished jobs
		if s := all[i].now(); s.live() || s == Elsewhere {
			list = append(list, all[i].event(s))
		}
		by[all[i].repo] = list
	}
	var looks []Truth
	for repo, jobs := range by {
		looks = append(looks, Truth{Repository: strings.ToUpper(repo), Began: began, Jobs: jobs})
	}
	return looks
}

// Deliveries of a thousand jobs in any order, with duplicates, losses and restarts, lead to exactly the true state
// after one comparison with GitHub, and a known waiting job is never missed in between.
func TestAnyDeliveriesEndInTheTrueState(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		all := lives(r, 1000)
		var deliveries []Event
		byID := map[int64]*life{}
		for i := range all {
			byID[all[i].id] = &all[i]
			for _, s := range all[i].past {
				for range r.IntN(4) { // 0 is a loss, more than 1 a duplicate
					deliveries = append(deliveries, all[i].event(s))
				}
			}
			if all[i].now() == Waiting && r.IntN(2) == 0 { // GitHub also reports some as queued
				deliveries = append(deliveries, all[i].event(Queued))
			}
		}
		r.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })

		now, l, waiting := start, running(), map[int64]bool{}
		for _, e := range deliveries {
			now = now.Add(time.Duration(r.IntN(400)) * time.Millisecond)
			l.Record(e, now)
			if e.State == Queued && byID[e.ID].now() == Queued {
				waiting[e.ID] = true
			}
			if got := l.Counts().Jobs(); got < len(waiting) {
				t.Fatalf("seed %d: %d jobs count, and %d are known to wait", seed, got, len(waiting))
			}
			if r.IntN(500) == 0 {
				l = again(t, l, now)
			}
		}
		now = now.Add(2 * Settle)
		for _, look := range truth(all, now) {
			l.Reconcile(look, now.Add(time.Second))
		}
		want := map[int64]State{}
		for i := range all {
			if s := all[i].now(); s.live() {
				want[all[i].id] = s
			}
		}
		if diff := cmp.Diff(want, live(l)); diff != "" {
			t.Fatalf("seed %d: reservations (-true +kept):\n%s", seed, diff)
		}
	}
}

// again returns a ledger after a restart: in half of the cases, events arrived before it was read.
func again(t *testing.T, l *Ledger, now time.Time) *Ledger {
	t.Helper()
	read, err := Decode(l.Encode(), now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l.Counts(), read.Counts()); diff != "" {
		t.Fatalf("counts after a restart (-before +after):\n%s", diff)
	}
	fresh := New(now)
	fresh.Merge(read)
	fresh.Pause(false, now)
	return fresh
}

func TestEventsOnlyGoForward(t *testing.T) {
	cases := map[string]struct {
		events []State
		want   Counts
	}{
		"queued counts":                            {[]State{Queued}, Counts{Queued: 1}},
		"twice is once":                            {[]State{Queued, Queued}, Counts{Queued: 1}},
		"waiting asks for no runner":               {[]State{Waiting}, Counts{Waiting: 1}},
		"until it is queued":                       {[]State{Waiting, Queued}, Counts{Queued: 1}},
		"whatever comes first":                     {[]State{Queued, Waiting}, Counts{Queued: 1}},
		"a runner of the pool keeps it":            {[]State{Queued, Running}, Counts{Running: 1}},
		"another's frees the place":                {[]State{Queued, Elsewhere}, Counts{Ended: 1}},
		"it is our runner, by a later look":        {[]State{Queued, Elsewhere, Running}, Counts{Running: 1}},
		"completed before queued":                  {[]State{Done, Queued, Running}, Counts{Ended: 1}},
		"completed frees the place":                {[]State{Queued, Running, Done}, Counts{Ended: 1}},
		"what is no state is no news":              {[]State{0, 9}, Counts{}},
		"in progress, and the first word is late":  {[]State{Running, Queued}, Counts{Running: 1}},
		"elsewhere, and the first word comes late": {[]State{Elsewhere, Queued}, Counts{Ended: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := running()
			for _, s := range tc.events {
				l.Record(Event{ID: 1, State: s, Repository: "acme/web", Runner: "r"}, start)
			}
			if diff := cmp.Diff(tc.want, l.Counts()); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobsAskForRunners(t *testing.T) {
	if got := (Counts{Queued: 1, Running: 10, Waiting: 100, Ended: 1000, Dropped: 10_000}).Jobs(); got != 11 {
		t.Errorf("they ask for %d, want 11: those that wait for one, and those that have one", got)
	}
}

func TestWaitingJobsExpire(t *testing.T) {
	l := running()
	l.Record(Event{ID: 1, State: Queued}, start)
	l.Record(Event{ID: 2, State: Running, Runner: "a"}, start)
	l.Record(Event{ID: 3, State: Waiting}, start.Add(30*time.Minute))
	if n := l.Expire(time.Hour, start.Add(59*time.Minute)); n != 0 {
		t.Fatalf("%d expired early", n)
	}
	l.Record(Event{ID: 1, State: Queued}, start.Add(50*time.Minute)) // a repeated event is no news
	if n := l.Expire(time.Hour, start.Add(time.Hour)); n != 1 {
		t.Errorf("%d expired after an hour, want 1", n)
	}
	if diff := cmp.Diff(Counts{Running: 1, Waiting: 1}, l.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	l.Record(Event{ID: 1, State: Queued}, start.Add(61*time.Minute)) // it is now
	if l.Has(1) != Queued {
		t.Error("a job that expired doesn't count again")
	}
}

// A waiting job does not expire while the pool has its maximum number of runners.
func TestTheClockStandsStillAtMax(t *testing.T) {
	l := running()
	l.Record(Event{ID: 1, State: Queued}, start)
	l.Pause(true, start.Add(10*time.Minute))
	if n := l.Expire(time.Hour, start.Add(24*time.Hour)); n != 0 {
		t.Fatal("it expired while the pool was at its max")
	}
	l = again(t, l, start.Add(30*time.Hour)) // nor while no controller ran
	if n := l.Expire(time.Hour, start.Add(30*time.Hour+49*time.Minute)); n != 0 {
		t.Fatal("it expired before an hour had gone")
	}
	if n := l.Expire(time.Hour, start.Add(30*time.Hour+51*time.Minute)); n != 1 {
		t.Fatal("it never expired")
	}
}

// Jobs of two ledgers keep the time for which they have waited, even if the ledgers are merged more than once.
func TestPutTogetherJobsKeepTheirAge(t *testing.T) {
	early, late := running(), running()
	early.Record(Event{ID: 1, State: Queued}, start)
	late.Record(Event{ID: 2, State: Queued}, start.Add(30*time.Minute))
	early.Expire(time.Hour, start.Add(40*time.Minute)) // both clocks have run for 40 minutes
	late.Expire(time.Hour, start.Add(40*time.Minute))
	late.Merge(early)
	late.Merge(early)
	late.Merge(late)
	late.Expire(time.Hour, start.Add(59*time.Minute))
	if diff := cmp.Diff(map[int64]State{1: Queued, 2: Queued}, live(late)); diff != "" {
		t.Errorf("after 59 minutes (-want +got):\n%s", diff)
	}
	late.Expire(time.Hour, start.Add(61*time.Minute))
	if diff := cmp.Diff(map[int64]State{2: Queued}, live(late)); diff != "" {
		t.Errorf("after 61 minutes (-want +got):\n%s", diff)
	}
}

func TestALookRenewsWhatWaits(t *testing.T) {
	l := running()
	for id := int64(1); id <= 3; id++ {
		l.Record(Event{ID: id, State: Queued, Repository: "acme/web"}, start)
	}
	l.Record(Event{ID: 4, State: Queued, Repository: "acme/api"}, start)
	at := start.Add(50 * time.Minute)
	l.Record(Event{ID: 5, State: Queued, Repository: "acme/web"}, at)
	l.Reconcile(Truth{Repository: "acme/web", Began: at, Jobs: []Event{{ID: 1, State: Queued}, {ID: 2, State: Running, Runner: "a"}, {ID: 6, State: Queued}}}, at)
	want := map[int64]State{1: Queued, 2: Running, 4: Queued, 5: Queued, 6: Queued} // 3 ended; 5 is too new for the list
	if diff := cmp.Diff(want, live(l)); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	if n := l.Expire(time.Hour, start.Add(time.Hour)); n != 1 || l.Has(4) != 0 {
		t.Errorf("%d expired, want the one that no look told of", n)
	}
	l.Reconcile(Truth{Repository: "acme/web", Began: at.Add(time.Hour), Partial: true}, at.Add(time.Hour))
	if got := l.Counts().Queued; got != 3 {
		t.Errorf("%d jobs wait after a list that was not complete, want 3", got)
	}
}

func TestAJobThatLostItsRunnerIsFree(t *testing.T) {
	l := running()
	l.Record(Event{ID: 1, State: Running, Runner: "a"}, start)
	l.Record(Event{ID: 2, State: Running, Runner: "b"}, start)
	if !l.Retain(func(runner string) bool { return runner == "b" }, start) {
		t.Error("nothing changed")
	}
	if diff := cmp.Diff(map[int64]State{2: Running}, live(l)); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	if l.Record(Event{ID: 1, State: Queued}, start) {
		t.Error("a late event counts it again")
	}
}

// A runner has one job at a time, whatever the events and their order.
func TestARunnerCountsOnce(t *testing.T) {
	for _, order := range [][]int64{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}, {2, 1, 3}} {
		l := running()
		for _, id := range order {
			l.Record(Event{ID: id, State: Running, Runner: "a"}, start)
		}
		l.Record(Event{ID: 4, State: Running, Runner: "b"}, start)
		l = again(t, l, start)
		if diff := cmp.Diff(map[int64]State{3: Running, 4: Running}, live(l)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", order, diff)
		}
		l.Record(Event{ID: 3, State: Done}, start)
		l.Record(Event{ID: 2, State: Done}, start)
		l.Record(Event{ID: 5, State: Running, Runner: "a"}, start)
		if diff := cmp.Diff(map[int64]State{4: Running, 5: Running}, live(l)); diff != "" {
			t.Errorf("%v, the next (-want +got):\n%s", order, diff)
		}
	}
}

func TestSilentRepositories(t *testing.T) {
	l := running()
	l.Record(Event{ID: 1, State: Queued, Repository: "acme/c"}, start)
	l.Record(Event{ID: 2, State: Queued, Repository: "acme/b"}, start.Add(time.Minute))
	l.Record(Event{ID: 3, State: Running, Repository: "acme/d", Runner: "a"}, start)
	l.Record(Event{ID: 4, State: Queued, Repository: "acme/a"}, start.Add(time.Hour))
	l.Record(Event{ID: 5, State: Queued, Repository: strings.Repeat("x", maxName+1)}, start)
	if diff := cmp.Diff([]string{"acme/b", "acme/c"}, l.Silent(start.Add(30*time.Minute), start, 10)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"acme/b", "acme/c", "acme/d"}, l.Silent(start.Add(30*time.Minute), start.Add(time.Second), 10)); diff != "" {
		t.Errorf("with one that runs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"acme/c"}, l.Silent(start.Add(30*time.Minute), start, 1)); diff != "" {
		t.Errorf("the longest silent (-want +got):\n%s", diff)
	}
}

func TestNothingGrowsWithoutBound(t *testing.T) {
	l := running()
	for id := range int64(3 * MaxJobs) {
		l.Record(Event{ID: id, State: Queued, Repository: fmt.Sprintf("acme/%d", id)}, start.Add(time.Duration(id)*time.Millisecond))
	}
	for id := range int64(10 * MaxDone) {
		l.Record(Event{ID: -1 - id, State: Done}, start.Add(time.Minute+time.Duration(id)*time.Millisecond))
	}
	c := l.Counts()
	if c.Queued != MaxJobs || c.Dropped != 2*MaxJobs || c.Ended > MaxDone || len(l.repos.list) != maxRepositories {
		t.Errorf("%+v, %d repositories", c, len(l.repos.list))
	}
	if l.Has(-10*MaxDone) != Done {
		t.Error("the last that ended is forgotten")
	}
	l.Expire(time.Hour, start.Add(DoneFor+time.Hour))
	l.Expire(time.Hour, start.Add(DoneFor+time.Hour))
	if got := l.Counts(); got != (Counts{}) {
		t.Errorf("%+v after all expired", got)
	}
}

// etcd limits an object to 1.5 MiB. A ledger that reaches all limits must stay below that, and ten thousand jobs far
// below.
func TestWhatIsWrittenDownIsSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	fill := func(jobs, done, repos int) *Ledger {
		l, id := running(), int64(50_000_000_000)
		for i := range jobs + done {
			id += 1 + r.Int64N(5000)
			e := Event{ID: id, State: Queued, Repository: fmt.Sprintf("acme-%x/service-%x", r.Uint64(), r.Uint64N(uint64(repos)))}
			if len(l.repos.list) > repos {
				e.Repository = l.repos.list[1+r.IntN(repos)]
			}
			switch {
			case i >= jobs:
				e.State = Done
			case i%4 == 0:
				e.State, e.Runner = Running, fmt.Sprintf("build-large-abcde-%d", i)
			}
			l.Record(e, start.Add(time.Duration(i)*time.Second))
		}
		return l
	}
	cases := map[string]struct {
		ledger *Ledger
		most   int
	}{
		"ten thousand jobs": {fill(10_000, 2_000, 300), 160 << 10},
		"all bounds":        {fill(MaxJobs, MaxDone, maxRepositories-1), 512 << 10},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			data := tc.ledger.Encode()
			t.Logf("%+v take %d bytes", tc.ledger.Counts(), len(data))
			if len(data) > tc.most {
				t.Errorf("%d bytes, want %d at most", len(data), tc.most)
			}
			read, err := Decode(data, start.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			for id, j := range tc.ledger.jobs {
				j.taken = 0
				if diff := cmp.Diff(j, read.jobs[id], cmp.AllowUnexported(job{})); diff != "" {
					t.Fatalf("job %d (-written +read):\n%s", id, diff)
				}
			}
		})
	}
}

func TestWhatWasDamagedIsRefused(t *testing.T) {
	l := running()
	for id := range int64(20) {
		l.Record(Event{ID: id, State: Running, Repository: "acme/web", Runner: fmt.Sprint("r-", id)}, start)
	}
	text, err := unpack(l.Encode())
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		if _, err := Decode(pack(text[:n]), start); err == nil {
			t.Fatalf("what was cut off after %d bytes is taken", n)
		}
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "no gzip": []byte("hello"), "another format": pack([]byte{9}), "too large": pack(make([]byte, maxText+1)),
		"boosts": NewBoosts().Encode(),
	} {
		if _, err := Decode(data, start); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	l := running()
	l.Record(Event{ID: 1, State: Running, Repository: "acme/web", Runner: "r-1"}, start)
	text, _ := unpack(l.Encode())
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := Decode(pack(text), start); err == nil {
			if _, err := Decode(l.Encode(), start); err != nil {
				t.Fatalf("what was read can't be written and read again: %v", err)
			}
		}
		_, _ = DecodeBoosts(pack(text))
	})
}

func TestBoostsCountForAWhile(t *testing.T) {
	s := NewBoosts()
	end := start.Add(10 * time.Minute)
	for i, tc := range []struct {
		delivery string
		until    time.Time
		want     bool
	}{{"a", end, true}, {"a", end, false}, {"b", end.Add(time.Minute), true}, {"old", start, false}} {
		if got := s.Record("pr", tc.delivery, tc.until, start); got != tc.want {
			t.Errorf("event %d counts: %v", i, got)
		}
	}
	read, err := DecodeBoosts(s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	after := NewBoosts()
	after.Record("push", "c", end, start)
	after.Merge(read)
	for _, tc := range []struct {
		trigger string
		at      time.Time
		n       int
		next    time.Time
	}{{"pr", start, 2, end}, {"pr", end, 1, end.Add(time.Minute)}, {"pr", end.Add(time.Minute), 0, time.Time{}}, {"push", start, 1, end}, {"none", start, 0, time.Time{}}} {
		if n, next := after.Count(tc.trigger, tc.at); n != tc.n || !next.Equal(tc.next) {
			t.Errorf("%s at %s: %d until %s, want %d until %s", tc.trigger, tc.at, n, next, tc.n, tc.next)
		}
	}
	if !after.Expire(func(trigger string) bool { return trigger == "pr" }, end) {
		t.Error("nothing changed")
	}
	if n, _ := after.Count("push", start); n != 0 {
		t.Error("a trigger that is no more counts")
	}
	if after.Expire(func(string) bool { return true }, end) {
		t.Error("it changed again")
	}
}

func TestBoostsAreBounded(t *testing.T) {
	s := NewBoosts()
	for trigger := range 2 * maxTriggers {
		for i := range 2 * maxBoosts {
			s.Record(fmt.Sprint("t", trigger), fmt.Sprint(i), start.Add(time.Hour), start)
		}
	}
	names := slices.Collect(func(yield func(int) bool) {
		for _, events := range s.until {
			if !yield(len(events)) {
				return
			}
		}
	})
	if len(names) != maxTriggers || slices.Max(names) != maxBoosts {
		t.Errorf("%d triggers of up to %d events", len(names), slices.Max(names))
	}
	if size := len(s.Encode()); size > 256<<10 {
		t.Errorf("it takes %d bytes", size)
	}
}

// A process that restarted may have recorded as many new events as the previous one had stored.
func TestMergedBoostsAreBounded(t *testing.T) {
	stored, s := NewBoosts(), NewBoosts()
	for i := range 2 * maxBoosts {
		stored.Record("pr", fmt.Sprint("stored", i), start.Add(time.Hour+time.Duration(i)*time.Second), start)
	}
	for i := range maxBoosts - 1 {
		s.Record("pr", fmt.Sprint("new", i), start.Add(time.Minute), start)
	}
	for i := range maxTriggers {
		stored.Record(fmt.Sprint("stored", i), "a", start.Add(time.Hour), start)
		s.Record(fmt.Sprint("new", i), "a", start.Add(time.Hour), start)
	}
	s.Merge(stored)
	read, err := DecodeBoosts(s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := read.Count("pr", start); n != maxBoosts || len(read.until) != maxTriggers {
		t.Errorf("%d events, %d triggers", n, len(read.until))
	}
	if n, until := read.Count("pr", start.Add(time.Minute)); n != 1 || !until.Equal(start.Add(time.Hour+(maxBoosts-1)*time.Second)) {
		t.Errorf("%d stored events remain, until %s; want the one that ends last", n, until)
	}
}

func BenchmarkRecord(b *testing.B) {
	l, id := running(), int64(0)
	for b.Loop() {
		id++
		l.Record(Event{ID: id % (2 * MaxJobs), State: State(1 + id%5), Repository: "acme/web", Runner: "r"}, start)
	}
}

func BenchmarkEncodeTenThousand(b *testing.B) {
	l := running()
	for id := range int64(10_000) {
		l.Record(Event{ID: id * 4001, State: Queued, Repository: "acme/web"}, start)
	}
	for b.Loop() {
		l.Encode()
	}
}

func TestQuietIsTimeWithoutNews(t *testing.T) {
	begun := time.Unix(1_000_000, 0)
	l := New(begun)
	l.Pause(false, begun)
	l.Record(Event{ID: 1, State: Queued}, begun.Add(time.Minute))
	l.Pause(true, begun.Add(3*time.Minute))
	l.Pause(false, begun.Add(10*time.Minute))
	l.Pause(true, begun.Add(11*time.Minute))
	if got := l.Quiet(1); got != 3*time.Minute {
		t.Errorf("quiet for %s, want 3m: the clock stood still while paused", got)
	}
}
