// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Gathered puts off status writes, so that many changes in a row cost one write. What a
// status holds must be recoverable without it: nothing that is put off is durable.
type Gathered struct {
	after time.Duration
	now   func() time.Time

	mu    sync.Mutex
	since map[types.UID]time.Time // when the first change came that isn't written
}

// Gather puts changes off for the given time after the first of them.
func Gather(after time.Duration, now func() time.Time) *Gathered {
	return &Gathered{after: after, now: now, since: map[types.UID]time.Time{}}
}

// Forget drops what is remembered of an object that is gone.
func (g *Gathered) Forget(uid types.UID) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.since, uid)
}

// ending is by how much longer changes of an object that is being deleted are gathered:
// as a rule it is gone before somebody could look.
const ending = 5

// left returns how much longer a change of the object may wait; 0 when it is due.
func (g *Gathered) left(obj Object) time.Duration {
	uid, after := obj.GetUID(), g.after
	if !obj.GetDeletionTimestamp().IsZero() {
		after *= ending
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	since, waits := g.since[uid]
	if !waits {
		since = now
		g.since[uid] = now
	}
	return max(0, after-now.Sub(since))
}

// putOff says how long the write of this attempt may wait; 0 when there is none to
// make or it has to be made now.
func (a *Attempt) putOff(outcome error) time.Duration {
	g := a.reporter.Gathered
	if g == nil {
		return 0
	}
	if !equality.Semantic.DeepEqual(a.saved, a.obj) && !a.isNews(outcome) {
		if left := g.left(a.obj); left > 0 {
			return left
		}
	}
	g.Forget(a.obj.GetUID())
	return 0
}

// isNews says whether a condition changed in a way that somebody may wait for: a
// trouble, and for kinds that live long each change of a status or reason.
func (a *Attempt) isNews(outcome error) bool {
	if a.reporter.WarningsOnly && (outcome == nil || isProgress(outcome)) {
		return false
	}
	return !equality.Semantic.DeepEqual(gist(a.saved.GetConditions()), gist(a.obj.GetConditions()))
}

// gist leaves of conditions what programs look at.
func gist(conditions []metav1.Condition) map[string]string {
	short := make(map[string]string, len(conditions))
	for _, c := range conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason
	}
	return short
}
