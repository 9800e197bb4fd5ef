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
	// Granted is the larger of the pool's existing and its desired number of runners.
	Granted int32
	// Wanted is the number of runners that the pool would have without policies.
	Wanted int32
}

// Asked is the policies' answer about limits, with the part of the ledger that the answer is based on.
type Asked struct {
	// Answer is the answer of the policies.
	Answer policy.Scaling

	in      policy.ScalingInput
	needs   policy.Needs
	domains []policy.Domain
	read    shares
	since   int64             // the ledger's rises when the ledger was read
	sum     [sha256.Size]byte // hash of everything that the policies read
	end     func()            // ends the reservation; nil if there is none
}

// shares is the part of the ledger that a pool's rules read, in the form needed to detect changes.
type shares struct {
	// groups are the groups that user-written rules read. Any change in them may change the answer.
	groups []policy.Group
	// left is the number of runners that each library ceiling leaves to the pool.
	left []int64
}

// Alone evaluates the policies of a pool while the grants of all other pools in its domains cannot grow. It is for a
// pool whose grant was refused twice because others grew first. Namespaces take turns in a domain. The evaluation does
// not affect pools in other domains, however long it takes.
func (e *Engine) Alone(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	end := e.ledger.reserve(ctx, keyOf(in.Pool), b.Domains())
	a := e.Scaling(ctx, b, in)
	a.end = end
	return a
}

// Commit records a pool's grant. It records nothing and returns false if the grant grows and may no longer fit, because
// grants of other pools have changed since the evaluation. The caller must then evaluate the policies again. So the sum
// of the grants under a ceiling never exceeds the ceiling, in whatever order pools are evaluated. Commit never waits
// for the evaluation of rules.
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

// Hold records the grant of a pool that does not grow. It does not check the grants of other pools.
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
	// aloneTime limits how long one pool may prevent the grants of the other pools in its domains from growing.
	// ceilingTime is the limit in domains of library ceilings, whose evaluation takes less than a millisecond.
	aloneTime, ceilingTime = 50 * time.Millisecond, 5 * time.Millisecond
	// maxRisen is the maximum number of domains whose last increase is remembered. Beyond it, the ledger forgets all of
	// them, and pools in domains of rules with earlier answers must be evaluated again.
	maxRisen = 10_000
	// maxListed is the number of pools that list reads before it releases the ledger's lock for others.
	maxListed = 64
)

// ledger records the grants of all pools. Each operation holds its lock only for the work of one pool, which does not
// grow with the number of pools.
type ledger struct {
	mu      sync.Mutex
	fleet   *policy.Fleet
	entries map[types.NamespacedName]*entry
	visits  int // number of entries visited with the lock held

	// rises counts recorded grants. risen contains, for each domain of rules, the value of rises at the last increase of a
	// grant. The ledger has forgotten increases up to the value forgotten.
	rises, forgotten int64
	risen            map[policy.Domain]int64
	// alone contains the reservation of a domain by the pool that is evaluated alone. turns lets such pools take turns.
	alone map[policy.Domain]reservation
	turns map[policy.Domain]*turn
}

// turn lets the pools that must be evaluated alone in a domain take turns. The ledger removes it when no pool uses it.
type turn struct {
	limiter *turns.Limiter
	users   int
}

// reservation prevents the grants of the other pools in a domain from growing until asking ends.
type reservation struct {
	pool   types.NamespacedName
	asking context.Context // ends with the reservation
}

// entry contains what the ledger records about a pool.
type entry struct {
	in     policy.ScalingInput // input of the last evaluation
	needs  policy.Needs
	grant  Grant
	answer *policy.Scaling // the last answer, if it depends on other pools' usage
	read   shares          // what was read for the answer or for a later evaluation; guarded by the ledger's lock
}

func newLedger() ledger {
	return ledger{
		fleet: policy.NewFleet(), entries: map[types.NamespacedName]*entry{},
		risen: map[policy.Domain]int64{}, alone: map[policy.Domain]reservation{}, turns: map[policy.Domain]*turn{},
	}
}

// reserve waits for the pool's turn in the first of the given domains, and then reserves all of them. If some are
// domains of rules, it reserves only these: rules may take long, and Commit can check a ceiling without a reservation.
// The reservation ends when end is called, or after aloneTime or ceilingTime.
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
		if !l.isReserved(d, pool) { // skip a domain that a pool with the turn of another domain has reserved
			l.alone[d] = reservation{pool, ctx}
		}
	}
	context.AfterFunc(ctx, func() {
		l.release(pool, domains)
		limiter.Leave(round, turns.Unknown)
	})
	return cancel
}

