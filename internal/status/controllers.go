// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
)

const (
	// leaseGrace is how long a lease may go without being renewed: a leader renews it every 2 s, and one that is lost is followed
	// within 15 s. The rest is for clocks that differ.
	leaseGrace = time.Minute
	// lookGrace is how long a controller may take to look at a change.
	lookGrace = time.Minute
)

// isDead reports whether nobody renews a lease.
func (s *Snapshot) isDead(l Lease) bool {
	return l.Holder == "" || s.Now.Sub(l.Renewed.Time) > leaseGrace
}

// lookAtControllers finds leases that nobody renews.
func (w *world) lookAtControllers() {
	dead := 0
	var all []string
	for i := range w.Pools {
		all = append(all, w.Pools[i].Namespace+"/"+w.Pools[i].Name)
	}
	for _, l := range w.Leases {
		if !w.isDead(l) {
			continue
		}
		dead++
		message := fmt.Sprintf("Lease %s: %s renewed it last", l.Name, l.Holder)
		if l.Holder == "" {
			message = fmt.Sprintf("Lease %s: its holder gave it up, and nobody took it", l.Name)
		}
		w.add(symptom{
			key: noLeaderReason, of: object{kind: "Lease", name: l.Name}, reason: noLeaderReason, rank: rank{severity: Critical, what: "no controller works"},
			message: message, since: l.Renewed.Time, pools: all,
			do: "Look at the controller's pods: kubectl get pods -n corral-system. Running jobs go on; no runner is started or ended.",
		})
	}
	switch {
	case dead == 0:
	case dead == len(w.Leases):
		w.dead = noLeaderReason
	default: // whose pools suffer isn't known
		for i := range w.symptoms {
			w.symptoms[i].pools = nil
		}
	}
}

// owned is an object of ours.
type owned interface {
	metav1.Object
	GetConditions() []metav1.Condition
}

// ready returns an object's Ready condition, and enters a symptom if no controller looks at the object as it is; then what its status
// says may be of the past, and nil is returned if it never said anything.
func (w *world) ready(of object, o owned, observed int64, handled string) *explain.Condition {
	ready := explain.ConditionOf(o.GetConditions(), v1alpha1.ReadyCondition)
	since, why := w.unlooked(o, observed, handled, ready)
	if why == "" {
		return ready
	}
	s := symptom{
		key: notLookedAtReason, of: of, reason: notLookedAtReason, rank: rank{severity: Error, what: "no controller has looked at it"},
		message: why, since: since, do: "See that a controller works and watches the namespace (--watch-namespaces), and read its log.",
	}
	if w.dead != "" {
		s.key = w.dead
	}
	w.add(s)
	return ready
}

// unlooked says since when an object waits for a controller, and for what; "" if it doesn't, or not for long.
func (w *world) unlooked(o owned, observed int64, handled string, ready *explain.Condition) (since time.Time, why string) {
	switch {
	case observed < 0 || ready == nil:
		since, why = o.GetCreationTimestamp().Time, "it has no status yet"
	case observed < o.GetGeneration():
		since, why = changed(o), "its spec changed since it was looked at"
	default:
		asked, ok := meta.ReconcileAnnotationValue(o.GetAnnotations())
		at, err := time.Parse(time.RFC3339Nano, asked)
		if !ok || err != nil || asked == handled {
			return time.Time{}, ""
		}
		since, why = at, "it was asked to be looked at by "+meta.ReconcileRequestAnnotation
	}
	if w.Now.Sub(since) < lookGrace {
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
