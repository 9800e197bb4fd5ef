// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// model is a naive specification of the queue, which iterates over every key each time.
type model struct {
	perGroup, perOwner int
	waiting            []string // in the order of their arrival
	running            map[string]bool
	again              map[string]bool
	delayed            map[string]time.Time
	// since counts, for each owner, group or flow that has been eligible all along, how often each other one was served
	// instead.
	since map[string]map[string]int
}

func newModel(perGroup, perOwner int) *model {
	return &model{
		perGroup: perGroup, perOwner: perOwner, running: map[string]bool{}, again: map[string]bool{},
		delayed: map[string]time.Time{}, since: map[string]map[string]int{},
	}
}

// pathOf returns the owner, the group and the flow of a key.
func pathOf(name string) [3]string {
	parts := strings.Split(name, "/")
	owner, _, _ := strings.Cut(parts[0], ".")
	return [3]string{"owner " + owner, "group " + parts[0], "flow " + parts[0] + "/" + parts[1]}
}

func (m *model) add(name string) {
	delete(m.delayed, name)
	switch {
	case m.running[name]:
		m.again[name] = true
	case !slices.Contains(m.waiting, name):
		m.waiting = append(m.waiting, name)
	}
}

func (m *model) addAt(name string, at time.Time) {
	if m.again[name] || slices.Contains(m.waiting, name) {
		return
	}
	if old, ok := m.delayed[name]; !ok || at.Before(old) {
		m.delayed[name] = at
	}
}

// pass adds the keys that are due, earliest first.
func (m *model) pass(now time.Time) {
	var due []string
	for name, at := range m.delayed {
		if !at.After(now) {
			due = append(due, name)
		}
	}
	slices.SortFunc(due, func(a, b string) int { return m.delayed[a].Compare(m.delayed[b]) })
	for _, name := range due {
		m.add(name)
	}
}

func (m *model) done(name string) {
	delete(m.running, name)
	if m.again[name] {
		delete(m.again, name)
		m.waiting = append(m.waiting, name)
	}
}

// may lists the keys that may be served: the first of each flow of an owner and a group with a free place.
func (m *model) may() []string {
	held, seen := m.held(), map[string]bool{}
	var names []string
	for _, name := range m.waiting {
		path := pathOf(name)
		if held[path[0]] < m.perOwner && held[path[1]] < m.perGroup && !seen[path[2]] {
			seen[path[2]] = true
			names = append(names, name)
		}
	}
	return names
}

func (m *model) held() map[string]int {
	held := map[string]int{}
	for name := range m.running {
		for _, of := range pathOf(name) {
			held[of]++
		}
	}
	return held
}

// pop records that a key was served, and returns an error if it should not have been.
func (m *model) pop(name string) error {
	may := m.may()
	if !slices.Contains(may, name) {
		return fmt.Errorf("handed out %s, which is none of %v", name, may)
	}
	path := pathOf(name)
	for level, taken := range path {
		could := map[string]bool{}
		for _, other := range may {
			if of := pathOf(other); level == 0 || of[level-1] == path[level-1] {
				could[of[level]] = true
			}
		}
		if err := m.turn(taken, could); err != nil {
			return err
		}
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w string) bool { return w == name })
	m.running[name] = true
	return nil
}

// turn records whose turn it was, and fails if another that has been eligible all along was skipped twice.
func (m *model) turn(taken string, could map[string]bool) error {
	delete(m.since, taken)
	for other := range could {
		if other == taken {
			continue
		}
		if m.since[other] == nil {
			m.since[other] = map[string]int{}
		}
		if m.since[other][taken]++; m.since[other][taken] > 1 {
			return fmt.Errorf("%s had a second turn while %s waited for its first", taken, other)
		}
	}
	return nil
}

// forget restarts the count for owners and groups without a free place, and for those without a waiting key.
func (m *model) forget() {
	held, keep := m.held(), map[string]bool{}
	for _, name := range m.waiting {
		path := pathOf(name)
		free := held[path[1]] < m.perGroup
		keep[path[0]] = keep[path[0]] || free && held[path[0]] < m.perOwner
		keep[path[1]] = free
		keep[path[2]] = true
	}
	for name := range m.since {
		if !keep[name] {
			delete(m.since, name)
		}
	}
}

