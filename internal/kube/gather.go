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

// Gathered delays status writes, so that several changes in a row cost one write. A delayed status may be lost. Its contents
// must therefore be recoverable, or the write must be Urgent.
type Gathered struct {
	after     time.Duration
	perSecond int
	rate      *rate.Limiter
	now       func() time.Time

	mu    sync.Mutex
	since map[types.UID]time.Time // time of the first change that is not written yet
	// parts counts the writes of each namespace in the current window, which ends at a full second. The window is longer
	// than one second if more namespaces write than writes are allowed per second, so that each namespace may write at least
	// once.
	parts       map[string]int
	window, end int64
}

// Gather returns a Gathered that delays changes by the given time after the first of them, and by up to five times as long
// while more than perSecond writes are due. Even urgent news is then delayed, so that reports about some objects do not
// hinder the work of others. Namespaces share the rate, so that changes in one do not delay those in another.
func Gather(after time.Duration, perSecond int, now func() time.Time) *Gathered {
	return &Gathered{
		after: after, perSecond: perSecond, rate: rate.NewLimiter(rate.Limit(perSecond), perSecond), now: now,
		since: map[types.UID]time.Time{}, parts: map[string]int{},
	}
}

// allows reports whether a namespace may write once more now. The caller holds the lock. Each namespace gets an equal part
// of the writes in a window. It may also use what others leave, but at most a quarter of a second's writes while there are
// others.
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

// Forget drops the state of a deleted object.
func (g *Gathered) Forget(uid types.UID) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.since, uid)
}

// stretch is the maximum factor between the delay and its shortest value. It always applies to objects that are being deleted, because they are
// usually gone before a user could read their status.
const stretch = 5

// left returns how much longer a change of the object may wait; 0 when it is due. News is due at once.
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

// putOff returns how long the status write of this attempt may wait; 0 if there is nothing to write, or if it must be
// written now.
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

// isNews reports whether a condition changed in a way that a user or a program may wait for: a problem or, for kinds that
// live long, any change of a status or reason.
func (a *Attempt) isNews(outcome error) bool {
	if a.reporter.Quiet && (outcome == nil || IsProgress(outcome)) {
		return false
	}
	return !equality.Semantic.DeepEqual(statuses(a.saved.GetConditions()), statuses(a.obj.GetConditions()))
}

// statuses returns the status and reason of each condition, by type. Programs only read these.
func statuses(conditions []metav1.Condition) map[string]string {
	short := make(map[string]string, len(conditions))
	for _, c := range conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason
	}
	return short
}
