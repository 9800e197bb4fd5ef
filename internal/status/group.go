// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

// maxObjects is how many objects a finding names.
const maxObjects = 20

// Kinds of objects.
const (
	poolKind          = "RunnerPool"
	sourceKind        = "PoolSource"
	connectionKind    = "GitHubConnection"
	scaleSetKind      = "ScaleSet"
	runnerKind        = "Runner"
	policyKind        = "RunnerPolicy"
	clusterPolicyKind = "ClusterRunnerPolicy"
	quotaKind         = "ResourceQuota"
)

// object names an object.
type object struct{ kind, namespace, name string }

func (o object) String() string {
	if o.namespace == "" {
		return o.kind + "/" + o.name
	}
	return o.kind + "/" + o.namespace + "/" + o.name
}

// kinds in the order in which objects are named: those that are a cause come first.
var kinds = []string{"Lease", connectionKind, sourceKind, clusterPolicyKind, policyKind, quotaKind, poolKind, scaleSetKind, runnerKind}

func (o object) compare(other object) int {
	return cmp.Or(cmp.Compare(slices.Index(kinds, o.kind), slices.Index(kinds, other.kind)), strings.Compare(o.String(), other.String()))
}

func (o object) key() string { return o.namespace + "/" + o.name }

// symptom is what one object tells of a cause. Those with the same key are told as one.
type symptom struct {
	key     string
	of      object
	reason  string
	rank    rank
	message string
	do      string
	since   time.Time
	by      time.Time
	// failed is the pool's last failed runner, if that is what it tells of.
	failed *v1alpha1.RunnerFailure
	// pools that suffer, as NAMESPACE/NAME. No job waits for it if they goOn.
	pools []string
	goOn  bool
}

// telling is an object that tells of a reason.
type telling struct {
	of     object
	reason string
}

// world is a snapshot that is being looked at.
type world struct {
	*Snapshot
	connections map[string]*v1alpha1.GitHubConnection
	pools       map[string]*v1alpha1.RunnerPool
	sets        map[string]*v1alpha1.ScaleSet
	runners     map[string][]explain.Runner
	// keys of symptoms by the object that told them first, and told by the object and the reason.
	keys     map[object]string
	told     map[telling]string
	symptoms []symptom
	// dead is the key of the finding that no controller works.
	dead string
}

func newWorld(s *Snapshot) *world {
	w := &world{
		Snapshot: s, connections: map[string]*v1alpha1.GitHubConnection{}, pools: map[string]*v1alpha1.RunnerPool{},
		sets: map[string]*v1alpha1.ScaleSet{}, runners: map[string][]explain.Runner{}, keys: map[object]string{}, told: map[telling]string{},
	}
	for i := range s.Connections {
		c := &s.Connections[i]
		w.connections[c.Namespace+"/"+c.Name] = c
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		w.pools[p.Namespace+"/"+p.Name] = p
	}
	for i := range s.ScaleSets {
		set := &s.ScaleSets[i]
		w.sets[set.Namespace+"/"+set.Name] = set
	}
	for i := range s.Runners {
		r := &s.Runners[i]
		key := r.Namespace + "/" + r.Spec.PoolRef.Name
		w.runners[key] = append(w.runners[key], w.judge(r))
	}
	return w
}

// judge takes a runner as its status has it, which the controller wrote by its pod.
func (w *world) judge(r *v1alpha1.Runner) explain.Runner {
	return explain.Runner{Object: r, Judgement: explain.Judgement{State: r.Status.State, Reason: r.Status.Reason, Cause: r.Status.Cause}}
}

// add enters a symptom. One that passes by itself, and came about lately, is but a note.
func (w *world) add(s symptom) {
	if s.rank.severity == "" {
		return
	}
	if s.rank.grace > 0 && w.Now.Sub(s.since) < s.rank.grace {
		s.rank.severity, s.rank.what = Note, cmp.Or(s.rank.lately, s.rank.what)
		s.key += "|lately"
	}
	if _, ok := w.keys[s.of]; !ok {
		w.keys[s.of] = s.key
	}
	w.told[telling{s.of, s.reason}] = s.key
	w.symptoms = append(w.symptoms, s)
}

