// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

// entryAt returns an entry that was recorded some seconds after noon.
func entryAt(seconds int, desired, before int32, change ...func(*Entry)) Entry {
	at := metav1.Time{Time: noon.Add(time.Duration(seconds) * time.Second)}
	e := Entry{Time: at, Jobs: &desired, Decision: &v1alpha1.Decision{
		Time: at, Desired: desired, Announced: 10, Reason: fmt.Sprintf("%d jobs", desired),
		Limits: &v1alpha1.DecidedLimits{Max: new(int32(10))}, Before: &v1alpha1.DecidedNumbers{Desired: before, Announced: 10, Max: 10},
	}}
	for _, c := range change {
		c(&e)
	}
	return e
}

// brief formats each entry of a history as one line.
func brief(t *testing.T, h *History) []string {
	t.Helper()
	entries, err := ParseHistory(h.String())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		line := fmt.Sprintf("+%.0fs", e.Time.Sub(noon).Seconds())
		if e.Since != nil {
			line = fmt.Sprintf("+%.0fs to %s", e.Since.Sub(noon).Seconds(), line)
		}
		if d := e.Decision; d != nil {
			line += fmt.Sprintf(": %d → %d", d.Before.Desired, d.Desired)
		}
		if e.Template != nil {
			line += ", template judged"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestEntriesOfAMinuteThatDifferInNumbersAreOne(t *testing.T) {
	maxIs := func(n int32) func(*Entry) { return func(e *Entry) { e.Decision.Limits.Max = &n } }
	judged := func(e *Entry) { e.Template = &v1alpha1.TemplateVerdict{Revision: "linux-1"} }
	alone := func(e *Entry) { e.Decision = nil }
	tests := map[string]struct {
		add  []Entry
		want []string
	}{
		"within a minute": {
			add:  []Entry{entryAt(0, 1, 0), entryAt(20, 4, 1), entryAt(59, 2, 4)},
			want: []string{"+0s to +59s: 0 → 2"},
		},
		"a minute from the first, not from the last": {
			add:  []Entry{entryAt(0, 1, 0), entryAt(40, 4, 1), entryAt(60, 2, 4)},
			want: []string{"+60s: 4 → 2", "+0s to +40s: 0 → 4"},
		},
		"other limits": {
			add:  []Entry{entryAt(0, 1, 0), entryAt(20, 4, 1, maxIs(4))},
			want: []string{"+20s: 1 → 4", "+0s: 0 → 1"},
		},
		"other policies": {
			add:  []Entry{entryAt(0, 1, 0), entryAt(20, 4, 1, func(e *Entry) { e.Decision.PolicyDigest = "sha256:2" })},
			want: []string{"+20s: 1 → 4", "+0s: 0 → 1"},
		},
		"a verdict is news, and what follows it belongs to it": {
			add:  []Entry{entryAt(0, 1, 0), entryAt(20, 1, 1, judged), entryAt(30, 3, 1)},
			want: []string{"+20s to +30s: 1 → 3, template judged", "+0s: 0 → 1"},
		},
		"a verdict before any decision": {
			add:  []Entry{entryAt(0, 0, 0, judged, alone), entryAt(10, 1, 0)},
			want: []string{"+10s: 0 → 1", "+0s, template judged"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := &History{}
			for _, e := range tc.add {
				h.Add(e)
			}
			if diff := cmp.Diff(tc.want, brief(t, h)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAHistoryIsBounded(t *testing.T) {
	long := strings.Repeat("日本 \x00", 800)
	tests := map[string]struct {
		change func(*Entry)
		least  int // minimum number of entries that remain
	}{
		"short entries": {change: func(*Entry) {}, least: 150},
		"many findings": {
			change: func(e *Entry) {
				v := &v1alpha1.TemplateVerdict{Revision: "linux-1"}
				for range 16 {
					v.Denials = append(v.Denials, v1alpha1.PolicyFinding{Message: long, Remediation: long, Rule: v1alpha1.RuleReference{File: long}})
				}
				e.Template = v
			},
			least: 3,
		},
		"many bounds": {
			change: func(e *Entry) {
				e.Decision.Reason = long
				for range 16 {
					e.Decision.Limits.Bounds = append(e.Decision.Limits.Bounds, v1alpha1.LimitBound{Reason: long})
					e.Decision.Limits.Conflicts = append(e.Decision.Limits.Conflicts, long)
				}
			},
			least: 3,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := &History{}
			for i := range 300 {
				h.Add(entryAt(100*i, int32(i), int32(i-1), tc.change))
				if n := len(h.String()); n > MaxHistoryBytes {
					t.Fatalf("%d bytes after %d entries", n, i+1)
				}
			}
			lines := brief(t, h)
			if len(lines) > MaxEntries || len(lines) < tc.least {
				t.Errorf("%d entries", len(lines))
			}
			if want := "+29900s: 298 → 299"; !strings.HasPrefix(lines[0], want) {
				t.Errorf("the newest is %q, want %q", lines[0], want)
			}
		})
	}
}

func TestWhatIsStoredIsReadAgain(t *testing.T) {
	stored := &History{}
	stored.Add(entryAt(0, 1, 0))
	stored.Add(entryAt(100, 2, 1))
	h := &History{}
	h.Add(entryAt(200, 3, 2))
	if err := h.Load(stored.String()); err != nil {
		t.Fatal(err)
	}
	h.Add(entryAt(210, 4, 3))
	if diff := cmp.Diff([]string{"+200s to +210s: 2 → 4", "+100s: 1 → 2", "+0s: 0 → 1"}, brief(t, h)); diff != "" {
		t.Error(diff)
	}
	if err := h.Load("{"); err == nil || len(brief(t, h)) != 3 {
		t.Errorf("what is no history: %v", err)
	}
	empty := &History{}
	if err := empty.Load(stored.String()); err != nil {
		t.Fatal(err)
	}
	empty.Add(entryAt(130, 5, 2))
	if diff := cmp.Diff([]string{"+100s to +130s: 1 → 5", "+0s: 0 → 1"}, brief(t, empty)); diff != "" {
		t.Error(diff)
	}
}

// The ConfigMap belongs to a tenant, and may have a megabyte of entries of three bytes.
func TestAHistoryThatIsTooLongIsNotDecoded(t *testing.T) {
	text := "[" + strings.Repeat("{},", 300_000) + "{}]"
	if allocated := testing.AllocsPerRun(1, func() {
		if err := (&History{}).Load(text); err == nil {
			t.Error("it is taken")
		}
	}); allocated > 100 {
		t.Errorf("%g allocations", allocated)
	}
}

func TestAnEntryIsFoundByItsTime(t *testing.T) {
	h := &History{}
	for _, e := range []Entry{entryAt(0, 1, 0), entryAt(30, 2, 1), entryAt(100, 3, 2)} {
		h.Add(e)
	}
	entries, err := ParseHistory(h.String())
	if err != nil {
		t.Fatal(err)
	}
	for seconds, want := range map[int]int32{0: 2, 15: 2, 99: 2, 100: 3, 5000: 3} {
		if e, ok := At(entries, noon.Add(time.Duration(seconds)*time.Second)); !ok || e.Decision.Desired != want {
			t.Errorf("at +%ds: %v %+v, want %d", seconds, ok, e.Decision, want)
		}
	}
	if _, ok := At(entries, noon.Add(-time.Second)); ok {
		t.Error("found an entry for a time before the history")
	}
}

func TestNamesOfHistories(t *testing.T) {
	seen := map[string]bool{}
	for _, pool := range []string{"linux", strings.Repeat("x", 243), strings.Repeat("x", 244), strings.Repeat("x", 253), strings.Repeat("a.", 126) + "b"} {
		name := HistoryName(pool)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || seen[name] || !strings.HasSuffix(name, "-decisions") {
			t.Errorf("pool %s: %s: %v", pool, name, problems)
		}
		seen[name] = true
	}
	if !seen["linux-decisions"] {
		t.Error("a short name was shortened")
	}
}
