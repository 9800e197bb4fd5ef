// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"bufio"
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
	// maxRecords and maxRecordBytes bound what is read of a decision log, maxRecord one line.
	maxRecords     = 50_000
	maxRecordBytes = 256 << 20
	maxRecord      = 1 << 20
	// maxRecordedChanges bounds how many decisions that would have been others are listed.
	maxRecordedChanges = 200
)

// Record is a decision of the decision log.
type Record struct {
	id       string
	decision string
	at       time.Time
	input    json.RawMessage
	result   recordedResult
	inexact  bool
}

// line is what is read of a line of the decision log.
type line struct {
	ID        string          `json:"decision_id"`
	Path      string          `json:"path"`
	Input     json.RawMessage `json:"input"`
	Result    recordedResult  `json:"result"`
	Erased    []string        `json:"erased"`
	Masked    []string        `json:"masked"`
	Timestamp time.Time       `json:"timestamp"`
}

// recordedResult is what is read of a recorded outcome.
type recordedResult struct {
	Limits   *policy.Scale            `json:"limits"`
	Hard     bool                     `json:"hard"`
	Denials  []v1alpha1.PolicyFinding `json:"deny"`
	Rollout  *recordedRollout         `json:"rollout"`
	Failures []struct {
		Policy string `json:"policy"`
	} `json:"failures"`
}

type recordedRollout struct {
	Hold           bool                    `json:"hold"`
	Strategy       v1alpha1.UpdateStrategy `json:"strategy"`
	MaxSurge       int32                   `json:"maxSurge"`
	MaxUnavailable int32                   `json:"maxUnavailable"`
	Canary         int32                   `json:"canary"`
}

// ReadRecords reads the lines of a decision log, JSON each, and passes over lines that are none, as those of other loggers. Records
// aren't nil, though there may be none. It returns how many of the lines that are decisions it could not read. An error says that reading failed, or that there is more than is read:
// 50,000 decisions or 256 MiB.
func ReadRecords(r io.Reader) (records []Record, skipped int, err error) {
	limited := &io.LimitedReader{R: r, N: maxRecordBytes + 1}
	lines := bufio.NewReaderSize(limited, maxRecord)
	records = []Record{}
	for {
		text, tooLong, err := readLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("reading recorded decisions: %w", err)
		}
		switch record, isDecision, ok := parseRecord(text); {
		case tooLong:
			skipped++
		case ok:
			records = append(records, record)
		case isDecision:
			skipped++
		}
		switch {
		case limited.N == 0:
			return nil, 0, fmt.Errorf("more than %d MiB of recorded decisions: give the part that matters", maxRecordBytes>>20)
		case len(records) > maxRecords:
			return nil, 0, fmt.Errorf("more than %d recorded decisions: give the part that matters", maxRecords)
		case err != nil:
			slices.SortStableFunc(records, func(a, b Record) int { return a.at.Compare(b.at) })
			return records, skipped, nil
		}
	}
}

// readLine returns the next line. Of one that is too long, nothing.
func readLine(r *bufio.Reader) (text []byte, tooLong bool, err error) {
	text, err = r.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = r.ReadSlice('\n')
	}
	if tooLong {
		text = nil
	}
	return text, tooLong, err
}

func parseRecord(text []byte) (record Record, isDecision, ok bool) {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return Record{}, strings.Contains(string(text), `"decision_id"`), false
	}
	decision, isDecision := strings.CutPrefix(l.Path, "corral/")
	if !isDecision || len(l.Input) == 0 {
		return Record{}, isDecision, false
	}
	return Record{
		id: l.ID, decision: decision, at: l.Timestamp, input: l.Input, result: l.Result, inexact: len(l.Erased)+len(l.Masked) > 0,
	}, true, true
}

// replayed is what policies make of a recorded decision.
type replayed struct {
	words string
	rules []v1alpha1.RuleReference
	max   int32
}

// question is a recorded input.
type question struct {
	decision string
	pool     policy.Pool
	scaling  policy.ScalingInput
	template policy.TemplateInput
	update   policy.UpdateInput
}

// question reads the input of a record.
func (r *Record) question() (question, error) {
	q := question{decision: r.decision}
	var err error
	switch r.decision {
	case policy.DecisionScaling:
		err = json.Unmarshal(r.input, &q.scaling)
		q.pool = q.scaling.Pool
	case policy.DecisionTemplate:
		err = json.Unmarshal(r.input, &q.template)
		q.pool = q.template.Pool
	case policy.DecisionUpdate:
		err = json.Unmarshal(r.input, &q.update)
		q.pool = q.update.Pool
	default:
		err = fmt.Errorf("there is no decision %q", r.decision)
	}
	if err == nil && q.pool.Name == "" {
		err = errors.New("it is of no pool")
	}
	return q, err
}

// replay judges recorded decisions by the policies of both sides.
func (c *comparison) replay() {
	if c.in.Records == nil {
		return
	}
	r := &Recorded{Skipped: c.in.Unread}
	for i := range c.in.Records {
		c.replayOne(r, &c.in.Records[i])
	}
	c.result.Recorded = r
}

func (c *comparison) replayOne(r *Recorded, record *Record) {
	q, err := record.question()
	if err != nil {
		r.Skipped++
		return
	}
	old, now := c.base.set.For(q.pool), c.head.set.For(q.pool)
	if old.Digest() == "" && now.Digest() == "" {
		r.Skipped++
		r.Unbound++
		return
	}
	r.Decisions++
	if r.From.IsZero() {
		r.From = record.at.UTC()
	}
	r.To = record.at.UTC()
	before := c.base.ask(c.ctx, old, &q)
	after := before
	if old.Digest() != now.Digest() {
		after = c.head.ask(c.ctx, now, &q)
	}
	recorded := record.words()
	if recorded != "" && recorded != before.words {
		r.Drifted++
	}
	if before.words == after.words {
		return
	}
	if r.Differ++; len(r.Changed) == maxRecordedChanges {
		return
	}
	r.Changed = append(r.Changed, RecordedChange{
		Time: record.at.UTC(), Pool: wording.Qualified(q.pool.Namespace, q.pool.Name), Decision: q.decision, ID: record.id,
		Recorded: recorded, Before: before.words, After: after.words, Rules: after.rules,
		Waiting: max(0, waiting(&q, after)-waiting(&q, before)), Inexact: record.inexact,
	})
}

// waiting is how many of the jobs at the time wait beyond max.
func waiting(q *question, a replayed) int32 {
	if q.decision != policy.DecisionScaling {
		return 0
	}
	return max(0, q.scaling.Jobs-a.max)
}
