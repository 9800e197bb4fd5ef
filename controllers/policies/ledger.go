// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"crypto/sha256"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/turns"
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

	in    policy.ScalingInput
	needs policy.Needs
	read  shares
	sum   [sha256.Size]byte // of all that was read
	end   func()            // of the reservation, if it asks alone
}

// shares are what a pool's rules read of the ledger, as far as it takes to find out whether that has changed.
type shares struct {
	// groups that rules read which somebody wrote: any change may matter.
	groups []policy.Group
	// left by each ceiling of the library.
	left []int64
}

// Alone has other pools of the groups that a pool's rules read wait with their grants until this one's is entered, for at most
// aloneTime: for a pool that was asked twice in vain. Namespaces take turns.
func (e *Engine) Alone(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	end := e.ledger.reserve(ctx, in.Pool, b.Needs())
	a := e.Scaling(ctx, b, in)
	a.end = end
	return a
}

// Commit enters a pool's grant. It returns false, and enters nothing, if the grant no longer fits what others were granted
// since: then the pool is to be asked again. So grants under a shared ceiling never sum above it, in whatever order
// pools are asked about, and nobody waits for anybody's rules.
func (e *Engine) Commit(ctx context.Context, a *Asked, grant Grant) bool {
	if a.end != nil {
		defer a.end()
	}
	changed, ok := e.ledger.commit(ctx, a, grant)
	if ok {
		e.reconsider(changed)
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
	// maxListed is how many pools are listed before others get the ledger's lock.
	maxListed = 64
)

// ledger knows what is granted to which pool. Its lock is held for the time that one pool takes, and that does not grow with the
// number of pools.
type ledger struct {
	mu      sync.Mutex
	fleet   *policy.Fleet
	entries map[types.NamespacedName]*entry
	visits  int // entries that were looked at with the lock

	// alone is the pool that asks alone, if one does. It has the turn.
	alone reservation
	turn  *turns.Limiter
}

// reservation has the pools of groups wait until it is done.
type reservation struct {
	groups []policy.GroupKey
	done   <-chan struct{}
}

// entry is one pool of the ledger.
type entry struct {
	in     policy.ScalingInput // what it was asked about last
	needs  policy.Needs
	grant  Grant
	answer *policy.Scaling // the last, if it depends on what others use
	read   shares          // for the answer, or for a later one; with the ledger's lock
}

func newLedger() ledger {
	return ledger{fleet: policy.NewFleet(), entries: map[types.NamespacedName]*entry{}, turn: turns.New(1)}
}

// reserve waits for the turn to ask alone, and then has others wait.
func (l *ledger) reserve(ctx context.Context, p policy.Pool, needs policy.Needs) (end func()) {
	round, err := l.turn.Enter(ctx, turns.Looking, keyOf(p).String())
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, aloneTime)
	context.AfterFunc(ctx, func() { l.turn.Leave(round, turns.Unknown) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alone = reservation{needs.Groups(p), ctx.Done()}
	return cancel
}

// reserved returns what ends when a pool in one of the pool's groups no longer asks alone; nil if none does. With the lock.
func (l *ledger) reserved(p policy.Pool) <-chan struct{} {
	select {
	case <-l.alone.done:
		return nil
	default:
	}
	groups := policy.GroupsOf(p)
	if slices.ContainsFunc(l.alone.groups, func(g policy.GroupKey) bool { return slices.Contains(groups, g) }) {
		return l.alone.done
	}
	return nil
}

// commit enters a grant if it fits what others have now, and nobody asks alone in one of the pool's groups.
func (l *ledger) commit(ctx context.Context, a *Asked, grant Grant) (changed []policy.GroupKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range maxWaits {
		done := l.reserved(a.in.Pool)
		if done == nil || a.end != nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	if a.needs.Usage() && l.isStale(a, grant) {
		return nil, false
	}
	return l.put(a.in, a.needs, grant, a), true
}

// isStale reports whether a grant may not be entered for what others were granted since the pool was asked about. What rules read
// that somebody wrote must be the same. Under a ceiling of the library, a grant may also be one that no longer uses all that the
// ceiling left, or no more than the pool had before: see callCeiling of internal/policy for why the sum stays within the ceiling.
func (l *ledger) isStale(a *Asked, grant Grant) bool {
	now, had := l.share(a.in.Pool, a.needs), int64(l.fleet.Granted(keyOf(a.in.Pool)))
	for i, left := range now.left {
		if left < a.read.left[i] && int64(grant.Granted) > max(left, had) {
			return true
		}
	}
	return !reflect.DeepEqual(now.groups, a.read.groups)
}

// share reads the ledger for a pool; with the lock.
func (l *ledger) share(p policy.Pool, needs policy.Needs) shares {
	rules, read := needs.OfRules(), shares{left: l.fleet.Left(p, needs)}
	for _, g := range rules.Groups(p) {
		read.groups = append(read.groups, l.fleet.Group(g, p, rules))
	}
	return read
}

// look reads what others use, as far as a pool's rules do.
func (l *ledger) look(a *Asked) {
	l.mu.Lock()
	sums, granted := l.fleet.Sums(a.in.Pool, a.needs), l.fleet.Granted(keyOf(a.in.Pool))
	a.read = l.share(a.in.Pool, a.needs)
	l.mu.Unlock()
	a.in.Usage = policy.UsageOf(a.in.Pool, a.needs, sums, func(g policy.GroupKey) []policy.Member { return l.list(g, "") })
	a.in.Usage.Granted = granted
}

// list lists the pools of a group that are of a namespace, or all of them if it is empty. Others get the lock in between: what changes
// meanwhile has another version.
func (l *ledger) list(g policy.GroupKey, namespace string) (list []policy.Member) {
	from := types.NamespacedName{Namespace: namespace}
	for {
		l.mu.Lock()
		some := l.fleet.Members(g, from, maxListed)
		l.visits += len(some)
		l.mu.Unlock()
		for _, m := range some {
			if namespace != "" && m.Namespace != namespace {
				return list
			}
			list = append(list, m)
			from = types.NamespacedName{Namespace: m.Namespace, Name: m.Name + "\x00"}
		}
		if len(some) < maxListed {
			return list
		}
	}
}

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

// enter notes a pool's grant and returns the groups that changed and that rules read.
func (l *ledger) enter(in policy.ScalingInput, needs policy.Needs, grant Grant) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(in, needs, grant, nil)
}

// put is enter with the lock, and with the answer that the grant is of.
func (l *ledger) put(in policy.ScalingInput, needs policy.Needs, grant Grant, asked *Asked) []policy.GroupKey {
	in.Usage = policy.Usage{}
	now := &entry{in: in, needs: needs, grant: grant}
	if needs.Usage() && asked != nil {
		now.answer, now.read = new(asked.Answer), asked.read
	}
	l.entries[keyOf(in.Pool)] = now
	return l.fleet.Put(in.Pool, needs, grant.Granted, grant.Wanted)
}

// namespaces lists those whose pools read a group.
func (l *ledger) namespaces(g policy.GroupKey) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.fleet.Readers(g)))
}

