// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/policy"
)

// Grant is what a pool has and is to have.
type Grant struct {
	// Granted is the larger of the runners it has and those it is to have.
	Granted int32
	// Wanted is what it would have if no policy bound it.
	Wanted int32
}

// Asked is what policies answered on limits, and what was read of the ledger for it.
type Asked struct {
	// Answer of the policies.
	Answer policy.Scaling

	in      policy.ScalingInput
	needs   policy.Needs
	reading [sha256.Size]byte
	end     func() // of the reservation, if it asks alone
}

// Alone has other pools of the groups that a pool's rules read wait with their grants, until this one's is entered,
// for at most aloneTime: for a pool that was asked twice in vain.
func (e *Engine) Alone(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	end := e.ledger.reserve(ctx, in.Pool, b.Needs())
	a := e.Scaling(ctx, b, in)
	a.end = end
	return a
}

// Commit enters a pool's grant. It returns false, and enters nothing, if what its rules read of the ledger has
// changed since: then it is to be asked again. So grants under a shared ceiling never sum above it, in whatever order
// pools are asked about, and nobody waits for anybody's rules.
func (e *Engine) Commit(ctx context.Context, a *Asked, grant Grant) bool {
	if a.end != nil {
		defer a.end()
	}
	sharers, ok := e.ledger.commit(ctx, a, grant)
	if ok {
		e.reconsider(sharers)
	}
	return ok
}

// Hold enters the grant of a pool that goes no further than it is, whatever others were granted.
func (e *Engine) Hold(a *Asked, grant Grant) {
	e.reconsider(e.ledger.enter(a.in, a.needs, grant))
}

// Granted is what a pool was granted last.
func (e *Engine) Granted(key types.NamespacedName) int32 {
	known, _ := e.ledger.entry(key)
	return known.grant.Granted
}

const (
	// aloneTime is how long others wait at most for the grant of a pool that asks alone.
	aloneTime = 50 * time.Millisecond
	// maxWaits is for how many such pools, one after the other, a pool waits.
	maxWaits = 3
)

// ledger knows what is granted to which pool.
type ledger struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
	groups  map[policy.GroupKey]*tally
	alone   []*reservation
}

// reservation is a pool that asks alone, and the groups that it reads, whose pools wait for it.
type reservation struct {
	groups []policy.GroupKey
	done   <-chan struct{}
}

// reserve waits for those that read one of the pool's groups alone, and then has others wait.
func (l *ledger) reserve(ctx context.Context, p policy.Pool, needs policy.Needs) (end func()) {
	read := slices.DeleteFunc(policy.GroupsOf(p), func(g policy.GroupKey) bool { return !needs.Reads(g) })
	for {
		l.mu.Lock()
		before := l.reserved(p)
		if before == nil {
			ctx, cancel := context.WithTimeout(ctx, aloneTime)
			l.alone = append(l.alone, &reservation{groups: read, done: ctx.Done()})
			l.mu.Unlock()
			return cancel
		}
		l.mu.Unlock()
		select {
		case <-before.done: // it ends with its time at the latest
		case <-ctx.Done():
			return func() {}
		}
	}
}

// reserved returns a reservation that one of the pool's groups is read for, or nil, and drops those that are over; with the lock.
func (l *ledger) reserved(p policy.Pool) *reservation {
	l.alone = slices.DeleteFunc(l.alone, func(r *reservation) bool {
		select {
		case <-r.done:
			return true
		default:
			return false
		}
	})
	groups := policy.GroupsOf(p)
	i := slices.IndexFunc(l.alone, func(r *reservation) bool {
		return slices.ContainsFunc(r.groups, func(g policy.GroupKey) bool { return slices.Contains(groups, g) })
	})
	if i < 0 {
		return nil
	}
	return l.alone[i]
}

// commit enters a grant if what was read for it is unchanged, and nobody asks alone in one of the pool's groups.
func (l *ledger) commit(ctx context.Context, a *Asked, grant Grant) (sharers []types.NamespacedName, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.reserved(a.in.Pool)
	for waits := 0; before != nil && a.end == nil && waits < maxWaits; waits++ {
		l.mu.Unlock()
		select {
		case <-before.done:
		case <-ctx.Done():
		}
		l.mu.Lock()
		before = l.reserved(a.in.Pool)
	}
	if a.needs.Usage() && !reflect.DeepEqual(l.read(a.in.Pool, a.needs), a.in.Usage) {
		return nil, false
	}
	var answer *policy.Scaling
	if a.needs.Usage() {
		answer = &a.Answer
	}
	return l.put(a.in, a.needs, grant, answer), true
}

// entry is one pool of the ledger.
type entry struct {
	in     policy.ScalingInput // what it was asked about last
	needs  policy.Needs
	grant  Grant
	answer *policy.Scaling // the last, if it depends on what others use
}

// tally sums up a group.
type tally struct {
	granted int64
	members []types.NamespacedName // sorted
}

func newLedger() ledger {
	return ledger{entries: map[types.NamespacedName]*entry{}, groups: map[policy.GroupKey]*tally{}}
}

