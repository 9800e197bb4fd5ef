// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/fluxsource"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

const (
	// busyRetry is the time to the next attempt when all turns at a server are taken.
	busyRetry = 5 * time.Second
	// promisedFor is how long a turn is kept for the source that is next.
	promisedFor = 3 * busyRetry
)

var (
	// errBusy means that other sources ask the server already, as many as may at once.
	errBusy = errors.New("all turns at the server are taken")
	// errLate means that the server let a source of the namespace wait in vain lately, and is being asked again
	// by another of it, or that others are asked like this.
	errLate = errors.New("the server did not answer lately")
)

// hosts gives out turns at servers of Git and of artifacts, so that servers that never answer don't hold all workers. Half of the workers
// may ask one server at once. One namespace has a quarter of these turns, and at least one. A source that gets none waits in line, where
// namespaces take turns, and the source that is next has its turn kept for a while. A server that let a source of a namespace wait in
// vain the last time is asked by one source of that namespace at a time, and half of the workers may do so. A slow server of one
// namespace says nothing about it for others: sources choose their deadlines.
type hosts struct {
	half int // of the workers, at least 1

	mu      sync.Mutex
	turns   kube.EventSource   // wakes a source when it is its turn
	servers map[string]*server // in use, by what dialled returns
	late    map[endpoint]bool  // whose last call ran into its deadline
	tries   map[endpoint]bool  // that are late and being asked
}

// server is one at which turns are taken.
type server struct {
	used    int                               // turns that are taken or promised
	held    map[string]int                    // the part of a namespace
	waiting map[string][]types.NamespacedName // sources in line, by namespace
	order   []string                          // namespaces with sources in line, the next one first
	// promised are sources with a turn that they have not begun. The timer gives it to the next source.
	promised map[types.NamespacedName]*time.Timer
}

// endpoint is a server as one namespace knows it.
type endpoint struct{ namespace, host string }

// turn is a source's turn at a server.
type turn struct {
	of   *hosts // nil where no server is asked
	at   endpoint
	late bool
}

// mostLate bounds what is remembered of servers: to forget it costs a deadline each.
const mostLate = 10_000

func newHosts(workers int) *hosts {
	return &hosts{half: max(1, (workers+1)/2), servers: map[string]*server{}, late: map[endpoint]bool{}, tries: map[endpoint]bool{}}
}

// dialled returns the host and the port that a URL leads to, in one spelling; "" if it leads to no server.
func dialled(location *url.URL) string {
	if location.Host == "" {
		return ""
	}
	port := cmp.Or(location.Port(), map[string]string{"http": "80", "https": "443", "ssh": "22"}[location.Scheme])
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(location.Hostname(), ".")), port)
}

// enter returns a turn at a server for a source, which it must leave, or errBusy or errLate.
func (h *hosts) enter(key types.NamespacedName, host string) (*turn, error) {
	if host == "" {
		return &turn{}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := endpoint{key.Namespace, host}
	late := h.late[at]
	if late && !h.mayTry(at) {
		return nil, errLate
	}
	if !h.take(key, host) {
		return nil, errBusy
	}
	if late {
		h.tries[at] = true
	}
	return &turn{h, at, late}, nil
}

// mayTry reports whether a server that was late may be asked: all namespaces together hold half of the workers for that, and one of them a
// quarter of these.
func (h *hosts) mayTry(at endpoint) bool {
	own := 0
	for other := range h.tries {
		if other.namespace == at.namespace {
			own++
		}
	}
	return !h.tries[at] && len(h.tries) < h.half && own < h.share()
}

// share is the most turns of one namespace at a server.
func (h *hosts) share() int { return max(1, h.half/4) }

// take reports whether a source gets a turn. Otherwise it waits in line.
func (h *hosts) take(key types.NamespacedName, host string) bool {
	s, namespace := h.servers[host], key.Namespace
	if s == nil {
		s = &server{held: map[string]int{}, waiting: map[string][]types.NamespacedName{}, promised: map[types.NamespacedName]*time.Timer{}}
		h.servers[host] = s
	}
	if promise := s.promised[key]; promise != nil {
		promise.Stop()
		delete(s.promised, key)
		return true
	}
	if s.used < h.half && s.held[namespace] < h.share() { // nobody is in line who could have it, or it were promised
		s.used++
		s.held[namespace]++
		return true
	}
	if len(s.waiting[namespace]) == 0 {
		s.order = append(s.order, namespace)
	}
	if !slices.Contains(s.waiting[namespace], key) {
		s.waiting[namespace] = append(s.waiting[namespace], key)
	}
	return false
}

// free ends a turn of a namespace, and promises turns that are free to sources in line.
func (h *hosts) free(namespace, host string) {
	s := h.servers[host]
	s.used--
	if s.held[namespace]--; s.held[namespace] == 0 {
		delete(s.held, namespace)
	}
	for s.used < h.half {
		next := slices.IndexFunc(s.order, func(namespace string) bool { return s.held[namespace] < h.share() })
		if next < 0 {
			break
		}
		h.promise(s, next, host)
	}
	if s.used == 0 {
		delete(h.servers, host)
	}
}

// promise keeps a turn for the first source in line of a namespace, which then comes last.
func (h *hosts) promise(s *server, next int, host string) {
	namespace := s.order[next]
	key := s.waiting[namespace][0]
	s.order = slices.Delete(s.order, next, next+1)
	if s.waiting[namespace] = s.waiting[namespace][1:]; len(s.waiting[namespace]) > 0 {
		s.order = append(s.order, namespace)
	}
	s.used++
	s.held[namespace]++
	s.promised[key] = time.AfterFunc(promisedFor, func() { h.lapse(s, key, host) })
	h.turns.Wake(key)
}

// lapse gives a turn to the next source that its own did not begin.
func (h *hosts) lapse(s *server, key types.NamespacedName, host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.promised[key] != nil {
		delete(s.promised, key)
		h.free(key.Namespace, host)
	}
}

// leave ends a turn whose last call ended with an error or nil.
func (t *turn) leave(err error) {
	if t.of == nil {
		return
	}
	h := t.of
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.late {
		delete(h.tries, t.at)
	}
	h.free(t.at.namespace, t.at.host)
	switch {
	case errors.Is(err, gitsource.ErrTimeout), errors.Is(err, fluxsource.ErrTimeout):
		if len(h.late) >= mostLate {
			clear(h.late)
		}
		h.late[t.at] = true
	case !errors.Is(err, context.Canceled):
		delete(h.late, t.at)
	}
}
