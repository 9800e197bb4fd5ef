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

// limitsChanged is the event reason for changed limits.
const limitsChanged = "LimitsChanged"

// leastUntil is the minimum delay after which a rule may request another decision.
const leastUntil = time.Second

// maxShown limits how many findings a message or the status lists.
const maxShown = 16

// appliedPolicies are the policies that apply to the pool.
type appliedPolicies struct {
	// facts describe the pool for policies.
	facts policy.Pool
	bound *policy.Bound
	// unloaded is set while a policy that may apply is not loaded yet. No policies are evaluated then.
	unloaded []policy.Failure
	// areLate is true if loading takes so long that the pool reports it as a problem.
	areLate bool
	// network is the part of the connection's network settings that the pool's pods get.
	network podspec.Network
}

// resolvePolicies finds the policies that apply to the pool. While a policy that may apply is not loaded yet, Corral
// evaluates none, so the last decisions stay in force.
func (r *Reconciler) resolvePolicies(ctx context.Context, isNew bool, pool *v1alpha1.RunnerPool, denied error) (appliedPolicies, error) {
	p := appliedPolicies{facts: policy.PoolOf(pool)}
	if denied != nil {
		p.facts.Connection = "" // it does not count among the pools that may use the connection
	}
	if denied == nil { // otherwise the connection's settings must not reach the pool
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

// loadedWithin is how long loading policies may take before it is reported as a problem. After a start, all policies are
// loading.
const loadedWithin = time.Minute

// isLate reports whether policies have been loading for too long, and since when they have been loading.
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

// areLoading reports whether all policy failures are due to loading, so that the policies' answers are not known yet.
func (p *appliedPolicies) areLoading(failures []policy.Failure) bool {
	isOther := func(f policy.Failure) bool { return f != policies.Unloaded }
	return len(failures) > 0 && !p.areLate && !slices.ContainsFunc(failures, isOther)
}

// permit evaluates the policies for the pod of the spec's template. If it returns no error, the pod may run. A template
// that was allowed before stays in use while policies cannot be evaluated. The verdict is for the status.
func (r *Reconciler) permit(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, t templateState, revision string, isStored bool) (*v1alpha1.TemplateVerdict, []policy.Failure, error) {
	last, digest := pool.Status.Policy, t.digest
	answer, err := r.askTemplate(ctx, pool, p, revision, t.content)
	if err != nil {
		return last, nil, kube.Stall(catalog.PodInvalid.With().Wrap(err))
	}
	switch {
	case len(answer.Denials) > 0: // whatever the other policies answer
	case len(answer.Failures) > 0 && wasAllowed(pool, revision, digest, isStored):
		return last, answer.Failures, nil
	case p.areLoading(answer.Failures):
		return last, nil, kube.Starting(recheck, catalog.PoliciesLoading.With())
	case len(answer.Failures) > 0 && pool.Status.Revision == "": // a pool without any accepted decision is pending
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

// askTemplate evaluates the policies for the pod of a template.
func (r *Reconciler) askTemplate(ctx context.Context, pool *v1alpha1.RunnerPool, p appliedPolicies, revision string, template []byte) (policy.Template, error) {
	if len(p.unloaded) > 0 {
		return policy.Template{Failures: p.unloaded}, nil
	}
	return r.Policies.Permit(ctx, pool, revision, template, p.network)
}

// wasAllowed reports whether the spec's template was allowed before, or whether no policy applied.
func wasAllowed(pool *v1alpha1.RunnerPool, revision, digest string, isStored bool) bool {
	last := pool.Status.Policy
	if last == nil {
		return isStored && pool.Status.Revision == revision
	}
	return last.Allowed && last.Revision == revision && cmp.Or(last.TemplateDigest, digest) == digest
}

// denials returns the denials of a revision. While policies cannot be evaluated, their last answer stays in force: an
// accepted revision stays accepted, and a denied one stays denied.
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

// updateLimits is the effect of policies on an update. The zero value leaves the update as declared.
type updateLimits struct {
	// hold is why the update may not continue, as a sentence without a full stop; empty if it may.
	hold string
	// asked are the bounds given to the policies, and answer the bounds that they returned. Both are zero without an answer.
	asked, answer rollout.Bounds
	failures      []policy.Failure
	// until is the delay after which policies want to be evaluated again; 0 for never.
	until time.Duration
}

// askUpdate evaluates the policies before each step of an update. If they cannot be evaluated, the update is held.
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
		return updateLimits{failures: answer.Failures, hold: "policies can't be evaluated: " + describe(answer.Failures)}
	}
	u := updateLimits{asked: asked, until: waitUntil(answer.Until, o.now), answer: answer.Bounds}
	if answer.Hold {
		u.hold = cmp.Or(reasons(answer.Reasons), "held by policies")
	}
	return u
}

// waitUntil returns the delay until a time that a policy named; 0 for the zero time.
func waitUntil(until, now time.Time) time.Duration {
	if until.IsZero() {
		return 0
	}
	return max(leastUntil, until.Sub(now))
}

// reasons lists the rules that hold an update.
func reasons(list []policy.UpdateReason) string {
	var texts []string
	for _, r := range head(list) {
		texts = append(texts, r.Rule.WithReason(r.Message))
	}
	return strings.Join(texts, "; ")
}

// question returns the input of corral.scaling for the pool.
func (r *Reconciler) question(o observation) policy.ScalingInput {
	facts := o.policies.facts
	facts.Scale = o.scale.Scale
	return policy.ScalingInput{
		Pool: facts, Jobs: o.demand.Jobs, Now: o.now.UnixNano(), Zone: cmp.Or(r.Zone, "UTC"),
		Runners: policy.Runners(o.counts),
	}
}

// lastLimits returns the limits of the last decision for which policies were evaluated; nil if there is none.
func (o observation) lastLimits() *v1alpha1.DecidedLimits {
	if o.memory.limits == nil && o.pool.Status.Decision != nil {
		return o.pool.Status.Decision.Limits
	}
	return o.memory.limits
}

// decidedLimits returns the limits of an answer without failures.
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

// lastKnown returns the last accepted limits, narrowed by the declared numbers and by the answers of the policies that
// could be evaluated. If the limits depend on a ceiling that pools share, max is at most the number of runners that the
// pool has or was granted, because the sum over all pools cannot be checked.
func lastKnown(o observation, answer policy.Scaling, granted int32) (v1alpha1.Scale, *v1alpha1.DecidedLimits) {
	last := o.lastLimits()
	if last.Shared || slices.Contains(answer.Failures, contended) { // only once: otherwise max would fall with each job that ends
		last = last.DeepCopy()
		last.SetMax(min(last.GetMax(), max(o.runners.live(), granted)))
		last.Shared = false
	}
	return answer.Held(last.Numbers(), o.scale.Scale), last
}

// newLimits reports whether the limits changed.
func newLimits(before, now *v1alpha1.DecidedLimits) bool {
	if before == nil || now == nil {
		return now != nil
	}
	return before.Numbers() != now.Numbers() || before.AssignedJobs != now.AssignedJobs || before.Shared != now.Shared
}

// isAllowed reports whether a template was not denied.
func isAllowed(t *v1alpha1.TemplateVerdict) bool { return t == nil || t.Allowed }

// boundsText describes the rules that changed a pool's limits.
func boundsText(bounds []v1alpha1.LimitBound) string {
	var text strings.Builder
	for _, b := range bounds {
		fmt.Fprintf(&text, "; %s %d → %d by %s", b.Field, b.Declared, b.Value, b.Rule.WithReason(b.Reason))
	}
	return text.String()
}

// ofMax returns the bounds of max.
func ofMax(bounds []v1alpha1.LimitBound) []v1alpha1.LimitBound {
	return slices.DeleteFunc(slices.Clone(bounds), func(b v1alpha1.LimitBound) bool { return b.Field != "max" })
}

// causesOf returns causes with the given row, one for each distinct failure. A policy often fails in each decision for the
// same reason.
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

// heldBy returns the causes of a pool whose limits are held because of failures.
func heldBy(failures []policy.Failure) []catalog.Cause {
	return append(causesOf(catalog.PolicyUnavailable, failures), catalog.DecisionStays.With())
}

// areUnloaded reports whether a pool is not ready only because policies cannot be loaded. Each of those policies reports
// that itself.
func areUnloaded(failures []policy.Failure, err error) bool {
	return len(failures) > 0 && (kube.Has(err, catalog.PolicyUnavailable) || kube.Has(err, catalog.NoPolicyDecision)) &&
		!slices.ContainsFunc(failures, func(f policy.Failure) bool { return f.Kind != policy.NotLoaded || f.Policy == "" })
}

// denial describes what policies deny, the rules that deny it, and what to change.
func denial(denials []v1alpha1.PolicyFinding) string {
	text := wording.Lines(denials, maxShown, func(d v1alpha1.PolicyFinding) string {
		line := d.Message + " [" + d.Rule.String() + "]"
		if d.Path != "" {
			line = "spec.template." + d.Path + ": " + line
		}
		return join(line, d.Remediation)
	})
	if len(denials) >= policy.MaxFindings { // findings beyond the limit of a policy were dropped
		text = strings.Replace(text, "\nand ", "\nand at least ", 1)
	}
	return text
}

// describe lists the failures, each one once.
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
