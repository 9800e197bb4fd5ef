// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/wording"
)

// limitsChanged is the reason of the event about other limits.
const limitsChanged = "LimitsChanged"

// leastUntil is the least time after which a rule may have a pool decided on again.
const leastUntil = time.Second

// maxShown bounds what a message and the status say of many findings.
const maxShown = 16

// appliedPolicies are the policies that apply to the pool.
type appliedPolicies struct {
	// facts are what policies see of the pool.
	facts policy.Pool
	bound *policy.Bound
	// unloaded says that one that may apply is not loaded yet: until then none is asked.
	unloaded []policy.Failure
	// areLate says that it isn't loaded for long.
	areLate bool
	// network is what the pool's pods get of its connection's.
	network podspec.Network
}

// resolvePolicies finds the policies that apply to the pool. While one that may is not loaded yet, everything
// is held.
func (r *Reconciler) resolvePolicies(ctx context.Context, isNew bool, pool *v1alpha1.RunnerPool, denied error) (appliedPolicies, error) {
	p := appliedPolicies{facts: policy.PoolOf(pool)}
	if denied != nil {
		p.facts.Connection = "" // it counts for nothing among those that may use the connection
	}
	if denied == nil { // else it is none of the pool's business
		conn := &v1alpha1.GitHubConnection{}
		if err := r.Client.Get(ctx, pool.Spec.ConnectionRef.From(pool.Namespace), conn); client.IgnoreNotFound(err) != nil {
			return p, fmt.Errorf("reading the connection: %w", err)
		}
		p.network = podspec.NetworkOf(&conn.Spec)
	}
	var known bool
	var err error
	if isNew {
		known, err = r.Policies.KnowsNew(ctx, r.Client, r.Live, p.facts, pool.UID)
	} else {
		known, err = r.Policies.Knows(ctx, r.Client, p.facts)
	}
	if err != nil {
		return p, err
	}
	p.bound = r.Policies.For(p.facts)
	if !known {
		p.unloaded = []policy.Failure{policies.Unloaded}
	}
	return p, nil
}

// loadedWithin is how long policies may be loaded before that is trouble: after a start, all are.
const loadedWithin = time.Minute

// isLate reports whether policies are being loaded for long, and since when they are.
func isLate(o observation) (bool, time.Time) {
	since := o.memory.loadingSince
	switch {
	case len(o.policies.unloaded) == 0:
		return false, time.Time{}
	case since.IsZero():
		return false, o.now
	}
	return o.now.Sub(since) >= loadedWithin, since
}

// areLoading reports whether policies fail for nothing but being loaded: what they say isn't known yet.
func (p *appliedPolicies) areLoading(failures []policy.Failure) bool {
	isOther := func(f policy.Failure) bool { return f != policies.Unloaded }
	return len(failures) > 0 && !p.areLate && !slices.ContainsFunc(failures, isOther)
}

