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
	after     time.Duration
	perSecond int
	rate      *rate.Limiter
	now       func() time.Time

	mu    sync.Mutex
	since map[types.UID]time.Time // when the first change came that isn't written
	// parts are the writes of each namespace in a window, which ends at a second. It has more than one second if more namespaces write than there may
	// be writes in a second, so that each namespace's part is one write or more.
	parts       map[string]int
	window, end int64
}

// Gather puts changes off for the given time after the first of them, and up to five
// times as long while more than so many a second are due, news included: what is told of
// some must not hinder the work of others. Namespaces share that number, so that the changes of one don't put off another's.
func Gather(after time.Duration, perSecond int, now func() time.Time) *Gathered {
	return &Gathered{
		after: after, perSecond: perSecond, rate: rate.NewLimiter(rate.Limit(perSecond), perSecond), now: now,
		since: map[types.UID]time.Time{}, parts: map[string]int{},
	}
}

// allows reports whether a namespace may have one more write now; with the lock. A namespace has an equal part of the writes of a window. It may
// have more if others leave some, but not more than a quarter of a second's while there are others.
func (g *Gathered) allows(namespace string, now time.Time) bool {
	if second := now.Unix(); second >= g.end || second < g.end-g.window {
		g.window = int64(max(1, (len(g.parts)+g.perSecond-1)/g.perSecond))
		g.end = second + g.window
		clear(g.parts)
	}
	g.parts[namespace]++
	own, others := g.parts[namespace], len(g.parts)-1
	isLeft := (others == 0 || own <= max(1, g.perSecond/4)) && g.rate.AllowN(now, 1)
	if isLeft {
		return true
	}
	isOwn := own <= min(g.perSecond, g.perSecond*int(g.window)/(others+1))
	if !isOwn {
		g.parts[namespace]--
	}
	return isOwn
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
	if age >= after && age < stretch*g.after && !g.allows(obj.GetNamespace(), now) {
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
