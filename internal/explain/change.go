// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// ofConnection are reasons that only a fix of the pool's GitHubConnection removes.
var ofConnection = []string{
	v1alpha1.ConnectionNotReadyReason, v1alpha1.CredentialsMissingReason, v1alpha1.CredentialsRefusedReason,
	v1alpha1.PermissionMissingReason, v1alpha1.ScopeNotFoundReason,
}

// startCauses are what keeps runners from starting, or ended them, in the order in which they are reported.
var startCauses = []v1alpha1.RunnerCause{
	v1alpha1.CauseUnschedulable, v1alpha1.CauseQuota, v1alpha1.CauseRefused, v1alpha1.CauseImagePull, v1alpha1.CauseConfig, v1alpha1.CauseCrash,
	v1alpha1.CauseOutdated, v1alpha1.CauseNeverConnected, v1alpha1.CauseGitHub, v1alpha1.CauseCache, v1alpha1.CauseSlow,
}

// isConnections reports whether a pool's reason may be that its connection isn't ready.
func isConnections(reason string) bool {
	return reason == v1alpha1.GitHubUnavailableReason || slices.Contains(ofConnection, reason)
}

// changes say what would change the answer.
func (f *PoolFacts) changes() []string {
	var all []string
	if f.observes() {
		all = append(all, catalog.ModeObserve.Remedy)
	}
	_, starting := f.starting()
	all = slices.Concat(all, f.blockers(), f.ofDemand(), f.bounds(numbers...), starting, f.ofUpdate())
	if d := f.Pool.Status.Decision; d != nil && d.Announced > 0 && f.Pool.Status.GetJobs() == 0 && len(all) == 0 && f.closed() == nil {
		all = append(all, f.jobsWanted())
	}
	if f.Applied.isFalse() {
		all = append(all, fmt.Sprintf("PoolSource %s: %s", f.Source, RemedyFor(sourceKind, f.Applied)))
	}
	healthy, ready := ConditionOf(f.Pool, v1alpha1.HealthyCondition), ConditionOf(f.Pool, v1alpha1.ReadyCondition)
	if healthy.isFalse() && healthy.Reason != v1alpha1.RunnersFailingReason && (ready == nil || ready.Reason != healthy.Reason) {
		all = append(all, Remedy(poolKind, healthy.Reason))
	}
	if c := ConditionOf(f.Pool, v1alpha1.DrainableCondition); c.isFalse() { // which holds up no job
		all = append(all, c.Message+".")
	}
	return all
}

// jobsWanted says which jobs create runners.
func (f *PoolFacts) jobsWanted() string {
	which := "jobs that GitHub assigns and"
	if f.isREST() {
		which = "jobs that its demand sources report and"
	}
	return catalog.JobsWanted.Advice(which, strings.Join(f.labels(), ", "), strconv.Quote(f.Pool.Spec.GetRunnerGroup()))
}

// labels are those that its runners offer to jobs. Without a scale set, they include the labels that GitHub adds to any
// runner.
func (f *PoolFacts) labels() []string {
	if f.isREST() || f.observes() {
		return f.Pool.GetRegisteredLabels()
	}
	return f.Pool.GetRunnerLabels()
}

// maxRemedied is for how many of a template's findings a remedy is told: each has its own under Template.
const maxRemedied = 3

// blockers say what would make the pool ready.
func (f *PoolFacts) blockers() []string {
	s := &f.Pool.Status
	var all []string
	if s.Policy != nil && !s.Policy.Allowed {
		for i, d := range s.Policy.Denials {
			if i == maxRemedied {
				all = append(all, catalog.MoreFindings.Remedy)
				break
			}
			all = append(all, denialText(d))
		}
	}
	ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition)
	if text := f.unready(ready); text != "" {
		all = append(all, text)
	}
	if f.Pool.Spec.Stops() && (ready == nil || ready.Reason != v1alpha1.SuspendedReason) {
		all = append(all, catalog.Suspended.Remedy)
	}
	return all
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

// isOfConnection reports whether the pool's connection, which isn't ready, is the cause of what is amiss. The pool may go on with what it had.
func (f *PoolFacts) isOfConnection() bool {
	ready := ConditionOf(f.Pool, v1alpha1.ReadyCondition)
	return ready != nil && f.Connection.isFalse() && (ready.Status == metav1.ConditionTrue || slices.Contains(ofConnection, ready.Reason))
}

// unready returns the remedy for the condition Ready; "" if there is none, or if another part of the answer contains it.
func (f *PoolFacts) unready(ready *Condition) string {
	switch {
	case f.isOfConnection():
		return f.fixConnection(f.Connection)
	case !isAmiss(ready), f.isSaid(ready.Reason):
		return ""
	case slices.Contains(ofConnection, ready.Reason):
		return f.fixConnection(ready)
	case ready.Reason == v1alpha1.InvalidSpecReason && f.Pool.Unreadable() != nil:
		return UnreadRemedy(poolKind)
	case ready.Reason == v1alpha1.RunnersFailingReason:
		return FailingRemedy(f.unreported())
	case ready.Reason == v1alpha1.GitHubUnavailableReason:
		return f.ofOutage()
	}
	return RemedyFor(poolKind, ready)
}

// isSaid reports whether the findings, the update or the runners already contain the remedy for a reason.
func (f *PoolFacts) isSaid(reason string) bool {
	s := &f.Pool.Status
	switch reason {
	case v1alpha1.PolicyDeniedReason:
		return s.Policy != nil && !s.Policy.Allowed
	case v1alpha1.RolledBackReason:
		return s.Update != nil
	}
	return reason == v1alpha1.QuotaExceededReason && f.hasRunner(v1alpha1.CauseQuota)
}

