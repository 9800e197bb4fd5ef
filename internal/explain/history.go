// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// HistoryKey is the key of the ConfigMap that holds a pool's history.
const HistoryKey = "decisions.json"

// Limits of a history.
const (
	// MaxEntries is how many entries are kept.
	MaxEntries = 200
	// MaxHistoryBytes is how long its text may be.
	MaxHistoryBytes = 64 << 10
	// Together is how long decisions that differ only in numbers are one entry.
	Together = time.Minute

	maxEntryBytes = 16 << 10 // of one entry, or its texts are cut
	maxText       = 256      // bytes of a text that is cut
	maxName       = 253      // bytes of an object's name
	historySuffix = "-decisions"
)

// HistoryName returns the name of the ConfigMap of a pool's history: POOL-decisions. A long pool name is cut, and ends in
// a hash.
func HistoryName(pool string) string {
	if len(pool)+len(historySuffix) <= maxName {
		return pool + historySuffix
	}
	sum := sha256.Sum256([]byte(pool))
	kin := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(pool[:maxName-len(historySuffix)-len(kin)], "-.") + kin + historySuffix
}

// Entry is one decision, or several that were taken within a minute.
type Entry struct {
	// Time at which the decision was taken; of several the last.
	Time metav1.Time `json:"time"`
	// Since is when the first of several was taken; absent for one.
	Since *metav1.Time `json:"since,omitempty"`
	// Jobs, absent if how many wasn't known, and Runners that the decision was taken on.
	Jobs    *int32                `json:"jobs,omitempty"`
	Runners v1alpha1.RunnerCounts `json:"runners"`
	// Decision that holds from then on; of several the last, with what was before the first.
	Decision *v1alpha1.Decision `json:"decision,omitempty"`
	// Template is the policies' verdict on the template, if it changed.
	Template *v1alpha1.TemplateVerdict `json:"template,omitempty"`
}

// start is when the entry's first decision was taken.
func (e *Entry) start() time.Time {
	if e.Since != nil {
		return e.Since.Time
	}
	return e.Time.Time
}

// SameDecision reports whether decisions have the same numbers and limits, by the same policies. Either may be nil.
func SameDecision(a, b *v1alpha1.Decision) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Desired == b.Desired && a.Announced == b.Announced && a.JobsHeld == b.JobsHeld && sameRules(a, b)
}

// sameRules reports whether decisions have the same limits, by the same policies.
func sameRules(a, b *v1alpha1.Decision) bool {
	return a.PolicyDigest == b.PolicyDigest && equality.Semantic.DeepEqual(lasting(a.Limits), lasting(b.Limits))
}

// lasting returns limits without the time when they are decided again.
func lasting(l *v1alpha1.DecidedLimits) *v1alpha1.DecidedLimits {
	l = l.DeepCopy()
	if l != nil {
		l.Until = nil
	}
	return l
}

// SameVerdict reports whether verdicts are the same but for the policies' digest. Either may be nil.
func SameVerdict(a, b *v1alpha1.TemplateVerdict) bool {
	if a == nil || b == nil {
		return a == b
	}
	other := *b
	other.PolicyDigest = a.PolicyDigest
	return equality.Semantic.DeepEqual(*a, other)
}

// Numbers returns the numbers of a decision that the next one keeps as those before it; nil for no decision.
func Numbers(d *v1alpha1.Decision) *v1alpha1.DecidedNumbers {
	if d == nil {
		return nil
	}
	n := &v1alpha1.DecidedNumbers{Desired: d.Desired, Announced: d.Announced}
	if d.Limits != nil {
		n.Max = d.Limits.GetMax()
	}
	return n
}

// History is a list of entries, the newest first, as it is stored. The zero History is empty.
type History struct {
	newest *Entry
	lines  []string // one entry each, as JSON
}

// Add enters an entry: together with the newest if only numbers differ, else before it.
// What is too old or too much is dropped.
func (h *History) Add(e Entry) {
	if h.newest.takes(&e) {
		since := metav1.Time{Time: h.newest.start()}
		e.Since, e.Template = &since, h.newest.Template
		e.Decision.Before = h.newest.Decision.Before
		h.lines = h.lines[1:]
	}
	h.newest = &e
	h.lines = append([]string{encode(&e)}, h.lines...)
	h.trim()
}

// takes reports whether a later decision joins this entry.
func (e *Entry) takes(later *Entry) bool {
	return e != nil && e.Decision != nil && later.Decision != nil && later.Template == nil &&
		later.Time.Sub(e.start()) < Together && sameRules(e.Decision, later.Decision)
}

// Load appends the entries of a stored text after those that are there. An error means that
// the text is no history; nothing is appended then.
func (h *History) Load(text string) error {
	entries, err := ParseHistory(text)
	if err != nil {
		return err
	}
	if h.newest == nil && len(entries) > 0 {
		h.newest = &entries[0]
	}
	for i := range entries {
		h.lines = append(h.lines, encode(&entries[i]))
	}
	h.trim()
	return nil
}

func (h *History) trim() {
	const frame = len(",\n")
	size := frame
	for i, line := range h.lines {
		size += len(line) + frame
		if i == MaxEntries || size > MaxHistoryBytes {
			h.lines = h.lines[:i]
			return
		}
	}
}

// String is the text to store: a JSON list with an entry a line.
func (h *History) String() string { return "[\n" + strings.Join(h.lines, ",\n") + "\n]" }

// ParseHistory reads a stored text. Empty text is an empty history.
func ParseHistory(text string) ([]Entry, error) {
	var entries []Entry
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	return entries, nil
}

// At returns the entry that held at a time, newest first among entries: false if all are later.
func At(entries []Entry, at time.Time) (Entry, bool) {
	for _, e := range entries {
		if !e.start().After(at) {
			return e, true
		}
	}
	return Entry{}, false
}

// encode writes an entry in bounded length: long texts are cut, and what is too long even so
// is left out.
func encode(e *Entry) string {
	line := marshal(e)
	if len(line) <= maxEntryBytes {
		return line
	}
	short := *e
	short.Decision, short.Template = e.Decision.DeepCopy(), e.Template.DeepCopy()
	short.cut()
	line = marshal(&short)
	if len(line) <= maxEntryBytes {
		return line
	}
	if short.Decision != nil && short.Decision.Limits != nil {
		short.Decision.Limits.Bounds, short.Decision.Limits.Conflicts = nil, nil
	}
	if short.Template != nil {
		short.Template.Denials, short.Template.Warnings = nil, nil
	}
	return marshal(&short)
}

func marshal(e *Entry) string {
	text, err := json.Marshal(e)
	if err != nil {
		return "{}" // it has nothing that JSON can't hold
	}
	return string(text)
}

// cut shortens all texts, because users and other programs wrote most of them.
func (e *Entry) cut() {
	wording.Texts(e, func(text reflect.Value, _ reflect.StructField) {
		text.SetString(wording.Truncate(text.String(), maxText))
	})
}
