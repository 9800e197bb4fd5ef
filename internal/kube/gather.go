// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Gathered puts off status writes, so that many changes in a row cost one write. What a
// status holds must be recoverable without it, or its write be Urgent: nothing that is put
// off is durable.
type Gathered struct {
	after time.Duration
	rate  *rate.Limiter
	now   func() time.Time

	mu    sync.Mutex
	since map[types.UID]time.Time // when the first change came that isn't written
}

// Gather puts changes off for the given time after the first of them, and up to five
// times as long while more than so many a second are due, news included: what is told of
// some must not hinder the work of others.
func Gather(after time.Duration, perSecond int, now func() time.Time) *Gathered {
	return &Gathered{after: after, rate: rate.NewLimiter(rate.Limit(perSecond), perSecond), now: now, since: map[types.UID]time.Time{}}
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

// stretch is by how much longer than usual changes may be gathered. Those of an object
// that is being deleted always are: as a rule it is gone before somebody could look.
const stretch = 5

// left returns how much longer a change of the object may wait; 0 when it is due. News
// is due at once.
func (g *Gathered) left(obj Object, news bool) time.Duration {
	uid, after := obj.GetUID(), g.after
	switch {
	case news:
		after = 0
	case !obj.GetDeletionTimestamp().IsZero():
		after *= stretch
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	since, waits := g.since[uid]
	if !waits {
		since = now
		g.since[uid] = now
	}
	age := now.Sub(since)
	if age >= after && age < stretch*g.after && !g.rate.AllowN(now, 1) {
		return g.after
	}
	return max(0, after-age)
}

// putOff says how long the write of this attempt may wait; 0 when there is none to
// make or it has to be made now.
func (a *Attempt) putOff(done Done, outcome error) time.Duration {
	g := a.reporter.Gathered
	if g == nil {
		return 0
	}
	if !done.Urgent && !equality.Semantic.DeepEqual(a.saved, a.obj) {
		if left := g.left(a.obj, a.isNews(outcome)); left > 0 {
			return left
		}
	}
	g.Forget(a.obj.GetUID())
	return 0
}

// isNews reports whether a condition changed in a way that somebody may wait for: a
// trouble, and for kinds that live long each change of a status or reason.
func (a *Attempt) isNews(outcome error) bool {
	if a.reporter.Quiet && (outcome == nil || IsProgress(outcome)) {
		return false
	}
	return !equality.Semantic.DeepEqual(statuses(a.saved.GetConditions()), statuses(a.obj.GetConditions()))
}

// statuses returns the status and reason of each condition, by its type: what programs look at.
func statuses(conditions []metav1.Condition) map[string]string {
	short := make(map[string]string, len(conditions))
	for _, c := range conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason
	}
	return short
}