// permit asks policies about the pod of the spec's template. Without an error it may run; one
// that was allowed goes on while policies can't be asked. The verdict is for the status.
func (r *Reconciler) permit(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, t templateState, revision string, isStored bool) (*v1alpha1.TemplateVerdict, []policy.Failure, error) {
	last, digest := pool.Status.Policy, t.digest
	answer, err := r.askTemplate(ctx, pool, p, revision, t.content)
	if err != nil {
		return last, nil, kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	switch {
	case len(answer.Denials) > 0: // whatever the others would say
	case len(answer.Failures) > 0 && wasAllowed(pool, revision, digest, isStored):
		return last, answer.Failures, nil
	case p.areLoading(answer.Failures):
		return last, nil, kube.Starting(recheck, catalog.PoliciesLoading.With())
	case len(answer.Failures) > 0 && pool.Status.Revision == "": // without any accepted decision it is pending
		return last, nil, kube.Wait(recheck, causesOf(catalog.NoPolicyDecision, answer.Failures)...)
	case len(answer.Failures) > 0:
		return last, nil, kube.Wait(recheck, causesOf(catalog.PolicyUnavailable, answer.Failures)...)
	}
	if answer.Digest == "" {
		return nil, nil, nil
	}
	verdict := &v1alpha1.TemplateVerdict{
		Revision: revision, TemplateDigest: digest, PolicyDigest: answer.Digest, Allowed: len(answer.Denials) == 0,
		Denials: head(answer.Denials), Warnings: head(answer.Warnings),
	}
	if len(answer.Denials) > 0 {
		return verdict, nil, kube.Stall(catalog.PodDenied.With(denial(answer.Denials)))
	}
	return verdict, nil, nil
}

// askTemplate asks policies about the pod of a template.
func (r *Reconciler) askTemplate(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, revision string, template []byte) (policy.Template, error) {
	if len(p.unloaded) > 0 {
		return policy.Template{Failures: p.unloaded}, nil
	}
	return r.Policies.Permit(ctx, pool, revision, template, p.network)
}

// wasAllowed reports whether the spec's template was allowed before, or there was no policy to ask.
func wasAllowed(pool *v1alpha1.RunnerPool, revision, digest string, isStored bool) bool {
	last := pool.Status.Policy
	if last == nil {
		return isStored && pool.Status.Revision == revision
	}
	return last.Allowed && last.Revision == revision && cmp.Or(last.TemplateDigest, digest) == digest
}

// denials are what policies have against a revision. While they can't be asked, what they said
// last holds: one that was accepted goes on, one that was denied stays so.
func (r *Reconciler) denials(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, revision string, template []byte) []v1alpha1.PolicyFinding {
	answer, err := r.askTemplate(ctx, pool, p, revision, template)
	if err == nil && len(answer.Failures) == 0 || len(answer.Denials) > 0 {
		return answer.Denials
	}
	last := pool.Status.Policy
	if digest, err := podspec.Digest(template); err == nil && last.Denies(revision, digest) {
		return last.Denials
	}
	return nil
}

// updateLimits are what policies make of an update. The zero value leaves it as declared.
type updateLimits struct {
	// hold is why it may go no further, in a sentence without a full stop; "" if it may.
	hold string
	// asked are the bounds that policies saw, answer those that they gave; both are the
	// zero value if there was no answer.
	asked, answer rollout.Bounds
	failures      []policy.Failure
	// until is the time after which policies want to be asked again; 0 for never.
	until time.Duration
}

// askUpdate asks policies before each step of an update. One that can't be asked holds it.
func (r *Reconciler) askUpdate(ctx context.Context, o observation) updateLimits {
	change, asked, isUnderWay := o.change()
	if !isUnderWay || o.policies.bound.Digest() == "" && len(o.policies.unloaded) == 0 {
		return updateLimits{}
	}
	answer := policy.Update{Failures: o.policies.unloaded}
	if len(o.policies.unloaded) == 0 {
		q := r.question(o)
		answer = r.Policies.Update(ctx, o.policies.bound, policy.UpdateInput{
			Pool: q.Pool, Change: change, Jobs: q.Jobs, Runners: q.Runners, Now: q.Now, Zone: q.Zone,
		})
	}
	if len(answer.Failures) > 0 {
		return updateLimits{failures: answer.Failures, hold: "policies can't be asked: " + describe(answer.Failures)}
	}
	u := updateLimits{asked: asked, until: waitUntil(answer.Until, o.now), answer: answer.Bounds}
	if answer.Hold {
		u.hold = cmp.Or(reasons(answer.Reasons), "held by policies")
	}
	return u
}

// waitUntil is how long to wait until a time that a policy names; 0 for the zero time.
func waitUntil(until, now time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return max(leastUntil, until.Sub(now))
}

// reasons say by which rules an update is held.
func reasons(list []policy.UpdateReason) string {
	var texts []string
	for _, r := range head(list) {
		texts = append(texts, r.Rule.Says(r.Message))
	}
	return strings.Join(texts, "; ")
}

// question is what corral.scaling is asked about the pool.
func (r *Reconciler) question(o observation) policy.ScalingInput {
	facts := o.policies.facts
	facts.Scale = o.scale.Scale
	return policy.ScalingInput{
		Pool: facts, Jobs: o.demand.Jobs, Now: o.now.UnixNano(), Zone: cmp.Or(r.Zone, "UTC"),
		Runners: policy.Runners(o.counts),
	}
}

// lastLimits are those of the last decision that policies were asked for; nil if there is none.
func (o observation) lastLimits() *v1alpha1.DecidedLimits {
	if o.memory.limits == nil && o.pool.Status.Decision != nil {
		return o.pool.Status.Decision.Limits
	}
	return o.memory.limits
}

// decidedLimits are the limits of an answer without failures.
func decidedLimits(answer policy.Scaling, isShared bool) *v1alpha1.DecidedLimits {
	l := &v1alpha1.DecidedLimits{
		Min: answer.Scale.Min, Idle: answer.Scale.Idle, AssignedJobs: answer.AssignedJobs, Shared: isShared,
		Bounds: head(answer.Bounds), Conflicts: head(answer.Conflicts),
	}
	l.SetMax(answer.Scale.Max)
	if !answer.Until.IsZero() {
		l.Until = &metav1.Time{Time: answer.Until}
	}
	return l
}

// lastKnown returns the limits that were accepted last, as far as what is declared and the policies that did
// answer leave them. A share of a ceiling is held at what the pool has: nobody sees to the sum.
func lastKnown(o observation, answer policy.Scaling, granted int32) (v1alpha1.Scale, *v1alpha1.DecidedLimits) {
	last := o.lastLimits()
	if last.Shared || slices.Contains(answer.Failures, contended) { // once: what it has falls with each job that ends
		last = last.DeepCopy()
		last.SetMax(min(last.GetMax(), max(o.runners.live(), granted)))
		last.Shared = false
	}
	declared, answered := o.scale.Scale, answer.Scale
	most := min(last.GetMax(), declared.Max, answered.Max)
	return v1alpha1.Scale{
		Max:  most,
		Min:  min(most, last.Min, declared.Min, answered.Min),
		Idle: min(most, last.Idle, declared.Idle, answered.Idle),
	}, last
}

// newLimits reports whether limits allow something else than before.
func newLimits(before, now *v1alpha1.DecidedLimits) bool {
	if before == nil || now == nil {
		return now != nil
	}
	return before.Numbers() != now.Numbers() || before.AssignedJobs != now.AssignedJobs || before.Shared != now.Shared
}

// isAllowed reports whether a template was not denied.
func isAllowed(t *v1alpha1.TemplateVerdict) bool { return t == nil || t.Allowed }

// because names the rules that bound a pool.
func because(bounds []v1alpha1.LimitBound) string {
	var text strings.Builder
	for _, b := range bounds {
		fmt.Fprintf(&text, "; %s %d → %d by %s", b.Field, b.Declared, b.Value, b.Rule.Says(b.Reason))
	}
	return text.String()
}

// ofMax are the bounds of max.
func ofMax(bounds []v1alpha1.LimitBound) []v1alpha1.LimitBound {
	return slices.DeleteFunc(slices.Clone(bounds), func(b v1alpha1.LimitBound) bool { return b.Field != "max" })
}

// causesOf are the causes of a row, one for each failure: one policy fails in each decision for one reason.
func causesOf(row *catalog.Row, failures []policy.Failure) []catalog.Cause {
	var all []catalog.Cause
	for i, f := range failures {
		switch ref := strings.Split(f.Policy, "/"); {
		case slices.Contains(failures[:i], f):
		case f.Policy == "":
			all = append(all, catalog.Text(row.Reason, f.Message))
		default:
			of := row
			if row == catalog.PolicyUnavailable && (f.IsLate || f.Kind == policy.TimedOut) {
				of = catalog.PolicyTooCostly
			}
			all = append(all, of.With(f.Policy, f.Kind).Detailed(f.Message).About(ref[0], strings.Join(ref[1:len(ref)-1], "/"), ref[len(ref)-1]))
		}
	}
	return head(all)
}

// heldBy are the causes of a pool whose limits are held because of failures.
func heldBy(failures []policy.Failure) []catalog.Cause {
	return append(causesOf(catalog.PolicyUnavailable, failures), catalog.DecisionStays.With())
}

// areUnloaded reports whether a pool isn't ready only for policies that can't be loaded, which each of them reports itself.
func areUnloaded(failures []policy.Failure, err error) bool {
	return len(failures) > 0 && (kube.Has(err, catalog.PolicyUnavailable) || kube.Has(err, catalog.NoPolicyDecision)) &&
		!slices.ContainsFunc(failures, func(f policy.Failure) bool { return f.Kind != policy.NotLoaded || f.Policy == "" })
}

// denial says what policies deny, by which rules, and what to change.
func denial(denials []v1alpha1.PolicyFinding) string {
	text := wording.Lines(denials, maxShown, func(d v1alpha1.PolicyFinding) string {
		line := d.Message + " [" + d.Rule.String() + "]"
		if d.Path != "" {
			line = "spec.template." + d.Path + ": " + line
		}
		return join(line, d.Remediation)
	})
	if len(denials) >= policy.MaxFindings { // a policy's others are left out
		text = strings.Replace(text, "\nand ", "\nand at least ", 1)
	}
	return text
}

// describe names failures, each once: one policy fails in each decision for one reason.
func describe(failures []policy.Failure) string {
	var lines []string
	for _, f := range failures {
		line := f.Message
		if f.Policy != "" {
			line = fmt.Sprintf("%s: %s: %s", f.Policy, f.Kind, line)
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(head(lines), "\n")
}

func head[T any](list []T) []T { return slices.Clone(list[:min(len(list), maxShown)]) }
