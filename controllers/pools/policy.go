// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// limitsChanged is the reason of the event that tells of other limits.
const limitsChanged = "LimitsChanged"

// leastUntil is the least time after which a rule may have a pool decided on again.
const leastUntil = time.Second

// maxShown bounds what a message and the status say of many findings.
const maxShown = 16

// bind finds the policies that bind the pool. While one that may is not loaded yet, everything
// is held.
func (x *run) bind(ctx context.Context) error {
	x.facts = policy.PoolOf(x.pool)
	if x.denied != nil {
		x.facts.Connection = "" // it counts for nothing among those that may use the connection
	}
	reader := client.Reader(x.Client)
	if x.held == nil && !x.recall.looked {
		reader, x.recall.looked = x.Live, true // a pool may be seen before the policy that was made before it
	}
	known, err := x.Policies.Knows(ctx, reader, x.facts)
	if err != nil {
		return err
	}
	x.bound = x.Policies.For(x.facts)
	if !known {
		x.unasked = []policy.Failure{policies.Unloaded}
	}
	return nil
}

// permit asks policies about the pod of the spec's template. Nil means that it may run; one
// that was allowed goes on while policies can't be asked.
func (x *run) permit(ctx context.Context, revision string, isStored bool) error {
	accepted := x.isAccepted(revision, isStored)
	answer := policy.Template{Failures: x.unasked}
	if len(x.unasked) == 0 {
		var err error
		if answer, err = x.Policies.Permit(ctx, x.pool, revision, x.pool.Spec.Template.Raw); err != nil {
			return kube.Stall(v1alpha1.TemplateInvalidReason, "%w", err)
		}
	}
	switch {
	case len(answer.Denials) > 0: // whatever the others would say
	case len(answer.Failures) > 0 && accepted:
		x.failures = slices.Concat(x.failures, answer.Failures)
		return nil
	case len(answer.Failures) > 0:
		return kube.Wait(x.undecided(), recheck, "%s", describe(answer.Failures))
	}
	x.pool.Status.Template = nil
	if answer.Digest != "" {
		x.pool.Status.Template = &v1alpha1.TemplateVerdict{
			Revision: revision, TemplateDigest: x.digest, Digest: answer.Digest, Allowed: len(answer.Denials) == 0,
			Denials: head(answer.Denials), Warnings: head(answer.Warnings),
		}
	}
	if len(answer.Denials) > 0 {
		return kube.Stall(v1alpha1.PolicyDeniedReason, "%s", denial(answer.Denials))
	}
	return nil
}

// isAccepted says whether the spec's template was allowed before, or there was no policy to ask.
func (x *run) isAccepted(revision string, isStored bool) bool {
	last := x.pool.Status.Template
	if last == nil {
		return isStored && x.stored == revision
	}
	return last.Allowed && last.Revision == revision && cmp.Or(last.TemplateDigest, x.digest) == x.digest
}

// undecided is the reason while policies that were never asked can't be: a pool without any
// accepted decision is pending.
func (x *run) undecided() string {
	if x.stored == "" {
		return v1alpha1.PolicyPendingReason
	}
	return v1alpha1.PolicyFailedReason
}

// bar ends the runners without a job whose template policies deny by now. None are made of a
// denied one: see rollOut.
func (x *run) bar(ctx context.Context) error {
	if err := x.know(ctx); err != nil {
		return err
	}
	x.barred = map[string]bool{}
	for _, revision := range slices.Sorted(maps.Keys(x.known)) {
		denials := x.denials(ctx, revision)
		if len(denials) == 0 {
			continue
		}
		x.barred[revision] = true
		why := denial(denials)
		if revision == x.pool.Status.Revision {
			x.holds = append(x.holds, scaling.Hold{Reason: "policy denies the template"})
		}
		for i := range x.runners {
			x.expel(&x.runners[i], revision, why)
		}
	}
	return nil
}

// denials are what policies have against a revision. While they can't be asked, what they said
// last holds: one that was accepted goes on, one that was denied stays so.
func (x *run) denials(ctx context.Context, revision string) []v1alpha1.PolicyFinding {
	answer := policy.Template{Failures: x.unasked}
	var err error
	if len(x.unasked) == 0 {
		answer, err = x.Policies.Permit(ctx, x.pool, revision, x.known[revision])
	}
	if err == nil && len(answer.Failures) == 0 || len(answer.Denials) > 0 {
		return answer.Denials
	}
	if digest, err := podspec.Digest(x.known[revision]); err == nil && x.judged.Denies(revision, digest) {
		return x.judged.Denials
	}
	return nil
}

