// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// maxObjects is how many objects a finding names.
const maxObjects = 20

// group makes one finding of each cause, the worst first.
func group(v view, all symptoms) []Finding {
	byKey := map[string]symptoms{}
	for _, s := range all {
		byKey[s.key] = append(byKey[s.key], s)
	}
	var findings []Finding
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		findings = append(findings, findingOf(v, byKey[key]))
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(b.Hurts.Jobs, a.Hurts.Jobs), cmp.Compare(b.Hurts.total(), a.Hurts.total()),
			timeOf(a.By).Compare(timeOf(b.By)), timeOf(a.Since).Compare(timeOf(b.Since)), strings.Compare(a.What, b.What),
		)
	})
	return findings
}

// findingOf makes one of symptoms with the same cause: that of the worst of them, since the first.
func findingOf(v view, of symptoms) Finding {
	worst := slices.MinFunc(of, func(a, b symptom) int {
		return cmp.Compare(slices.Index(severities, a.rank.severity), slices.Index(severities, b.rank.severity))
	})
	c := &worst.cause
	f := Finding{
		Severity: worst.rank.severity, Reason: worst.reason, Code: c.Code, Parameters: c.Parameters, Detail: c.Detail, Subject: c.Subject,
		What: worst.rank.what, Message: worst.message, Do: worst.do, key: worst.key,
	}
	objects := map[object]bool{}
	for _, s := range of {
		objects[s.of] = true
		if s.failed != nil && (f.LastFailure == nil || f.LastFailure.Time.Before(&s.failed.Time)) {
			f.LastFailure = s.failed
		}
		f.Since, f.By, f.Next = earlier(f.Since, s.since), earlier(f.By, s.by), earlier(f.Next, s.next)
	}
	if f.LastFailure != nil && f.Reason == v1alpha1.RunnersFailingReason {
		f.Do = FailingRemedy(f.LastFailure.Cause)
	}
	if f.Reason == v1alpha1.MaxReachedReason && slices.ContainsFunc(of, func(s symptom) bool { return s.do != f.Do }) {
		f.Do = Remedy(poolKind, f.Reason) // each pool has its own max
	}
	f.Hurts.ofPools(v, of.pools(), f.isTrouble() || f.Reason == v1alpha1.SuspendedReason)
	sorted := slices.SortedFunc(maps.Keys(objects), object.compare)
	for i, o := range sorted {
		if f.Hurts.count(o.kind); i < maxObjects {
			f.Objects = append(f.Objects, o.String())
		}
	}
	f.More = max(0, len(sorted)-maxObjects)
	return f
}

// pools are those that suffer; true are those with jobs that wait for it.
func (all symptoms) pools() map[string]bool {
	pools := map[string]bool{}
	for _, s := range all {
		if s.of.kind == poolKind {
			pools[s.of.key()] = pools[s.of.key()] || s.keepsJobs()
		}
		for _, p := range s.pools {
			pools[p] = pools[p] || s.keepsJobs()
		}
	}
	return pools
}

// ofPools counts pools, and of what keeps jobs waiting those that do.
func (h *Hurts) ofPools(v view, pools map[string]bool, keepsJobs bool) {
	h.Pools = len(pools)
	for name, waits := range pools {
		if p := v.pools[name]; p != nil && waits && keepsJobs {
			h.Jobs += Waiting(&p.Status)
		}
	}
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
