// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
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
		message := fmt.Sprintf("Lease %s: %s renewed it last", l.Name, l.Holder)
		if l.Holder == "" {
			message = fmt.Sprintf("Lease %s: its holder gave it up, and nobody took it", l.Name)
		}
		namespace, name, _ := strings.Cut(l.Name, "/")
		one := symptom{
			key: noLeaderReason, of: object{kind: leaseKind, name: l.Name}, reason: noLeaderReason, rank: rank{severity: Critical, what: "no controller works"},
			message: message, since: l.Renewed.Time, pools: pools,
			do: "Look at the controller's pods: kubectl get pods -n " + namespace + ". Running jobs go on; no runner is started or ended.",
		}
		if !isAlone {
			one.key, one.rank = noLeaderReason+"|"+l.Name, rank{severity: Error, what: "a controller doesn't work, and another does"}
			one.do = fmt.Sprintf("If it was uninstalled: kubectl delete lease -n %s %s. Else look at its pods: kubectl get pods -n %s.", namespace, name, namespace)
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
	since, why := s.unlooked(v.Now)
	if why == "" {
		return nil
	}
	one := symptom{
		key: notLookedAtReason, of: s.of, reason: notLookedAtReason, rank: rank{severity: Error, what: "no controller has looked at it"},
		message: why, since: since, do: "See that a controller works and watches the namespace (--watch-namespaces), and read its log.",
	}
	if v.isLeaderless() {
		one.key = noLeaderReason
	}
	return symptoms{one}
}

// unlooked says since when an object waits for a controller, and for what; "" if it doesn't, or not for long.
func (s seen) unlooked(now time.Time) (since time.Time, why string) {
	switch {
	case s.observed < 0 || s.ready() == nil:
		since, why = s.object.GetCreationTimestamp().Time, "it has no status yet"
	case s.observed < s.object.GetGeneration():
		since, why = changed(s.object), "its spec changed since it was looked at"
	default:
		asked, ok := meta.ReconcileAnnotationValue(s.object.GetAnnotations())
		at, err := time.Parse(time.RFC3339Nano, asked)
		if !ok || err != nil || asked == s.handled {
			return time.Time{}, ""
		}
		since, why = at, "it was asked to be looked at by "+meta.ReconcileRequestAnnotation
	}
	if now.Sub(since) < lookGrace {
		return time.Time{}, ""
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
