// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// lookGrace is how long a controller may take to look at a change.
const lookGrace = time.Minute

// isLeaderless reports whether nobody renews any lease.
func (v view) isLeaderless() bool {
	for _, l := range v.Leases {
		if !l.Lost {
			return false
		}
	}
	return len(v.Leases) > 0
}

// checkControllers finds leases that nobody renews. If somebody renews another, whose pools suffer isn't known.
func checkControllers(v view) symptoms {
	var all symptoms
	var pools []string
	isAlone := v.isLeaderless()
	if isAlone {
		for i := range v.Pools {
			pools = append(pools, nameOf(&v.Pools[i]))
		}
	}
	for _, l := range v.Leases {
		if !l.Lost {
			continue
		}
		row, of := catalog.NoLeader, object{kind: leaseKind, name: l.Name}
		if !isAlone {
			row = catalog.ControllerLost
		}
		namespace, name, _ := strings.Cut(l.Name, "/")
		one := found(of, row.With(namespace, name, cmp.Or(l.Holder, "a holder that gave it up")))
		one.since, one.pools = l.Renewed.Time, pools
		if !isAlone {
			one.key += "|" + l.Name
		}
		all = append(all, one)
	}
	return all
}

// watched is an object that a controller looks at.
type watched interface {
	metav1.Object
	Conditioned
	Unreadable() error
}

// seen is an object, and what its status says of the last look at it.
type seen struct {
	of     object
	object watched
	// observed is the generation that was looked at, handled the last request to look.
	observed int64
	handled  string
}

func (s seen) ready() *Condition {
	return ConditionOf(s.object, v1alpha1.ReadyCondition)
}

// amiss is the symptom that the object isn't ready.
func (s seen) amiss(ready *Condition) symptom {
	one := conditionOf(s.of, ready)
	if isUnread := ready.Reason == v1alpha1.InvalidSpecReason || ready.Reason == v1alpha1.PolicyInvalidReason; isUnread && s.object.Unreadable() != nil {
		one.do = UnreadRemedy(s.of.kind)
	}
	return one
}

// checkLook finds out whether no controller looks at an object as it is: what its status says may be of the past then.
func checkLook(v view, s seen) symptoms {
	since, why := s.unlooked()
	if why.Code == "" || v.Now.Sub(since) < lookGrace {
		return nil
	}
	one := found(s.of, why)
	one.since = since
	if v.isLeaderless() {
		one.key = catalog.NoLeader.Code
	}
	return symptoms{one}
}

// unlooked returns since when an object waits for a controller, and why; no cause if it doesn't.
func (s seen) unlooked() (since time.Time, why catalog.Cause) {
	asked, _ := meta.ReconcileAnnotationValue(s.object.GetAnnotations())
	at, err := time.Parse(time.RFC3339Nano, asked)
	switch {
	case s.observed < 0 || s.ready() == nil:
		return s.object.GetCreationTimestamp().Time, catalog.StatusMissing.With()
	case s.observed < s.object.GetGeneration():
		return changed(s.object), catalog.SpecChanged.With()
	case err == nil && asked != s.handled:
		return at, catalog.RequestUnhandled.With(meta.ReconcileRequestAnnotation)
	}
	return since, why
}

// changed is when somebody wrote an object last, but for its status; its creation if that isn't known.
func changed(o metav1.Object) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && m.Time != nil && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}

// isAmiss reports whether an object's condition Ready is there and not True.
func isAmiss(c *Condition) bool { return c != nil && c.Status != metav1.ConditionTrue }