// expel ends a runner of a denied revision, if it has no job: it is deregistered first.
func (x *run) expel(o *observed, revision, why string) {
	waits := o.verdict.State == v1alpha1.RunnerPending || o.verdict.State == v1alpha1.RunnerIdle
	if o.runner.Spec.Revision != revision || !waits || !o.runner.DeletionTimestamp.IsZero() {
		return
	}
	o.verdict = poolstatus.Verdict{State: v1alpha1.RunnerFailed, Reason: why, Since: x.Now(), Cause: v1alpha1.CauseRefused}
	x.lost = append(x.lost, o.runner)
	x.Failures.MarkFailed(client.ObjectKeyFromObject(o.runner), o.runner.UID, o.verdict)
	x.Event(o.runner, corev1.EventTypeWarning, v1alpha1.PolicyDeniedReason, why)
}

// consult asks policies before each step of an update. One that can't be asked holds it.
func (x *run) consult(ctx context.Context) error {
	change, asked, underWay := x.change()
	if !underWay || x.bound.Digest() == "" && len(x.unasked) == 0 {
		return nil
	}
	answer := policy.Update{Failures: x.unasked}
	if len(x.unasked) == 0 {
		q := x.question()
		answer = x.Policies.Update(ctx, x.bound, policy.UpdateInput{
			Pool: q.Pool, Change: change, Jobs: q.Jobs, Runners: q.Runners, Now: q.Now, Zone: q.Zone,
		})
	}
	switch {
	case len(answer.Failures) > 0:
		x.failures = slices.Concat(x.failures, answer.Failures)
		x.care.hold = "policies can't be asked: " + describe(answer.Failures)
		return nil
	case answer.Hold:
		x.care.hold = cmp.Or(reasons(answer.Reasons), "held by policies")
	}
	x.care.asked, x.care.answer = asked, rollout.Bounds{
		Strategy: answer.Strategy, MaxSurge: answer.MaxSurge, MaxUnavailable: answer.MaxUnavailable, Canary: answer.Canary,
	}
	if !answer.Until.IsZero() {
		x.lookAgain(max(leastUntil, answer.Until.Sub(x.Now())))
	}
	return nil
}

// reasons say by which rules an update is held.
func reasons(list []policy.UpdateReason) string {
	var words []string
	for _, r := range list[:min(len(list), maxShown)] {
		words = append(words, ruleWords(r.Rule, r.Message))
	}
	return strings.Join(words, "; ")
}

// question is what corral.scaling is asked about the pool.
func (x *run) question() policy.ScalingInput {
	c := x.pool.Status.Runners
	facts := x.facts
	facts.Scale = x.scale
	return policy.ScalingInput{
		Pool: facts, Jobs: x.pool.Status.Jobs, Now: x.Now().UnixNano(), Zone: cmp.Or(x.Zone, "UTC"),
		Runners: policy.Runners{
			Total: c.Total, Pending: c.Pending, Idle: c.Idle, Busy: c.Busy, Finished: c.Finished, Failed: c.Failed, Outdated: c.Outdated,
		},
	}
}

// limit takes the limits of an answer, or holds those that were accepted last.
func (x *run) limit(in *scaling.Input, answer policy.Scaling) {
	if !answer.Until.IsZero() {
		x.lookAgain(max(leastUntil, answer.Until.Sub(x.Now())))
	}
	x.failures = slices.Concat(x.failures, x.unasked, answer.Failures)
	if len(x.unasked)+len(answer.Failures) > 0 {
		x.holdLimits(in, answer)
		return
	}
	in.Limits = scaling.Limits{Min: answer.Scale.Min, Max: answer.Scale.Max, Idle: answer.Scale.Idle, Hard: answer.Hard}
	x.limits, x.asked = limitsOf(answer), answer
	x.limits.Shared = x.bound.Needs().Usage()
}

// holdLimits holds the limits that were accepted last, as far as what is declared and the policies that did
// answer leave them. A share of a ceiling is held at what the pool has: nobody sees to the sum. A pool
// without any limits starts and announces nothing.
func (x *run) holdLimits(in *scaling.Input, answer policy.Scaling) {
	last := x.held
	if last == nil {
		in.Limits, in.JobsKnown = scaling.Limits{}, false // nothing is started or ended
		x.ailment, x.ails = v1alpha1.PolicyPendingReason, describe(x.failures)
		return
	}
	if last.Shared || slices.Contains(x.failures, changing) { // once: what it has falls with each job that ends
		live := x.count(v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy)
		last = last.DeepCopy()
		last.Max, last.Shared = min(last.Max, max(live, x.Policies.Granted(x.key))), false
	}
	x.limits = last
	most := last.Max
	narrowest := func(held, declared, answered int32) int32 { return min(held, declared, answered) }
	declared, answered := x.scale, answer.Scale
	limits := scaling.Limits{Max: narrowest(most, declared.Max, answered.Max), Hard: last.Hard || answer.Hard}
	limits.Min = min(limits.Max, narrowest(last.Min, declared.Min, answered.Min))
	limits.Idle = min(limits.Max, narrowest(last.Idle, declared.Idle, answered.Idle))
	in.Limits = limits
}