// keep notes what a pool left that is gone.
func (l *ledger) keep(key types.NamespacedName, left int32) []policy.GroupKey {
	known, ok := l.entry(key)
	if !ok {
		return nil
	}
	return l.enter(known.in, policy.Needs{}, Grant{Granted: left})
}

// drop takes a pool that is gone out and returns the groups that changed and that rules read.
func (l *ledger) drop(key types.NamespacedName) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, key)
	return l.fleet.Remove(key)
}

// moved returns a pool for which others leave so much more or less than when it was asked about last that it is to be asked about
// again; nil for another. Under a ceiling of the library, that is when the room beyond its grant doubles or halves, or is less
// than 4 and another: each runner that one pool gets or loses would have all others asked about.
func (l *ledger) moved(key types.NamespacedName) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visits++
	known := l.entries[key]
	if known == nil || known.answer == nil {
		return nil
	}
	now := l.share(known.in.Pool, known.needs)
	isSame := reflect.DeepEqual(now.groups, known.read.groups)
	for i, left := range now.left {
		isSame = isSame && room(left, known.grant) == room(known.read.left[i], known.grant)
	}
	if isSame {
		return nil
	}
	return known
}

// room classifies what is left to a pool beyond its grant.
func room(left int64, of Grant) int64 {
	if room := max(0, left-int64(of.Granted)); room < 4 {
		return room
	}
	return int64(bits.Len64(uint64(left-int64(of.Granted)))) + 1 //nolint:gosec // it is 4 or more
}

// saw notes what was read for a pool that was asked about again, unless it was granted something meanwhile.
func (l *ledger) saw(known *entry, read shares) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[keyOf(known.in.Pool)] == known && len(read.left) == len(known.read.left) {
		known.read = read
	}
}
