// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A quarantined policy is retried, because its rules may have become cheaper for the current input, and new pools could
// otherwise never start runners.
func TestQuarantineIsTemporary(t *testing.T) {
	const (
		sound   = FailureKind("")
		unknown = FailureKind("unknown") // the question has no outcome
	)
	type step struct {
		at        time.Duration
		pool      string // in the namespace "greedy", unless it names another
		takes     FailureKind
		want      FailureKind
		isSkipped bool // the policy is not evaluated
	}
	excess := func(at time.Duration, pool string) step { return step{at, pool, TimedOut, TimedOut, false} }
	fine := func(at time.Duration, pool string) step { return step{at, pool, sound, sound, false} }
	paused := func(at time.Duration, pool string) step { return step{at, pool, sound, Quarantined, true} }
	probe := func(at time.Duration, pool string) step { return step{at, pool, TimedOut, Quarantined, false} }
	three := []step{excess(0, "a"), excess(time.Second, "a"), excess(2*time.Second, "a")}
	const begin = 2 * time.Second
	for name, steps := range map[string][]step{
		"it isn't asked for five minutes": append(three, paused(begin, "a"), paused(begin+5*time.Minute-1, "a"), fine(begin+5*time.Minute, "a"), fine(begin+5*time.Minute, "a")),
		"the pause doubles up to an hour": append(three,
			probe(10*time.Minute, "a"), paused(20*time.Minute-1, "a"), probe(20*time.Minute, "a"), paused(40*time.Minute-1, "a"), probe(40*time.Minute, "a"),
			paused(80*time.Minute-1, "a"), probe(80*time.Minute, "a"), paused(140*time.Minute-1, "a"), probe(140*time.Minute, "a"),
			paused(200*time.Minute-1, "a"), fine(200*time.Minute, "a")),
		"a normal answer resets the count and the pause": append(three,
			probe(10*time.Minute, "a"), fine(time.Hour, "a"), excess(time.Hour, "a"), excess(time.Hour, "a"), fine(time.Hour, "a"), excess(time.Hour, "a"), excess(time.Hour, "a"), excess(time.Hour, "a"),
			paused(time.Hour, "a"), fine(time.Hour+5*time.Minute, "a")),
		"one probe at a time": append(three,
			step{10 * time.Minute, "a", unknown, EvaluationError, false}, paused(10*time.Minute+1, "b"), paused(11*time.Minute-1, "a"), probe(11*time.Minute, "b"), paused(16*time.Minute-1, "a")),
		"another pool's answer doesn't end the row": {
			excess(0, "a"), fine(0, "b"), excess(0, "a"), fine(0, "b"), excess(0, "a"), paused(0, "b"),
		},
		"another pool's answer ends the quarantine": append(three, fine(10*time.Minute, "b"), excess(10*time.Minute, "a"), fine(10*time.Minute, "b")),
		"another namespace":                         append(three, fine(begin, "quiet/a"), paused(begin, "a")),
	} {
		t.Run(name, func(t *testing.T) {
			slow, there := away(t, Source{Kind: KindClusterRunnerPolicy, Name: "slow", Modules: map[string]string{"p.rego": limits(`{"field": "max", "atMost": 5, "reason": "r"}`)}})
			start := time.Unix(1_800_000_000, 0)
			for i, s := range steps {
				p := pool()
				p.Namespace, p.Name = "greedy", s.pool
				if s.pool == "quiet/a" {
					p.Namespace, p.Name = "quiet", "a"
				}
				there.err = map[FailureKind]error{TimedOut: tooSlow, unknown: errors.New("no more processes")}[s.takes]
				before, got := there.asked, sound
				for _, f := range NewSet(slow).For(p).Scaling(t.Context(), ScalingInput{Pool: p, Now: start.Add(s.at).UnixNano()}).Failures {
					got = f.Kind
				}
				if got != s.want || (there.asked == before) != s.isSkipped {
					t.Errorf("step %d at %s: %q, asked: %t, want %q", i, s.at, got, there.asked > before, s.want)
				}
			}
		})
	}
}

// slowAsker answers questions when the test allows it.
type slowAsker struct{ asked, outcome chan error }

func (s slowAsker) Ask(context.Context, *Policy, Question) ([]byte, error) {
	s.asked <- nil
	return []byte(`{}`), <-s.outcome
}

// Questions that were asked before a quarantine began must not affect the result of its probe.
func TestQuarantineIgnoresEarlierQuestions(t *testing.T) {
	for _, late := range []error{nil, tooSlow} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			there := slowAsker{make(chan error), make(chan error)}
			source := Source{Kind: KindClusterRunnerPolicy, Name: "slow", Modules: map[string]string{"p.rego": "package corral.template"}}
			p := Elsewhere(source, Facts{Decisions: []string{DecisionTemplate}}, there)
			answers := make(chan Template)
			ask := func(at time.Duration) {
				go func() {
					in := TemplateInput{Pool: pool(), Pod: json.RawMessage(`{}`), Now: time.Unix(1_800_000_000, 0).Add(at).UnixNano()}
					answers <- NewSet(p).For(pool()).Template(t.Context(), in)
				}()
			}
			for i := range time.Duration(quarantineAfter + 1) {
				ask(i)
				<-there.asked
			}
			for range quarantineAfter {
				there.outcome <- tooSlow
				<-answers
			}
			there.outcome <- late
			<-answers
			ask(minPause - 1) // after all of the first three
			if got := <-answers; len(got.Failures) != 1 || got.Failures[0].Kind != Quarantined {
				t.Errorf("before the pause is over: %v", got.Failures)
			}
			ask(minPause + quarantineAfter)
			<-there.asked
			there.outcome <- nil
			if got := <-answers; got.Failures != nil || p.Quarantined() != nil {
				t.Errorf("after it: %v, quarantined for %v", got.Failures, p.Quarantined())
			}
		})
	}
}

func TestPause(t *testing.T) {
	var got []time.Duration
	for attempt := 1; attempt <= 6; attempt++ {
		got = append(got, Pause(attempt))
	}
	want := []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}
