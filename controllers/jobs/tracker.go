// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs finds out how many runners pools need where no scale set tells of it. Its JobTracker takes GitHub's events in, gives each
// job to a pool, writes that down, asks for events that were lost, and compares with what GitHub lists.
package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/share"
)

const (
	// writeInterval is the least time between two writes of a pool's jobs.
	writeInterval = time.Second
	// wakeInterval is the least time between two times that a pool is woken. The first is at once.
	wakeInterval = 100 * time.Millisecond
	// sweepInterval is how often a pool's jobs are looked at that may have expired.
	sweepInterval = 10 * time.Second
	// writeTimeout bounds a write, remoteTimeout a request to GitHub.
	writeTimeout, remoteTimeout = 10 * time.Second, time.Minute
)

// Access says which connections may be used.
type Access interface {
	// Check returns an error unless objects of a namespace may use a connection.
	Check(ctx context.Context, connection types.NamespacedName, namespace string) error
}

// Config of a JobTracker.
type Config struct {
	// Client reads pools, connections and Runners from the cache, and reads and writes ConfigMaps.
	Client client.Client
	// GitHub returns the client of a connection; false while it isn't ready.
	GitHub func(connection types.NamespacedName) (GitHub, bool)
	// Record makes durable which runners without a scale set have which jobs; nil for nobody.
	Record func(ctx context.Context, namespace string, events []scaleset.JobEvent) error
	// Access says which connections of other namespaces pools may use; nil for none.
	Access Access
	// Meter measures the jobs that events and lists tell of; nil measures none.
	Meter *JobMeter
	// Now is the clock.
	Now func() time.Time
}

// JobTracker keeps account of jobs, each namespace's under a lock of its own, and has what follows from its changes done by workers. It is a
// manager.Runnable of the leader's; until that runs, it takes no events.
type JobTracker struct {
	Config
	// Events wakes pools when their demand changes.
	Events kube.EventSource

	writer  string // names this process
	workers workers

	entries   atomic.Int64 // of all ledgers
	unmatched *share.Bytes // of jobs that no pool is for

	placing sync.Map // of namespace to *sync.Mutex, held while one of its pools is added, moved or removed

	// mu is held to look something up. Whoever holds it waits for nothing.
	mu      sync.Mutex
	leading bool
	conns   map[string]map[string]*connection // by namespace and name
	spaces  map[string]map[string]*space      // by the namespace of connections, and of pools
	homes   map[types.NamespacedName]*space   // of pools
	records map[types.NamespacedName]*record
}

// NewJobTracker returns a JobTracker without pools.
func NewJobTracker(c Config) *JobTracker {
	k := &JobTracker{
		Config: c, writer: string(uuid.NewUUID()), conns: map[string]map[string]*connection{}, spaces: map[string]map[string]*space{},
		homes: map[types.NamespacedName]*space{}, records: map[types.NamespacedName]*record{}, unmatched: share.NewBytes(UnmatchedMemory, unmatchedEach),
	}
	k.workers = newWorkers(k)
	return k
}

// NeedLeaderElection is true: there is one account of jobs.
func (*JobTracker) NeedLeaderElection() bool { return true }

// Start works until ctx ends, then writes down what isn't written yet.
func (k *JobTracker) Start(ctx context.Context) error {
	if err := k.load(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	k.leading = true
	k.mu.Unlock()
	err := k.workers.run(ctx)
	k.close()
	return err
}

// load reads all pools and connections that there are, so that no event is for a pool that isn't known yet.
func (k *JobTracker) load(ctx context.Context) error {
	conns, pools := &v1alpha1.GitHubConnectionList{}, &v1alpha1.RunnerPoolList{}
	if err := k.Client.List(ctx, conns); err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	if err := k.Client.List(ctx, pools); err != nil {
		return fmt.Errorf("listing pools: %w", err)
	}
	for i := range conns.Items {
		k.setConnection(&conns.Items[i])
	}
	for i := range pools.Items {
		k.setPool(&pools.Items[i])
	}
	return nil
}

// close writes down what isn't written yet. The workers have ended.
func (k *JobTracker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	k.mu.Lock()
	k.leading = false
	pools := slices.Collect(maps.Keys(k.homes))
	k.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(writers)
	var due []*pool
	for _, key := range pools {
		if p := k.lock(key); p != nil {
			if p.saved.loaded && !p.saved.unwritten.IsZero() && p.wanted() {
				due = append(due, p)
			}
			p.space.mu.Unlock()
		}
	}
	for _, p := range due {
		g.Go(func() error { return k.save(ctx, p) })
	}
	_ = g.Wait() // the next leader asks GitHub for what is missing
	k.closeCursors(ctx)
}

// lock returns a pool with the lock of its space; nil if there is none.
func (k *JobTracker) lock(key types.NamespacedName) *pool {
	k.mu.Lock()
	s := k.homes[key]
	k.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	p := s.members[key.Name]
	if p == nil {
		s.mu.Unlock()
	}
	return p
}

// Reading is the demand of a pool that events tell of. It isn't known until what was written down before is read.
func (k *JobTracker) Reading(key types.NamespacedName) demand.Reading {
	p := k.lock(key)
	if p == nil {
		return demand.Reading{}
	}
	defer p.space.mu.Unlock()
	return p.reading(k.Now())
}

// AtMax tells whether a pool has all the runners that it may have: while it has, the jobs that wait don't expire.
func (k *JobTracker) AtMax(key types.NamespacedName, atMax bool) {
	if p := k.lock(key); p != nil {
		defer p.space.mu.Unlock()
		p.ledger.Pause(atMax, k.Now())
	}
}

// Retain frees the places of jobs whose runners keep says are gone. A pool that only observes has no runners of its own.
func (k *JobTracker) Retain(key types.NamespacedName, keep func(runner string) bool) {
	p := k.lock(key)
	if p == nil {
		return
	}
	defer p.space.mu.Unlock()
	if now := k.Now(); !p.now.observes && p.ledger.Retain(keep, now) {
		p.space.noteChanged(p, now)
	}
}