// turnOf returns the limiter that gives turns in a domain, and counts one more pool that uses it.
func (l *ledger) turnOf(d policy.Domain) *turns.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[d] == nil {
		l.turns[d] = &turn{limiter: turns.New(1)}
	}
	l.turns[d].users++
	return l.turns[d].limiter
}

// release ends a pool's reservations, and its use of the limiter of the first domain.
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

// rise records in which domains of rules a pool's grant increased. The caller holds the lock. If the grant grew, it
// increased in all domains of the pool. If the pool's labels moved it into another group, the grant increased in the
// domains of that group.
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

// isReserved reports whether another pool has reserved a domain. The caller holds the lock.
func (l *ledger) isReserved(d policy.Domain, pool types.NamespacedName) bool {
	r, ok := l.alone[d]
	return ok && r.pool != pool && r.asking.Err() == nil
}

// commit records a grant unless it grows and isStale reports that it may not.
func (l *ledger) commit(a *Asked, grant Grant) (changed []policy.GroupKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if grant.Granted > l.fleet.Granted(keyOf(a.in.Pool)) && l.isStale(a, grant) {
		return nil, false
	}
	return l.put(a, grant, true), true
}

// isStale reports whether a pool's grant may not grow, because other pools reserved a domain or their grants changed
// since the evaluation. In a domain of user-written rules, any increase of another pool's grant since then makes the
// answer stale. Increases outside the domain do not matter: they could as well have followed this grant. Under a
// library ceiling, the answer is stale only if the grant exceeds what the ceiling leaves now; callCeiling in
// internal/policy explains why the sum then stays within the ceiling.
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

// share reads the part of the ledger that a pool's rules read. The caller holds the lock.
func (l *ledger) share(p policy.Pool, needs policy.Needs) shares {
	rules, read := needs.OfRules(), shares{left: l.fleet.Left(p, needs)}
	for _, g := range rules.Groups(p) {
		read.groups = append(read.groups, l.fleet.Group(g, p, rules))
	}
	return read
}

// look sets the usage in the input of a, and records what it read from the ledger.
func (l *ledger) look(a *Asked) {
	l.mu.Lock()
	sums, granted := l.fleet.Sums(a.in.Pool, a.needs), l.fleet.Granted(keyOf(a.in.Pool))
	a.read = l.share(a.in.Pool, a.needs)
	a.since = l.rises
	l.mu.Unlock()
	a.in.Usage = policy.UsageOf(a.in.Pool, a.needs, sums, func(g policy.GroupKey) []policy.Member { return l.list(g, "") })
	a.in.Usage.Granted = granted
}

// list returns the pools of a group that are in a namespace, or all of them if namespace is empty. It releases the lock
// after every maxListed pools. A change in the meantime increases the version of the group, so that it is detected
// later.
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

// seed records the grant of a pool, unless the ledger already contains the pool.
func (l *ledger) seed(in policy.ScalingInput, needs policy.Needs, grant Grant) {
	if l.entry(keyOf(in.Pool)) == nil {
		l.enter(in, needs, grant)
	}
}

// hold records a grant without checking the grants of other pools.
func (l *ledger) hold(a *Asked, grant Grant) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(a, grant, false)
}

// enter records a pool's grant without an increase in any domain. It returns the changed groups that rules read.
func (l *ledger) enter(in policy.ScalingInput, needs policy.Needs, grant Grant) []policy.GroupKey {
	return l.hold(&Asked{in: in, needs: needs}, grant)
}

// put records a pool's grant. If isAnswer is true, the grant results from the answer in a, and put records that answer
// too. The caller holds the lock.
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

// namespaces returns the namespaces with pools whose rules read a group.
func (l *ledger) namespaces(g policy.GroupKey) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.fleet.Readers(g)))
}

// drop removes a deleted pool. If some of its runners still exist, it keeps the pool with their number as the grant. It
// returns the changed groups that rules read.
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
// last evaluation; otherwise nil. Under a library ceiling, a change is enough if the number of runners that are left
// beyond the pool's grant moved to another power of two, or if it is below 4 and differs. If every change were enough,
// each runner that one pool gets or loses would cause an evaluation of all other pools.
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

// room returns the class of the number of runners that are left to a pool beyond its grant: numbers below 4 each have
// their own class, and larger numbers one class for each power of two.
func room(left int64, of Grant) int64 {
	if room := max(0, left-int64(of.Granted)); room < 4 {
		return room
	}
	return int64(bits.Len64(uint64(left-int64(of.Granted)))) + 1 //nolint:gosec // it is 4 or more
}

// saw records what a repeated evaluation of a pool read, unless another grant of the pool was recorded in the meantime.
func (l *ledger) saw(known *entry, read shares) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[keyOf(known.in.Pool)] == known && len(read.left) == len(known.read.left) {
		known.read = read
	}
}
