// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
)

// Sessions runs one message session per pool in this process. The key of a session is the namespace and name of the pool
// and of its RunnerScaleSet.
//
// Sessions is a manager.Runnable. When the manager stops, Sessions closes every session on GitHub. Otherwise the next
// leader would wait about a minute and a half until the sessions expire. The process does not store which scale sets the
// pools hold, so the next leader learns that only when their sessions open again.
type Sessions struct {
	ctx    context.Context
	cancel context.CancelFunc
	lease  Lease

	// Events wakes pools on every message from GitHub.
	Events kube.EventSource
	// States wakes scale sets when the state of a session changes.
	States kube.EventSource

	mu      sync.Mutex
	running map[types.NamespacedName]*session
	held    map[types.NamespacedName]holding
	begun   map[types.NamespacedName]bool // pools that had a session in this process
}

// holding is a scale set whose session GitHub gave to a pool, or still reserves for an earlier session of the pool. Users
// can forge the status of a record, but not a holding.
type holding struct {
	connection types.NamespacedName
	owner      string
	setID      int64
}

type session struct {
	holding
	listener *scaleset.Listener
	client   *scaleset.Client
	state    scaleset.State
	id       string // ID of the open session
	earlier  string // ID of the pool's earlier session that the listener may resume
	cancel   context.CancelFunc
	done     chan struct{}
}

// Lease reports whether this process leads.
type Lease interface {
	// Held reports whether this process certainly still leads.
	Held() bool
	// Former returns when the previous leader was last alive; the zero time if there was none.
	Former() time.Time
	// Key returns a secret that only the leaders share; empty without an election.
	Key() string
}

// NewSessions returns a Sessions without sessions.
func NewSessions(lease Lease) *Sessions {
	ctx, cancel := context.WithCancel(context.Background())
	return &Sessions{ctx: ctx, cancel: cancel, lease: lease, running: map[types.NamespacedName]*session{}, held: map[types.NamespacedName]holding{}, begun: map[types.NamespacedName]bool{}}
}

// Start waits for the manager to stop, and then closes all sessions.
func (s *Sessions) Start(ctx context.Context) error {
	<-ctx.Done()
	s.cancel()
	s.mu.Lock()
	ending := make([]*session, 0, len(s.running))
	for _, x := range s.running {
		ending = append(ending, x)
	}
	s.mu.Unlock()
	for _, x := range ending {
		<-x.done
	}
	return nil
}

// NeedLeaderElection returns true, because only the leader listens.
func (*Sessions) NeedLeaderElection() bool { return true }

// Ensure runs a session for the pool through a connection. If a session of another scale set, or with a replaced client, is
// running, Ensure ends it first. earlier is the ID of the session that the pool last held, according to its record.
func (s *Sessions) Ensure(key, connection types.NamespacedName, c scaleset.Config, earlier string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier != "" && !s.begun[key] {
		c.Earlier = scaleset.Earlier{ID: earlier, Until: s.lease.Former().Add(scaleset.SessionLife)}
	}
	if x := s.running[key]; x != nil {
		if x.setID == c.SetID && x.client == c.Client {
			return
		}
		if x.setID == c.SetID {
			id := cmp.Or(x.listener.Brief().Session, x.earlier) // the listener may not have resumed it yet
			c.Earlier = scaleset.Earlier{ID: id, Until: c.Now().Add(scaleset.SessionLife)}
		}
		x.cancel()
		delete(s.running, key)
	}
	c.Held = s.lease.Held
	c.Changed = func() { s.wake(key) }
	ctx, cancel := context.WithCancel(github.InFlow(s.ctx, key.String()))
	x := &session{listener: scaleset.NewListener(c), client: c.Client, holding: holding{connection, c.Owner, c.SetID}, earlier: c.Earlier.ID, cancel: cancel, done: make(chan struct{})}
	s.running[key], s.begun[key] = x, true
	go func() {
		defer close(x.done)
		x.listener.Run(ctx)
	}()
}

// Stop ends a pool's session and waits until it is closed or ctx ends.
func (s *Sessions) Stop(ctx context.Context, key types.NamespacedName) {
	s.mu.Lock()
	x := s.running[key]
	delete(s.running, key)
	s.mu.Unlock()
	if x == nil {
		return
	}
	x.cancel()
	select {
	case <-x.done:
	case <-ctx.Done():
	}
}

// Holds reports whether a pool with the UID holds the scale set on the connection: since this process began, GitHub has
// given the pool the session, and has not named another owner later.
func (s *Sessions) Holds(pool, connection types.NamespacedName, uid types.UID, setID int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[pool]
	return setID != 0 && h.connection == connection && h.setID == setID && strings.HasSuffix(h.owner, "/"+string(uid))
}

// HoldsAny reports whether a pool holds a scale set, like Holds.
func (s *Sessions) HoldsAny(pool types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.held[pool]
	return ok
}

// lose forgets which scale set a pool holds.
func (s *Sessions) lose(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, key)
}

// forget drops the state of a pool that is gone.
func (s *Sessions) forget(key types.NamespacedName) {
	s.lose(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.begun, key)
}

// Snapshot returns the state of a pool's session; false if there is none.
func (s *Sessions) Snapshot(key types.NamespacedName) (scaleset.Snapshot, bool) {
	if l := s.listener(key); l != nil {
		return l.Snapshot(), true
	}
	return scaleset.Snapshot{}, false
}

// Announce sets the capacity that the pool announces to GitHub: the largest number of jobs in total.
func (s *Sessions) Announce(key types.NamespacedName, capacity int) {
	if l := s.listener(key); l != nil {
		l.Announce(capacity)
	}
}

// Refresh asks GitHub for newer statistics of a pool's scale set.
func (s *Sessions) Refresh(key types.NamespacedName) {
	if l := s.listener(key); l != nil {
		l.Refresh()
	}
}

// Retain forgets the jobs of runners that are gone according to keep.
func (s *Sessions) Retain(key types.NamespacedName, keep func(runner string) bool) {
	if l := s.listener(key); l != nil {
		l.Retain(keep)
	}
}

func (s *Sessions) listener(key types.NamespacedName) *scaleset.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.running[key]; x != nil {
		return x.listener
	}
	return nil
}

func (s *Sessions) wake(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.running[key]
	if x == nil {
		return
	}
	now := x.listener.Brief()
	switch { // first, so that the pool and the scale set find it when they wake
	case now.State == scaleset.Listening, now.State == scaleset.Refused && now.Owner == x.owner:
		s.held[key] = x.holding
	case now.State == scaleset.Refused, now.State == scaleset.OwnedElsewhere:
		delete(s.held, key)
	}
	s.Events.Wake(key)
	another := now.State == scaleset.Listening && now.Session != x.id // its ID is recorded, because the next process resumes this session
	if now.State != x.state || another {
		x.state, x.id = now.State, now.Session
		s.States.Wake(key)
	}
}
