// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
)

// Engine holds the policies in force and evaluates them for pools. It reuses an answer while the values that the rules
// read do not change. It also keeps the ledger of the pools' grants.
type Engine struct {
	// Now is the clock.
	Now func() time.Time
	// Cache lists the existing policies; nil if callers put all policies into force themselves.
	Cache client.Reader
	// Log is the log of decisions; nil for none.
	Log *DecisionLog

	fitting sync.Mutex // held from the check whether a policy fits in memory until the policy is in force
	seeding seeding
	// Pools wakes the reconciler for pools whose policies or limits changed.
	Pools kube.EventSource
	// Policies wakes, by kind, the reconcilers for policies whose number of bound pools changed.
	Policies map[string]*kube.EventSource

	mu     sync.Mutex
	loaded map[string]loaded // by Ref
	sound  map[string]loaded // policies without diagnostics; a namespace has few of them
	states map[string]string // states of policies as counted in the metric
	set    *policy.Set
	pools  poolsByNamespace
	passes passes
	// listings are the policy lists for new pools, by namespace.
	listings map[string]*listing

	ledger ledger
}

// seeding records whether the ledger contains the grants of existing pools. The goroutine that reads them holds the
// lock, so that others wait for it.
type seeding struct {
	sync.Mutex
	isDone bool
}

// loaded is a policy in force, and its source.
type loaded struct {
	policy *policy.Policy
	// source and digest identify the version of the policy. source does not contain modules and data, which digest covers.
	source policy.Source
	digest string
	size   int // size of the source in bytes
	// unfinished is true if the policy was not loaded for a reason that may pass, so that loading must be tried again.
	unfinished bool
	// excesses is how many times in a row loading exceeded its limits, and retry is when the policy may be loaded again.
	excesses int
	retry    time.Time
}

// poolsByNamespace groups pools by namespace. All pools share one lock, so a change of a RunnerPolicy must visit only
// the pools of its namespace. A change of a ClusterRunnerPolicy visits all pools.
type poolsByNamespace map[string]map[types.NamespacedName]*pool

func (p poolsByNamespace) get(key types.NamespacedName) *pool { return p[key.Namespace][key] }

// maxReached is the number of pools or groups that are visited before the lock is released for others. betweenParts is
// called while the lock is released during a tenant's work; only tests set it.
const maxReached = 64

var betweenParts = func() {}

// release counts a step of a tenant's work, and releases the lock briefly after every maxReached steps.
func (e *Engine) release(steps *int) {
	if *steps++; *steps%maxReached == 0 {
		e.mu.Unlock()
		betweenParts()
		e.mu.Lock()
	}
}

// reached returns the pools that a policy may bind. The caller holds the lock, and the iteration releases it from time
// to time.
func (e *Engine) reached(by *policy.Policy) iter.Seq2[types.NamespacedName, *pool] {
	reached, namespace := e.pools, by.Source().Namespace
	if namespace != "" {
		reached = poolsByNamespace{namespace: e.pools[namespace]}
	}
	return func(yield func(types.NamespacedName, *pool) bool) {
		seen := 0
		for _, pools := range reached {
			for key, known := range pools {
				if e.release(&seen); !yield(key, known) {
					return
				}
			}
		}
	}
}

// pool contains what the Engine remembers about a pool.
type pool struct {
	facts    policy.Pool
	set      *policy.Set // the set from which bound was derived
	bound    *policy.Bound
	verdicts map[judged]judgement // of the policies in bound, about facts
	scaling  remembered[policy.Scaling]
	update   remembered[policy.Update]
	audit    map[string][]policy.Audit // by decision
	waits    bool                      // the pool waits for a policy to be loaded
	due      time.Time                 // when a change of policies last woke or will wake the pool
}

// remembered is an answer, with the hash and the number of jobs of the input for which it is valid.
type remembered[T any] struct {
	reading [sha256.Size]byte
	jobs    int32
	answer  T
	expires time.Time
}

// NewEngine returns an Engine without policies.
func NewEngine(now func() time.Time) *Engine {
	return &Engine{
		Now: now, loaded: map[string]loaded{}, sound: map[string]loaded{}, states: map[string]string{}, set: policy.NewSet(),
		pools: poolsByNamespace{}, passes: newPasses(), listings: map[string]*listing{}, Policies: map[string]*kube.EventSource{policy.KindRunnerPolicy: {}, policy.KindClusterRunnerPolicy: {}}, ledger: newLedger(),
	}
}

