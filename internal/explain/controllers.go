// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"maps"
	"slices"
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
	return len(v.Leases) > 0 && !slices.ContainsFunc(v.Leases, func(l Lease) bool { return !l.Lost })
}

// checkControllers finds leases that nobody renews. If somebody renews another, whose pools suffer isn't known.
func checkControllers(v view) symptoms {
	var all symptoms
	for _, l := range v.Leases {
		if !l.Lost {
			continue
		}
		namespace, name, _ := strings.Cut(l.Name, "/")
		of, holder := object{kind: leaseKind, name: l.Name}, cmp.Or(l.Holder, "a controller that released it")
		one := found(of, catalog.ControllerLost.With(namespace, name, holder), l.Name)
		if v.isLeaderless() {
			one = found(of, catalog.NoLeader.With(namespace, name, holder))
			one.pools = slices.Collect(maps.Keys(v.pools))
		}
		one.since = l.Renewed.Time
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

// checkLook finds out whether no controller looks at an object as it is: what its status says may be of the past then.
func checkLook(v view, s seen) symptoms {
	var since time.Time
	var why catalog.Cause
	asked, _ := meta.ReconcileAnnotationValue(s.object.GetAnnotations())
	at, err := time.Parse(time.RFC3339Nano, asked)
	switch {
	case s.observed < 0 || s.ready() == nil:
		since, why = s.object.GetCreationTimestamp().Time, catalog.StatusMissing.With()
	case s.observed < s.object.GetGeneration():
		since, why = changed(s.object), catalog.SpecChanged.With()
	case err == nil && asked != s.handled:
		since, why = at, catalog.RequestUnhandled.With(meta.ReconcileRequestAnnotation)
	default:
		return nil
	}
	one := found(s.of, why)
	one.since = since
	if v.isLeaderless() {
		one.key = catalog.NoLeader.Code
	}
	if v.Now.Sub(since) < lookGrace {
		return nil
	}
	return symptoms{one}
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