// condition is a symptom by a condition of an object.
func (w *world) condition(of object, c *explain.Condition) symptom {
	what := whatOf(c.Reason, c.Message)
	key := c.Reason + "|" + what
	if c.Reason != v1alpha1.GitHubUnavailableReason {
		key += "|" + alike(c.Message)
	}
	r := rankOf(c.Reason)
	r.what = what
	return symptom{key: key, of: of, reason: c.Reason, rank: r, message: c.Message, do: explain.Remedy(of.kind, c.Reason), since: c.Since.Time}
}

// group makes one finding of each cause, the worst first.
func (w *world) group() []Finding {
	byKey := map[string][]symptom{}
	for _, s := range w.symptoms {
		byKey[s.key] = append(byKey[s.key], s)
	}
	var all []Finding
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		all = append(all, w.finding(byKey[key]))
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(b.Hurts.Jobs, a.Hurts.Jobs), cmp.Compare(b.Hurts.total(), a.Hurts.total()),
			timeOf(a.By).Compare(timeOf(b.By)), timeOf(a.Since).Compare(timeOf(b.Since)), strings.Compare(a.What, b.What),
		)
	})
	return all
}

// finding makes one of symptoms with the same cause: that of the worst of them, since the first.
func (w *world) finding(of []symptom) Finding {
	worst := slices.MinFunc(of, func(a, b symptom) int {
		return cmp.Compare(slices.Index(severities, a.rank.severity), slices.Index(severities, b.rank.severity))
	})
	f := Finding{Severity: worst.rank.severity, Reason: worst.reason, What: worst.rank.what, Message: worst.message, Do: worst.do, key: worst.key}
	objects, pools := map[object]bool{}, map[string]bool{} // true of pools with jobs that wait for it
	for _, s := range of {
		objects[s.of] = true
		if s.of.kind == poolKind {
			pools[s.of.key()] = pools[s.of.key()] || !s.goOn
		}
		for _, p := range s.pools {
			pools[p] = pools[p] || !s.goOn
		}
		if s.failed != nil && (f.LastFailure == nil || f.LastFailure.Time.Before(&s.failed.Time)) {
			f.LastFailure = s.failed
		}
		f.Since, f.By, f.Next = earlier(f.Since, s.since), earlier(f.By, s.by), earlier(f.Next, wording.NextTryIn(s.message, w.Now))
	}
	for pool, waits := range pools {
		if p := w.pools[pool]; p != nil && waits && f.isTrouble() {
			f.Hurts.Jobs += explain.Waiting(&p.Status)
		}
	}
	f.Hurts.Pools = len(pools)
	sorted := slices.SortedFunc(maps.Keys(objects), object.compare)
	for i, o := range sorted {
		if f.Hurts.count(o.kind); i < maxObjects {
			f.Objects = append(f.Objects, o.String())
		}
	}
	f.More = max(0, len(sorted)-maxObjects)
	return f
}

// count counts an object of a kind.
func (h *Hurts) count(kind string) {
	switch kind {
	case sourceKind:
		h.Sources++
	case connectionKind:
		h.Connections++
	case policyKind, clusterPolicyKind:
		h.Policies++
	case runnerKind:
		h.Runners++
	}
}

func (h Hurts) total() int { return h.Pools + h.Runners + h.Sources + h.Connections + h.Policies }

// earlier returns the first of two times, of which either may be missing.
func earlier(a *metav1.Time, b time.Time) *metav1.Time {
	switch {
	case b.IsZero():
		return a
	case a == nil || b.Before(a.Time):
		return &metav1.Time{Time: b.UTC()}
	}
	return a
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// totals count what was read.
func (w *world) totals() Totals {
	t := Totals{
		Sources: len(w.Sources), Connections: len(w.Connections), Policies: len(w.Policies) + len(w.ClusterPolicies), Pools: len(w.Pools),
	}
	for i := range w.Pools {
		s := &w.Pools[i].Status
		t.Runners = poolstatus.Sum(t.Runners, s.Runners)
		t.Jobs += s.Jobs
		t.Waiting += explain.Waiting(s)
	}
	for _, l := range w.Leases {
		if !w.isDead(l) {
			t.Leaders = append(t.Leaders, l)
		}
	}
	return t
}