// Unloaded is the failure of all decisions about a pool while a policy that may bind it is not loaded.
var Unloaded = policy.Failure{Kind: policy.NotLoaded, Message: "policies are being loaded"}

// Put puts a policy into force, and wakes the pools that it binds or bound before.
func (e *Engine) Put(p *policy.Policy, source policy.Source) {
	e.put(loaded{policy: p, source: source})
}

func (e *Engine) put(l loaded) {
	l.size = l.source.Size()
	l.source, l.digest = l.source.Identity() // without the lock, as it reads all modules
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.loaded[l.policy.Ref()]
	if l.excesses > 0 {
		if before.policy != nil && before.is(l.source, l.digest) {
			l.excesses += before.excesses
		}
		l.retry = e.Now().Add(policy.Pause(l.excesses))
	}
	asBroken := before.policy != nil && len(l.policy.Diagnostics()) > 0 && before.is(l.source, l.digest) &&
		equality.Semantic.DeepEqual(before.policy.Diagnostics(), l.policy.Diagnostics())
	if asBroken {
		l.policy = before.policy
	}
	e.loaded[l.policy.Ref()] = l
	if asBroken {
		return
	}
	if delete(e.sound, l.policy.Ref()); len(l.policy.Diagnostics()) == 0 {
		e.sound[l.policy.Ref()] = l
	}
	if before.policy != nil && before.policy != l.policy {
		before.policy.Retire()
	}
	e.changed(before.policy, l.policy)
}

// Limits for the size of modules and data: of the RunnerPolicies of one namespace, of all RunnerPolicies, and of all
// ClusterRunnerPolicies. Because of these limits, no namespace can prevent the guard rail from being loaded, and even
// several namespaces cannot prevent the policies of another namespace from being loaded.
const (
	maxNamespaceBytes = 4 * v1alpha1.MaxPolicyBytes
	maxAllBytes       = 64 * v1alpha1.MaxPolicyBytes
	maxClusterBytes   = 16 * v1alpha1.MaxPolicyBytes
	// maxNamespacePolicies limits costs that do not depend on the size of policies: each policy may cause timeouts, and
	// adds the library's rules to a child process.
	maxNamespacePolicies = 32
	// maxNamespaceCeilings limits the library ceilings in all policies of a namespace together. Each bound pool takes
	// memory for them, and the ledger's lock is held while the remainder of each ceiling is computed for a pool.
	maxNamespaceCeilings = 64
)

// tooMuch returns the reason why a policy may not be loaded: together with the other policies, it would exceed one of
// these limits. It returns "" if the policy may be loaded.
func (e *Engine) tooMuch(s policy.Source) string {
	o := e.others(s)
	all, sameNamespace := o.all+s.Size(), o.sameNamespace+s.Size()
	const advice = "leave out what isn't needed"
	if s.Kind == policy.KindClusterRunnerPolicy {
		if all > maxClusterBytes {
			return fmt.Sprintf("all ClusterRunnerPolicies have %d bytes of modules and data, more than %d: %s", all, maxClusterBytes, advice)
		}
		return ""
	}
	switch {
	case o.count >= maxNamespacePolicies:
		return fmt.Sprintf("namespace %s has %d policies already: join some of them", s.Namespace, maxNamespacePolicies)
	case o.ceilings+ceilingsOf(s) > maxNamespaceCeilings:
		return fmt.Sprintf("the policies of namespace %s have %d ceilings, more than %d: combine some of them; overrides set other limits for single groups", s.Namespace, o.ceilings+ceilingsOf(s), maxNamespaceCeilings)
	case sameNamespace > maxNamespaceBytes:
		return fmt.Sprintf("the policies of namespace %s have %d bytes of modules and data, more than %d: %s", s.Namespace, sameNamespace, maxNamespaceBytes, advice)
	case all > maxAllBytes && sameNamespace >= o.most:
		return outOfRoom(s.Namespace, all)
	}
	return ""
}

// ceilingsOf returns the number of a policy's ceilings.
func ceilingsOf(s policy.Source) int {
	if s.Library == nil {
		return 0
	}
	return len(s.Library.Ceilings)
}

func outOfRoom(namespace string, all int) string {
	return fmt.Sprintf("all RunnerPolicies have %d bytes of modules and data, more than %d, and no namespace has more than %s: leave out what isn't needed", all, maxAllBytes, namespace)
}

