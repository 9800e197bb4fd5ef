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
	// busyRetry is the delay before the next attempt when all turns at a server are taken.
	busyRetry = 5 * time.Second
	// promisedFor is how long a turn is reserved for the next source.
	promisedFor = 3 * busyRetry
	// maxInLine is the maximum number of sources of one namespace in the line of one server. The line is searched while the
	// lock is held, so it must be short.
	maxInLine = 64
)

var (
	// errBusy means that as many sources as allowed already use the server.
	errBusy = errors.New("all turns at the server are taken")
	// errLate means that the server did not answer a recent call of the namespace. Either another source of the namespace is
	// retrying it now, or all retries of this kind are taken.
	errLate = errors.New("the server did not answer lately")
)

// hosts limits concurrent calls to Git and artifact servers, so that servers that never answer do not occupy all workers:
//
//   - Half of the workers may call one server concurrently. One namespace has a quarter of these turns, and at least one.
//   - A source without a turn waits in line, where namespaces take turns. hosts reserves a turn for the next source and
//     wakes it. At most maxInLine sources of one namespace are in the line; the others try again later.
//   - If the last call of a namespace to a server timed out, only one source of the namespace calls that server at a time.
//     Half of the workers may make such calls.
//
// A server that is slow for one namespace is not considered slow for others, because each source chooses its own time limit.
// Long passes take turns in the same way, as if they called one server (see long.go).
type hosts struct {
	half int // half of the workers, at least 1

	mu      sync.Mutex
	turns   kube.EventSource   // wakes a source when its turn comes
	servers map[string]*server // in use, by the result of dialled
	late    map[endpoint]bool  // endpoints whose last call timed out
	tries   map[endpoint]bool  // late endpoints that are being called
}

// server contains the turns at one server, and the line for them.
type server struct {
	used    int                               // taken or promised turns
	held    map[string]int                    // turns by namespace
	waiting map[string][]types.NamespacedName // sources in line, by namespace
	order   []string                          // namespaces with sources in line, the next one first
	// promised has the sources with a reserved turn that they have not begun. When the timer ends, the turn passes to the
	// next source.
	promised map[types.NamespacedName]*time.Timer
}

// endpoint is a server as seen from one namespace.
type endpoint struct{ namespace, host string }

// turn is the right of a source to call a server.
type turn struct {
	of   *hosts // nil if no server is called
	at   endpoint
	late bool
}

// mostLate is the maximum number of remembered late endpoints. When it is reached, hosts forgets all of them, and the next
// call to each may time out again.
const mostLate = 10_000

func newHosts(workers int) *hosts {
	return &hosts{half: max(1, (workers+1)/2), servers: map[string]*server{}, late: map[endpoint]bool{}, tries: map[endpoint]bool{}}
}

// dialled returns the host and port of a URL in a normalized form; empty if it has no server.
func dialled(location *url.URL) string {
	if location.Host == "" {
		return ""
	}
	port := cmp.Or(location.Port(), map[string]string{"http": "80", "https": "443", "ssh": "22"}[location.Scheme])
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(location.Hostname(), ".")), port)
}

// enter returns a turn at a server for a source, or errBusy or errLate. The caller must end the turn with leave.
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

// isQueued reports whether a source waits in line for a turn, or has one reserved.
func (h *hosts) isQueued(key types.NamespacedName, host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[host]
	return s != nil && (s.promised[key] != nil || slices.Contains(s.waiting[key.Namespace], key))
}

// mayTry reports whether a late server may be called. All namespaces together use at most half of the workers for such
// calls, and one namespace a quarter of these.
func (h *hosts) mayTry(at endpoint) bool {
	own := 0
	for other := range h.tries {
		if other.namespace == at.namespace {
			own++
		}
	}
	return !h.tries[at] && len(h.tries) < h.half && own < h.share()
}

// share returns the maximum number of turns of one namespace at a server.
func (h *hosts) share() int { return max(1, h.half/4) }

// take reports whether a source gets a turn. If it gets none, take puts it into the line, unless the line of its namespace
// is full.
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
	if s.used < h.half && s.held[namespace] < h.share() { // no source in line could have this turn, or it would be promised
		s.used++
		s.held[namespace]++
		return true
	}
	if len(s.waiting[namespace]) == 0 {
		s.order = append(s.order, namespace)
	}
	if len(s.waiting[namespace]) < maxInLine && !slices.Contains(s.waiting[namespace], key) {
		s.waiting[namespace] = append(s.waiting[namespace], key)
	}
	return false
}

// free ends a turn of a namespace, and promises free turns to sources in line.
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

// promise reserves a turn for the first source in line of a namespace. The namespace then moves to the end of the order.
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

// lapse passes a reserved turn that its source did not begin to the next source.
func (h *hosts) lapse(s *server, key types.NamespacedName, host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.promised[key] != nil {
		delete(s.promised, key)
		h.free(key.Namespace, host)
	}
}

// leave ends a turn. err is the result of its last call.
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