// usage sums up what the pool's groups use without it, as far as rules read it.
func (l *ledger) usage(p policy.Pool, needs policy.Needs) policy.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read(p, needs)
}

// read is usage with the lock.
func (l *ledger) read(p policy.Pool, needs policy.Needs) policy.Usage {
	key := keyOf(p)
	u := policy.UsageOf(p, needs, func(g policy.GroupKey) policy.Group { return l.sum(g, key, needs.Members) })
	if known := l.entries[key]; known != nil {
		u.Granted = known.grant.Granted
	}
	return u
}

// sum sums up a group without one pool.
func (l *ledger) sum(g policy.GroupKey, without types.NamespacedName, members bool) policy.Group {
	t := l.groups[g]
	if t == nil {
		return policy.Group{}
	}
	if !members {
		granted, n := t.granted, len(t.members)
		if self := l.entries[without]; self != nil && slices.Contains(policy.GroupsOf(self.in.Pool), g) {
			granted, n = granted-int64(self.grant.Granted), n-1
		}
		return policy.Group{Granted: clamp(granted), Pools: clamp(int64(n))}
	}
	var list []policy.Member
	for _, key := range t.members {
		if key != without {
			grant := l.entries[key].grant
			list = append(list, policy.Member{Namespace: key.Namespace, Name: key.Name, Granted: grant.Granted, Wanted: grant.Wanted})
		}
	}
	return policy.GroupOf(list)
}

func clamp(n int64) int32 { return int32(max(0, min(n, 1<<31-1))) } //nolint:gosec // it was just made to fit

// entry returns what is known of a pool.
func (l *ledger) entry(key types.NamespacedName) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.entries[key]
	if known == nil {
		return entry{}, false
	}
	return *known, true
}

// seed notes the grant of a pool that was not decided on yet.
func (l *ledger) seed(in policy.ScalingInput, needs policy.Needs, grant Grant) {
	if _, known := l.entry(keyOf(in.Pool)); !known {
		l.enter(in, needs, grant)
	}
}

// enter notes a pool's grant and returns the pools that have to be looked at for it: those that
// share a group which their rules read.
func (l *ledger) enter(in policy.ScalingInput, needs policy.Needs, grant Grant) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(in, needs, grant, nil)
}

// put is enter with the lock, and with the answer that the grant is of.
func (l *ledger) put(in policy.ScalingInput, needs policy.Needs, grant Grant, answer *policy.Scaling) []types.NamespacedName {
	key := keyOf(in.Pool)
	before := l.entries[key]
	l.remove(key)
	in.Usage = policy.Usage{}
	l.entries[key] = &entry{in: in, needs: needs, grant: grant, answer: answer}
	for _, g := range policy.GroupsOf(in.Pool) {
		t := l.groups[g]
		if t == nil {
			t = &tally{}
			l.groups[g] = t
		}
		t.granted += int64(grant.Granted)
		i, _ := slices.BinarySearchFunc(t.members, key, compareKeys)
		t.members = slices.Insert(t.members, i, key)
	}
	if before == nil {
		return l.sharers(key, in.Pool)
	}
	moved := !in.Pool.Equal(before.in.Pool)
	switch {
	case before.grant == grant && !moved:
		return nil
	case moved:
		return union(l.sharers(key, in.Pool), l.sharers(key, before.in.Pool))
	}
	return l.sharers(key, in.Pool)
}

// keep notes what a pool left that is gone.
func (l *ledger) keep(key types.NamespacedName, left int32) []types.NamespacedName {
	known, ok := l.entry(key)
	if !ok {
		return nil
	}
	return l.enter(known.in, policy.Needs{}, Grant{Granted: left})
}

func union(a, b []types.NamespacedName) []types.NamespacedName {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compareKeys)
	return slices.Compact(all)
}

// drop takes a pool that is gone out and returns the pools that shared something with it.
func (l *ledger) drop(key types.NamespacedName) []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.entries[key]
	if known == nil {
		return nil
	}
	sharers := l.sharers(key, known.in.Pool)
	l.remove(key)
	delete(l.entries, key)
	return sharers
}

// remove removes a pool from its groups.
func (l *ledger) remove(key types.NamespacedName) {
	known := l.entries[key]
	if known == nil {
		return
	}
	for _, g := range policy.GroupsOf(known.in.Pool) {
		t := l.groups[g]
		t.granted -= int64(known.grant.Granted)
		if i, found := slices.BinarySearchFunc(t.members, key, compareKeys); found {
			t.members = slices.Delete(t.members, i, i+1)
		}
		if len(t.members) == 0 {
			delete(l.groups, g)
		}
	}
}

// sharers lists the other pools whose rules read a group that the pool is in.
func (l *ledger) sharers(key types.NamespacedName, p policy.Pool) []types.NamespacedName {
	found := map[types.NamespacedName]bool{}
	for _, g := range policy.GroupsOf(p) {
		t := l.groups[g]
		if t == nil {
			continue
		}
		for _, other := range t.members {
			if other != key && l.entries[other].needs.Reads(g) {
				found[other] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), compareKeys)
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
