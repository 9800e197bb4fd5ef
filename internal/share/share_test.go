// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill lets each namespace take as many places as it can get.
func fill(m *Map[int, string], namespaces, entries int) {
	for i := range entries {
		for n := range namespaces {
			m.Push(fmt.Sprint("greedy-", n), i, "")
		}
	}
}

func TestOneNamespaceHasAQuarter(t *testing.T) {
	m := New[int, string](100, nil)
	for i := range 1000 {
		if got := m.Put("greedy", i, "x"); got != (i < 25) {
			t.Fatalf("entry %d of a namespace is kept: %v", i, got)
		}
	}
	if value, ok := m.Get("greedy", 24); !ok || value != "x" || !m.Put("greedy", 24, "y") {
		t.Error("what is there can't be changed")
	}
	m.Push("greedy", 1000, "")
	if _, ok := m.Get("greedy", 0); ok || m.Len("greedy") != 25 {
		t.Errorf("the oldest is there, and %d others", m.Len("greedy"))
	}
}

// However many namespaces take all that they can get, another one gets as much as each of them.
func TestManyNamespacesLeaveRoomForTheNext(t *testing.T) {
	for _, greedy := range []int{1, 3, 4, 5, 20, 99} {
		t.Run(fmt.Sprint(greedy), func(t *testing.T) {
			dropped := map[string]int{}
			m := New[int, string](100, func(namespace string, _ int) { dropped[namespace]++ })
			fill(m, greedy, 200)
			share := min(25, 100/(greedy+1))
			for i := range share {
				if !m.Put("late", i, "") {
					t.Errorf("entry %d of %d has no place", i, share)
				}
			}
			fill(m, greedy, 200)
			if m.Len("late") != share || dropped["late"] > 0 || m.total > 100 {
				t.Errorf("it keeps %d of %d, and all have %d", m.Len("late"), share, m.total)
			}
		})
	}
}

func TestNobodyGivesUpForWhoHasAsMuch(t *testing.T) {
	m := New[int, string](8, func(namespace string, key int) { t.Errorf("%s gave up %d", namespace, key) })
	for i := range 2 {
		for _, namespace := range []string{"a", "b", "c", "d"} {
			if !m.Put(namespace, i, "") {
				t.Fatal(namespace, i)
			}
		}
	}
	m.dropped = nil
	if !m.Put("e", 0, "") || m.Put("e", 1, "") {
		t.Error("a fifth namespace has one place of eight, not none and not two")
	}
}

// If each place belongs to a different namespace, Spare decides whether one of them can be freed.
func TestANamespaceWithoutAPlaceGetsASpareOne(t *testing.T) {
	var gone []string
	m := New[int, string](4, func(namespace string, key int) { gone = append(gone, fmt.Sprint(namespace, key)) })
	for i := range 4 {
		m.Put(fmt.Sprint("n", i), i, "")
	}
	if m.Put("late", 9, "") {
		t.Error("there was a place")
	}
	m.Spare = func(own int) (string, int, bool) { return "n2", 2, own == 0 }
	if !m.Put("late", 9, "") || m.Put("late", 10, "") || m.total != 4 || m.Len("n2") != 0 || !slices.Equal(gone, []string{"n22"}) {
		t.Errorf("gone is %q; %d are left", gone, m.total)
	}
}

func TestNamespacesAreServedInTurn(t *testing.T) {
	m := New[int, string](100, nil)
	for i := range 20 {
		m.Put("many", i, "many")
	}
	m.Put("few", 1, "few")
	m.Put("few", 2, "few")
	var got []string
	for range 4 {
		key, value, _ := m.Take()
		got = append(got, fmt.Sprint(value, key))
	}
	m.Put("few", 3, "few")
	key, value, _ := m.Take()
	got = append(got, fmt.Sprint(value, key))
	if diff := cmp.Diff([]string{"many0", "few1", "many1", "few2", "many2"}, got); diff != "" {
		t.Error(diff)
	}
	for ok := true; ok; {
		_, _, ok = m.Take()
	}
	if m.total != 0 || len(m.of) != 0 {
		t.Errorf("%d are left of %d namespaces", m.total, len(m.of))
	}
}

func TestWhatIsRemovedLeavesItsPlace(t *testing.T) {
	m := New[int, string](12, nil)
	for i := range 3 {
		m.Put("a", i, "")
	}
	m.DeleteFunc("a", func(key int) bool { return key == 1 })
	m.DeleteFunc("b", func(int) bool { return true })
	if !m.Put("a", 7, "") || !slices.Equal(m.of["a"].order, []int{0, 2, 7}) || m.total != 3 {
		t.Errorf("it has %v", m.of["a"].order)
	}
	m.DeleteFunc("a", func(int) bool { return true })
	if len(m.of) != 0 || m.total != 0 {
		t.Errorf("%d are left", m.total)
	}
}
