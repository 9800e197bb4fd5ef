// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs finds out how many runners pools need where no scale set tells of it. Its JobTracker takes GitHub's events in, gives each
// job to a pool, writes that down, asks for events that were lost, and compares with what GitHub lists.
package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
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

// JobTracker puts a lock around the account of jobs, and has what follows from its changes done by workers. It is a manager.Runnable of
// the leader's; until that runs, it takes no events.
type JobTracker struct {
	Config
	eventSource

	writer  string // names this process
	workers workers

	mu      sync.Mutex
	leading bool
	account *account
	records map[types.NamespacedName]*record
}

// NewJobTracker returns a JobTracker without pools.
func NewJobTracker(c Config) *JobTracker {
	mayUse := func(connection types.NamespacedName, namespace string) bool {
		return mayUse(context.Background(), c.Access, connection, namespace) == nil
	}
	k := &JobTracker{Config: c, writer: string(uuid.NewUUID()), account: newAccount(c.Meter, mayUse), records: map[types.NamespacedName]*record{}}
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
	k.workers.open()
	now := k.Now()
	for key, c := range k.account.conns {
		c.lookBack.since = now
		k.workers.addConnection(key)
	}
	for key := range k.account.pools {
		k.workers.jobs.add(key)
	}
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
	k.update(func(a *account, now time.Time) changes {
		for i := range conns.Items {
			a.setConnection(&conns.Items[i], now)
		}
		for i := range pools.Items {
			a.setPool(&pools.Items[i], now)
		}
		return changes{} // all are new to the workers
	})
	return nil
}

// close writes down what isn't written yet. The workers have ended.
func (k *JobTracker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	k.mu.Lock()
	k.leading = false
	var g errgroup.Group
	g.SetLimit(writers)
	var due []*pool
	for _, p := range k.account.pools {
		if p.saved.loaded && !p.saved.unwritten.IsZero() && p.wanted() {
			due = append(due, p)
		}
	}
	k.mu.Unlock()
	for _, p := range due {
		g.Go(func() error { return k.save(ctx, p) })
	}
	_ = g.Wait() // the next leader asks GitHub for what is missing
	k.closeCursors(ctx)
}

// apply has done what follows from changes of the account. The caller holds the lock.
func (k *JobTracker) apply(c changes) {
	now := k.Now()
	for _, p := range c.wake {
		k.wake(p, now)
	}
	for _, p := range c.write {
		k.workers.jobs.add(p.key)
	}
	for _, conn := range c.ask {
		k.workers.addConnection(conn)
	}
	for _, conn := range c.lookUp {
		k.workers.groups.add(conn)
	}
	for _, r := range c.record {
		k.recordLater(r, now)
	}
}

// wake has a pool reconciled: at once, but not oftener than each wakeInterval.
func (k *JobTracker) wake(p *pool, now time.Time) {
	if now.Before(p.woken) {
		return // it is about to be
	}
	if p.woken = p.woken.Add(wakeInterval); p.woken.Before(now) {
		p.woken = now
	}
	k.send(p.key, p.woken.Sub(now))
}

// Reading is the demand of a pool that events tell of. It isn't known until what was written down before is read.
func (k *JobTracker) Reading(key types.NamespacedName) demand.Reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.account.reading(key, k.Now())
}

// AtMax tells whether a pool has all the runners that it may have: while it has, the jobs that wait don't expire.
func (k *JobTracker) AtMax(key types.NamespacedName, atMax bool) {
	k.update(func(a *account, now time.Time) changes {
		if p := a.pools[key]; p != nil {
			p.ledger.Pause(atMax, now)
		}
		return changes{}
	})
}

// Retain frees the places of jobs whose runners keep says are gone.
func (k *JobTracker) Retain(key types.NamespacedName, keep func(runner string) bool) {
	k.update(func(a *account, now time.Time) changes { return a.retain(key, keep, now) })
}

// update changes the account, and has done what follows from it.
func (k *JobTracker) update(f func(a *account, now time.Time) changes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.apply(f(k.account, k.Now()))
}
