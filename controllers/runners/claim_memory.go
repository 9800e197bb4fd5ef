// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/podspec"
)

// claimNotes holds what this process did to claims, or observed about them, before the informer cache shows it. With its
// lock, concurrent runners choose their claims one after the other. A restart loses the notes. Claims stay safe without
// them: the API server rejects the second writer of a claim, and reads from the API server show which holders are gone.
type claimNotes struct {
	mu sync.Mutex
	// taken maps a claim to the runner that is taking it or took it, until the cache shows that and the runner's pod.
	taken notes[taking]
	// gone maps a claim to its last holder, if this process observed that the holder and its pod are gone.
	gone notes[types.UID]
}

// notes maps claims to values, grouped by pool. All pools share one lock. An operation visits only the claims of one pool,
// which are few, so it holds the lock only briefly.
type notes[V any] map[types.NamespacedName]map[types.NamespacedName]V

// stemOf returns the name of a claim without its number, which is the same for all claims of a pool.
func stemOf(claim types.NamespacedName) types.NamespacedName {
	claim.Name = claim.Name[:max(0, strings.LastIndexByte(claim.Name, '-'))]
	return claim
}

// ofPool returns the notes about the claims of a pool.
func (n notes[V]) ofPool(pool types.NamespacedName) map[types.NamespacedName]V {
	return n[stemOf(types.NamespacedName{Namespace: pool.Namespace, Name: podspec.ClaimName(pool.Name, 0)})]
}

func (n notes[V]) get(claim types.NamespacedName) (V, bool) {
	v, ok := n[stemOf(claim)][claim]
	return v, ok
}

func (n *notes[V]) set(claim types.NamespacedName, v V) {
	if *n == nil {
		*n = notes[V]{}
	}
	if (*n)[stemOf(claim)] == nil {
		(*n)[stemOf(claim)] = map[types.NamespacedName]V{}
	}
	(*n)[stemOf(claim)][claim] = v
}

func (n notes[V]) remove(claim types.NamespacedName) {
	if delete(n[stemOf(claim)], claim); len(n[stemOf(claim)]) == 0 {
		delete(n, stemOf(claim))
	}
}

// taking describes a runner that is taking or took a claim. shown is true once the cache has shown the runner as the
// holder.
type taking struct {
	by    types.UID
	shown bool
}

// maxClaims is the highest value of spec.cache.maxClaims.
const maxClaims = 1000

// choose selects a claim for a runner, and notes that the runner is taking it. All other pools wait for the lock meanwhile.
// choose therefore ignores claims whose numbers no pool can have, because users may create any number of claims with the
// pool's label.
func (n *claimNotes) choose(pool *v1alpha1.RunnerPool, all []PoolClaim, runner types.UID, now time.Time) claims.Choice {
	all = slices.DeleteFunc(slices.Clone(all), func(x PoolClaim) bool { return x.Number < 0 || x.Number >= maxClaims })
	n.mu.Lock()
	defer n.mu.Unlock()
	choice := claims.Choose(pool.Spec.Cache, n.known(pool, all, runner), runner, now)
	name := choice.Use
	if choice.Make >= 0 {
		name = podspec.ClaimName(pool.Name, choice.Make)
	}
	if name != "" && !choice.Own {
		n.taken.set(types.NamespacedName{Namespace: pool.Namespace, Name: name}, taking{by: runner})
	}
	return choice
}

// known returns the claims that the cache shows, together with the claims that runners took in this process and that the
// cache does not show yet. The caller holds the lock.
func (n *claimNotes) known(pool *v1alpha1.RunnerPool, all []PoolClaim, runner types.UID) []claims.Claim {
	list, shown := make([]claims.Claim, 0, len(all)), map[types.NamespacedName]bool{}
	for _, x := range all {
		key := types.NamespacedName{Namespace: pool.Namespace, Name: x.Name}
		shown[key] = true
		if t, ok := n.taken.get(key); ok && t.by != x.Holder {
			x.Holder, x.InUse, x.Leaving, x.LeavesBy = t.by, true, false, time.Time{}
		} else if ok {
			n.taken.set(key, taking{t.by, true})
		}
		list = append(list, x.Claim)
	}
	for key, t := range n.taken.ofPool(types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}) {
		isOwnAndGone := t.shown && t.by == runner // the pod of another runner may be waiting for the claim
		if number := numberOf(pool.Name, key.Name); number >= 0 && !shown[key] && !isOwnAndGone {
			list = append(list, claims.Claim{Name: key.Name, Number: number, Holder: t.by, InUse: true})
		}
	}
	return list
}

// release forgets that the runner holds the claim.
func (n *claimNotes) release(claim types.NamespacedName, runner types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, _ := n.taken.get(claim); t.by == runner {
		n.taken.remove(claim)
	}
}

// podShown records that the cache shows the pod of the claim's runner. If the cache also shows the runner as the holder,
// the note is not needed any more.
func (n *claimNotes) podShown(claim types.NamespacedName, runner types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, _ := n.taken.get(claim); t == (taking{runner, true}) {
		n.taken.remove(claim)
	}
	if uid, _ := n.gone.get(claim); uid == runner { // the pod is back, for example after a restore of etcd
		n.gone.remove(claim)
	}
}

// isReserved reports whether a runner is taking a claim, or has taken it and the cache does not show that yet.
func (n *claimNotes) isReserved(claim types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.taken.get(claim)
	return ok
}

// sawGone reports whether this process observed that the claim's holder is gone.
func (n *claimNotes) sawGone(claim types.NamespacedName, holder types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, _ := n.gone.get(claim)
	return uid == holder
}

// retain drops the notes about the last holders of claims that no longer exist. there contains all existing claims of the
// pool.
func (n *claimNotes) retain(pool types.NamespacedName, there []PoolClaim) {
	names := map[string]bool{}
	for _, x := range there {
		names[x.Name] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.gone.ofPool(pool) {
		if numberOf(pool.Name, key.Name) >= 0 && !names[key.Name] {
			n.gone.remove(key)
		}
	}
}

// forget records that a runner is gone. surely is true if its pod is known to be gone too.
func (n *claimNotes) forget(claim types.NamespacedName, runner types.UID, surely bool) {
	n.release(claim, runner)
	n.mu.Lock()
	defer n.mu.Unlock()
	if surely {
		n.gone.set(claim, runner)
	}
}
