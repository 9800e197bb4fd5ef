// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/schedule"
)

// judgement contains the answers of a side's policies for a pool.
type judgement struct {
	pool     *pool
	limits   *Limits
	findings []Finding // without state and place
	// refused is the reason why the pod of the pool cannot be built; empty if it can.
	refused string
	digest  string
	// unasked is true if a policy that decides about the pod failed.
	unasked bool
	// asked contains the limits at the time of the review.
	asked scaled
	// week computes the profile on the first call. If a judgement of the base also holds for the head, both judgements share
	// the profile.
	week func() profile
	// rate is the monthly cost of one runner; 0 if the cost is unknown or there are no runners. isFrequent is true if the cost
	// is unknown because the limits change too often.
	rate       float64
	isFrequent bool
}

// holdsFor reports whether a judgement of the base also applies to the pool at the head, so that it need not be evaluated
// again. This requires the same pool and network settings, the same policies at the same places and, if rules read the usage
// of other pools, the same usage.
func (j *judgement) holdsFor(base, head *side, p *pair) bool {
	if j.digest != p.head.bound.Digest() || base.network(p.base) != head.network(p.head) || !reflect.DeepEqual(p.base.usage, p.head.usage) {
		return false
	}
	return reflect.DeepEqual(p.base.object.Manifest.Object, p.head.object.Manifest.Object) && base.samePlaces(head)
}

// samePlaces reports whether both sides declare the same policies at the same places.
func (s *side) samePlaces(o *side) bool {
	return maps.EqualFunc(s.policies, o.policies, func(a, b *Policy) bool { return a.At == b.At && a.Digest() == b.Digest() })
}

// judge evaluates the side's policies for a pool.
func (s *side) judge(ctx context.Context, p *pool) *judgement {
	j := &judgement{pool: p, digest: p.bound.Digest(), asked: s.scaling(ctx, p, s.in.At)}
	j.week = sync.OnceValue(func() profile { return s.profile(ctx, p, j.asked) })
	j.limits, s.judged = s.limits(p, j.asked), append(s.judged, j)
	j.addFailures(s, j.asked.answer.Failures)
	question, err := TemplateInput(p.RunnerPool, s.network(p))
	if err != nil {
		j.refused = err.Error()
		return j
	}
	verdict := p.bound.Template(ctx, question)
	j.add(s, Deny, verdict.Denials...)
	j.add(s, Warn, verdict.Warnings...)
	j.addFailures(s, verdict.Failures)
	j.unasked = len(verdict.Failures) > 0
	for _, a := range verdict.Audit {
		j.add(s, Audit, unruled(a.Policy, a.Message))
	}
	return j
}

// denies reports whether the side's policies deny the template that a pool had at the base, or whether that template is no
// longer valid.
func (s *side) denies(ctx context.Context, p *pair) bool {
	question, err := TemplateInput(p.base.RunnerPool, s.network(p.head))
	if err != nil {
		return true // the template is no longer valid
	}
	return len(p.head.bound.Template(ctx, question).Denials) > 0
}

// unruled returns a finding about a whole policy rather than one of its rules.
func unruled(ref, message string) v1alpha1.PolicyFinding {
	return v1alpha1.PolicyFinding{Message: message, Rule: v1alpha1.RuleReference{Policy: ref}}
}

// add adds findings without duplicates, because scaling and template rules may fail for the same reason.
func (j *judgement) add(s *side, level Level, findings ...v1alpha1.PolicyFinding) {
	for _, f := range findings {
		if f.Rule.Name != "" {
			f.Rule = s.locate(f.Rule)
		}
		if finding := (Finding{Level: level, PolicyFinding: f}); !slices.Contains(j.findings, finding) {
			j.findings = append(j.findings, finding)
		}
	}
}

func (j *judgement) addFailures(s *side, failures []policy.Failure) {
	for _, f := range failures {
		j.add(s, Failure, unruled(f.Policy, fmt.Sprintf("%s: %s", f.Kind, f.Message)))
	}
}

// findingPlace returns the place where a field of the pod is declared.
func findingPlace(p *pool, path string) Place {
	if path == "" {
		return *p.at()
	}
	return fieldPlace(p.object, podspec.DeclaredPath(p.RunnerPool, "spec.template."+path))
}

// TemplateInput returns the input with which policies decide whether a pool's pod may run, with the network settings of its
// connection. An error names the field of the pool that prevents building the pod.
func TemplateInput(p *v1alpha1.RunnerPool, n podspec.Network) (policy.TemplateInput, error) {
	pod, err := podspec.SpecimenOver(p, n)
	if err != nil {
		return policy.TemplateInput{}, err
	}
	content, _ := json.Marshal(pod) // a pod can be encoded
	return policy.TemplateInput{Pool: policy.PoolOf(p), Pod: content}, nil
}

// scaled is the answer of policies about limits, with the scheduled limits that were their input, and with the last
// decision.
type scaled struct {
	schedule.Now
	answer policy.Scaling
	last   *policy.Scale
}

// scaling evaluates which limits apply at a time to an idle pool in an idle fleet.
func (s *side) scaling(ctx context.Context, p *pool, at time.Time) scaled {
	return s.decide(ctx, p, p.plan.At(at, p.Spec.Scale), at)
}

