// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package fairqueue

import (
	"container/heap"
	"time"
)

// notDelayed is the place of a key that has no delay.
const notDelayed = -1

// delays holds the keys that are to be added later, the next first.
type delays struct{ heap delayHeap }

// put delays a key until then, unless its delay ends sooner; it tells whether the first
// delay is another one now.
func (d *delays) put(e *entry, at time.Time) bool {
	switch {
	case e.delayed == notDelayed:
		e.at = at
		heap.Push(&d.heap, e)
	case at.Before(e.at):
		e.at = at
		heap.Fix(&d.heap, e.delayed)
	default:
		return false
	}
	return e.delayed == 0
}

// remove ends a key's delay, if it has one.
func (d *delays) remove(e *entry) {
	if e.delayed != notDelayed {
		heap.Remove(&d.heap, e.delayed)
	}
}

// first returns the key whose delay ends next; nil if there is none.
func (d *delays) first() *entry {
	if len(d.heap) == 0 {
		return nil
	}
	return d.heap[0]
}

// delayHeap implements heap.Interface.
type delayHeap []*entry

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].delayed, h[j].delayed = i, j
}

func (h *delayHeap) Push(x any) {
	e := x.(*entry)
	e.delayed = len(*h)
	*h = append(*h, e)
}

func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.delayed = notDelayed
	return e
}
