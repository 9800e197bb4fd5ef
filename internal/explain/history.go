// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
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

// HistoryKey is the key of a pool's history in its ConfigMap.
const HistoryKey = "decisions.json"

// Limits of a history.
const (
	// MaxEntries is the maximum number of entries.
	MaxEntries = 200
	// MaxHistoryBytes is the maximum length of the stored text.
	MaxHistoryBytes = 64 << 10
	// Together is the period in which decisions that differ only in numbers form one entry.
	Together = time.Minute

	maxEntryBytes = 16 << 10 // maximum of one entry; texts of longer entries are cut
	maxText       = 256      // bytes of a text that was cut
	maxName       = 253      // bytes of an object's name
	historySuffix = "-decisions"
)

// HistoryName returns the name of the ConfigMap with a pool's history: POOL-decisions. If the name of the pool is too long,
// it is cut, and ends in a hash of the whole name.
func HistoryName(pool string) string {
	if len(pool)+len(historySuffix) <= maxName {
		return pool + historySuffix
	}
	sum := sha256.Sum256([]byte(pool))
	kin := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(pool[:maxName-len(historySuffix)-len(kin)], "-.") + kin + historySuffix
}

// Entry is one decision, or several decisions within a minute.
type Entry struct {
	// Time of the decision, or of the last of several.
	Time metav1.Time `json:"time"`
	// Since is the time of the first of several decisions; absent for a single one.
	Since *metav1.Time `json:"since,omitempty"`
	// Jobs and Runners on which the decision was based. Jobs is absent if their number was unknown.
	Jobs    *int32                `json:"jobs,omitempty"`
	Runners v1alpha1.RunnerCounts `json:"runners"`
	// Decision that applies from that time on. For several decisions, it is the last one, and its field Before has the numbers
	// from before the first one.
	Decision *v1alpha1.Decision `json:"decision,omitempty"`
	// Template is the policies' verdict on the template, if it changed.
	Template *v1alpha1.TemplateVerdict `json:"template,omitempty"`
}

// start returns the time of the entry's first decision.
func (e *Entry) start() time.Time {
	return cmp.Or(e.Since, &e.Time).Time
}

// SameDecision reports whether two decisions have the same numbers, limits and policies. Either may be nil.
func SameDecision(a, b *v1alpha1.Decision) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Desired == b.Desired && a.Announced == b.Announced && a.JobsHeld == b.JobsHeld && sameRules(a, b)
}

// sameRules reports whether two decisions have the same limits and policies.
func sameRules(a, b *v1alpha1.Decision) bool {
	return a.PolicyDigest == b.PolicyDigest && equality.Semantic.DeepEqual(lasting(a.Limits), lasting(b.Limits))
}

// lasting returns limits without the time of their next evaluation.
func lasting(l *v1alpha1.DecidedLimits) *v1alpha1.DecidedLimits {
	l = l.DeepCopy()
	if l != nil {
		l.Until = nil
	}
	return l
}

// SameVerdict reports whether two verdicts are equal apart from the digest of the policies. Either may be nil.
func SameVerdict(a, b *v1alpha1.TemplateVerdict) bool {
	if a == nil || b == nil {
		return a == b
	}
	other := *b
	other.PolicyDigest = a.PolicyDigest
	return equality.Semantic.DeepEqual(*a, other)
}

// Numbers returns the numbers that the next decision records as the previous ones; nil without a decision.
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

// History is the stored list of entries, the newest first. The zero value is an empty history.
type History struct {
	newest *Entry
	lines  []string // one entry each, in JSON
}

// Add adds an entry, or merges it with the newest one if only numbers differ. It drops old entries that exceed the limits.
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

// takes reports whether a later decision can be merged with this entry.
func (e *Entry) takes(later *Entry) bool {
	return e != nil && e.Decision != nil && later.Decision != nil && later.Template == nil &&
		later.Time.Sub(e.start()) < Together && sameRules(e.Decision, later.Decision)
}

// Load appends the entries of a stored text to the existing ones. It returns an error and appends nothing if the text is not
// a history.
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

// String returns the text to store: a JSON list with one entry per line.
func (h *History) String() string { return "[\n" + strings.Join(h.lines, ",\n") + "\n]" }

// ParseHistory reads a stored text. An empty text is an empty history. A text that is longer than Corral stores is an
// error: anyone who can write the ConfigMap could otherwise store a megabyte that decodes to a few hundred thousand
// entries.
func ParseHistory(text string) ([]Entry, error) {
	if len(text) > MaxHistoryBytes {
		return nil, fmt.Errorf("reading the history: it has %d bytes, more than %d", len(text), MaxHistoryBytes)
	}
	var entries []Entry
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	return entries, nil
}

// At returns the entry that was in force at a time. The entries must be ordered newest first. It returns false if all
// entries are later.
func At(entries []Entry, at time.Time) (Entry, bool) {
	for _, e := range entries {
		if !e.start().After(at) {
			return e, true
		}
	}
	return Entry{}, false
}

// encode writes an entry with a bounded length: it cuts long texts, and drops parts if it is still too long.
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
	text, _ := json.Marshal(e) // all its values can be encoded
	return string(text)
}

// cut shortens all texts, because users and other programs wrote most of them.
func (e *Entry) cut() {
	wording.Texts(e, func(text reflect.Value, _ reflect.StructField) {
		text.SetString(wording.Truncate(text.String(), maxText))
	})
}
