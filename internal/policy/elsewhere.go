// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Asker has the rules of policies in other processes, where they can be stopped.
type Asker interface {
	// Ask has a policy asked, and returns what Policy.Answer returned. An *Excess is the policy's fault, another error is not.
	Ask(ctx context.Context, p *Policy, q Question) ([]byte, error)
}

// ErrOutdated is the error of a policy that changed, or was deleted, before it was its turn to be loaded.
var ErrOutdated = errors.New("the policy changed before it was loaded")

// Excess is the error of a policy that took more time or memory than it may.
type Excess struct{ Message string }

func (e *Excess) Error() string { return e.Message }

// Diagnostics say that a policy can't be loaded for the excess.
func (e *Excess) Diagnostics() []v1alpha1.Diagnostic {
	return []v1alpha1.Diagnostic{{Message: e.Message}}
}

// Limit returns a context that ends when an evaluation in this process has taken too long.
type Limit func(context.Context) (context.Context, context.CancelFunc)

// LoadHere returns a policy whose rules and parameters are trusted. This process evaluates it, as that costs least. What it is
// asked about is not trusted: if an evaluation exceeds the limit, the asker answers instead, which can measure and stop it.
func LoadHere(source Source, asker Asker, limit Limit) *Policy {
	p, _ := Load(source)
	p.source, p.asker, p.limit = source, asker, limit
	return p
}

// limited returns the context of an evaluation in this process.
func (p *Policy) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.limit == nil {
		return ctx, func() {}
	}
	return p.limit(ctx)
}

// reply is what a policy says in one decision.
type reply[T any] struct {
	Elements []T      `json:"elements,omitempty"`
	Failure  *Failure `json:"failure,omitempty"`
}

// Source is what the policy was made of, with its rules only if they are elsewhere.
func (p *Policy) Source() Source { return p.source }

// askElsewhere has the policy asked in another process.
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
	f := p.failure(EvaluationError, "it could not be asked: %v", err)
	f.IsLate = errors.Is(err, ErrLate)
	return nil, f
}

// Answer is what the policy, whose rules are here, says to a question that another process asks.
func (p *Policy) Answer(ctx context.Context, asked Question) ([]byte, error) {
	q := newQuestion(asked)
	switch {
	case !p.isLoaded():
		return nil, errors.New(p.whyNotLoaded())
	case q.Decision == DecisionScaling:
		return answerOf(decodeAll(ctx, p, q, decodeLimit))
	case q.Decision == DecisionTemplate:
		found, failure := decodeAll(ctx, p, q, decodeFinding)
		return answerOf(fewFindings(found), failure)
	case q.Decision == DecisionUpdate:
		return answerOf(decodeAll(ctx, p, q, decodeRollout))
	}
	return nil, fmt.Errorf("there is no decision %q", q.Decision)
}

func answerOf[T any](elements []T, failure *Failure) ([]byte, error) {
	text, err := json.Marshal(reply[T]{elements, failure})
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return text, nil
}