func TestAnyOrderOfCallsKeepsToTheModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { keepsToTheModel(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func keepsToTheModel(t *testing.T, random *rand.Rand) {
	perGroup := 1 + random.IntN(3)
	perOwner := perGroup + random.IntN(3)
	q, m := testQueue(perGroup), newModel(perGroup, perOwner)
	q.PerOwner = perOwner
	defer q.ShutDown()
	for step := range 1000 {
		name := fmt.Sprintf("%c.%d/%c/%d", 'a'+random.IntN(3), random.IntN(3), 'p'+random.IntN(2), random.IntN(4))
		switch random.IntN(6) {
		case 0, 1:
			q.Add(key(name))
			m.add(name)
		case 2:
			after := time.Duration(1 + random.Int64N(int64(10*time.Second)))
			q.AddAfter(key(name), after)
			m.addAt(name, time.Now().Add(after))
		case 3:
			<-time.After(time.Duration(random.Int64N(int64(time.Second))))
			synctest.Wait()
			m.pass(time.Now())
		case 4:
			if got := next(q, 1); got != nil {
				if err := m.pop(got[0]); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			} else if may := m.may(); may != nil {
				t.Fatalf("step %d: handed out nothing, want one of %v", step, may)
			}
		case 5:
			if running := slices.Sorted(maps.Keys(m.running)); len(running) > 0 {
				name := running[random.IntN(len(running))]
				q.Done(key(name))
				m.done(name)
			}
		}
		m.forget()
		if got := q.Len(); got != len(m.waiting) {
			t.Fatalf("step %d: %d keys wait, want %v", step, got, m.waiting)
		}
	}
	endsEmpty(t, q, m)
}

// endsEmpty processes all remaining keys and checks the queue's memory afterwards.
func endsEmpty(t *testing.T, q *queue, m *model) {
	<-time.After(time.Minute)
	synctest.Wait()
	m.pass(time.Now())
	for len(m.running)+len(m.waiting) > 0 {
		for _, name := range slices.Sorted(maps.Keys(m.running)) {
			q.Done(key(name))
			m.done(name)
		}
		m.forget()
		for _, name := range next(q, 1) {
			if err := m.pop(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(q.entries)+len(q.line.branches)+q.Len()+q.processing != 0 {
		t.Errorf("remembers %d keys and %d owners after all was done", len(q.entries), len(q.line.branches))
	}
}

func TestNothingIsLostBetweenManyWorkers(t *testing.T) {
	const keys, workers, perGroup, rounds = 60, 8, 3, 200
	q := testQueue(perGroup)
	var asked, seen [keys]atomic.Int64
	var busy [keys]atomic.Bool
	var held [4]atomic.Int64
	name := func(i int) string { return fmt.Sprintf("%d/%d/%d", i%4, i%3, i) }

	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for k, shutdown := q.Get(); !shutdown; k, shutdown = q.Get() {
				var group, flow, i int
				if _, err := fmt.Sscanf(k.Name, "%d/%d/%d", &group, &flow, &i); err != nil {
					t.Error(err)
				}
				if busy[i].Swap(true) {
					t.Errorf("%s is processed twice at once", k.Name)
				}
				if held[group].Add(1) > perGroup {
					t.Errorf("group %d holds more than %d workers", group, perGroup)
				}
				seen[i].Store(asked[i].Load())
				held[group].Add(-1)
				busy[i].Store(false)
				q.Done(k)
			}
		})
	}
	var adding sync.WaitGroup
	for adder := range 4 {
		adding.Go(func() {
			random := rand.New(rand.NewPCG(uint64(adder), 5))
			for range rounds {
				i := random.IntN(keys)
				asked[i].Add(1)
				if random.IntN(4) == 0 {
					q.AddAfter(key(name(i)), time.Duration(random.IntN(1000))*time.Microsecond)
				}
				q.Add(key(name(i)))
			}
		})
	}
	adding.Wait()
	q.ShutDownWithDrain()
	working.Wait()
	for i := range keys {
		if asked[i].Load() != seen[i].Load() {
			t.Errorf("%s was last processed at request %d of %d", name(i), seen[i].Load(), asked[i].Load())
		}
	}
}
