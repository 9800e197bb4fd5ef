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
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// reconcileGrace is how long a controller may take to reconcile a change.
const reconcileGrace = time.Minute

// isLeaderless reports whether there are leases but none is renewed.
func (v view) isLeaderless() bool {
	return len(v.Leases) > 0 && !slices.ContainsFunc(v.Leases, func(l Lease) bool { return !l.Lost })
}

// watched is an object that a controller reconciles.
type watched interface {
	metav1.Object
	Conditioned
	Unreadable() error
}

// seen is an object, with what its status says about the last reconciliation.
type seen struct {
	of     object
	object watched
	// observed is the generation that the controller last reconciled; negative before the first time. handled is the last
	// reconciliation request, an annotation's value, that the controller handled.
	observed int64
	handled  string
}

func (s seen) ready() *Condition {
	return ConditionOf(s.object, v1alpha1.ReadyCondition)
}

// checkControllers finds leases that are not renewed, and controllers of other versions. If another lease is renewed, it is unknown which pools are
// affected.
func (l *search) checkControllers() {
	for _, lease := range l.Leases {
		namespace, name, _ := strings.Cut(lease.Name, "/")
		of := object{kind: leaseKind, name: lease.Name}
		if !lease.Lost {
			if differs(lease.Version, l.Version) {
				l.add(found(of, catalog.VersionsDiffer.With(lease.Version, l.Version)))
			}
			continue
		}
		holder := cmp.Or(lease.Holder, "a controller that released it")
		one := found(of, catalog.ControllerLost.With(namespace, name, holder), lease.Name)
		if l.isLeaderless() {
			one = found(of, catalog.NoLeader.With(namespace, name, holder))
			one.pools = slices.Collect(maps.Keys(l.pools))
		}
		l.add(one.from(lease.Renewed.Time))
	}
}

// differs reports whether two semantic versions differ. A build without a tag has no semantic version, so it never differs.
func differs(a, b string) bool {
	first, err := version.ParseSemantic(a)
	second, other := version.ParseSemantic(b)
	return err == nil && other == nil && !first.EqualTo(second)
}

// checkReconciled adds a symptom if no controller has reconciled the current version of an object, so that its status may be out
// of date.
func (l *search) checkReconciled(s seen) {
	var one symptom
	asked, _ := meta.ReconcileAnnotationValue(s.object.GetAnnotations())
	at, err := time.Parse(time.RFC3339Nano, asked)
	switch {
	case s.observed < 0 || s.ready() == nil:
		one = found(s.of, catalog.StatusMissing.With()).from(s.object.GetCreationTimestamp().Time)
	case s.observed < s.object.GetGeneration():
		one = found(s.of, catalog.SpecChanged.With()).from(changed(s.object))
	case err == nil && asked != s.handled:
		one = found(s.of, catalog.RequestUnhandled.With(meta.ReconcileRequestAnnotation)).from(at)
	}
	if l.isLeaderless() {
		one.key = catalog.NoLeader.Code
	}
	if l.Now.Sub(one.since) >= reconcileGrace {
		l.add(one)
	}
}

// changed returns when the object was last modified, apart from its status; its creation time if that is unknown.
func changed(o metav1.Object) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && m.Time != nil && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}

// isNotTrue reports whether a condition exists and is not True.
func isNotTrue(c *Condition) bool { return c != nil && c.Status != metav1.ConditionTrue }
