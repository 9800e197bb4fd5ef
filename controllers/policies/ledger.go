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

// Grant is the number of runners that a pool has or may create.
type Grant struct {
	// Granted is the larger of the runners that it has and those that it should have.
	Granted int32
	// Wanted is what it would have without policies.
	Wanted int32
}

// Asked is the policies' answer about limits, with the part of the ledger that it was based on.
type Asked struct {
	// Answer is the answer of the policies.
	Answer policy.Scaling

	in      policy.ScalingInput
	needs   policy.Needs
	domains []policy.Domain
	read    shares
	since   int64             // the ledger's rises when it was read
	sum     [sha256.Size]byte // digest of everything that was read
	end     func()            // ends the reservation, if the pool asks alone
}

// shares is the part of the ledger that a pool's rules read, in the form needed to detect changes.
type shares struct {
	// groups are the groups that user-written rules read. Any change in them may matter.
	groups []policy.Group
	// left is the remainder of each library ceiling.
	left []int64
}

// Alone evaluates the policies while no other pool in the pool's domains may be granted more. It is for a pool whose grant
// was refused twice. Namespaces take turns in a domain. Pools in other domains are not affected, however long these rules
// take.
func (e *Engine) Alone(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	end := e.ledger.reserve(ctx, keyOf(in.Pool), b.Domains())
	a := e.Scaling(ctx, b, in)
	a.end = end
	return a
}

// Commit records a pool's grant. It returns false, and records nothing, if the pool would get more than before and that may
// no longer fit the grants of other pools since the evaluation. The policies must then be evaluated again. So grants under
// a shared ceiling never exceed it in sum, whatever the order of evaluations. Commit never waits for the evaluation of
// rules.
func (e *Engine) Commit(a *Asked, grant Grant) bool {
	if a.end != nil {
		defer a.end()
	}
	changed, ok := e.ledger.commit(a, grant)
	if ok {
		e.reconsider(changed)
	}
	return ok
}

// Hold records the grant of a pool that does not grow, whatever others were granted.
func (e *Engine) Hold(a *Asked, grant Grant) {
	e.reconsider(e.ledger.hold(a, grant))
}

// Granted returns the last grant of a pool.
func (e *Engine) Granted(key types.NamespacedName) int32 {
	if known := e.ledger.entry(key); known != nil {
		return known.grant.Granted
	}
	return 0
}

const (
	// aloneTime limits how long other pools of a domain are granted no more while one asks alone. ceilingTime is the limit for
	// library ceilings, whose evaluation takes less than a millisecond.
	aloneTime, ceilingTime = 50 * time.Millisecond, 5 * time.Millisecond
	// maxRisen limits for how many domains the last increase of a grant is remembered. Beyond that, pools with earlier answers
	// are evaluated again.
	maxRisen = 10_000
	// maxListed is how many pools are listed before the ledger's lock is released for others.
	maxListed = 64
)

// ledger records the grants of all pools. Its lock is held for the work of one pool at a time, which does not grow with the
// number of pools.
type ledger struct {
	mu      sync.Mutex
	fleet   *policy.Fleet
	entries map[types.NamespacedName]*entry
	visits  int // number of entries visited with the lock held

	// rises counts the grants that increased, and risen has the last increase in each domain of rules. Increases before
	// forgotten are not recorded.
	rises, forgotten int64
	risen            map[policy.Domain]int64
	// alone has the pool that asks alone in a domain. It has the turn.
	alone map[policy.Domain]reservation
	turns map[policy.Domain]*turn
}

// turn lets the pools that ask alone in a domain take turns. It is dropped when no pool needs it.
type turn struct {
	limiter *turns.Limiter
	users   int
}

// reservation prevents the other pools of a domain from being granted more until it is done.
type reservation struct {
	pool   types.NamespacedName
	asking context.Context // ends with the reservation
}

// entry is a pool's entry in the ledger.
type entry struct {
	in     policy.ScalingInput // input of the last evaluation
	needs  policy.Needs
	grant  Grant
	answer *policy.Scaling // the last one, if it depends on other pools' usage
	read   shares          // for the answer, or for a later one; guarded by the ledger's lock
}

