// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Asker has the rules of policies in other processes, where they can be stopped.
type Asker interface {
	// Ask has a policy asked for a namespace, and returns what Policy.Answer returned. An *Excess is the policy's
	// fault, another error is not.
	Ask(ctx context.Context, namespace string, p *Policy, question []byte) ([]byte, error)
}

// Excess is the error of a policy that took more time or memory than it may.
type Excess struct{ Message string }

func (e *Excess) Error() string { return e.Message }

// Question is what a policy is asked in another process: one of the inputs.
type Question struct {
	Scaling  *ScalingInput  `json:"scaling,omitempty"`
	Template *TemplateInput `json:"template,omitempty"`
	Update   *UpdateInput   `json:"update,omitempty"`
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
	question, err := q.wire()
	if err != nil {
		return nil, p.failure(EvaluationError, "%v", err)
	}
	text, err := p.asker.Ask(ctx, q.namespace, p, question)
	var excess *Excess
	switch {
	case err == nil:
		p.patience.answered(q.namespace)
		return text, nil
	case errors.As(err, &excess):
		p.patience.timedOut(q.namespace)
		return nil, p.failure(TimedOut, "%s: look for loops over loops, large ranges, and texts that grow", excess.Message)
	case ctx.Err() != nil:
		return nil, p.failure(TimedOut, "the time for the decision was over before it answered")
	}
	return nil, p.failure(EvaluationError, "it could not be asked: %v", err)
}

// Answer is what the policy, whose rules are here, says to a question that another process asks.
func (p *Policy) Answer(ctx context.Context, question Question) ([]byte, error) {
	b := &Bound{}
	switch {
	case !p.isLoaded():
		return nil, errors.New(p.whyNotLoaded())
	case question.Scaling != nil:
		return answerOf(decodeAll(ctx, p, b.aboutScaling(question.Scaling), decodeLimit))
	case question.Template != nil:
		found, failure := decodeAll(ctx, p, b.aboutPod(question.Template), decodeFinding)
		return answerOf(fewFindings(found), failure)
	case question.Update != nil:
		return answerOf(decodeAll(ctx, p, b.aboutUpdate(question.Update), decodeRollout))
	}
	return nil, errors.New("a question about nothing")
}

func answerOf[T any](elements []T, failure *Failure) ([]byte, error) {
	text, err := json.Marshal(reply[T]{elements, failure})
	if err != nil {
		return nil, fmt.Errorf("encoding an answer: %w", err)
	}
	return text, nil
}
