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

	in      policy.ScalingInput
	needs   policy.Needs
	domains []policy.Domain
	read    shares
	since   int64             // rises of the ledger when it was read
	sum     [sha256.Size]byte // of all that was read
	end     func()            // of the reservation, if it asks alone
}

// shares are what a pool's rules read of the ledger, as far as it takes to find out whether that has changed.
type shares struct {
	// groups that rules read which somebody wrote: any change may matter.
	groups []policy.Group
	// left by each ceiling of the library.
	left []int64
}

// Alone asks while no other pool of its domains may be granted more, for a pool whose grant was refused twice. Namespaces take turns in a
// domain. Pools of other domains are granted what they ask for, whatever the rules of this one take.
func (e *Engine) Alone(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	end := e.ledger.reserve(ctx, keyOf(in.Pool), b.Domains())
	a := e.Scaling(ctx, b, in)
	a.end = end
	return a
}

// Commit enters a pool's grant. It returns false, and enters nothing, if the pool would get more than it had and that may no longer fit what
// others were granted since: then the pool is to be asked again. So grants under a shared ceiling never sum above it, in whatever order
// pools are asked about. Commit waits for nobody's rules.
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

// Hold enters the grant of a pool that goes no further than it is, whatever others were granted.
func (e *Engine) Hold(a *Asked, grant Grant) {
	e.reconsider(e.ledger.hold(a, grant))
}

// Granted is what a pool was granted last.
func (e *Engine) Granted(key types.NamespacedName) int32 {
	known, _ := e.ledger.entry(key)
	return known.grant.Granted
}

const (
	// aloneTime is how long other pools of a domain are granted no more at most while one asks alone, and ceilingTime is that of ceilings of the
	// library, which take less than a millisecond.
	aloneTime, ceilingTime = 50 * time.Millisecond, 5 * time.Millisecond
	// maxRisen is for how many domains it is remembered when a pool was granted more. Where there are more, pools that were asked before are asked again.
	maxRisen = 10_000
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

	// rises counts the grants that were more than before, and risen has the last in each domain of rules. Those before forgotten are left out.
	rises, forgotten int64
	risen            map[policy.Domain]int64
	// alone is the pool of a domain that asks alone. It has the turn.
	alone map[policy.Domain]reservation
	turns map[policy.Domain]*turn
}

// turn is that of pools that ask alone in a domain. It is dropped when no pool needs it.
type turn struct {
	limiter *turns.Limiter
	users   int
}

// reservation has the other pools of a domain be granted no more until it is done.
type reservation struct {
	pool types.NamespacedName
	done <-chan struct{}
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
	return ledger{
		fleet: policy.NewFleet(), entries: map[types.NamespacedName]*entry{},
		risen: map[policy.Domain]int64{}, alone: map[policy.Domain]reservation{}, turns: map[policy.Domain]*turn{},
	}
}

// reserve waits for the turn of a pool's first domain to ask alone, and then reserves all. A pool in domains of rules does not reserve those of
// ceilings: rules may take long, and a ceiling is known when a grant is entered.
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
		if !l.isReserved(d, pool) { // by a pool that took the turn of another domain
			l.alone[d] = reservation{pool, ctx.Done()}
		}
	}
	context.AfterFunc(ctx, func() {
		l.release(pool, domains)
		limiter.Leave(round, turns.Unknown)
	})
	return cancel
}

// turnOf returns the turns of a domain, for one more pool.
func (l *ledger) turnOf(d policy.Domain) *turns.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns[d] == nil {
		l.turns[d] = &turn{limiter: turns.New(1)}
	}
	l.turns[d].users++
	return l.turns[d].limiter
}

// release ends a pool's reservation, and its need for the turns of the first domain.
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

// rise notes in which domains of rules more is granted than before; with the lock. A pool that was granted more counts in all of its domains, and
// one whose labels moved it into another group counts there with all that it has.
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
		if d.Rules && (grant.Granted > had || grant.Granted > 0 && !slices.Contains(groups, d.Group)) {
			l.risen[d] = l.rises
		}
	}
}

// isReserved reports whether another pool of a domain asks alone; with the lock.
func (l *ledger) isReserved(d policy.Domain, pool types.NamespacedName) bool {
	r, ok := l.alone[d]
	if !ok || r.pool == pool {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// commit enters a grant if it fits what others have now.
func (l *ledger) commit(a *Asked, grant Grant) (changed []policy.GroupKey, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if grant.Granted > l.fleet.Granted(keyOf(a.in.Pool)) && l.isStale(a, grant) {
		return nil, false
	}
	return l.put(a.in, a.needs, a.domains, grant, a), true
}

// isStale reports whether a pool may not be granted more, for what others were granted since it was asked about. In a domain of rules that
// somebody wrote, no other pool may have been granted more. Pools that aren't in the domain don't matter: they may be granted more after this
// one as well. Under a ceiling of the library, a grant may be one that no longer uses all that the ceiling left: see callCeiling of
// internal/policy for why the sum stays within the ceiling.
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
	a.since = l.rises
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

// hold enters a grant whatever others were granted.
func (l *ledger) hold(a *Asked, grant Grant) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(a.in, a.needs, a.domains, grant, nil)
}

// enter notes a pool's grant and returns the groups that changed and that rules read.
func (l *ledger) enter(in policy.ScalingInput, needs policy.Needs, grant Grant) []policy.GroupKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(in, needs, nil, grant, nil)
}

// put is enter with the lock, with the pool's domains and, if the grant results from an answer, with that.
func (l *ledger) put(in policy.ScalingInput, needs policy.Needs, domains []policy.Domain, grant Grant, asked *Asked) []policy.GroupKey {
	in.Usage = policy.Usage{}
	now := &entry{in: in, needs: needs, grant: grant}
	if needs.Usage() && asked != nil {
		now.answer, now.read = new(asked.Answer), asked.read
	}
	l.rise(domains, grant, l.entries[keyOf(in.Pool)], l.fleet.Granted(keyOf(in.Pool)))
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
