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
	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// maxObjects limits how many objects a finding names.
const maxObjects = 20

// group returns one finding per cause, the most severe first.
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

// findingOf merges symptoms with the same cause. The finding shows the most severe symptom and the earliest beginning. If
// runners of several pools fail, the message and the last failure come from the pool whose runner failed last.
func findingOf(v view, of symptoms) Finding {
	shown := slices.MinFunc(of, func(a, b symptom) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.severity), slices.Index(severities, b.severity)), b.failedAt().Compare(a.failedAt()))
	})
	c := &shown.cause
	f := Finding{
		Severity: shown.severity, Reason: shown.reason, Code: c.Code, Parameters: c.Parameters, Detail: c.Detail, Subject: c.Subject,
		What: shown.what, Message: shown.message, LastFailure: shown.failed, Do: shown.do, key: shown.key, unseen: notRead(v.Unseen),
	}
	objects := map[object]bool{}
	for _, s := range of {
		objects[s.of] = true
		f.Since, f.By, f.Next = earlier(f.Since, s.since), earlier(f.By, s.by), earlier(f.Next, s.next)
	}
	if f.Reason == v1alpha1.MaxReachedReason && slices.ContainsFunc(of, func(s symptom) bool { return s.do != f.Do }) {
		f.Do = catalog.MaxReached.Remedy // the remedies of the pools name different limits, so the general one applies
	}
	for name, waits := range of.pools((*symptom).keepsJobs) {
		f.Hurts.Pools++
		if p := v.pools[name]; p != nil && waits && (f.isTrouble() || f.Reason == v1alpha1.SuspendedReason) {
			f.Hurts.Jobs += Waiting(&p.Status)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(objects), object.compare)
	for i, o := range sorted {
		if f.Hurts.count(o.kind); i < maxObjects {
			f.Objects = append(f.Objects, o.String())
		}
	}
	f.More = max(0, len(sorted)-maxObjects)
	return f
}

// failedAt returns when the last runner failed, or the zero time.
func (s *symptom) failedAt() time.Time { return cmp.Or(s.failed, &v1alpha1.RunnerFailure{}).Time.Time }

// count increments the counter for the kind of an object. findingOf counts the affected pools.
func (h *Hurts) count(kind string) {
	counts := map[string]*int{sourceKind: &h.Sources, connectionKind: &h.Connections, policyKind: &h.Policies, clusterPolicyKind: &h.Policies, runnerKind: &h.Runners}
	*cmp.Or(counts[kind], new(int))++
}

func (h Hurts) total() int { return h.Pools + h.Runners + h.Sources + h.Connections + h.Policies }

// earlier returns the earlier of two times. Either may be missing.
func earlier(a *metav1.Time, b time.Time) *metav1.Time {
	if b.IsZero() || a != nil && !b.Before(a.Time) {
		return a
	}
	return &metav1.Time{Time: b.UTC()}
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }
