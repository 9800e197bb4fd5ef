// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// view is a snapshot with indexes of its objects by NAMESPACE/NAME.
type view struct {
	*Snapshot
	connections map[string]*v1alpha1.GitHubConnection
	pools       map[string]*v1alpha1.RunnerPool
	sets        map[string]*v1alpha1.RunnerScaleSet
}

func viewOf(s *Snapshot) view {
	return view{Snapshot: s, connections: byName(s.Connections), pools: byName(s.Pools), sets: byName(s.ScaleSets)}
}

// byName indexes the objects of a list by NAMESPACE/NAME.
func byName[T any, P interface {
	*T
	metav1.Object
}](list []T) map[string]P {
	named := map[string]P{}
	for i := range list {
		o := P(&list[i])
		named[o.GetNamespace()+"/"+o.GetName()] = o
	}
	return named
}

func nameOf(p *v1alpha1.RunnerPool) string { return p.Namespace + "/" + p.Name }

// setOf returns the scale set of a pool; nil if it has none.
func (v view) setOf(p *v1alpha1.RunnerPool) *v1alpha1.RunnerScaleSet {
	if set := v.sets[nameOf(p)]; set != nil && set.Spec.PoolUID == string(p.UID) {
		return set
	}
	return nil
}

// outageOf returns the GitHub outage reported by a pool's scale set or one of its runners; nil if there is none.
func (v view) outageOf(p *v1alpha1.RunnerPool) *v1alpha1.GitHubOutage {
	if set := v.setOf(p); set != nil && set.Status.Outage != nil {
		return set.Status.Outage
	}
	for r := range pointers(v.Runners) {
		if r.Status.Outage != nil && r.Namespace == p.Namespace && r.Spec.PoolRef.Name == p.Name {
			return r.Status.Outage
		}
	}
	return nil
}

// left returns the remaining runners of deleted pools. It returns none if the pools could not be read, because it is then
// unknown which were deleted.
func (v view) left() (all []*v1alpha1.Runner) {
	if slices.ContainsFunc(v.Unseen, func(u Unseen) bool { return strings.HasPrefix(u.What, poolsRead) }) {
		return nil
	}
	for r := range pointers(v.Runners) {
		if v.isLeft(r) {
			all = append(all, r)
		}
	}
	return all
}

// isLeft reports whether a runner is being deleted and its pool no longer exists.
func (v view) isLeft(r *v1alpha1.Runner) bool {
	pool, owner := v.pools[r.Namespace+"/"+r.Spec.PoolRef.Name], metav1.GetControllerOf(r)
	return !r.DeletionTimestamp.IsZero() && owner != nil && (pool == nil || pool.UID != owner.UID)
}

// poolOf returns the pool of a scale set; nil if it was deleted.
func (v view) poolOf(set *v1alpha1.RunnerScaleSet) *v1alpha1.RunnerPool {
	if p := v.pools[set.Namespace+"/"+set.Spec.PoolRef.Name]; p != nil && string(p.UID) == set.Spec.PoolUID {
		return p
	}
	return nil
}

// poolsBy groups the pools, as NAMESPACE/NAME, by the result of owner.
func (v view) poolsBy(owner func(*v1alpha1.RunnerPool) string) map[string][]string {
	pools := map[string][]string{}
	for p := range pointers(v.Pools) {
		pools[owner(p)] = append(pools[owner(p)], nameOf(p))
	}
	return pools
}

// policyObjects lists the cluster policies, then the namespaced ones.
func (s *Snapshot) policyObjects() (all []policy.Object) {
	for i := range s.ClusterPolicies {
		all = append(all, &s.ClusterPolicies[i])
	}
	for i := range s.Policies {
		all = append(all, &s.Policies[i])
	}
	return all
}

// bindingPolicies returns the policies that apply to a pool.
func (s *Snapshot) bindingPolicies(pool *v1alpha1.RunnerPool) []policy.Object {
	facts := policy.PoolOf(pool)
	return slices.DeleteFunc(s.policyObjects(), func(p policy.Object) bool {
		source, _ := policy.SourceOf(p) // its status reports errors
		return !policy.Broken(source, nil).Binds(facts)
	})
}

// PoliciesOf returns what is known about the policies that apply to a pool.
func (s *Snapshot) PoliciesOf(pool *v1alpha1.RunnerPool) (all []Policy) {
	for _, p := range s.bindingPolicies(pool) {
		source, _ := policy.SourceOf(p)
		status := p.GetPolicyStatus()
		known := Policy{Policy: source.Ref(), Mode: p.GetRules().GetMode(), Digest: status.Digest, Decisions: status.Decisions, Ready: ConditionOf(p, v1alpha1.ReadyCondition)}
		if by := p.GetLabels()[v1alpha1.SourceLabel]; by != "" {
			known.Source = strings.TrimPrefix(p.GetNamespace()+"/"+by, "/")
		}
		for _, w := range status.WouldChange {
			if w.Pool == nameOf(pool) {
				known.WouldChange = append(known.WouldChange, w.Decision+": "+w.Message)
			}
		}
		all = append(all, known)
	}
	return all
}

// Facts returns what is known about each pool, sorted, with the states of its runners from their status.
func (s *Snapshot) Facts() []PoolFacts {
	v, runners := viewOf(s), map[string][]Runner{}
	for r := range pointers(s.Runners) {
		of := r.Namespace + "/" + r.Spec.PoolRef.Name
		runners[of] = append(runners[of], reported(r))
	}
	var all []PoolFacts
	for _, name := range slices.Sorted(maps.Keys(v.pools)) {
		p := v.pools[name]
		connection := cmp.Or(v.connections[p.Spec.ConnectionRef.From(p.Namespace).String()], &v1alpha1.GitHubConnection{})
		all = append(all, PoolFacts{
			Pool: p, ScaleSet: v.setOf(p), Connection: ConditionOf(connection, v1alpha1.ReadyCondition), Runners: runners[name], Now: s.Now,
		})
	}
	return all
}

// totals counts what was read.
func (v view) totals() Totals {
	t := Totals{Sources: len(v.Sources), Connections: len(v.Connections), Policies: len(v.Policies) + len(v.ClusterPolicies), Pools: len(v.Pools)}
	for p := range pointers(v.Pools) {
		s := &p.Status
		t.Runners = poolstatus.Sum(t.Runners, s.Runners)
		if n := Known(s); n != nil {
			t.Jobs += *n + More(s)
		} else {
			t.Jobs += s.Runners.Busy
			t.JobsUnknown++
		}
		t.Waiting += Waiting(s)
	}
	for _, r := range v.left() {
		poolstatus.Count(&t.Runners, r.Status.State, false)
		if r.Status.State == v1alpha1.RunnerBusy {
			t.Jobs++
		}
	}
	t.Leaders = slices.DeleteFunc(slices.Clone(v.Leases), func(l Lease) bool { return l.Lost })
	return t
}

// pointers yields a pointer to each element of a list.
func pointers[T any](list []T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}

// reported returns a runner with the state that its status reports.
func reported(r *v1alpha1.Runner) Runner {
	return Runner{Object: r, Judgement: Judgement{State: r.Status.State, Reason: r.Status.Reason, Cause: r.Status.Cause}}
}
