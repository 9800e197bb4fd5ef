// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// counting counts its calls, and answers with a limit or an error.
type counting struct {
	asked int
	err   error
}

func (c *counting) Ask(context.Context, *Policy, Question) ([]byte, error) {
	c.asked++
	return []byte(`{"elements":[{"field":"max","n":3,"reason":"elsewhere"}]}`), c.err
}

// over is a limit that each evaluation exceeds.
const over = time.Nanosecond

// endless never ends while there are jobs.
const endless = `{"field": "max", "atMost": 9, "reason": "r"} if {
	input.jobs > 0
	some i in numbers.range(1, 1000000)
	some j in numbers.range(1, 1000000)
	i + j == 0
}`

// Another process takes over a slow evaluation of trusted rules. Quick evaluations stay in this process.
func TestAnEvaluationHereEndsAndAnotherProcessAnswers(t *testing.T) {
	quick := `{"field": "max", "atMost": 7, "reason": "r"}`
	for name, tc := range map[string]struct {
		rule       string
		limit      time.Duration
		isOver     bool // the time for the decision is over
		most       int32
		asked      int
		isAnswered bool
	}{
		"quick":                       {quick, 0, false, 7, 0, true},
		"the limit is passed":         {endless, over, false, 3, 1, true},
		"the decision's time is over": {endless, over, true, 0, 0, false},
		"it would never end":          {endless, 10 * time.Millisecond, false, 3, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			asker := &counting{}
			loaded := LoadHere(guard(tc.rule), asker, tc.limit)
			if len(loaded.Diagnostics()) > 0 {
				t.Fatal(loaded.Diagnostics())
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if tc.isOver {
				end()
			}
			p := pool()
			p.Scale.Max = 10
			answer := NewSet(loaded).For(p).Scaling(ctx, ScalingInput{Pool: p, Jobs: 1})
			if isAnswered := len(answer.Failures) == 0; isAnswered != tc.isAnswered || isAnswered && answer.Scale.Max != tc.most || asker.asked != tc.asked {
				t.Errorf("max %d, %v; another process was asked %d times", answer.Scale.Max, answer.Failures, asker.asked)
			}
		})
	}
}

// A policy in quarantine is evaluated in this process again after its pause, and a normal answer ends the quarantine.
func TestAnAnswerHereEndsTheQuarantine(t *testing.T) {
	asker := &counting{err: &Excess{Message: "too much"}}
	loaded := LoadHere(guard(endless), asker, over)
	p := pool()
	ask := func(at time.Duration, jobs int32) []Failure {
		return NewSet(loaded).For(p).Scaling(t.Context(), ScalingInput{Pool: p, Jobs: jobs, Now: int64(at)}).Failures
	}
	for i := range 3 {
		ask(time.Duration(i), 1)
	}
	if got := loaded.Quarantined(); !cmp.Equal(got, []string{p.Namespace}) {
		t.Fatalf("in quarantine for %v", got)
	}
	loaded.limit = 0
	if failures := ask(time.Minute, 0); len(failures) != 1 || failures[0].Kind != Quarantined {
		t.Errorf("in quarantine: %v", failures)
	}
	if failures := ask(minPause+time.Minute, 0); len(failures) > 0 || len(loaded.Quarantined()) > 0 {
		t.Errorf("after the pause: %v, in quarantine for %v", failures, loaded.Quarantined())
	}
}

// endsMeanwhile is a context that ends after it was asked once whether it has ended.
type endsMeanwhile struct {
	context.Context
	asked *int
}

func (e endsMeanwhile) Err() error {
	if *e.asked++; *e.asked > 1 {
		return context.Canceled
	}
	return nil
}

// A question that was canceled during its evaluation has no outcome: it must neither end the row of violations nor add one.
func TestACanceledQuestionHereCountsForNothing(t *testing.T) {
	asker := &counting{err: &Excess{Message: "too much"}}
	loaded := LoadHere(guard(endless), asker, over)
	p := pool()
	ask := func(ctx context.Context) FailureKind {
		return NewSet(loaded).For(p).Scaling(ctx, ScalingInput{Pool: p, Jobs: 1}).Failures[0].Kind
	}
	for range quarantineAfter - 1 {
		ask(t.Context())
	}
	if got := ask(endsMeanwhile{t.Context(), new(int)}); got != TimedOut || asker.asked != quarantineAfter-1 || loaded.Quarantined() != nil {
		t.Errorf("canceled: %s, asked elsewhere %d times, in quarantine for %v", got, asker.asked, loaded.Quarantined())
	}
	ask(t.Context())
	if got := loaded.Quarantined(); !cmp.Equal(got, []string{p.Namespace}) {
		t.Errorf("after the last violation of the row, in quarantine for %v", got)
	}
}

// A late answer may become TimedOut at the next attempt. To the owner of a pool, both mean the same.
func TestAnAnswerThatComesTooLateIsMarked(t *testing.T) {
	for want, err := range map[bool]error{true: fmt.Errorf("asking: %w", ErrLate), false: errors.New("the pipe is broken")} {
		loaded := LoadHere(guard(endless), &counting{err: err}, over)
		p := pool()
		failures := NewSet(loaded).For(p).Scaling(t.Context(), ScalingInput{Pool: p, Jobs: 1}).Failures
		if len(failures) != 1 || failures[0].Kind != EvaluationError || failures[0].IsLate != want {
			t.Errorf("%v: %+v", err, failures)
		}
	}
}
