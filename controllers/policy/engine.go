// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// Engine holds the policies in force and asks them about pools, within bounds on time, memory
// and how many at once. It keeps the ledger of what is granted to which pool.
type Engine struct {
	// Now is the clock.
	Now func() time.Time
	// Log of decisions; nil for none.
	Log *DecisionLog

	slots chan struct{}

	mu     sync.Mutex
	loaded map[string]loaded // by Ref
	set    *policy.Set
	synced bool // every policy there was at the start is loaded
	pools  map[types.NamespacedName]*pool
	dirty  map[types.NamespacedName]bool // to be looked at in the next pass
	queue  queue                         // of the pools' controller; nil until it runs

	stirred chan struct{}
	ledger  ledger
}

// loaded is a policy in force and what it was made of.
type loaded struct {
	policy *policy.Policy
	source policy.Source
}

// queue is a controller's work queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// pool is what is remembered of a pool that was judged.
type pool struct {
	facts    policy.Pool
	set      *policy.Set // that bound is of
	bound    *policy.Bound
	verdicts map[string]policy.Template // by revision, of the bound policies and these facts
	audit    map[string][]policy.Audit  // by decision
}

// parallel is how many evaluations run at once: each may take some 100 MB for a moment.
const parallel = 2

// NewEngine returns an Engine without policies.
func NewEngine(now func() time.Time) *Engine {
	return &Engine{
		Now: now, slots: make(chan struct{}, parallel), loaded: map[string]loaded{}, set: policy.NewSet(),
		pools: map[types.NamespacedName]*pool{}, dirty: map[types.NamespacedName]bool{}, stirred: make(chan struct{}, 1), ledger: newLedger(),
	}
}

// Put puts a policy into force and wakes the pools that it binds or bound.
func (e *Engine) Put(p *policy.Policy, source policy.Source) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.loaded[p.Ref()].policy
	if before != nil && len(p.Diagnostics()) > 0 && equality.Semantic.DeepEqual(before.Diagnostics(), p.Diagnostics()) && before.Digest() == p.Digest() {
		return // as broken as before
	}
	e.loaded[p.Ref()] = loaded{policy: p, source: source}
	e.changed(before, p)
}

// Remove takes a policy out of force.
func (e *Engine) Remove(ref string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, ok := e.loaded[ref]; ok {
		delete(e.loaded, ref)
		e.changed(before.policy)
	}
}

// changed makes the next set and wakes the pools that policies bind.
func (e *Engine) changed(of ...*policy.Policy) {
	var all []*policy.Policy
	for _, l := range e.loaded {
		all = append(all, l.policy)
	}
	e.set = policy.NewSet(all...)
	e.census()
	for key, known := range e.pools {
		binds := slices.ContainsFunc(of, func(p *policy.Policy) bool { return p != nil && p.Binds(known.facts) })
		if binds || !e.synced {
			e.wake(key)
		}
	}
}

// Loaded returns the policy in force of a Ref; nil if there is none.
func (e *Engine) Loaded(ref string) *policy.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.loaded[ref].policy
}

// isLoaded says whether a policy is in force that was made of just this.
func (e *Engine) isLoaded(s policy.Source) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.loaded[s.Ref()]
	return ok && equality.Semantic.DeepEqual(known.source, s)
}

// Synced says whether every policy that there is has been loaded since the process started.
// Until then pools hold: one that isn't known yet may bind them.
func (e *Engine) Synced(ctx context.Context, c client.Reader) (bool, error) {
	e.mu.Lock()
	synced := e.synced
	e.mu.Unlock()
	if synced {
		return true, nil
	}
	refs, err := references(ctx, c)
	if err != nil {
		return false, err
	}
	if err := e.seed(ctx, c); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.synced = !slices.ContainsFunc(refs, func(ref string) bool { return e.loaded[ref].policy == nil })
	return e.synced, nil
}

// seed enters what pools have and were last granted into the ledger: the first that is decided
// on after a start must not take what is another's.
func (e *Engine) seed(ctx context.Context, c client.Reader) error {
	pools, runners := &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}
	for _, list := range []client.ObjectList{pools, runners} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing what pools have: %w", err)
		}
	}
	have := map[types.NamespacedName]int32{}
	for _, r := range runners.Items {
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
	}
	return nil
}

// references lists every policy that is not being deleted.
func references(ctx context.Context, c client.Reader) ([]string, error) {
	var refs []string
	cluster, namespaced := &v1alpha1.ClusterRunnerPolicyList{}, &v1alpha1.RunnerPolicyList{}
	for _, list := range []client.ObjectList{cluster, namespaced} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing policies: %w", err)
		}
	}
	for _, p := range cluster.Items {
		if p.DeletionTimestamp.IsZero() {
			refs = append(refs, policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: p.Name}.Ref())
		}
	}
	for _, p := range namespaced.Items {
		if p.DeletionTimestamp.IsZero() {
			refs = append(refs, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: p.Namespace, Name: p.Name}.Ref())
		}
	}
	return refs, nil
}

// For returns the policies that bind a pool.
func (e *Engine) For(facts policy.Pool) *policy.Bound {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := keyOf(facts)
	known := e.pools[key]
	if known == nil {
		known = &pool{audit: map[string][]policy.Audit{}}
		e.pools[key] = known
	}
	same := known.bound != nil && equality.Semantic.DeepEqual(known.facts, facts)
	if known.set == e.set && same {
		return known.bound
	}
	bound := e.set.For(facts)
	if !same || known.bound.Digest() != bound.Digest() {
		known.verdicts = map[string]policy.Template{}
	}
	known.facts, known.set, known.bound = facts, e.set, bound
	return bound
}

// Forget drops what is known of a pool that is gone.
func (e *Engine) Forget(key types.NamespacedName) {
	e.mu.Lock()
	delete(e.pools, key)
	e.mu.Unlock()
	e.Log.forget(key)
	e.reconsider(e.ledger.drop(key))
}

// note remembers what audited policies say of a pool.
func (e *Engine) note(key types.NamespacedName, decision string, audit []policy.Audit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.pools[key]; known != nil {
		known.audit[decision] = audit
	}
}

// bound counts the pools that a policy binds.
func (e *Engine) bound(p *policy.Policy) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, known := range e.pools {
		if p.Binds(known.facts) {
			n++
		}
	}
	return n
}

// findings lists what a policy would change, by pool and decision.
func (e *Engine) findings(ref string) []v1alpha1.AuditFinding {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []v1alpha1.AuditFinding
	for key, known := range e.pools {
		for _, decision := range slices.Sorted(maps.Keys(known.audit)) {
			for _, a := range known.audit[decision] {
				if a.Policy == ref {
					found = append(found, v1alpha1.AuditFinding{Pool: key.String(), Decision: decision, Message: a.Message})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b v1alpha1.AuditFinding) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Decision, b.Decision), cmp.Compare(a.Message, b.Message))
	})
	return found
}

// Pools is an event source that wakes the controller of pools whose policies, or what
// others use of a ceiling that they share, changed.
func (e *Engine) Pools() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.queue = q
		return nil
	})
}

// wake has a pool judged again; with the lock.
func (e *Engine) wake(key types.NamespacedName) {
	if e.queue != nil {
		e.queue.Add(reconcile.Request{NamespacedName: key})
	}
}
