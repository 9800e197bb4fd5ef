// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs finds out how many runners pools need where no scale set tells of it. Its Desk takes GitHub's events in, gives each
// job to a pool, writes that down, asks for events that were lost, and compares with what GitHub lists.
package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
)

// Times that a Desk takes for things.
const (
	// tick is how often a Desk looks for what is due.
	tick = 200 * time.Millisecond
	// writeInterval is the least time between two writes of a pool's jobs.
	writeInterval = time.Second
	// wakeInterval is the least time between two times that a pool is woken. The first is at once.
	wakeInterval = 100 * time.Millisecond
	// sweepInterval is how often a pool's jobs are looked at that may have expired, of sweepMost pools at a tick: it takes a millisecond for
	// each ten thousand jobs, and events wait meanwhile.
	sweepInterval, sweepMost = 10 * time.Second, 32
	// remoteTimeout bounds a write, and a look at GitHub.
	writeTimeout, remoteTimeout = 10 * time.Second, time.Minute
	// writers is how many ConfigMaps are written or read at once.
	writers = 16
)

// queue is a controller's work queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Access says which connections may be used.
type Access interface {
	// Check returns an error unless objects of a namespace may use a connection.
	Check(ctx context.Context, connection types.NamespacedName, namespace string) error
}

// Config of a Desk.
type Config struct {
	// Client reads pools, connections and Runners from the cache, and reads and writes ConfigMaps.
	Client client.Client
	// GitHub returns the client of a connection; false while it isn't ready.
	GitHub func(connection types.NamespacedName) (GitHub, bool)
	// Record makes durable which runners without a scale set have which jobs; nil for nobody.
	Record func(ctx context.Context, namespace string, events []scaleset.JobEvent) error
	// Access says which connections of other namespaces pools may use; nil for none.
	Access Access
	// Now is the clock.
	Now func() time.Time
}

// Desk takes events in for the pools. It is a manager.Runnable of the leader's; until that runs, it takes none.
type Desk struct {
	Config

	writer string        // names this process
	kick   chan struct{} // something is due at once
	slots  chan struct{} // for those who write

	mu      sync.Mutex
	leading bool
	ctx     context.Context // of Start
	// seq numbers the changes, so that it is known what was written.
	seq     uint64
	pools   map[types.NamespacedName]*pool
	spaces  map[spaceKey]*space
	conns   map[types.NamespacedName]*connection
	records map[types.NamespacedName]*record
	onWord  []queue
	work    sync.WaitGroup
}

// NewDesk returns a Desk without pools.
func NewDesk(c Config) *Desk {
	return &Desk{
		Config: c, writer: string(uuid.NewUUID()), kick: make(chan struct{}, 1), slots: make(chan struct{}, writers),
		pools: map[types.NamespacedName]*pool{}, spaces: map[spaceKey]*space{}, conns: map[types.NamespacedName]*connection{},
		records: map[types.NamespacedName]*record{},
	}
}

// NeedLeaderElection is true: there is one account of jobs.
func (*Desk) NeedLeaderElection() bool { return true }

// Start works until ctx ends, then writes down what isn't written yet.
func (k *Desk) Start(ctx context.Context) error {
	if err := k.acquaint(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	k.leading, k.ctx = true, ctx
	for _, c := range k.conns {
		c.leading(k.Now())
	}
	k.mu.Unlock()
	t := time.NewTicker(tick)
	defer t.Stop()
	for ctx.Err() == nil {
		k.attend(ctx)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-k.kick:
		}
	}
	return k.close()
}

// acquaint meets all pools and connections that there are, so that no event is for a pool that isn't known yet.
func (k *Desk) acquaint(ctx context.Context) error {
	conns, pools := &v1alpha1.GitHubConnectionList{}, &v1alpha1.RunnerPoolList{}
	if err := k.Client.List(ctx, conns); err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	if err := k.Client.List(ctx, pools); err != nil {
		return fmt.Errorf("listing pools: %w", err)
	}
	for i := range conns.Items {
		k.meetConnection(&conns.Items[i])
	}
	for i := range pools.Items {
		k.meet(&pools.Items[i])
	}
	return nil
}

