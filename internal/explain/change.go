// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
)

// ofConnection lists the reasons that only a fix of the pool's GitHubConnection removes.
var ofConnection = []string{
	v1alpha1.ConnectionNotReadyReason, v1alpha1.CredentialsMissingReason, v1alpha1.CredentialsRefusedReason,
	v1alpha1.PermissionMissingReason, v1alpha1.ScopeNotFoundReason,
}

// startCauses lists the causes that keep runners from starting or end them, in the order in which they are reported.
var startCauses = []v1alpha1.RunnerCause{
	v1alpha1.CauseUnschedulable, v1alpha1.CauseQuota, v1alpha1.CauseRefused, v1alpha1.CauseImagePull, v1alpha1.CauseConfig, v1alpha1.CauseCrash,
	v1alpha1.CauseOutdated, v1alpha1.CauseNeverConnected, v1alpha1.CauseGitHub, v1alpha1.CauseCache, v1alpha1.CauseSlow,
}

// isConnections reports whether a pool may have this reason because its connection is not ready.
func isConnections(reason string) bool {
	return reason == v1alpha1.GitHubUnavailableReason || slices.Contains(ofConnection, reason)
}

// changes describes what would change the answer.
func (f *PoolFacts) changes() []string {
	all := book.Sentences("changes", f)
	if d := f.Pool.Status.Decision; d != nil && d.Announced > 0 && f.Pool.Status.GetJobs() == 0 && len(all) == 0 && f.closed().Reason == "" {
		all = append(all, phrase("jobs-wanted", f))
	}
	return append(all, book.Sentences("changes-elsewhere", f)...)
}

// labels returns the labels that the pool's runners offer to jobs. If the pool has no scale set, or only observes, they
// include self-hosted, the operating system and the architecture.
func (f *PoolFacts) labels() []string {
	if f.Pool.Spec.IsREST() || f.Pool.Spec.Observes() {
		return f.Pool.GetRegisteredLabels()
	}
	return f.Pool.GetRunnerLabels()
}

// unreported returns the cause of the last failure, unless an existing runner reports the same cause.
func (f *PoolFacts) unreported() v1alpha1.RunnerCause {
	if failures := f.Pool.Status.Failures; len(failures) > 0 && !f.hasRunner(failures[0].Cause) {
		return failures[0].Cause
	}
	return ""
}

// hasRunner reports whether a runner fails or waits because of a cause.
func (f *PoolFacts) hasRunner(cause v1alpha1.RunnerCause) bool {
	return slices.ContainsFunc(f.Runners, func(r Runner) bool { return r.Cause == cause })
}

// isOfConnection reports whether the pool's problem is that its connection is not ready. The pool's own condition Ready may
// still be True, because the pool continues with the previous credentials.
func (f *PoolFacts) isOfConnection() bool {
	ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition)
	return ready != nil && f.Connection.isFalse() && (ready.Status == metav1.ConditionTrue || slices.Contains(ofConnection, ready.Reason))
}

// unready returns the remedy for the condition Ready; "" if there is none, or if another part of the answer contains it.
func (f *PoolFacts) unready() string {
	ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition)
	switch {
	case f.isOfConnection():
		return f.fixConnection(f.Connection)
	case !isNotTrue(ready), f.isCovered(ready.Reason):
		return ""
	case slices.Contains(ofConnection, ready.Reason):
		return f.fixConnection(ready)
	case ready.Reason == v1alpha1.RunnersFailingReason:
		return FailingRemedy(f.unreported())
	case ready.Reason == v1alpha1.GitHubUnavailableReason:
		return f.ofOutage()
	}
	return RemedyFor(poolKind, f.Pool, ready)
}

// isCovered reports whether the findings, the update or the runners already contain the remedy for a reason.
func (f *PoolFacts) isCovered(reason string) bool {
	s := &f.Pool.Status
	return map[string]bool{
		v1alpha1.PolicyDeniedReason:  s.Policy != nil && !s.Policy.Allowed,
		v1alpha1.RolledBackReason:    s.Update != nil,
		v1alpha1.QuotaExceededReason: f.hasRunner(v1alpha1.CauseQuota),
	}[reason]
}

// ofOutage returns the remedy while GitHub is unavailable; "" if the answer about a runner contains it.
func (f *PoolFacts) ofOutage() string {
	outage := cmp.Or(f.ScaleSet, &v1alpha1.RunnerScaleSet{}).Status.Outage
	remedy := OutageRemedy(outage)
	for r := range pointers(f.Runners) {
		if r.Cause == v1alpha1.CauseGitHub && (outage == nil || RunnerRemedy(r) == remedy) {
			return ""
		}
	}
	return remedy
}

// fixConnection returns the remedy for the pool's connection, given its condition.
func (f *PoolFacts) fixConnection(c *Condition) string {
	return fmt.Sprintf("GitHubConnection %s (%s): %s", f.Pool.Spec.ConnectionRef.From(f.Pool.Namespace), c.text(), RemedyFor(connectionKind, nil, c))
}

// MaxRemedy returns the remedy for a pool that is full.
func MaxRemedy(p *v1alpha1.RunnerPool, now time.Time) string {
	f := PoolFacts{Pool: p, Now: now}
	return cmp.Or(phrase("limit-advice", f.limitAdvice("max")), catalog.MaxReached.Remedy)
}

// limitAdvice contains the data for advice about a pool's limits.
type limitAdvice struct {
	*PoolFacts
	// Only is min, max or idle if the advice is about one limit, and "" for all.
	Only string
	// Bound is the rule that limits max; nil for none. Schedule is the name of the schedule that sets max; "" for none.
	Bound    *v1alpha1.LimitBound
	Schedule string
	Declared v1alpha1.Scale
	// Wanted is the number of runners that all known jobs and the idle runners need.
	Wanted int64
}

// limitAdvice returns the data for advice about one limit, or about all limits; nil if no limits were decided.
func (f *PoolFacts) limitAdvice(only string) *limitAdvice {
	s := &f.Pool.Status
	if s.Decision == nil || s.Decision.Limits == nil {
		return nil
	}
	wanted := int64(s.GetJobs()) + int64(More(s)) + int64(s.Decision.Limits.Idle)
	return &limitAdvice{f, only, boundOfMax(s.Decision.Limits), f.decider("max"), f.declared(), wanted}
}

// boundOfMax returns the rule that limits max, or nil.
func boundOfMax(l *v1alpha1.DecidedLimits) *v1alpha1.LimitBound {
	for b := range pointers(l.Bounds) {
		if b.Field == "max" {
			return b
		}
	}
	return nil
}

// stuck groups the runners that do not start by cause, in the order in which causes are reported.
func (f *PoolFacts) stuck() (all [][]Runner) {
	for _, cause := range startCauses {
		late := slices.DeleteFunc(slices.Clone(f.Runners), func(r Runner) bool { return r.Cause != cause || !r.isStuck() })
		if len(late) > 0 {
			all = append(all, late)
		}
	}
	return all
}
