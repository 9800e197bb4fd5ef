// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package fairqueue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// model says what a queue must do, in the plainest way: it looks at every key each time.
type model struct {
	perGroup int
	waiting  []string // in the order of their coming
	running  map[string]bool
	again    map[string]bool
	delayed  map[string]time.Time
	// since counts, for each group or flow that could have been next all along, how
	// often each other one was instead.
	since map[string]map[string]int
}

func newModel(perGroup int) *model {
	return &model{
		perGroup: perGroup, running: map[string]bool{}, again: map[string]bool{},
		delayed: map[string]time.Time{}, since: map[string]map[string]int{},
	}
}

func groupOf(name string) string { group, _ := byName(key(name)); return group }
func flowOf(name string) string  { group, flow := byName(key(name)); return group + "/" + flow }

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

// pass adds what is due, the earliest first.
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

// may lists the keys that may be handed out: the first of each flow of a group that has
// a free place.
func (m *model) may() []string {
	held := map[string]int{}
	for name := range m.running {
		held[groupOf(name)]++
	}
	seen := map[string]bool{}
	var names []string
	for _, name := range m.waiting {
		if held[groupOf(name)] < m.perGroup && !seen[flowOf(name)] {
			seen[flowOf(name)] = true
			names = append(names, name)
		}
	}
	return names
}

// take notes that a key was handed out, and says what is wrong with it.
func (m *model) take(name string) error {
	may := m.may()
	if !slices.Contains(may, name) {
		return fmt.Errorf("handed out %s, which is none of %v", name, may)
	}
	could := map[string]bool{}
	for _, other := range may {
		could[groupOf(other)] = true
		if groupOf(other) == groupOf(name) {
			could[flowOf(other)] = true
		}
	}
	for _, turn := range [][2]string{{groupOf(name), ""}, {flowOf(name), groupOf(name) + "/"}} {
		if err := m.turn(turn[0], turn[1], could); err != nil {
			return err
		}
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w string) bool { return w == name })
	m.running[name] = true
	return nil
}

// turn notes whose turn it was among those with a common prefix, and fails if another
// that could have been next all along was passed over twice.
func (m *model) turn(taken, within string, could map[string]bool) error {
	delete(m.since, taken)
	for other := range could {
		isFlow, within := len(flowPart(other)) > 0, within != ""
		if other == taken || isFlow != within {
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

func flowPart(name string) string { return name[len(groupOf(name+"/")):] }

// forget starts the count again for what can't be next any more.
func (m *model) forget() {
	could, flows := map[string]bool{}, map[string]bool{}
	for _, name := range m.may() {
		could[groupOf(name)] = true
	}
	for _, name := range m.waiting {
		flows[flowOf(name)] = true
	}
	for name := range m.since {
		if !could[name] && !flows[name] {
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
	q, m := testQueue(perGroup), newModel(perGroup)
	defer q.ShutDown()
	for step := range 1000 {
		name := fmt.Sprintf("%c/%c/%d", 'a'+random.IntN(4), 'p'+random.IntN(3), random.IntN(4))
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
				if err := m.take(got[0]); err != nil {
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

// endsEmpty processes all that is left and looks at what the queue remembers then.
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
			if err := m.take(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(q.entries)+len(q.line.groups)+len(q.delays.heap)+q.Len()+q.processing != 0 {
		t.Errorf("remembers %d keys, %d groups and %d delays after all was done", len(q.entries), len(q.line.groups), len(q.delays.heap))
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