// ofOutage says what to do about a GitHub that can't be used; "" if a runner says it.
func (f *PoolFacts) ofOutage() string {
	var outage *v1alpha1.GitHubOutage
	if f.ScaleSet != nil {
		outage = f.ScaleSet.Status.Outage
	}
	remedy := OutageRemedy(outage)
	for i := range f.Runners {
		if r := &f.Runners[i]; r.Cause == v1alpha1.CauseGitHub && (outage == nil || RunnerRemedy(r) == remedy) {
			return ""
		}
	}
	return remedy
}

// fixConnection says what to do about the pool's connection, by its condition.
func (f *PoolFacts) fixConnection(c *Condition) string {
	return fmt.Sprintf("GitHubConnection %s (%s): %s", f.Pool.Spec.ConnectionRef.From(f.Pool.Namespace), c.text(), RemedyFor(connectionKind, c))
}

// denialText says what to change of a template.
func denialText(d v1alpha1.PolicyFinding) string {
	field := strings.TrimSuffix("spec.template."+d.Path, ".")
	return catalog.TemplateDenied.Advice(field, strings.TrimRight(cmp.Or(d.Remediation, d.Message), "."), d.Rule)
}

// MaxRemedy says what to do about a pool that is full.
func MaxRemedy(p *v1alpha1.RunnerPool, now time.Time) string {
	f := PoolFacts{Pool: p, Now: now}
	return cmp.Or(strings.Join(f.bounds("max"), " "), catalog.MaxReached.Remedy)
}

// bounds say what would change some of the limits.
func (f *PoolFacts) bounds(fields ...string) []string {
	d := f.Pool.Status.Decision
	if d == nil || d.Limits == nil {
		return nil
	}
	var all []string
	wanted := int64(f.Pool.Status.GetJobs()) + int64(More(&f.Pool.Status)) + int64(d.Limits.Idle)
	for _, b := range d.Limits.Bounds {
		if slices.Contains(fields, b.Field) {
			all = append(all, f.noEffect(b, d.Limits, wanted))
		}
	}
	if boundOfMax(d.Limits) == nil && wanted > int64(d.Limits.GetMax()) && !f.Pool.Spec.Stops() {
		all = append(all, f.raise(wanted)...)
	}
	return all
}

// boundOfMax returns the rule that limits max, or nil.
func boundOfMax(l *v1alpha1.DecidedLimits) *v1alpha1.LimitBound {
	if i := slices.IndexFunc(l.Bounds, func(b v1alpha1.LimitBound) bool { return b.Field == "max" }); i >= 0 {
		return &l.Bounds[i]
	}
	return nil
}

// raise says which max to raise.
func (f *PoolFacts) raise(wanted int64) []string {
	switch by, scale := f.decider("max"), &f.Pool.Spec.Scale; {
	case by != "":
		text := catalog.MaxScheduled.Advice(by, wording.Max(f.declared().Max), wanted)
		if next := f.Pool.Status.Schedule.Next; next != nil && next.After(f.Now) {
			text += fmt.Sprintf(" The numbers change at %s.", stamp(next.Time))
		}
		return []string{text}
	case scale.Max != nil && *scale.Max == 0:
		return []string{catalog.MaxZero.Remedy}
	case scale.Max != nil:
		return []string{catalog.MaxDeclared.Advice(*scale.Max, wanted)}
	}
	return nil
}

// noEffect says that declaring another number has no effect, and what would. So many runners are wanted.
func (f *PoolFacts) noEffect(b v1alpha1.LimitBound, l *v1alpha1.DecidedLimits, wanted int64) string {
	answer := struct {
		v1alpha1.LimitBound
		Until  *metav1.Time
		Source string
		Waits  bool
	}{LimitBound: b, Waits: b.Field == "max" && wanted > int64(b.Value)}
	if l.Until != nil && l.Until.After(f.Now) {
		answer.Until = l.Until
	}
	for _, p := range f.Policies {
		if p.Policy == b.Rule.Policy {
			answer.Source = p.Source
		}
	}
	return phrase("no-effect", answer)
}

// starting counts the runners that don't start, and says why not, by cause.
func (f *PoolFacts) starting() (stuck int, all []string) {
	for _, cause := range startCauses {
		n, says, remedy := 0, "", ""
		for i := range f.Runners {
			if r := &f.Runners[i]; r.Cause == cause && (r.State == v1alpha1.RunnerPending || r.State == v1alpha1.RunnerFailed) {
				n++
				says, remedy = r.Reason, RunnerRemedy(r)
			}
		}
		stuck += n
		if n > 0 && (cause != v1alpha1.CauseGitHub || !f.isOfConnection()) { // else the connection says it
			if !strings.HasPrefix(says, string(cause)) {
				says = with(string(cause), says)
			}
			all = append(all, fmt.Sprintf("%s (%s): %s", phrase("stuck", n), says, remedy))
		}
	}
	return stuck, all
}

// ofUpdate says what would let an update go on.
func (f *PoolFacts) ofUpdate() []string {
	switch u := f.Pool.Status.Update; {
	case u == nil:
	case u.Phase == v1alpha1.UpdateHeld && f.Pool.Spec.Update.Paused:
		return []string{catalog.UpdatePausedBySpec.Remedy}
	case u.Phase == v1alpha1.UpdateHeld:
		return []string{catalog.UpdateHeldMeanwhile.Advice(u.Reason)}
	case u.Phase == v1alpha1.UpdateRolledBack:
		return []string{catalog.UpdateWasRolledBack.Advice(u.To, u.From)}
	}
	return nil
}