// makeRoom unloads policies of the namespace whose policies are largest together, to make room for a policy that
// tooMuch allows. The Reconciler later tries to load them again.
func (e *Engine) makeRoom(s policy.Source) {
	o := e.others(s)
	for s.Kind == policy.KindRunnerPolicy && o.all+s.Size() > maxAllBytes && o.largest.policy != nil {
		gone := o.largest.source
		why := []v1alpha1.Diagnostic{{Message: outOfRoom(gone.Namespace, o.all+s.Size())}}
		e.put(loaded{policy: policy.Broken(gone, why), source: gone, unfinished: true})
		o = e.others(s)
	}
}

// others contains sums over the other policies of a kind.
type others struct {
	all, sameNamespace, count int    // bytes in all namespaces, bytes in the same namespace, and number of policies in it
	ceilings                  int    // number of ceilings in the same namespace
	most                      int    // bytes in the other namespace with the most bytes
	largest                   loaded // the largest policy of that namespace
}

// others returns the sums over the loaded policies of the same kind, without the given policy.
func (e *Engine) others(s policy.Source) (o others) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sizes, largest := map[string]int{}, map[string]loaded{}
	for ref, l := range e.sound {
		if ref == s.Ref() || l.source.Kind != s.Kind {
			continue
		}
		o.all += l.size
		if l.source.Namespace == s.Namespace {
			o.sameNamespace += l.size
			o.count++
			o.ceilings += len(l.policy.Facts().Needs.Ceilings)
			continue
		}
		sizes[l.source.Namespace] += l.size
		if l.size > largest[l.source.Namespace].size {
			largest[l.source.Namespace] = l
		}
	}
	for namespace, size := range sizes {
		if size > o.most {
			o.most, o.largest = size, largest[namespace]
		}
	}
	return o
}

// Remove takes a policy out of force.
func (e *Engine) Remove(ref string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.loaded[ref]; ok {
		delete(e.loaded, ref)
		delete(e.sound, ref)
		before.policy.Retire()
		e.changed(before.policy, nil)
	}
}

// changed replaces a policy in the set and wakes the pools that the policy binds or bound before. before or now may be
// nil. The caller holds the lock.
func (e *Engine) changed(before, now *policy.Policy) {
	e.set = e.set.Replace(before, now)
	e.countState(cmp.Or(now, before).Ref())
	for key, known := range e.reached(cmp.Or(now, before)) {
		switch {
		case known.waits:
			known.waits = false
			e.Pools.Wake(key)
		case before != nil && before.Binds(known.facts) || now != nil && now.Binds(known.facts):
			e.wakeChanged(key, known)
		}
	}
}

// betweenChanges is the minimum interval between two wake-ups of a pool because of policies, and the delay of a wake-up
// of a policy because of pools. It collects changes, because one commit may change many objects.
const betweenChanges = time.Second

// wakeChanged wakes a pool whose policies changed. The caller holds the lock.
func (e *Engine) wakeChanged(key types.NamespacedName, known *pool) {
	now := e.Now()
	if next := known.due.Add(betweenChanges); !known.due.After(now) {
		known.due = next
		if next.Before(now) {
			known.due = now
		}
	}
	e.Pools.WakeAfter(key, known.due.Sub(now))
}

// Loaded returns the policy in force with the given Ref; nil if there is none.
func (e *Engine) Loaded(ref string) *policy.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.loaded[ref].policy
}

// isLoaded reports whether the policy in force has exactly this source and need not be loaded again now.
func (e *Engine) isLoaded(s policy.Source) bool {
	source, digest := s.Identity() // without the lock, as it reads all modules
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.loaded[s.Ref()]
	isDue := known.unfinished || known.excesses > 0 && !e.Now().Before(known.retry)
	return ok && !isDue && known.is(source, digest)
}

// is reports whether the policy was loaded from exactly this source.
func (l *loaded) is(source policy.Source, digest string) bool {
	return l.digest == digest && equality.Semantic.DeepEqual(l.source, source)
}