func newLedger() ledger {
	return ledger{
		fleet: policy.NewFleet(), entries: map[types.NamespacedName]*entry{},
		risen: map[policy.Domain]int64{}, alone: map[policy.Domain]reservation{}, turns: map[policy.Domain]*turn{},
	}
}

// reserve waits for the turn of a pool's first domain to ask alone, and then reserves all domains. A pool in domains of
// rules does not reserve domains of ceilings: rules may take long, and the state of a ceiling is known when a grant is
// recorded.
func (l *ledger) reserve(ctx context.Context, pool types.NamespacedName, domains []policy.Domain) (end func()) {
	isOfRules := func(d policy.Domain) bool { return d.Rules }
	limit := ceilingTime
	if slices.ContainsFunc(domains, isOfRules) {
		domains = slices.DeleteFunc(slices.Clone(domains), func(d policy.Domain) bool { return !d.Rules })
		limit = aloneTime
	}
	if len(domains) == 0 {
		return func() {}
	}
	limiter := l.turnOf(domains[0])
	round, err := limiter.Enter(ctx, turns.Looking, pool.String())
	if err != nil {
		l.release(pool, domains)
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range domains {
		if !l.isReserved(d, pool) { // reserved by a pool that took the turn of another domain
			l.alone[d] = reservation{pool, ctx}
		}
	}
	context.AfterFunc(ctx, func() {
		l.release(pool, domains)
		limiter.Leave(round, turns.Unknown)
	})
	return cancel
}

// turnOf returns the turns of a domain, and counts one more pool that uses them.
func (l *ledger) turnOf(d policy.Domain) *turns.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[d] == nil {
		l.turns[d] = &turn{limiter: turns.New(1)}
	}
	l.turns[d].users++
	return l.turns[d].limiter
}

// release ends a pool's reservation, and its use of the turns of the first domain.
func (l *ledger) release(pool types.NamespacedName, domains []policy.Domain) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range domains {
		if l.alone[d].pool == pool {
			delete(l.alone, d)
		}
	}
	t := l.turns[domains[0]]
	if t.users--; t.users == 0 {
		delete(l.turns, domains[0])
	}
}

// rise records the domains of rules in which a grant increased. The caller holds the lock. A pool that was granted more
// counts in all of its domains. A pool whose labels moved it into another group counts there with its whole grant.
func (l *ledger) rise(domains []policy.Domain, grant Grant, before *entry, had int32) {
	l.rises++
	if len(l.risen) > maxRisen {
		clear(l.risen)
		l.forgotten = l.rises
	}
	var groups []policy.GroupKey
	if before != nil {
		groups = policy.GroupsOf(before.in.Pool)
	}
	for _, d := range domains {
		if d.Rules && (grant.Granted > had || grant.Granted > 0 && !policy.HasGroup(groups, d.Group)) {
			l.risen[d] = l.rises
		}
	}
}

// isReserved reports whether another pool of a domain asks alone. The caller holds the lock.
func (l *ledger) isReserved(d policy.Domain, pool types.NamespacedName) bool {
	r, ok := l.alone[d]
	return ok && r.pool != pool && r.asking.Err() == nil
}

// commit records a grant if it fits the current grants of other pools.
func (l *ledger) commit(a *Asked, grant Grant) (changed []policy.GroupKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if grant.Granted > l.fleet.Granted(keyOf(a.in.Pool)) && l.isStale(a, grant) {
		return nil, false
	}
	return l.put(a, grant, true), true
}

// isStale reports whether a pool may not be granted more because of other pools' grants since its evaluation. In a domain
// of user-written rules, no other pool may have been granted more. Pools outside the domain do not matter, as they may also
// be granted more after this one. Under a library ceiling, the grant may still fit what remains: callCeiling of
// internal/policy explains why the sum stays within the ceiling.
func (l *ledger) isStale(a *Asked, grant Grant) bool {
	for _, d := range a.domains {
		if l.isReserved(d, keyOf(a.in.Pool)) || d.Rules && max(l.risen[d], l.forgotten) > a.since {
			return true
		}
	}
	for i, left := range l.fleet.Left(a.in.Pool, a.needs) {
		if left < a.read.left[i] && int64(grant.Granted) > left {
			return true
		}
	}
	return false
}