// decide evaluates which limits apply to an idle pool with the given numbers of schedules.
func (s *side) decide(ctx context.Context, p *pool, now schedule.Now, at time.Time) scaled {
	in := policy.ScalingInput{Pool: p.input, Now: at.UnixNano(), Zone: s.in.Zone, Usage: p.usage}
	in.Pool.Scale = now.Scale
	return scaled{now, p.bound.Scaling(ctx, in), p.last}
}

// limits converts the answer of policies for the result.
func (s *side) limits(p *pool, a scaled) *Limits {
	l := &Limits{Declared: p.Spec.Scale.Numbers(), inForce: a.inForce().Max, AssignedJobs: a.answer.AssignedJobs, Until: a.answer.Until, Conflicts: a.answer.Conflicts}
	if len(a.Active) > 0 {
		l.Scheduled = &Span{From: s.in.At.UTC(), Active: a.Active, Scale: a.Scale}
	}
	if len(a.answer.Failures) == 0 {
		l.Effective = new(a.answer.Scale)
	}
	for _, b := range a.answer.Bounds {
		b.Rule = s.locate(b.Rule)
		l.Bounds = append(l.Bounds, b)
	}
	for _, x := range a.answer.Audit {
		l.Audit = append(l.Audit, x.String())
	}
	return l
}

// same reports whether two limits have the same effect.
func (l *Limits) same(o *Limits) bool {
	return l.Declared == o.Declared && l.AssignedJobs == o.AssignedJobs && slices.Equal(l.Audit, o.Audit) && ptr.Equal(l.Effective, o.Effective)
}

// compareFindings returns the findings of both sides, and sets whether each is new, still there or fixed. Findings with
// equal messages are matched first. Of the others, findings of the same rule about the same field are matched.
func compareFindings(before, after *judgement) []Finding {
	old, all := slices.Clone(cmp.Or(before, &judgement{}).findings), slices.Clone(cmp.Or(after, &judgement{}).findings)
	for _, alike := range []func(a, b *Finding) bool{(*Finding).equals, (*Finding).resembles} {
		for i := range all {
			if j := slices.IndexFunc(old, func(o Finding) bool { return all[i].State == "" && alike(&all[i], &o) }); j >= 0 {
				all[i].State = Still
				old = slices.Delete(old, j, j+1)
			}
		}
	}
	for i := range all {
		all[i].State, all[i].At = cmp.Or(all[i].State, New), findingPlace(after.pool, all[i].Path)
	}
	for _, f := range old {
		f.State, f.At = Fixed, findingPlace(before.pool, f.Path)
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(slices.Index(levels, a.Level)-slices.Index(levels, b.Level), slices.Index(states, a.State)-slices.Index(states, b.State))
	})
	return all
}

var (
	levels = []Level{Failure, Deny, Warn, Audit}
	states = []State{New, Still, Fixed, Unknown}
)

func (f *Finding) equals(o *Finding) bool { return f.Message == o.Message && f.resembles(o) }

func (f *Finding) resembles(o *Finding) bool {
	return f.Level == o.Level && f.Rule.Policy == o.Rule.Policy && f.Rule.Name == o.Rule.Name && f.Code == o.Code && f.Path == o.Path
}

// rollout evaluates how a change of a pool's template from one revision to another may roll out.
func (s *side) rollout(ctx context.Context, p *pool, j *judgement, from, to string) *Rollout {
	spec, runners := p.Spec.Update, int32(1)
	if e := j.limits.Effective; e != nil && e.Max != v1alpha1.UnboundedMax {
		runners = e.Max
	}
	declared := rollout.Declared(spec, runners)
	answer := p.bound.Update(ctx, policy.UpdateInput{
		Pool: p.input, Now: s.in.At.UnixNano(), Zone: s.in.Zone,
		Change: policy.Change{
			From: from, To: to, Strategy: string(declared.Strategy),
			MaxSurge: declared.MaxSurge, MaxUnavailable: declared.MaxUnavailable, Canary: declared.Canary,
		},
	})
	r := rolloutOf(&answer)
	r.Hold = r.Hold || spec.Paused || len(answer.Failures) > 0
	say(&r.Reasons, spec.Paused, "spec.update.paused is true")
	for _, f := range answer.Failures {
		say(&r.Reasons, true, "%s fails (%s): %s", f.Policy, f.Kind, f.Message)
	}
	for _, reason := range answer.Reasons {
		r.Reasons = append(r.Reasons, s.locate(reason.Rule).WithReason(cmp.Or(reason.Message, "no reason given")))
	}
	return r
}

func rolloutOf(a *policy.Update) *Rollout {
	return &Rollout{Hold: a.Hold, Strategy: a.Strategy, MaxSurge: a.MaxSurge, MaxUnavailable: a.MaxUnavailable, Canary: a.Canary}
}

// revisionOf returns the revision of a pool's template, or the pool's name if the revision cannot be computed.
func revisionOf(p *pool) string {
	revision, _, err := podspec.RevisionOf(p.RunnerPool)
	if err != nil {
		return p.Name
	}
	return revision
}