// attend does what is due, and leaves what takes long to others.
func (k *Desk) attend(ctx context.Context) {
	now := k.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	swept := 0
	for _, p := range k.pools {
		k.attendPool(ctx, p, now)
		if swept < sweepMost && now.Sub(p.swept) >= sweepInterval {
			swept++
			k.sweep(p, now)
		}
	}
	k.attendRecords(ctx, now)
	for _, s := range k.spaces {
		s.settle(now, k.seq)
		s.tidy()
	}
	for _, c := range k.conns {
		k.attendConnection(ctx, c, now)
	}
}

// attendPool reads or writes what is due of a pool.
func (k *Desk) attendPool(ctx context.Context, p *pool, now time.Time) {
	if p.slack.Expire(p.hasTrigger, now) {
		k.changed(p, now)
		k.wake(p, now)
	}
	if p.wakeDue && !now.Before(p.woken.Add(wakeInterval)) {
		k.wake(p, now)
	}
	if p.busy || now.Before(p.next) || (p.loaded && p.dirty == 0) || !p.wanted() {
		return
	}
	select {
	case k.slots <- struct{}{}:
	default:
		return // all are busy; it is its turn at the next tick
	}
	p.busy = true
	k.work.Go(func() {
		defer func() { <-k.slots }()
		k.store(ctx, p)
	})
}

// sweep forgets a pool's jobs that expired.
func (k *Desk) sweep(p *pool, now time.Time) {
	p.swept = now
	before := p.ledger.Counts()
	if n := p.ledger.Expire(p.hold, now); n > 0 {
		expired.WithLabelValues(p.key.Namespace, p.key.Name).Add(float64(n))
	}
	if p.ledger.Counts() != before {
		k.changed(p, now)
		k.wake(p, now)
	}
}

// close writes down what isn't written yet.
func (k *Desk) close() error {
	k.mu.Lock()
	k.leading = false
	k.mu.Unlock()
	k.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	k.mu.Lock()
	var due []*pool
	for _, p := range k.pools {
		if p.dirty != 0 && p.loaded && p.wanted() {
			p.busy = true
			due = append(due, p)
		}
	}
	k.mu.Unlock()
	for _, p := range due {
		k.slots <- struct{}{}
		k.work.Go(func() {
			defer func() { <-k.slots }()
			k.store(ctx, p)
		})
	}
	k.work.Wait()
	k.closeCursors(ctx)
	return nil
}

// poke has what is due looked at now.
func (k *Desk) poke() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Words is an event source that wakes pools when what they are told changes.
func (k *Desk) Words() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.onWord = append(k.onWord, q)
		return nil
	})
}

// wake has a pool look at its signals: at once, but not oftener than each wakeInterval.
func (k *Desk) wake(p *pool, now time.Time) {
	if now.Before(p.woken.Add(wakeInterval)) {
		p.wakeDue = true
		return
	}
	p.woken, p.wakeDue = now, false
	for _, q := range k.onWord {
		q.Add(reconcile.Request{NamespacedName: p.key})
	}
}

// changed notes that a pool's jobs have to be written down.
func (k *Desk) changed(p *pool, now time.Time) {
	k.seq++
	p.seq = k.seq
	if p.dirty == 0 {
		p.dirty = k.seq
		if !p.busy && !now.Before(p.next) {
			k.poke()
		}
	}
}

// Reading is what events tell of a pool's need. It isn't known until what was written down before is read.
func (k *Desk) Reading(key types.NamespacedName) demand.Reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pools[key]
	switch {
	case p == nil:
		return demand.Reading{}
	case !p.wanted():
		return demand.Reading{Known: true}
	case !p.loaded:
		return demand.Reading{}
	}
	return demand.Reading{Known: true, Signals: p.signals(k.Now())}
}

// AtMax says whether a pool has all the runners that it may have: while it has, the jobs that wait don't expire.
func (k *Desk) AtMax(key types.NamespacedName, atMax bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pools[key]; p != nil {
		p.ledger.Pause(atMax, k.Now())
	}
}

// Retain frees the places of jobs whose runners keep says are gone. A pool that only observes has none of its own.
func (k *Desk) Retain(key types.NamespacedName, keep func(runner string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pools[key]; p != nil && !p.observes && p.ledger.Retain(keep, k.Now()) {
		k.changed(p, k.Now())
	}
}
