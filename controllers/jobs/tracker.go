// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs determines how many runners pools need, from sources other than scale sets. Its JobTracker receives GitHub's
// events, assigns each job to a pool, stores the assignments, recovers lost events, and compares the jobs with GitHub's
// lists. Its Poller reads metrics.
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
	// writeInterval is the minimum interval between two writes of a pool's jobs.
	writeInterval = time.Second
	// wakeInterval is the minimum interval between two wakes of a pool. The first one is immediate.
	wakeInterval = 100 * time.Millisecond
	// sweepInterval is how often a pool's jobs are checked for expired ones.
	sweepInterval = 10 * time.Second
	// writeTimeout limits a write, and remoteTimeout a request to GitHub.
	writeTimeout, remoteTimeout = 10 * time.Second, time.Minute
)

// Access reports which connections may be used.
type Access interface {
	// Check returns an error unless objects of a namespace may use a connection.
	Check(ctx context.Context, connection types.NamespacedName, namespace string) error
}

// Config is the configuration of a JobTracker.
type Config struct {
	// Client reads pools, connections and Runners from the cache, and reads and writes ConfigMaps.
	Client client.Client
	// GitHub returns the client of a connection; false while it is not ready.
	GitHub func(connection types.NamespacedName) (GitHub, bool)
	// Record stores which runners without a scale set have which jobs; nil to store nothing.
	Record func(ctx context.Context, namespace string, events []scaleset.JobEvent) error
	// Access reports which connections of other namespaces pools may use. If nil, none may be used.
	Access Access
	// Meter measures the jobs in events and lists; nil to measure none.
	Meter *JobMeter
	// Now is the clock.
	Now func() time.Time
}

// JobTracker tracks jobs. Each space has its own lock. Workers write changes and query GitHub in the background. JobTracker
// is a manager.Runnable that runs on the leader. Until it runs, it accepts no events.
type JobTracker struct {
	Config
	// Events wakes pools when their demand changes.
	Events kube.EventSource

	writer  string // identifies this process
	workers workers

	entries   atomic.Int64 // number of jobs in all ledgers
	unmatched *share.Bytes // memory of jobs without a pool

	placing sync.Map // by namespace: a *sync.Mutex, held while one of its pools is added, moved or removed

	// mu is only held for lookups and never while waiting.
	mu      sync.Mutex
	leading bool
	conns   map[string]map[string]*connection // by namespace and name
	spaces  map[string]map[string]*space      // by the namespace of the connections and the namespace of the pools
	homes   map[types.NamespacedName]*space   // the space of each pool
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

// NeedLeaderElection returns true, because only one process may write the record of jobs.
func (*JobTracker) NeedLeaderElection() bool { return true }

// Start reads all pools and connections, runs the workers until ctx ends, and then stores pending changes.
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

// load reads all existing pools and connections, so that the JobTracker knows them before it accepts events.
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

// close stores pending changes after the workers have ended.
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
	_ = g.Wait() // the next leader recovers the rest from GitHub
	k.closeCursors(ctx)
}

// lock returns a pool with the lock of its space held. If there is no such pool, it returns nil and holds no lock.
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

// Reading returns the demand of a pool according to events. It is unknown until the stored state was read.
func (k *JobTracker) Reading(key types.NamespacedName) demand.Reading {
	p := k.lock(key)
	if p == nil {
		return demand.Reading{}
	}
	defer p.space.mu.Unlock()
	return p.reading(k.Now())
}

// AtMax records whether a pool has reached its maximum number of runners. Meanwhile, its waiting jobs do not expire.
func (k *JobTracker) AtMax(key types.NamespacedName, atMax bool) {
	if p := k.lock(key); p != nil {
		defer p.space.mu.Unlock()
		p.ledger.Pause(atMax, k.Now())
	}
}

// Retain stops counting the jobs of runners for which keep returns false. It does nothing for a pool that only observes,
// because such a pool has no runners of its own.
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
