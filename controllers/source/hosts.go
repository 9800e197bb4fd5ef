// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package source

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
	// errLate means that the server let somebody wait in vain lately, and is being asked again
	// by another source, or others like it are.
	errLate = errors.New("the server did not answer lately")
)

// hosts gives out turns at servers of Git and of artifacts, so that those that never answer don't hold all workers: half
// of these may ask one server at once; and of the servers that let somebody wait in vain the
// last time, one source a server asks, and a quarter of the workers altogether.
type hosts struct {
	workers int // at least 1

	mu    sync.Mutex
	turns map[string]int  // calls under way, by host
	late  map[string]bool // whose last call ran into its deadline
	tries int             // calls under way to late ones
}

func newHosts(workers int) *hosts {
	return &hosts{workers: max(1, workers), turns: map[string]int{}, late: map[string]bool{}}
}

// ask makes a call to a server, by the URL of what is asked of it, if there is a turn, or says errBusy or errLate.
func (h *hosts) ask(address string, call func() error) error {
	location, err := url.Parse(address)
	if err != nil || location.Host == "" {
		return call() // no server is asked
	}
	late, err := h.enter(location.Host)
	if err != nil {
		return err
	}
	err = call()
	h.leave(location.Host, late, err)
	return err
}

func (h *hosts) enter(host string) (late bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	late = h.late[host]
	switch {
	case late && (h.turns[host] > 0 || h.tries >= max(1, h.workers/4)):
		return late, errLate
	case h.turns[host] >= (h.workers+1)/2:
		return late, errBusy
	}
	h.turns[host]++
	if late {
		h.tries++
	}
	return late, nil
}

func (h *hosts) leave(host string, wasLate bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turns[host]--; h.turns[host] == 0 {
		delete(h.turns, host)
	}
	if wasLate {
		h.tries--
	}
	switch {
	case errors.Is(err, gitsource.ErrTimeout), errors.Is(err, fluxsource.ErrTimeout):
		h.late[host] = true
	case !errors.Is(err, context.Canceled):
		delete(h.late, host)
	}
}
