// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// askAgain is the maximum time for which an answer is valid. It is limited because rules may read the time without
	// returning an end time.
	askAgain = time.Minute
	// maxVerdicts is the maximum number of remembered verdicts per pool.
	maxVerdicts = 4
	// maxKept is the maximum number of elements in each list of a remembered answer, and maxKeptBytes the maximum size of
	// the texts in one list, not counting the names of policies. Otherwise the answer for each pool could take megabytes
	// of memory.
	maxKept, maxKeptBytes = 20, 16 << 10
	// failureKept is how long a verdict is remembered if the evaluation of a policy ended with an error. Every runner of the
	// pool needs the verdict, and an evaluation that fails can take as long as any other.
	failureKept = 10 * time.Second
)

// judged identifies the pod that a verdict is about. The name of the revision would not suffice, because it contains
// only a few digits of a hash, so judged includes a hash of the whole template.
type judged struct {
	revision string
	template [sha256.Size]byte
	network  podspec.Network
}

// Permit reports whether policies allow the pods of a revision of a pool's template, with the network settings of its
// connection. It remembers the answer until the policies that bind the pool change, or the pool's declaration. If no
// pod can be built from the template, the error names the field.
func (e *Engine) Permit(ctx context.Context, p *v1alpha1.RunnerPool, revision string, template []byte, n podspec.Network) (policy.Template, error) {
	if err := p.Unreadable(); err != nil { // the pool may be without the labels that select its policies
		return policy.Template{Failures: []policy.Failure{{Kind: policy.EvaluationError, Message: err.Error()}}}, nil
	}
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
	about, last := judged{revision, sha256.Sum256(template), n}, e.known(keyOf(facts))
	if j, ok := last.verdicts[about]; ok && last.bound == bound && j.holds(e.Now()) {
		return j.counted(), nil
	}
	pod, err := podspec.SpecimenOf(p, revision, template, n)
	if err != nil {
		return policy.Template{}, err // the error names the field
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return policy.Template{}, fmt.Errorf("encoding the pod for policies: %w", err)
	}
	began := e.Now()
	in := policy.TemplateInput{Pool: facts, Pod: text, Now: began.UnixNano()}
	answer := bound.Template(ctx, in)
	j := judge(answer, began)
	e.recordTemplate(bound, revision, in, &j.answer, began)
	e.note(keyOf(facts), policy.DecisionTemplate, j.answer.Audit, func(p *pool) {
		if p.bound == bound && !isUnanswered(answer) {
			p.verdicts = withVerdict(p.verdicts, about, j)
		}
	})
	return j.counted(), nil
}

// judgement is a remembered answer about a template: the first denials, and the number of all.
type judgement struct {
	answer  policy.Template
	denials int
	expires time.Time // zero if it is valid until the policies or the declaration change
}

// judge returns the part of an answer to remember.
func judge(answer policy.Template, now time.Time) judgement {
	j := judgement{answer: answer, denials: len(answer.Denials)}
	if len(answer.Failures) > 0 {
		j.expires = now.Add(failureKept)
	}
	j.answer.Denials, j.answer.Warnings = few(answer.Denials), few(answer.Warnings)
	j.answer.Audit = few(answer.Audit)
	return j
}

// isUnanswered reports whether a policy gave no answer, for example because no time was left to ask it.
func isUnanswered(answer policy.Template) bool {
	return slices.ContainsFunc(answer.Failures, func(f policy.Failure) bool { return f.Kind != policy.EvaluationError })
}

// holds reports whether a remembered verdict is still valid.
func (j judgement) holds(now time.Time) bool { return j.expires.IsZero() || now.Before(j.expires) }

// counted returns the answer with an empty denial for each denial that is not kept, up to policy.MaxFindings, because
// callers count the denials.
func (j judgement) counted() policy.Template {
	kept, more := j.answer.Denials, min(j.denials, policy.MaxFindings)-len(j.answer.Denials)
	j.answer.Denials = append(slices.Clip(kept), make([]v1alpha1.PolicyFinding, max(0, more))...)
	return j.answer
}

// few returns the first maxKept elements of a list. It truncates their texts if they are larger than maxKeptBytes
// together.
func few[T any](all []T) []T {
	kept := slices.Clone(all[:min(len(all), maxKept)])
	var texts []reflect.Value
	bytes := 0
	for i := range kept {
		wording.Texts(&kept[i], func(text reflect.Value, of reflect.StructField) {
			if of.Name != "Policy" {
				texts = append(texts, text)
				bytes += text.Len()
			}
		})
	}
	if bytes > maxKeptBytes {
		for _, text := range texts {
			text.SetString(strings.Clone(wording.Truncate(text.String(), maxKeptBytes/len(texts))))
		}
	}
	return kept
}

// withVerdict returns a copy of the remembered verdicts with one more. If there are already maxVerdicts, it drops them.
func withVerdict(verdicts map[judged]judgement, about judged, j judgement) map[judged]judgement {
	next := map[judged]judgement{}
	if len(verdicts) < maxVerdicts {
		maps.Copy(next, verdicts)
	}
	next[about] = j
	return next
}

// Update returns the policies' answer about the rollout of a change. It evaluates them again only if their input has
// changed or the last answer has expired.
func (e *Engine) Update(ctx context.Context, b *policy.Bound, in policy.UpdateInput) policy.Update {
	key, now, reading := keyOf(in.Pool), e.Now(), b.ReadingOfUpdate(in)
	if last := e.known(key).update; last.holds(reading, now) {
		return last.answer
	}
	answer := b.Update(ctx, in)
	answer.Reasons, answer.Audit = few(answer.Reasons), few(answer.Audit)
	e.note(key, policy.DecisionUpdate, answer.Audit, func(p *pool) {
		p.update = remember(reading, 0, answer, now, answer.Until, answer.Failures)
	})
	e.recordUpdate(b, in, &answer, now)
	return answer
}

// Scaling returns the limits of a pool. It evaluates the policies again only if something that their rules read has
// changed or the last answer has expired. The caller decides within the limits and records the result with Commit.
func (e *Engine) Scaling(ctx context.Context, b *policy.Bound, in policy.ScalingInput) *Asked {
	a := &Asked{in: in, needs: b.Needs(), domains: b.Domains()}
	if a.needs.Usage() {
		e.ledger.look(a)
	}
	in, a.sum = a.in, b.Reading(a.in)
	key, now := keyOf(in.Pool), e.Now()
	if last := e.known(key).scaling; last.holds(a.sum, now) && (last.jobs == in.Jobs || !last.answer.CountsJobs) {
		a.Answer = last.answer
		return a
	}
	a.Answer = b.Scaling(ctx, in)
	a.Answer.Bounds, a.Answer.Conflicts = few(a.Answer.Bounds), few(a.Answer.Conflicts)
	a.Answer.Audit = few(a.Answer.Audit)
	e.note(key, policy.DecisionScaling, a.Answer.Audit, func(p *pool) {
		p.scaling = remember(a.sum, in.Jobs, a.Answer, now, a.Answer.Until, a.Answer.Failures)
	})
	e.recordScaling(b, in, &a.Answer, now)
	return a
}

// remember returns an answer for reuse until it expires. If a policy failed, the result is never reused.
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

// holds reports whether the answer is valid for an input with the given hash at the given time.
func (r *remembered[T]) holds(reading [sha256.Size]byte, now time.Time) bool {
	return r.reading == reading && now.Before(r.expires)
}
