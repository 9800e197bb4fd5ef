// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// maxRecords and maxRecordBytes limit the size of a decision log. A larger log is an error.
	maxRecords     = 50_000
	maxRecordBytes = 256 << 20
	// maxRecordedChanges is the maximum number of changed decisions that the result lists.
	maxRecordedChanges = 200
)

// Record is a line of the decision log, with the fields that a review uses.
type Record struct {
	ID        string          `json:"decision_id"`
	Path      string          `json:"path"`
	Input     json.RawMessage `json:"input"`
	Result    decided         `json:"result"`
	Erased    []string        `json:"erased"`
	Masked    []string        `json:"masked"`
	Timestamp time.Time       `json:"timestamp"`
}

// decided is the outcome of a decision, as the decision log contains it.
type decided struct {
	Limits       *policy.Scale            `json:"limits"`
	AssignedJobs v1alpha1.AssignedJobs    `json:"assignedJobs"`
	Denials      []v1alpha1.PolicyFinding `json:"deny"`
	Rollout      *Rollout                 `json:"rollout"`
	Failures     []policy.Failure         `json:"failures"`
}

// ReadRecords reads the lines of a decision log, which are JSON objects, and sorts the decisions by time. It ignores the
// lines of other loggers. skipped is the number of decisions that cannot be decoded. ReadRecords fails if it cannot read the
// log, or if the log has more than 50,000 decisions or 256 MiB.
func ReadRecords(r io.Reader) (records []Record, skipped int, err error) {
	limited := &io.LimitedReader{R: r, N: maxRecordBytes + 1}
	for lines := bufio.NewReader(limited); err == nil && len(records) <= maxRecords; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		record := Record{}
		isJSON := json.Unmarshal(line, &record) == nil
		switch {
		case strings.HasPrefix(record.Path, "corral/") && isJSON && len(record.Input) > 0:
			records = append(records, record)
		case strings.HasPrefix(record.Path, "corral/"), !isJSON && bytes.Contains(line, []byte(`"decision_id"`)):
			skipped++
		}
	}
	switch {
	case limited.N == 0, len(records) > maxRecords:
		return nil, 0, fmt.Errorf("more than %d recorded decisions, or than %d MiB: give the part that matters", maxRecords, maxRecordBytes>>20)
	case !errors.Is(err, io.EOF):
		return nil, 0, err
	}
	slices.SortStableFunc(records, func(a, b Record) int { return a.Timestamp.Compare(b.Timestamp) })
	return records, skipped, nil
}

// question is the recorded input of a decision. The field for its kind of decision is set.
type question struct {
	decision string
	Pool     policy.Pool `json:"pool"`
	scaling  policy.ScalingInput
	template policy.TemplateInput
	update   policy.UpdateInput
}

// question decodes the input of a record. ok is false if the record is not about a pool.
func (r *Record) question() (q question, ok bool) {
	q.decision = strings.TrimPrefix(r.Path, "corral/")
	inputs := map[string]any{policy.DecisionScaling: &q.scaling, policy.DecisionTemplate: &q.template, policy.DecisionUpdate: &q.update}
	input := inputs[q.decision]
	ok = input != nil && json.Unmarshal(r.Input, input) == nil && json.Unmarshal(r.Input, &q) == nil
	return q, ok && q.Pool.Name != ""
}

// replay evaluates recorded decisions with the policies of both sides.
func (c *comparison) replay() {
	if c.in.Records == nil {
		return
	}
	c.result.Recorded = &Recorded{Skipped: c.in.Unread}
	for i := range c.in.Records {
		c.replayOne(c.result.Recorded, &c.in.Records[i])
	}
}

func (c *comparison) replayOne(r *Recorded, record *Record) {
	q, ok := record.question()
	if !ok {
		r.Skipped++
		return
	}
	old, now := c.base.set.For(q.Pool), c.head.set.For(q.Pool)
	if old.Digest() == "" && now.Digest() == "" {
		r.Skipped++
		r.Unbound++
		return
	}
	r.Decisions++
	r.To = record.Timestamp.UTC()
	r.From = cmp.Or(r.From, r.To)
	before, _ := c.base.ask(c.ctx, old, &q)
	recorded, was := record.Result.text(q.decision), before.text(q.decision)
	if recorded != "" && recorded != was {
		r.Drifted++
	}
	if old.Digest() == now.Digest() {
		return
	}
	after, rules := c.head.ask(c.ctx, now, &q)
	is := after.text(q.decision)
	if was == is {
		return
	}
	r.Differ++
	if r.Differ <= maxRecordedChanges {
		r.Changed = append(r.Changed, RecordedChange{
			Time: r.To, Pool: wording.Qualified(q.Pool.Namespace, q.Pool.Name), Decision: q.decision, ID: record.ID, Recorded: recorded, Before: was, After: is,
			Rules: rules, Waiting: max(0, after.waiting(&q)-before.waiting(&q)), Inexact: len(record.Erased)+len(record.Masked) > 0,
		})
	}
}

