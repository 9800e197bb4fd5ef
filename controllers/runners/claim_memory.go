// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/podspec"
)

// claimNotes hold what this process did or saw of claims and the cache may not show yet. Runners that are started side by side choose
// one after the other. Lost with the process: the API server refuses the second, and is asked who is gone.
type claimNotes struct {
	mu sync.Mutex
	// taken has the runner that takes or took a claim, until the cache shows that, and its pod.
	taken notes[taking]
	// gone has the last holder of a claim that was seen to be gone, and its pod.
	gone notes[types.UID]
}

// notes are about claims, those of each pool by themselves: the lock is everybody's, and a pool has few claims.
type notes[V any] map[types.NamespacedName]map[types.NamespacedName]V

// stemOf is what the names of a pool's claims have in common.
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

// taking is of a runner that takes a claim, or took it; shown is true once the cache showed that.
type taking struct {
	by    types.UID
	shown bool
}

// choose chooses a claim for a runner, and notes it as the runner's.
func (n *claimNotes) choose(pool *v1alpha1.RunnerPool, all []PoolClaim, runner types.UID, now time.Time) claims.Choice {
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

// known are the claims that the cache shows and those that this process took since. The caller holds the lock.
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
		isOwnAndGone := t.shown && t.by == runner // another's pod may wait for it
		if number := numberOf(pool.Name, key.Name); number >= 0 && !shown[key] && !isOwnAndGone {
			list = append(list, claims.Claim{Name: key.Name, Number: number, Holder: t.by, InUse: true})
		}
	}
	return list
}

// release forgets that a claim is a runner's.
func (n *claimNotes) release(claim types.NamespacedName, runner types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, _ := n.taken.get(claim); t.by == runner {
		n.taken.remove(claim)
	}
}

// podShown notes that the cache shows the pod of a claim's runner.
func (n *claimNotes) podShown(claim types.NamespacedName, runner types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, _ := n.taken.get(claim); t == (taking{runner, true}) {
		n.taken.remove(claim)
	}
	if uid, _ := n.gone.get(claim); uid == runner { // it is back, as after a restore of etcd
		n.gone.remove(claim)
	}
}

// isReserved reports whether a runner takes a claim, or took it and the cache doesn't show it.
func (n *claimNotes) isReserved(claim types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.taken.get(claim)
	return ok
}

// sawGone reports whether a claim's holder was seen to be gone.
func (n *claimNotes) sawGone(claim types.NamespacedName, holder types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, _ := n.gone.get(claim)
	return uid == holder
}

// retain drops what is noted of the holders of those of a pool's claims that aren't there.
func (n *claimNotes) retain(pool types.NamespacedName, there []PoolClaim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := map[string]bool{}
	for _, x := range there {
		names[x.Name] = true
	}
	for key := range n.gone.ofPool(pool) {
		if numberOf(pool.Name, key.Name) >= 0 && !names[key.Name] {
			n.gone.remove(key)
		}
	}
}

// forget notes that a runner is gone; surely if its pod is, too.
func (n *claimNotes) forget(claim types.NamespacedName, runner types.UID, surely bool) {
	n.release(claim, runner)
	n.mu.Lock()
	defer n.mu.Unlock()
	if surely {
		n.gone.set(claim, runner)
	}
}
