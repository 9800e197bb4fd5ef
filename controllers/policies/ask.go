// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

const (
	// askAgain is how long an answer holds at most: rules may read the clock without saying until when.
	askAgain = time.Minute
	// maxVerdicts is of how many templates a pool's verdicts are remembered, maxKept how many findings of each kind, and
	// maxCounted how many denials are counted.
	maxVerdicts, maxKept, maxCounted = 4, 20, 1000
)

// judged is what a verdict is about. A revision's name has but a few digits of a hash; the whole template counts.
type judged struct {
	revision string
	template [sha256.Size]byte
	network  podspec.Network
}

// Permit asks whether the pods of a revision of a pool's template may run, over a network of its connection. The answer is
// remembered until the policies that bind the pool, or what it declares, change. An error
// names the field of a template that makes no pod.
func (e *Engine) Permit(ctx context.Context, p *v1alpha1.RunnerPool, revision string, template []byte, n podspec.Network) (policy.Template, error) {
	facts := policy.PoolOf(p)
	if e.Cache != nil {
		if known, err := e.Knows(ctx, e.Cache, facts); err != nil || !known {
			return policy.Template{Failures: []policy.Failure{Unloaded}}, err
		}
	}
	bound := e.For(facts)
	if bound.Digest() == "" {
		return policy.Template{}, nil
	}
	about := judged{revision, sha256.Sum256(template), n}
	if answer, ok := e.verdict(keyOf(facts), bound, about); ok {
		return answer, nil
	}
	pod, err := podspec.SpecimenOf(p, revision, template, n)
	if err != nil {
		return policy.Template{}, err // it names the field
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return policy.Template{}, fmt.Errorf("encoding the pod for policies: %w", err)
	}
	began := e.Now()
	in := policy.TemplateInput{Pool: facts, Pod: text, Now: began.UnixNano()}
	answer := bound.Template(ctx, in)
	took := observe(e.Now().Sub(began), bound, policy.DecisionTemplate)
	e.tellTemplate(bound, revision, in, &answer, took)
	answer.Denials, answer.Warnings, answer.Audit = few(answer.Denials, maxCounted), few(answer.Warnings, maxKept), few(answer.Audit, maxKept)
	clear(answer.Denials[min(len(answer.Denials), maxKept):]) // they are counted only
	e.keep(keyOf(facts), bound, about, answer)
	return answer, nil
}

func few[T any](all []T, most int) []T { return slices.Clone(all[:min(len(all), most)]) }

func (e *Engine) verdict(key types.NamespacedName, b *policy.Bound, about judged) (policy.Template, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.pools.get(key); known != nil && known.bound == b {
		answer, ok := known.verdicts[about]
		return answer, ok
	}
	return policy.Template{}, false
}

// keep remembers an answer; one that a policy failed to give is asked for again.
func (e *Engine) keep(key types.NamespacedName, b *policy.Bound, about judged, answer policy.Template) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.pools.get(key)
	if known == nil || known.bound != b {
		return
	}
	known.audit[policy.DecisionTemplate] = answer.Audit
	if len(answer.Failures) > 0 {
		return
	}
	if len(known.verdicts) >= maxVerdicts {
		clear(known.verdicts)
	}
	known.verdicts[about] = answer
}

// Update asks how a change may roll out, again only when something of it has changed.
func (e *Engine) Update(ctx context.Context, b *policy.Bound, in policy.UpdateInput) policy.Update {
	key, now, reading := keyOf(in.Pool), e.Now(), b.ReadingOfUpdate(in)
	if last := lastOf(e, key, func(p *pool) remembered[policy.Update] { return p.update }); last.holds(reading, now) {
		return last.answer
	}
	answer := b.Update(ctx, in)
	took := observe(e.Now().Sub(now), b, policy.DecisionUpdate)
	e.note(key, policy.DecisionUpdate, answer.Audit, func(p *pool) {
		p.update = remember(reading, 0, answer, now, answer.Until, answer.Failures)
	})
	e.tellUpdate(b, in, &answer, took)
	return answer
}

// Scaling asks what limits hold for a pool, again only when something that its rules read has changed. The caller
// decides on them and has its grant entered by Commit.
func (e *Engine) Scaling(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	a := &Asked{in: in, needs: b.Needs(), domains: b.Domains()}
	if a.needs.Usage() {
		e.ledger.look(a)
	}
	in, a.sum = a.in, b.Reading(a.in)
	key, now := keyOf(in.Pool), e.Now()
	if last := lastOf(e, key, func(p *pool) remembered[policy.Scaling] { return p.scaling }); last.holds(a.sum, now) && (last.jobs == in.Jobs || !last.answer.CountsJobs) {
		a.Answer = last.answer
		return a
	}
	a.Answer = b.Scaling(ctx, in)
	took := observe(e.Now().Sub(now), b, policy.DecisionScaling)
	e.note(key, policy.DecisionScaling, a.Answer.Audit, func(p *pool) {
		p.scaling = remember(a.sum, in.Jobs, a.Answer, now, a.Answer.Until, a.Answer.Failures)
	})
	e.tellScaling(b, in, &a.Answer, took)
	return a
}

// lastOf returns what was answered of a pool last.
func lastOf[T any](e *Engine, key types.NamespacedName, of func(*pool) remembered[T]) remembered[T] {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.pools.get(key); known != nil {
		return of(known)
	}
	return remembered[T]{}
}

// remember returns an answer to be given again until a time; one that a policy failed to give is not.
func remember[T any](reading [sha256.Size]byte, jobs int32, answer T, now, until time.Time, failures []policy.Failure) remembered[T] {
	if len(failures) > 0 {
		return remembered[T]{}
	}
	expires := now.Add(askAgain)
	if !until.IsZero() && until.Before(expires) {
		expires = until
	}
	return remembered[T]{reading: reading, jobs: jobs, answer: answer, expires: expires}
}

// holds tells whether the answer is still one.
func (r *remembered[T]) holds(reading [sha256.Size]byte, now time.Time) bool {
	return r.reading == reading && now.Before(r.expires)
}
