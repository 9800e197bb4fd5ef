// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// stream is an open watch. One goroutine reads the API server's events, and another delivers them to the client.
type stream struct {
	proxy   *Proxy
	request *request
	ctx     context.Context // ends with the watch
	source  io.ReadCloser   // the API server's response
	out     *io.PipeWriter  // to the client
	failure error           // why the source ended, set when read returns; io.EOF if it ended normally

	wake    chan struct{}
	cutting chan struct{} // closed to end the watch early
	cutOnce sync.Once
	ended   chan struct{} // closed when the client receives nothing more

	frozenBy map[*injected]bool // guarded by proxy.mu

	// Used only by the goroutine that delivers.
	queue     []delivery
	collected *collection // nil if ReorderEvents is not collecting
	bookmarks bookmarks
}

// delivery is what the client receives next: events, or the end of the watch. It waits until due, or until its Delay is
// cleared.
type delivery struct {
	lines []byte
	end   bool
	due   time.Time
	delay *injected // nil if there is none
}

// open returns a response body that applies the faults to the events of source.
func (p *Proxy) open(r *http.Request, req *request, source io.ReadCloser) io.ReadCloser {
	ctx, cancel := context.WithCancel(r.Context())
	reader, writer := io.Pipe()
	s := &stream{
		proxy: p, request: req, ctx: ctx, source: source, out: writer, frozenBy: map[*injected]bool{},
		wake: make(chan struct{}, 1), cutting: make(chan struct{}), ended: make(chan struct{}), bookmarks: bookmarksOf(r.URL.Query()),
	}
	p.mu.Lock()
	p.streams = append(p.streams, s)
	for _, f := range p.faults {
		if f.Kind == FreezeWatch && f.selects(req) && f.strikes() {
			p.struck[f.Kind]++
			s.frozenBy[f] = true
		}
	}
	p.mu.Unlock()
	in := make(chan []byte)
	p.running.Go(func() { s.read(in) })
	p.running.Go(func() { s.deliver(in) })
	return &clientBody{PipeReader: reader, close: func() {
		cancel()
		_ = source.Close()
		p.forget(s)
		close(s.ended)
	}}
}

// clientBody is the body that the reverse proxy copies to the client.
type clientBody struct {
	*io.PipeReader
	once  sync.Once
	close func()
}

func (b *clientBody) Close() error {
	b.once.Do(b.close)
	return b.PipeReader.Close()
}

func (p *Proxy) forget(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = slices.DeleteFunc(p.streams, func(other *stream) bool { return other == s })
}

// cut ends watches and waits until they have ended.
func cut(streams []*stream) {
	for _, s := range streams {
		s.cut()
	}
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	for _, s := range streams {
		select {
		case <-s.ended:
		case <-timer.C:
			return
		}
	}
}

func (s *stream) cut() { s.cutOnce.Do(func() { close(s.cutting) }) }

// poke makes the stream check the faults again.
func (s *stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// read passes on the API server's events, one per line. It keeps reading while the client receives nothing: the API
// server ends watches that fall behind.
func (s *stream) read(in chan<- []byte) {
	defer close(in)
	lines := bufio.NewReader(s.source)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			select {
			case in <- line:
			case <-s.ctx.Done():
				return
			}
		}
		if err != nil {
			s.failure = err
			return
		}
	}
}

// deliver applies the faults to the events and writes them, until the watch ends.
func (s *stream) deliver(in <-chan []byte) {
	for {
		due, err := s.write()
		if err != nil {
			_ = s.out.CloseWithError(err) // never fails
			return
		}
		var alarm <-chan time.Time
		if !due.IsZero() {
			alarm = time.After(time.Until(due))
		}
		select {
		case line, ok := <-in:
			if ok {
				s.arrive(line)
				continue
			}
			in = nil
			s.flush()
			s.queue = append(s.queue, delivery{end: true})
		case <-alarm:
		case <-s.wake:
		case <-s.cutting:
		case <-s.ctx.Done():
		}
	}
}

// arrive handles one line, which is one event, from the API server.
func (s *stream) arrive(line []byte) {
	e := parseEvent(line)
	if !e.isChange() {
		s.flush()
		s.bookmarks.see(e)
		s.enqueue(line)
		return
	}
	if s.proxy.strike(DuplicateEvents, s.request) != nil {
		e.lines = slices.Concat(line, line)
	}
	if s.collected == nil {
		f := s.proxy.strike(ReorderEvents, s.request)
		if f == nil {
			s.enqueue(e.lines)
			return
		}
		s.collected = &collection{fault: f, due: time.Now().Add(cmp.Or(f.For, defaultWindow))}
	}
	s.collected.events = append(s.collected.events, e)
}

// flush ends the collection of events. A bookmark follows them if the client accepts bookmarks: without one, the client
// would resume after the last event of the changed order, and receive older states of objects than it has seen.
func (s *stream) flush() {
	if s.collected == nil {
		return
	}
	events := s.collected.events
	s.collected = nil
	s.enqueue(slices.Concat(reordered(events), s.bookmarks.after(events[len(events)-1])))
}

func (s *stream) enqueue(lines []byte) {
	d := delivery{lines: lines}
	if f := s.proxy.strike(Delay, s.request); f != nil {
		d.delay, d.due = f, time.Now().Add(f.For)
	}
	s.queue = append(s.queue, d)
}

// write sends due deliveries. It returns the time of the next one, or zero if that depends on events or faults. It
// returns an error when the watch has ended.
func (s *stream) write() (due time.Time, err error) {
	if c := s.collected; c != nil {
		if c.fault.isOver() || !time.Now().Before(c.due) {
			s.flush()
		} else {
			due = c.due
		}
	}
	for {
		frozen := s.isFrozen()
		select { // after checking the faults: a freeze that ends with Resume cuts the watch before the freeze is removed
		case <-s.cutting:
			return due, io.EOF
		case <-s.ctx.Done():
			return due, s.ctx.Err()
		default:
		}
		if frozen || len(s.queue) == 0 {
			return due, nil
		}
		head := s.queue[0]
		if !head.isDue() {
			return earliest(due, head.due), nil
		}
		if head.end {
			return due, s.failure
		}
		if _, err := s.out.Write(head.lines); err != nil {
			return due, err
		}
		s.queue = s.queue[1:]
	}
}

func (d delivery) isDue() bool {
	return d.delay == nil || d.delay.isOver() || !time.Now().Before(d.due)
}

// earliest returns the earlier of two times. It ignores a zero a.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (s *stream) isFrozen() bool {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	return len(s.frozenBy) > 0
}