// longestHold is how long at most a recorded number of jobs is assumed to be valid.
const longestHold = time.Hour

// ask evaluates a recorded question with b, the policies of the side that apply to the question's pool. It also returns the
// rules that determine the answer, unless a policy fails.
func (s *side) ask(ctx context.Context, b *policy.Bound, q *question) (d decided, rules []v1alpha1.RuleReference) {
	by := func(r v1alpha1.RuleReference) { rules = append(rules, s.locate(r)) }
	switch q.decision {
	case policy.DecisionScaling:
		a := b.Scaling(ctx, q.scaling)
		d = decided{Limits: &a.Scale, AssignedJobs: a.AssignedJobs, Failures: a.Failures}
		for _, b := range a.Bounds {
			by(b.Rule)
		}
	case policy.DecisionTemplate:
		a := b.Template(ctx, q.template)
		d = decided{Denials: a.Denials, Failures: a.Failures}
		for _, denial := range a.Denials {
			by(denial.Rule)
		}
	default:
		a := b.Update(ctx, q.update)
		d = decided{Rollout: rolloutOf(&a), Failures: a.Failures}
		for _, reason := range a.Reasons {
			by(reason.Rule)
		}
	}
	if len(d.Failures) > 0 {
		rules = nil
	}
	return d, rules
}

// text describes the outcome; empty if the record contains none.
func (d *decided) text(decision string) string {
	return effects.Phrase("outcome", struct {
		*decided
		Decision string
	}{d, decision})
}

// waiting returns how many of the recorded jobs must wait because they exceed the max of the outcome.
func (d *decided) waiting(q *question) int32 {
	return max(0, q.scaling.Jobs-cmp.Or(d.Limits, &policy.Scale{Max: v1alpha1.UnboundedMax}).Max)
}

func scaleText(s policy.Scale) string { return effects.Phrase("scale", s) }

func (r *Rollout) text() string { return effects.Phrase("rollout", r) }

// recordedRunners returns the average number of runners that a pool would have had with the recorded numbers of jobs and the
// limits of a side at the same time of the week. Each number of jobs counts until the next decision, but for at most an hour.
// The result is false if the pool has fewer than two recorded decisions, or if a policy fails.
func (c *comparison) recordedRunners(j *judgement) (float64, bool) {
	if j.limits.Effective == nil {
		return 0, false
	}
	jobs := c.jobs[j.pool.name()]
	total, hours := 0.0, 0.0
	for i := range len(jobs) - 1 {
		since := jobs[i].at.Sub(c.in.At) % lookout
		limits := scaleAt(j.week().steps, c.in.At.Add((since+lookout)%lookout))
		held := min(jobs[i+1].at.Sub(jobs[i].at), longestHold).Hours()
		wanted := int64(jobs[i].jobs) + int64(limits.Idle)
		total += held * float64(min(int64(limits.Max), max(int64(limits.Min), wanted)))
		hours += held
	}
	if hours == 0 {
		return 0, false
	}
	return total / hours, true
}

// jobsAt is the number of jobs of a pool at a time.
type jobsAt struct {
	at   time.Time
	jobs int32
}

// recordedJobs returns the numbers of jobs in the recorded scaling decisions by pool, in the order of the records.
func recordedJobs(records []Record) map[string][]jobsAt {
	jobs := map[string][]jobsAt{}
	for i := range records {
		if q, ok := records[i].question(); ok && q.decision == policy.DecisionScaling {
			name := wording.Qualified(q.Pool.Namespace, q.Pool.Name)
			jobs[name] = append(jobs[name], jobsAt{records[i].Timestamp, q.scaling.Jobs})
		}
	}
	return jobs
}
