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
	// badRate is how many bad requests one address may send per second, and at once. It is high because GitHub sends everybody's webhooks from
	// the same addresses: a tenant with a wrong secret must not keep out the events of others.
	badRate = 300
	// maxSources is how many addresses are remembered.
	maxSources = 4096
	// siteBits is how many bits of an IPv6 address identify its owner.
	siteBits = 48
	// maxHops is how many addresses of X-Forwarded-For are read.
	maxHops = 16
)

// sources limits the bad requests of each address.
type sources struct {
	mu  sync.Mutex
	bad map[netip.Prefix]*rate.Limiter
}

// isExhausted reports whether an address has sent all the bad requests that it may.
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
		if len(s.bad) >= maxSources { // a limiter fills up within a second, so little is forgotten
			clear(s.bad)
		}
		s.bad[source] = rate.NewLimiter(badRate, badRate)
	}
	s.bad[source].AllowN(now, 1)
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
