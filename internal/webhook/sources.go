// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// badRate is how many bad requests one address may send per second, and as a burst. It is high because GitHub sends
	// all users' webhooks from the same addresses: a tenant with a wrong secret must not block the events of others.
	badRate = 300
	// maxSources is how many addresses are remembered.
	maxSources = 4096
	// siteBits is how many bits of an IPv6 address identify its owner.
	siteBits = 48
	// maxHops is how many addresses in X-Forwarded-For are read.
	maxHops = 16
)

// sources limits the bad requests of each address.
type sources struct {
	mu  sync.Mutex
	bad map[netip.Prefix]*rate.Limiter
}

// isExhausted reports whether an address has used up its bad requests.
func (s *sources) isExhausted(source netip.Prefix, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limiter := s.bad[source]
	return limiter != nil && limiter.TokensAt(now) < 1
}

// charge counts a bad request.
func (s *sources) charge(source netip.Prefix, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad[source] == nil {
		if len(s.bad) >= maxSources { // limiters refill within a second, so little is lost
			clear(s.bad)
		}
		s.bad[source] = rate.NewLimiter(badRate, badRate)
	}
	s.bad[source].AllowN(now, 1)
}

// sourceOf returns the source of a request: the address of the connection or, if that is a trusted proxy, the last
// address in X-Forwarded-For that is not a trusted proxy. Only the first 48 bits of an IPv6 address count, because all
// addresses with the same 48 bits may belong to one owner.
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

// siteOf returns the source of a connection, from its remote address.
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
