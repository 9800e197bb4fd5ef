// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"container/heap"
	"context"
	"time"
)

// deadline is an action for the time at.
type deadline struct {
	at time.Time
	do func()
}

type deadlineHeap []deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)        { *h = append(*h, x.(deadline)) }
func (h *deadlineHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (s *Server) now() time.Time { return s.opts.Clock() }

// lock takes the lock for a change, after running all actions that are due.
func (s *Server) lock() {
	s.mu.Lock()
	s.runDue()
}

// unlock wakes those who wait for a change. See [Server.WaitUntil].
func (s *Server) unlock() {
	s.notify()
	s.mu.Unlock()
}

// rlock takes the lock for reading. It is released by s.mu.Unlock, which wakes no waiters: their own reads must not
// wake them.
func (s *Server) rlock() {
	s.mu.Lock()
	if s.runDue() {
		s.notify()
	}
}

func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// after schedules an action, which runs under the lock, after d.
func (s *Server) after(d time.Duration, do func()) {
	heap.Push(&s.deadlines, deadline{at: s.now().Add(d), do: do})
	s.arm()
}

// runDue runs the actions that are due, and reports whether there were any.
func (s *Server) runDue() bool {
	ran := false
	for len(s.deadlines) > 0 && !s.deadlines[0].at.After(s.now()) {
		next := heap.Pop(&s.deadlines).(deadline)
		next.do()
		ran = true
	}
	return ran
}

// arm sets the timer to the next deadline, so that actions run even without calls.
func (s *Server) arm() {
	if len(s.deadlines) == 0 {
		return
	}
	wait := max(s.deadlines[0].at.Sub(s.now()), 0)
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.tick)
		return
	}
	s.timer.Reset(wait)
}

func (s *Server) tick() {
	select {
	case <-s.done:
		return
	default:
	}
	s.lock()
	defer s.unlock()
	s.arm()
}

// WaitUntil returns nil once cond holds, or the context's error if that ends first. cond is called again after every
// change and may call any method that only reads ([Server.Jobs], [Server.Report], [Server.Invariants] …).
func (s *Server) WaitUntil(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitIdle waits until every job is finished.
func (s *Server) WaitIdle(ctx context.Context) error {
	return s.WaitUntil(ctx, func() bool {
		s.rlock()
		defer s.mu.Unlock()
		return s.jobs.unfinished == 0
	})
}

// pause waits for d of real time. It returns false early if the caller leaves or the server is closed.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}