// share reads the ledger for a pool. The caller holds the lock.
func (l *ledger) share(p policy.Pool, needs policy.Needs) shares {
	rules, read := needs.OfRules(), shares{left: l.fleet.Left(p, needs)}
	for _, g := range rules.Groups(p) {
		read.groups = append(read.groups, l.fleet.Group(g, p, rules))
	}
	return read
}

// look reads the usage of other pools that a pool's rules need.
func (l *ledger) look(a *Asked) {
	l.mu.Lock()
	sums, granted := l.fleet.Sums(a.in.Pool, a.needs), l.fleet.Granted(keyOf(a.in.Pool))
	a.read = l.share(a.in.Pool, a.needs)
	a.since = l.rises
	l.mu.Unlock()
	a.in.Usage = policy.UsageOf(a.in.Pool, a.needs, sums, func(g policy.GroupKey) []policy.Member { return l.list(g, "") })
	a.in.Usage.Granted = granted
}

// list lists the pools of a group that are in a namespace, or all of them if namespace is empty. It releases the lock in
// between. A change in the meantime has another version.
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

// entry returns the entry of a pool; nil if there is none.
func (l *ledger) entry(key types.NamespacedName) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[key]
}

// seed records the grant of a pool that has no decision yet.
func (l *ledger) seed(in policy.ScalingInput, needs policy.Needs, grant Grant) {
	if l.entry(keyOf(in.Pool)) == nil {
		l.enter(in, needs, grant)
	}
}

// hold records a grant whatever others were granted.
func (l *ledger) hold(a *Asked, grant Grant) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(a, grant, false)
}

// enter records the grant of a pool in no domain, and returns the changed groups that rules read.
func (l *ledger) enter(in policy.ScalingInput, needs policy.Needs, grant Grant) []policy.GroupKey {
	return l.hold(&Asked{in: in, needs: needs}, grant)
}

// put records a pool's grant and, if the grant results from it, the answer. The caller holds the lock.
func (l *ledger) put(a *Asked, grant Grant, isAnswer bool) []policy.GroupKey {
	key, now := keyOf(a.in.Pool), &entry{in: a.in, needs: a.needs, grant: grant}
	now.in.Usage = policy.Usage{}
	if isAnswer && a.needs.Usage() {
		now.answer, now.read = new(a.Answer), a.read
	}
	l.rise(a.domains, grant, l.entries[key], l.fleet.Granted(key))
	l.entries[key] = now
	return l.fleet.Put(a.in.Pool, a.needs, grant.Granted, grant.Wanted)
}

// namespaces lists the namespaces whose pools read a group.
func (l *ledger) namespaces(g policy.GroupKey) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.fleet.Readers(g)))
}

// drop removes a pool that is gone, except for the runners that it left. It returns the changed groups that rules read.
func (l *ledger) drop(key types.NamespacedName, left int32) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.entries[key]; known != nil && left > 0 {
		return l.put(&Asked{in: known.in}, Grant{Granted: left}, false)
	}
	delete(l.entries, key)
	return l.fleet.Remove(key)
}

// moved returns the entry of a pool that should be evaluated again, because other pools' usage changed enough since its
// last evaluation; otherwise nil. Under a library ceiling, that is the case if the room beyond its grant doubles or halves,
// or if it is below 4 and differs. Otherwise each runner that one pool gets or loses would cause an evaluation of all
// others.
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

// room classifies how much is left to a pool beyond its grant.
func room(left int64, of Grant) int64 {
	if room := max(0, left-int64(of.Granted)); room < 4 {
		return room
	}
	return int64(bits.Len64(uint64(left-int64(of.Granted)))) + 1 //nolint:gosec // it is 4 or more
}

// saw records what was read for a repeated evaluation of a pool, unless the pool was granted something in the meantime.
func (l *ledger) saw(known *entry, read shares) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[keyOf(known.in.Pool)] == known && len(read.left) == len(known.read.left) {
		known.read = read
	}
}