// Knows reports whether every existing policy that may bind a pool has been loaded. Its first call also reads the grants of
// existing pools.
func (e *Engine) Knows(ctx context.Context, c client.Reader, facts policy.Pool) (bool, error) {
	if err := e.learn(ctx, c); err != nil {
		return false, err
	}
	sources, err := sources(ctx, c, facts.Namespace)
	if err != nil {
		return false, err
	}
	binds := func(s policy.Source) bool { return policy.Broken(s, nil).Binds(facts) } // without the lock, because it takes a while
	return !e.awaits(facts, func() bool { return slices.ContainsFunc(e.unknown(sources), binds) }), nil
}

// awaits reports whether a pool must wait for policies to be loaded. Put wakes the pool when it puts such a policy into
// force.
func (e *Engine) awaits(facts policy.Pool, areMissing func() bool) bool {
	if !areMissing() {
		return false
	}
	e.mu.Lock()
	e.remember(facts).waits = true
	e.mu.Unlock()
	return areMissing() // the last missing policy may have been loaded in the meantime
}

// unknown returns the policies that are not in force yet. It releases the lock after each policy, because a namespace
// may have any number.
func (e *Engine) unknown(all []policy.Source) []policy.Source {
	return slices.DeleteFunc(slices.Clone(all), func(s policy.Source) bool {
		betweenParts()
		return e.Loaded(s.Ref()) != nil
	})
}

// sources lists the policies that may bind pools of a namespace and are not being deleted, without their rules.
func sources(ctx context.Context, c client.Reader, namespace string) ([]policy.Source, error) {
	var all []policy.Source
	for list, in := range map[client.ObjectList]string{&v1alpha1.ClusterRunnerPolicyList{}: "", &v1alpha1.RunnerPolicyList{}: namespace} {
		if err := c.List(ctx, list, client.InNamespace(in), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing policies: %w", err)
		}
		_ = apimeta.EachListItem(list, func(item runtime.Object) error {
			p := item.(policy.Object)
			if p.GetDeletionTimestamp().IsZero() {
				all = append(all, policy.ReachOf(p))
			}
			return nil
		})
	}
	return all, nil
}

// learn seeds the ledger, unless that has already succeeded.
func (e *Engine) learn(ctx context.Context, c client.Reader) error {
	e.seeding.Lock()
	defer e.seeding.Unlock()
	if e.seeding.isDone {
		return nil
	}
	if e.Cache != nil { // objects that the cache does not contain belong to another controller
		c = e.Cache
	}
	err := e.seed(ctx, c)
	e.seeding.isDone = err == nil
	return err
}

// seed adds the runners and last grants of all pools to the ledger. Otherwise, after a restart, the first pool with a
// decision could take the capacity of other pools.
func (e *Engine) seed(ctx context.Context, c client.Reader) error {
	pools, runners := &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}
	for _, list := range []client.ObjectList{pools, runners} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing pools and runners: %w", err)
		}
	}
	have := map[types.NamespacedName]int32{}
	for _, r := range runners.Items {
		if r.IsReleased() {
			continue
		}
		have[types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.PoolRef.Name}]++
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		granted := have[client.ObjectKeyFromObject(p)]
		if d := p.Status.Decision; d != nil {
			granted = max(granted, d.Desired)
		}
		facts := policy.PoolOf(p)
		e.ledger.seed(policy.ScalingInput{Pool: facts}, e.For(facts).Needs(), Grant{Granted: granted, Wanted: granted})
		delete(have, client.ObjectKeyFromObject(p))
	}
	for key, n := range have { // runners of deleted pools
		e.ledger.seed(policy.ScalingInput{Pool: policy.Pool{Namespace: key.Namespace, Name: key.Name}}, policy.Needs{}, Grant{Granted: n})
	}
	return nil
}

// For returns the policies that bind a pool.
func (e *Engine) For(facts policy.Pool) *policy.Bound {
	e.mu.Lock()
	set, known := e.set, *e.remember(facts)
	e.mu.Unlock()
	if known.set == set && known.isOf(facts) {
		return known.bound
	}
	betweenParts()
	bound := set.For(facts) // without the lock, because a namespace may have many policies with long selectors
	if before, same := e.bind(facts, set, bound); !same {
		e.recount(before, bound)
	}
	return bound
}

// isOf reports whether bound was determined for these facts.
func (p *pool) isOf(facts policy.Pool) bool { return p.bound != nil && p.facts.Equal(facts) }

