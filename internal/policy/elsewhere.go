// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// Asker evaluates policies in other processes, where an evaluation can be stopped.
type Asker interface {
	// Ask evaluates a policy and returns the result of Policy.Answer. An *Excess means that the policy exceeded its
	// limits; for any other error, the policy is not to blame.
	Ask(ctx context.Context, p *Policy, q Question) ([]byte, error)
}

// ErrOutdated is the error for a policy that was changed or deleted before it could be loaded.
var ErrOutdated = errors.New("the policy changed before it was loaded")

// Excess is the error for a policy that exceeded its limit on CPU time, memory or recursion.
type Excess struct{ Message string }

func (e *Excess) Error() string { return e.Message }

// Diagnostics returns the diagnostics of a policy whose loading exceeded its limits.
func (e *Excess) Diagnostics() []v1alpha1.Diagnostic {
	return []v1alpha1.Diagnostic{{Message: e.Message}}
}

// LoadHere returns a policy whose rules and parameters are trusted. This process evaluates it, because that is
// cheapest. The input is not trusted: if an evaluation exceeds the limit, the asker evaluates the question in another
// process, which can be measured and stopped.
func LoadHere(source Source, asker Asker, limit time.Duration) *Policy {
	p, _ := Load(source)
	p.source, p.asker, p.limit = source, asker, limit
	return p
}

// limited returns the context for an evaluation in this process, with the policy's time limit if it has one.
func (p *Policy) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.limit)
}

// reply is the answer of one policy to a question.
type reply[T any] struct {
	Elements []T      `json:"elements,omitempty"`
	Failure  *Failure `json:"failure,omitempty"`
	// Output of print, if the source keeps it.
	Output string `json:"output,omitempty"`
}

// maxOutput is the maximum size of the output of print in an answer.
const maxOutput = 64 << 10

// Source returns the source of the policy. It contains modules, data and parameters only if another process may
// evaluate the policy.
func (p *Policy) Source() Source { return p.source }

// askElsewhere evaluates the policy in another process.
func (p *Policy) askElsewhere(ctx context.Context, q *question) ([]byte, *Failure) {
	text, err := p.asker.Ask(ctx, p, q.Question)
	var excess *Excess
	switch {
	case err == nil:
		p.quarantine.answered(q)
		return text, nil
	case errors.As(err, &excess):
		if p.quarantine.exceeded(q) {
			return nil, p.quarantined(q)
		}
		return nil, p.failure(TimedOut, "%s: look for loops over loops, large ranges, and texts that grow", excess.Message)
	case ctx.Err() != nil:
		return nil, p.failure(TimedOut, "the time for the decision was over before it answered")
	}
	f := p.failure(EvaluationError, "it could not be evaluated: %v", err)
	f.IsLate = errors.Is(err, ErrLate)
	return nil, f
}

// Answer evaluates the policy in this process and encodes the reply to a question from another process.
func (p *Policy) Answer(ctx context.Context, asked Question) ([]byte, error) {
	q := newQuestion(asked)
	switch {
	case !p.isLoaded():
		return nil, errors.New(p.whyNotLoaded())
	case q.Decision == DecisionScaling:
		limits, failure := askHere(ctx, p, q, decodeLimit)
		return answerOf(q, limits, failure)
	case q.Decision == DecisionTemplate:
		found, failure := askHere(ctx, p, q, decodeFinding)
		return answerOf(q, fewFindings(found), failure)
	case q.Decision == DecisionUpdate:
		rollouts, failure := askHere(ctx, p, q, decodeRollout)
		return answerOf(q, rollouts, failure)
	}
	return nil, fmt.Errorf("there is no decision %q", q.Decision)
}

func answerOf[T any](q *question, elements []T, failure *Failure) ([]byte, error) {
	text, err := json.Marshal(reply[T]{elements, failure, wording.Truncate(q.output.String(), maxOutput)})
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return text, nil
}
