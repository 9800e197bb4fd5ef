// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/fluxsource"
	"github.com/corral-dev/corral/internal/gitsource"
)

// busyRetry is the time to the next attempt when all turns at a server are taken.
const busyRetry = 5 * time.Second

var (
	// errBusy means that other sources ask the server already, as many as may at once.
	errBusy = errors.New("all turns at the server are taken")
	// errLate means that the server let a source of the namespace wait in vain lately, and is being asked again
	// by another of it, or that others are asked like this.
	errLate = errors.New("the server did not answer lately")
)

// hosts gives out turns at servers of Git and of artifacts, so that those that never answer don't hold all workers: half
// of these may ask one server at once. A server that let a source of a namespace wait in vain the last time is asked by one source
// of that namespace at a time, and half of the workers may do so. A slow server of one namespace says nothing about it for
// others: sources choose their deadlines.
type hosts struct {
	workers int // at least 1

	mu    sync.Mutex
	turns map[string]int    // calls under way, by host
	late  map[endpoint]bool // whose last call ran into its deadline
	tries map[endpoint]bool // that are late and being asked
}

// endpoint is a server as one namespace knows it.
type endpoint struct{ namespace, host string }

// mostLate bounds what is remembered of servers: to forget it costs a deadline each.
const mostLate = 10_000

func newHosts(workers int) *hosts {
	return &hosts{workers: max(1, workers), turns: map[string]int{}, late: map[endpoint]bool{}, tries: map[endpoint]bool{}}
}

// ask makes a call to a server for a namespace, by the URL of what is asked of it, if there is a turn, or says errBusy or errLate.
func (h *hosts) ask(namespace, address string, call func() error) error {
	location, err := url.Parse(address)
	if err != nil || location.Host == "" {
		return call() // no server is asked
	}
	at := endpoint{namespace, location.Host}
	late, err := h.enter(at)
	if err != nil {
		return err
	}
	err = call()
	h.leave(at, late, err)
	return err
}

func (h *hosts) enter(at endpoint) (late bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	late = h.late[at]
	half := (h.workers + 1) / 2
	switch {
	case late && (h.tries[at] || len(h.tries) >= half):
		return late, errLate
	case h.turns[at.host] >= half:
		return late, errBusy
	}
	h.turns[at.host]++
	if late {
		h.tries[at] = true
	}
	return late, nil
}

func (h *hosts) leave(at endpoint, wasLate bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turns[at.host]--; h.turns[at.host] == 0 {
		delete(h.turns, at.host)
	}
	if wasLate {
		delete(h.tries, at)
	}
	switch {
	case errors.Is(err, gitsource.ErrTimeout), errors.Is(err, fluxsource.ErrTimeout):
		if len(h.late) >= mostLate {
			clear(h.late)
		}
		h.late[at] = true
	case !errors.Is(err, context.Canceled):
		delete(h.late, at)
	}
}