// bind records which policies of a set bind a pool. It returns the previous ones, and whether the pool's facts are
// unchanged.
func (e *Engine) bind(facts policy.Pool, set *policy.Set, bound *policy.Bound) (before *policy.Bound, same bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.remember(facts)
	before, same = known.bound, known.isOf(facts)
	if !same || before.Digest() != bound.Digest() {
		known.verdicts = nil
	}
	known.facts, known.set, known.bound = facts, set, bound
	if set != e.set { // policies changed in the meantime, and changed did not wake the pool if it did not know these facts
		e.Pools.Wake(keyOf(facts))
	}
	return before, same
}

// again returns the policies that bind a pool according to its last known declaration; nil if the pool was never
// evaluated or was forgotten.
func (e *Engine) again(key types.NamespacedName) *policy.Bound {
	known := e.known(key)
	if known.bound == nil {
		return nil
	}
	return e.For(known.facts)
}

// known returns a copy of what the Engine remembers about a pool; the zero value if it remembers nothing.
func (e *Engine) known(key types.NamespacedName) pool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.pools.get(key); known != nil {
		return *known
	}
	return pool{}
}

// remember returns the pool struct of a pool, and creates it if there is none. The caller holds the lock.
func (e *Engine) remember(facts policy.Pool) *pool {
	key := keyOf(facts)
	known := e.pools.get(key)
	if known == nil {
		known = &pool{audit: map[string][]policy.Audit{}}
		if e.pools[key.Namespace] == nil {
			e.pools[key.Namespace] = map[types.NamespacedName]*pool{}
		}
		e.pools[key.Namespace][key] = known
	}
	return known
}

// Forget drops everything about a deleted pool. If left of its runners still exist, they remain in the ledger.
func (e *Engine) Forget(key types.NamespacedName, left int32) {
	e.mu.Lock()
	known := e.pools.get(key)
	if delete(e.pools[key.Namespace], key); len(e.pools[key.Namespace]) == 0 {
		delete(e.pools, key.Namespace)
	}
	e.mu.Unlock()
	if known != nil {
		e.recount(known.bound, nil)
	}
	e.Log.forget(key)
	e.reconsider(e.ledger.drop(key, left))
}

// note remembers the findings of audited policies about a pool, and calls keep to remember an answer.
func (e *Engine) note(key types.NamespacedName, decision string, audit []policy.Audit, keep func(*pool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.pools.get(key); known != nil {
		known.audit[decision] = audit
		keep(known)
	}
}

// bound returns the number of pools that a policy binds.
func (e *Engine) bound(p *policy.Policy) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, known := range e.reached(p) {
		if p.Binds(known.facts) {
			n++
		}
	}
	return n
}

// findings returns what an audited policy would change, sorted by pool and decision. For pools that this process has
// not evaluated yet, it returns the earlier findings.
func (e *Engine) findings(p *policy.Policy, before []v1alpha1.AuditFinding) []v1alpha1.AuditFinding {
	found := e.found(p, before) // found has released the lock, which is not needed for sorting
	slices.SortFunc(found, func(a, b v1alpha1.AuditFinding) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Decision, b.Decision), cmp.Compare(a.Message, b.Message))
	})
	return found
}

// found returns the findings in no particular order.
func (e *Engine) found(p *policy.Policy, before []v1alpha1.AuditFinding) (found []v1alpha1.AuditFinding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range before {
		namespace, name, _ := strings.Cut(f.Pool, "/")
		if known := e.pools.get(types.NamespacedName{Namespace: namespace, Name: name}); known != nil && len(known.audit) == 0 {
			found = append(found, f)
		}
	}
	for key, known := range e.reached(p) {
		for decision, audit := range known.audit {
			for _, a := range audit {
				if a.Policy == p.Ref() {
					found = append(found, v1alpha1.AuditFinding{Pool: key.String(), Decision: decision, Message: a.Message})
				}
			}
		}
	}
	return found
}

// recount wakes the policies that started or stopped binding a pool. before is nil if the pool is new, and now is nil
// if it was deleted.
func (e *Engine) recount(before, now *policy.Bound) {
	more := map[*policy.Policy]int{}
	for _, p := range before.Policies() {
		more[p]--
	}
	for _, p := range now.Policies() {
		more[p]++
	}
	for p, n := range more {
		if source := p.Source(); n != 0 {
			e.Policies[source.Kind].WakeAfter(types.NamespacedName{Namespace: source.Namespace, Name: source.Name}, betweenChanges)
		}
	}
}
