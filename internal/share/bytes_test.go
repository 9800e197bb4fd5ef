// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"testing"
)

func TestOneNamespaceHoldsAQuarterOfTheBytes(t *testing.T) {
	b, lost := NewBytes(100, 25), 0
	small, large := b.Hold("greedy", func() { t.Error("the small one is lost") }), b.Hold("greedy", func() { lost++ })
	for range 14 {
		large.Add(1)
	}
	if !small.Add(11) || lost != 0 || b.of["greedy"].bytes != 25 {
		t.Fatalf("%d bytes are held", b.of["greedy"].bytes)
	}
	if !small.Add(1) || lost != 1 || large.Add(1) || b.of["greedy"].bytes != 12 {
		t.Errorf("lost %d times; %d bytes are held", lost, b.of["greedy"].bytes)
	}
	alone := b.Hold("alone", func() { lost++ })
	if alone.Add(26) || lost != 2 || b.total != 12 {
		t.Errorf("one Hold has more than a quarter; lost %d times, %d bytes are held", lost, b.total)
	}
}

// However many namespaces hold all that they can, another one gets as much as each of them.
func TestManyNamespacesLeaveBytesForTheNext(t *testing.T) {
	for _, greedy := range []int{4, 5, 20, 99} {
		b := NewBytes(1000, 250)
		var holds []*Hold
		for i := range 300 * greedy {
			h := b.Hold(fmt.Sprint("greedy-", i%greedy), func() {})
			h.Add(1)
			holds = append(holds, h)
		}
		late, share := b.Hold("late", func() { t.Errorf("%d: lost", greedy) }), 1000/(greedy+1)-1
		for range share {
			late.Add(1)
		}
		if b.of["late"].bytes != int64(share) || b.total > 1000 {
			t.Errorf("%d: it has %d bytes, and all have %d", greedy, b.of["late"].bytes, b.total)
		}
		for _, h := range append(holds, late) {
			h.Leave()
			h.Leave()
		}
		if b.total != 0 || len(b.of) != 0 || b.Open() != 0 {
			t.Errorf("%d bytes of %d Holds are left", b.total, b.Open())
		}
	}
}

func TestWhatIsKeptIsNotLost(t *testing.T) {
	b := NewBytes(100, 25)
	kept := b.Hold("a", func() { t.Error("lost") })
	kept.Add(10)
	if !kept.Keep(12, 100) || kept.Keep(12, 100) {
		t.Error("it is not kept once")
	}
	second, lost := b.Hold("a", func() {}), false
	second.Add(3)
	if second.Keep(12, 100) {
		t.Error("more is kept than there may be")
	}
	third := b.Hold("a", func() { lost = true })
	if third.Add(20) || !lost || !second.Add(1) {
		t.Error("the largest that is not kept is not the one that is lost")
	}
	kept.Leave()
	if !second.Keep(12, 100) || b.of["a"].kept != 4 || third.Keep(12, 100) {
		t.Errorf("%d bytes are kept", b.of["a"].kept)
	}
	second.Leave()
	if b.total != 0 || len(b.of) != 0 {
		t.Errorf("%d bytes are left", b.total)
	}
}

func TestSmallHoldsMakeRoomForLargeOnes(t *testing.T) {
	b := NewBytes(6400, 1600)
	for n := range 4 {
		for range 1600 {
			b.Hold(fmt.Sprint("small", n), func() {}).Add(1)
		}
	}
	for n := range 40 {
		for range 7 {
			b.Hold(fmt.Sprint("large", n), func() {}).Add(200)
		}
	}
	if b.total > b.most {
		t.Errorf("%d bytes are held, more than %d", b.total, b.most)
	}
}

func TestKeptBytesLeaveRoomForOthers(t *testing.T) {
	b, kept := NewBytes(192, 48), 0
	for n := range 8 {
		h := b.Hold(fmt.Sprint("stuck", n), func() {})
		h.Add(24)
		if h.Keep(24, 96) {
			kept++
		}
	}
	if kept != 4 || !b.Hold("victim", func() { t.Error("lost") }).Add(1) {
		t.Errorf("%d Holds are kept", kept)
	}
}

// Another Hold of the namespace ends while an empty one is kept.
func TestAnEmptyKeptHoldLeaves(t *testing.T) {
	b := NewBytes(100, 100)
	kept := b.Hold("a", func() {})
	kept.Keep(100, 100)
	b.Hold("a", func() {}).Leave()
	kept.Leave()
	if len(b.of) != 0 {
		t.Errorf("%d accounts are left", len(b.of))
	}
}
