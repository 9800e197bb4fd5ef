// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
)

// connection returns the state of a connection and whether this process is the leader. The state is nil if the connection
// is unknown.
func (k *JobTracker) connection(key types.NamespacedName) (c *connection, leads bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.conns[key.Namespace][key.Name], k.leading
}

// connectionsOf returns the connections of a namespace.
func (k *JobTracker) connectionsOf(namespace string) []*connection {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.conns[namespace]))
}

// allConnections returns the connections of all namespaces.
func (k *JobTracker) allConnections() []*connection {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []*connection
	for _, conns := range k.conns {
		all = slices.AppendSeq(all, maps.Values(conns))
	}
	return all
}

// spacesOf returns the spaces that receive the events of a namespace's connections: the namespace's own space, and the spaces
// of other namespaces whose pools may use these connections. Spaces with less work come first, so that no space waits for
// one with more or longer patterns.
func (k *JobTracker) spacesOf(connections string) []*space {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := []*space{k.space(spaceKey{connections, connections})}
	for _, s := range k.spaces[connections] {
		if !s.own() && s.weight.Load() > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *space) int {
		return cmp.Or(cmp.Compare(a.weight.Load(), b.weight.Load()), cmp.Compare(a.pools, b.pools))
	})
	return all
}

// space returns the space with a key, and creates it if it does not exist. The caller holds the lock.
func (k *JobTracker) space(key spaceKey) *space {
	if k.spaces[key.connections] == nil {
		k.spaces[key.connections] = map[string]*space{}
	}
	s := k.spaces[key.connections][key.pools]
	if s == nil {
		s = newSpace(key, k)
		k.spaces[key.connections][key.pools] = s
	}
	return s
}

// locate returns the scope of a connection. It returns false if the scope is unknown, or if pools of the namespace must not
// use the connection.
func (k *JobTracker) locate(conn types.NamespacedName, namespace string) (scope jobmatch.Scope, ok bool) {
	c, _ := k.connection(conn)
	if c == nil || conn.Namespace != namespace && mayUse(context.Background(), k.Access, conn, namespace) != nil {
		return scope, false
	}
	c.do(func() { scope, ok = c.scope, c.placed })
	return scope, ok
}

// setPool adds or updates a pool. It ignores a pool with unreadable fields.
func (k *JobTracker) setPool(obj *v1alpha1.RunnerPool) {
	if obj.Unreadable() != nil {
		return
	}
	next := candidateOf(obj)
	defer k.lockPlacing(obj.Namespace)()
	p, now := k.poolFor(obj), k.Now()
	defer p.space.mu.Unlock()
	p.learn(obj)
	p.space.place(p, next, now)
	p.space.wake(p, now)
	k.workers.jobs.add(p.key) // the worker reads its stored jobs if this has not happened yet
}

// lockPlacing waits until no other pool of a namespace is being added, moved or removed, and returns the function that
// releases this lock. Other namespaces do not wait.
func (k *JobTracker) lockPlacing(namespace string) (done func()) {
	turn, _ := k.placing.LoadOrStore(namespace, &sync.Mutex{})
	turn.(*sync.Mutex).Lock()
	return turn.(*sync.Mutex).Unlock
}

// poolFor returns the state of a pool, and holds the lock of the pool's space, which the caller must release. A pool that
// moves from another space keeps its jobs.
func (k *JobTracker) poolFor(obj *v1alpha1.RunnerPool) *pool {
	now, key := k.Now(), client.ObjectKeyFromObject(obj)
	at := spaceKey{pools: key.Namespace, connections: obj.Spec.ConnectionRef.From(key.Namespace).Namespace}
	p := &pool{key: key, now: &candidate{}, ledger: reservation.New(now), boosts: reservation.NewBoosts()}
	switch was := k.lock(key); {
	case was == nil:
	case was.owner.UID != obj.UID:
		was.space.drop(was, now)
		k.leave(was)
	case was.space.spaceKey == at:
		return was
	default:
		was.space.takeOut(was)
		p.ledger, was.ledger = was.ledger, p.ledger
		p.boosts, was.boosts = was.boosts, p.boosts
		p.saved.loaded = was.saved.loaded
		p.saved.unwritten, was.saved.unwritten = now, time.Time{}
		k.leave(was)
	}
	k.mu.Lock()
	p.space = k.space(at)
	k.homes[key] = p.space
	k.mu.Unlock()
	p.space.mu.Lock()
	return p
}

// removePool drops a deleted pool.
func (k *JobTracker) removePool(key types.NamespacedName) {
	defer k.lockPlacing(key.Namespace)()
	if p := k.lock(key); p != nil {
		p.space.drop(p, k.Now())
		k.leave(p)
	}
}

// leave removes a pool from homes after it has left its space, and releases the lock of the space. If the space has no pools
// left, leave drops the space.
func (k *JobTracker) leave(p *pool) {
	s := p.space
	isOver := s.isOver()
	if isOver {
		s.memory.Leave()
	}
	s.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.homes, p.key)
	if isOver {
		delete(k.spaces[s.connections], s.pools)
	}
	if len(k.spaces[s.connections]) == 0 {
		delete(k.spaces, s.connections)
	}
}

// setConnection adds or updates a connection.
func (k *JobTracker) setConnection(obj *v1alpha1.GitHubConnection) {
	key := client.ObjectKeyFromObject(obj)
	k.mu.Lock()
	c := k.conns[key.Namespace][key.Name]
	if c == nil || c.uid != obj.UID {
		c = newConnection(key, obj.UID, k.Now())
		if k.conns[key.Namespace] == nil {
			k.conns[key.Namespace] = map[string]*connection{}
		}
		k.conns[key.Namespace][key.Name] = c
	}
	k.mu.Unlock()
	c.learn(obj)
	k.workers.addConnection(key)
	k.placeAll(key)
}

// removeConnection drops a deleted connection.
func (k *JobTracker) removeConnection(key types.NamespacedName) {
	k.mu.Lock()
	if delete(k.conns[key.Namespace], key.Name); len(k.conns[key.Namespace]) == 0 {
		delete(k.conns, key.Namespace)
	}
	k.mu.Unlock()
	k.placeAll(key)
}

// placeAll updates the pools that use a connection, after the connection changed.
func (k *JobTracker) placeAll(conn types.NamespacedName) {
	k.mu.Lock()
	all, isGone := slices.Collect(maps.Values(k.spaces[conn.Namespace])), k.conns[conn.Namespace][conn.Name] == nil
	k.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		for _, p := range slices.Collect(maps.Values(s.members)) {
			if p.conn == conn {
				s.place(p, *p.now, k.Now())
			}
		}
		if isGone {
			maps.DeleteFunc(s.suspects, func(r suspect, _ time.Time) bool { return r.conn == conn })
		}
		s.mu.Unlock()
	}
}
