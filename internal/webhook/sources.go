// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	// badRate and badBurst are how many bad requests a second, and at once, a source may send before it is suspect. The
	// addresses of GitHub are those of whoever uses GitHub, so a suspect source isn't shut out.
	badRate, badBurst = 10, 100
	// suspectRate is how many requests of a suspect source a second are worked on, and suspectSlots how many at once.
	suspectRate, suspectSlots = 200, 2
	// sourceSlots are how many requests of one source are worked on at once. Its large ones have MaxBody bytes together.
	sourceSlots = 48
	// maxSources is how many sources are remembered, for twice sourcesFor at most.
	maxSources = 4096
	sourcesFor = 5 * time.Minute
	// siteBits is how much of an IPv6 address says whose it is.
	siteBits = 48
	// maxHops is how many addresses of X-Forwarded-For are looked at.
	maxHops = 16
)

// sources keep those that send bad requests from crowding out the others.
type sources struct {
	mu sync.Mutex
	// known are the sources that sent bad requests; they are bounded.
	known generations[netip.Prefix, *record]
	// present are the sources of requests that are worked on or wait; they are bounded by the connections.
	present map[netip.Prefix]*presence
}

// record is what is left to a source that sent bad requests.
type record struct {
	bad  *rate.Limiter // bad requests until it is suspect
	pace *rate.Limiter // requests while it is
}

// presence is a source with requests.
type presence struct {
	requests   int
	slots, few *semaphore.Weighted
	large      *semaphore.Weighted // bytes
}

func newSources() *sources {
	return &sources{
		known:   generations[netip.Prefix, *record]{most: maxSources, lasts: sourcesFor},
		present: map[netip.Prefix]*presence{},
	}
}

// admit waits for its source's turn and returns how to let a request out; nil and an answer if that takes too long, or if its
// source is suspect and sends too many.
func (s *sources) admit(d *delivery) (release func(), a answer) {
	if d.replica {
		return func() {}, answer{}
	}
	here, paced := s.enter(d)
	ctx, cancel := context.WithTimeout(d.Context(), laneWait)
	defer cancel()
	slots, large := here.slots, int64(0)
	if d.suspect {
		slots = here.few
	}
	if d.ContentLength > smallBody {
		large = min(d.ContentLength, MaxBody)
	}
	if paced && slots.Acquire(ctx, 1) == nil {
		if large == 0 || here.large.Acquire(ctx, large) == nil { // small ones don't wait in line with large ones
			return func() {
				here.large.Release(large)
				slots.Release(1)
				s.leave(d.source)
			}, answer{}
		}
		slots.Release(1)
	}
	s.leave(d.source)
	return nil, answer{result: limited, status: http.StatusTooManyRequests, text: "Too many requests, or too many bad ones, from this address.", retry: retryAfter}
}

// enter reports whether a request's source is suspect and, if so, whether it keeps its pace.
func (s *sources) enter(d *delivery) (here *presence, paced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here = s.present[d.source]
	if here == nil {
		here = &presence{slots: semaphore.NewWeighted(sourceSlots), few: semaphore.NewWeighted(suspectSlots), large: semaphore.NewWeighted(MaxBody)}
		s.present[d.source] = here
	}
	here.requests++
	r, known := s.known.get(d.source, d.began)
	d.suspect = known && r.bad.TokensAt(d.began) < 1
	return here, !d.suspect || r.pace.AllowN(d.began, 1)
}

func (s *sources) leave(source netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := s.present[source]
	if here.requests--; here.requests == 0 {
		delete(s.present, source)
	}
}

// charge counts a bad request.
func (s *sources) charge(source netip.Prefix, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, known := s.known.get(source, now)
	if !known {
		r = &record{bad: rate.NewLimiter(badRate, badBurst), pace: rate.NewLimiter(suspectRate, suspectRate)}
		s.known.put(source, r, now)
	}
	r.bad.AllowN(now, 1)
}

// sourceOf returns whom a request comes from: the address of the connection or, if that is a trusted proxy's, the last one of
// X-Forwarded-For that isn't. Of IPv6 addresses the first 48 bits count: a single
// owner has that many.
func sourceOf(r *http.Request, trusted []netip.Prefix) netip.Prefix {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address := remote.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for range min(len(hops), maxHops) {
		if !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(address) }) {
			break
		}
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[len(hops)-1]))
		if err != nil {
			break
		}
		address, hops = hop.Unmap(), hops[:len(hops)-1]
	}
	return prefixOf(address)
}

// siteOf returns whom a connection comes from.
func siteOf(remote string) netip.Prefix {
	address, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return prefixOf(address.Addr().Unmap())
}

func prefixOf(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = siteBits
	}
	source, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return source
}

// generations is a bounded map that forgets what was put in long ago: there are two maps, of which the elder is dropped when
// the younger one is full or has lasted. It isn't safe for concurrent use.
type generations[K comparable, V any] struct {
	// most entries in each of the maps, and how long one lasts.
	most  int
	lasts time.Duration

	young, old map[K]V
	since      time.Time
}

func (g *generations[K, V]) get(key K, now time.Time) (V, bool) {
	g.turn(now)
	if v, ok := g.young[key]; ok {
		return v, true
	}
	v, ok := g.old[key]
	return v, ok
}

func (g *generations[K, V]) put(key K, v V, now time.Time) {
	g.turn(now)
	if len(g.young) >= g.most {
		g.old, g.young, g.since = g.young, map[K]V{}, now
	}
	g.young[key] = v
}

// turn drops the elder map when it is time.
func (g *generations[K, V]) turn(now time.Time) {
	if g.young == nil {
		g.young, g.since = map[K]V{}, now
	}
	if passed := now.Sub(g.since); passed >= 2*g.lasts {
		g.old, g.young, g.since = nil, map[K]V{}, now
	} else if passed >= g.lasts {
		g.old, g.young, g.since = g.young, map[K]V{}, now
	}
}