// lastLimits are those of the last decision that policies were asked for; nil if there is none.
func lastLimits(p *v1alpha1.RunnerPool) *v1alpha1.DecidedLimits {
	if p.Status.Decision == nil {
		return nil
	}
	return p.Status.Decision.Limits
}

func limitsOf(answer policy.Scaling) *v1alpha1.DecidedLimits {
	l := &v1alpha1.DecidedLimits{
		Min: answer.Scale.Min, Max: answer.Scale.Max, Idle: answer.Scale.Idle, Hard: answer.Hard,
		Bounds: head(answer.Bounds), Conflicts: head(answer.Conflicts),
	}
	if !answer.Until.IsZero() {
		l.Until = &metav1.Time{Time: answer.Until}
	}
	return l
}

// tellPolicies sets the condition that says what policies make of the pool, and tells of
// limits that are others than before.
func (x *run) tellPolicies() {
	switch {
	case len(x.failures) > 0:
		reason := v1alpha1.PolicyFailedReason
		if x.ailment == v1alpha1.PolicyPendingReason {
			reason = x.ailment
		}
		words := "what was decided last goes on to hold: " + describe(x.failures)
		conditions.MarkFalse(x.pool, v1alpha1.PolicyCondition, reason, "%s", words)
		if x.ailment == "" {
			x.ailment, x.ails = reason, words
		}
	case x.bound.Digest() == "":
		conditions.Delete(x.pool, v1alpha1.PolicyCondition)
	case x.pool.Status.Template == nil || x.pool.Status.Template.Allowed:
		conditions.MarkTrue(x.pool, v1alpha1.PolicyCondition, v1alpha1.SucceededReason, "policies allow the template and decided the limits")
	}
	before, now := x.held, x.limits
	x.recall.limits = now
	x.newLimits = now != nil && (before == nil || !sameNumbers(*now, *before))
	if x.newLimits && before != nil {
		x.Event(x.pool, corev1.EventTypeNormal, limitsChanged, fmt.Sprintf("min %d, max %d, idle %d (before: %d, %d, %d)%s",
			now.Min, now.Max, now.Idle, before.Min, before.Max, before.Idle, because(now.Bounds)))
	}
}

// sameNumbers says whether limits differ in nothing that they allow.
func sameNumbers(a, b v1alpha1.DecidedLimits) bool {
	return a.Min == b.Min && a.Max == b.Max && a.Idle == b.Idle && a.Hard == b.Hard && a.Shared == b.Shared
}

// isAllowed says whether a template was not denied.
func isAllowed(t *v1alpha1.TemplateVerdict) bool { return t == nil || t.Allowed }

// because names the rules that bound a pool.
func because(bounds []v1alpha1.LimitBound) string {
	var words []string
	for _, b := range bounds {
		words = append(words, fmt.Sprintf("%s %d → %d by %s", b.Field, b.Declared, b.Value, ruleWords(b.Rule, b.Reason)))
	}
	if len(words) == 0 {
		return ""
	}
	return "; " + strings.Join(words, "; ")
}

// ruleWords names a rule, where it stands, and what it says.
func ruleWords(r v1alpha1.RuleReference, says string) string {
	words := r.Policy + " " + r.Name
	if r.File != "" {
		words += fmt.Sprintf(" (%s:%d)", r.File, r.Line)
	}
	if says != "" {
		words += ": " + says
	}
	return words
}

// denial says what policies deny, by which rules, and what to change.
func denial(denials []v1alpha1.PolicyFinding) string {
	var lines []string
	for _, d := range denials[:min(len(denials), maxShown)] {
		line := d.Message
		if d.Path != "" {
			line = "spec.template." + d.Path + ": " + line
		}
		line += " [" + ruleWords(d.Rule, "") + "]"
		if d.Remediation != "" {
			line += "; " + d.Remediation
		}
		lines = append(lines, line)
	}
	if rest := len(denials) - len(lines); rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(lines, "\n")
}

func describe(failures []policy.Failure) string {
	var lines []string
	failures = distinct(failures)
	for _, f := range failures[:min(len(failures), maxShown)] {
		line := f.Message
		if f.Policy != "" {
			line = fmt.Sprintf("%s: %s: %s", f.Policy, f.Kind, line)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// distinct leaves out what was said already: one policy fails in each decision for one reason.
func distinct(failures []policy.Failure) []policy.Failure {
	var list []policy.Failure
	for _, f := range failures {
		if !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}

func head[T any](list []T) []T { return slices.Clone(list[:min(len(list), maxShown)]) }

// grant is what the plan grants the pool, and what it would have without policies.
func (x *run) grant(in scaling.Input) policies.Grant {
	if x.observes() {
		return policies.Grant{} // it takes nothing from others
	}
	declared := in
	declared.Limits, declared.Pace = scaling.Limits{Min: x.scale.Min, Max: x.scale.Max, Idle: x.scale.Idle}, nil
	live := x.count(v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy)
	return policies.Grant{Granted: max(live, x.plan.Desired), Wanted: scaling.Decide(declared).Desired}
}
