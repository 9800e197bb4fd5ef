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

// Gathered delays status writes, so that several changes in a row cost one write. If the process ends, delayed statuses are
// lost. A status that cannot be computed again must therefore be Urgent.
type Gathered struct {
	after     time.Duration
	perSecond int
	rate      *rate.Limiter
	now       func() time.Time

	mu    sync.Mutex
	since map[types.UID]time.Time // time of each object's first change that is not written yet
	// parts counts the writes of each namespace in the current window.
	parts map[string]int
	// window is the length of the current window, and end the Unix time at which it ends, both in seconds. The window is one
	// second long, unless more than perSecond namespaces had writes in the previous window. Then it is long enough for one
	// write of each namespace.
	window, end int64
}

// Gather returns a Gathered that delays the write of a status until the duration after has passed since its first unwritten
// change. While more than perSecond writes are due, it delays writes up to five times as long. It then also delays news (see
// isNews), so that reports about some objects do not slow down the work on others. Only Urgent writes are never delayed.
// Namespaces share the rate, so that changes in one namespace do not delay changes in another.
func Gather(after time.Duration, perSecond int, now func() time.Time) *Gathered {
	return &Gathered{
		after: after, perSecond: perSecond, rate: rate.NewLimiter(rate.Limit(perSecond), perSecond), now: now,
		since: map[types.UID]time.Time{}, parts: map[string]int{},
	}
}

// allows reports whether a namespace may write once more now. The caller holds the lock. Each namespace has an equal share
// of the writes in a window. While the rate has capacity left, a namespace may exceed its share: up to a quarter of
// perSecond if other namespaces write in the same window, and without this limit otherwise.
func (g *Gathered) allows(namespace string, now time.Time) bool {
	if second := now.Unix(); second >= g.end || second < g.end-g.window {
		g.window = int64(max(1, (len(g.parts)+g.perSecond-1)/g.perSecond))
		g.end = second + g.window
		clear(g.parts)
	}
	g.parts[namespace]++
	own, others := g.parts[namespace], len(g.parts)-1
	hasSpare := (others == 0 || own <= max(1, g.perSecond/4)) && g.rate.AllowN(now, 1)
	if hasSpare {
		return true
	}
	inShare := own <= min(g.perSecond, g.perSecond*int(g.window)/(others+1))
	if !inShare {
		g.parts[namespace]--
	}
	return inShare
}

// Forget drops the state of a deleted object.
func (g *Gathered) Forget(uid types.UID) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.since, uid)
}

// stretch is how many times longer a delay may be while too many writes are due. The longest delay always applies to objects
// that are being deleted, because they are usually gone before a user could read their status.
const stretch = 5

// left returns how much longer to delay the status of an object; 0 if the write is due. News is due at once, unless too many
// writes are due.
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

// putOff returns how long to delay the status write of this attempt; 0 if there is nothing to write, or if the write is
// due.
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

// isNews reports whether the status or the reason of a condition changed. A user or a program may be waiting for such a
// change. For Quiet kinds, this counts only if the outcome is a problem.
func (a *Attempt) isNews(outcome error) bool {
	if a.reporter.Quiet && (outcome == nil || IsProgress(outcome)) {
		return false
	}
	return !equality.Semantic.DeepEqual(statuses(a.saved.GetConditions()), statuses(a.obj.GetConditions()))
}

// statuses returns the status and reason of each condition, by type. Programs read no other fields of a condition.
func statuses(conditions []metav1.Condition) map[string]string {
	short := make(map[string]string, len(conditions))
	for _, c := range conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason
	}
	return short
}
