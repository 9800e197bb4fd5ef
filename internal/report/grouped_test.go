// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/review"
)

func TestTheSameOfManySubjectsIsToldOnce(t *testing.T) {
	denied := func(pool string, line int, path string) Finding {
		return Finding{
			Level: Error, Rule: "images", Subject: "pool " + pool, Message: "not allowed", Path: "pools." + pool + ".spec." + path,
			Place: Place{File: "pools.cue", Line: line},
		}
	}
	for name, tc := range map[string]struct {
		findings []Finding
		want     []string
	}{
		"in one place":          {[]Finding{denied("b", 7, "x"), denied("a", 7, "x")}, []string{"pool b:7 not allowed (2 pools: a, b)"}},
		"of few, in their own":  {[]Finding{denied("a", 1, "x"), denied("b", 2, "x")}, []string{"pool a:1 not allowed", "pool b:2 not allowed"}},
		"of many, in their own": {[]Finding{denied("a", 1, "x"), denied("b", 2, "x"), denied("c", 3, "x"), denied("d", 4, "x")}, []string{"pool a:1 not allowed (4 pools: a, b, c, and 1 more)"}},
		"of other fields":       {[]Finding{denied("a", 7, "x"), denied("b", 7, "y")}, []string{"pool a:7 not allowed", "pool b:7 not allowed"}},
		"of nobody":             {[]Finding{{Message: "m"}, {Message: "m"}}, []string{":0 m", ":0 m"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range Grouped(tc.findings) {
				got = append(got, fmt.Sprintf("%s:%d %s", f.Subject, f.Place.Line, f.Message))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A finding that covers several pools keeps its fingerprint if pools are added. Otherwise, code scanning would
// close an alert and open another one.
func TestWhatIsToldOfSeveralIsKnownAgainWhoeverJoins(t *testing.T) {
	joined := func(names ...string) (fingerprints []string) {
		r := &review.Result{Verdict: review.Denied}
		var vetted []Finding
		for i, name := range names {
			file, effects := string(name[0])+".cue", []string{"Jobs that wait for it are lost."}
			denial := review.Finding{Level: review.Deny, State: review.New, At: review.Place{File: file, Line: i}}
			denial.Message, denial.Path, denial.Rule.Name = "no", "spec.x", "r"
			r.Pools = append(r.Pools, review.Pool{Name: name, Change: review.Deleted, Effects: effects, Places: review.Places{BaseAt: &review.Place{File: file, Line: i}}, Findings: []review.Finding{denial}})
			r.Overlaps = append(r.Overlaps, review.Overlap{Pool: name, Message: "Jobs are for all."})
			vetted = append(vetted, Finding{Rule: "r", Subject: "pool " + name, Message: "no", Path: "pools." + name + ".spec.x", Place: Place{File: "p.cue"}})
		}
		r.Warnings = []string{fmt.Sprintf("A policy is gone: %d pools are free of it.", len(names))}
		for _, f := range slices.Concat(ReviewFindings(r), Grouped(vetted)) {
			fingerprints = append(fingerprints, f.Rule+" "+fingerprint(f))
		}
		return fingerprints
	}
	few := joined("b", "c")
	if diff := cmp.Diff(few, joined("a", "b", "c", "d", "e")); diff != "" || len(few) != 5 || len(slices.Compact(few)) != 5 {
		t.Errorf("of %d: %s", len(few), diff)
	}
	if diff := cmp.Diff(few[:4], joined("b")[:4]); diff != "" {
		t.Errorf("of one: %s", diff)
	}
}

// The report about costs first explains why pools are missing, and names only a few of them.
func TestCostsNameFewOfThePoolsThatTheyLeaveOut(t *testing.T) {
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("p%02d", i))
		}
		return all
	}
	both := &review.Amounts{Max: new(float64)}
	c := &review.Cost{Currency: "EUR", Before: both, After: both, Unknown: names(30), UnknownBefore: names(30), Unbounded: names(5), Frequent: names(1)}
	const want = "min 0.00, typical 0.00, max 0.00 EUR; left out, because their price is unknown: p00, p01, p02, p03, p04 and 25 more" +
		"; left out of max after, because they have no max: p00, p01, p02, p03, p04; left out, because their limits change too often: p00"
	if diff := cmp.Diff(want, text(words.Phrase("cost", c))); diff != "" {
		t.Error(diff)
	}
}

func TestPoolsTogetherCostNothingKnownIfOneDoesnt(t *testing.T) {
	costs := func(month float64) *review.Cost {
		return &review.Cost{Currency: "EUR", Before: &review.Amounts{}, After: &review.Amounts{Typical: month}}
	}
	for want, of := range map[string][]*review.Cost{"typical 0.00 → 3.00": {costs(1), costs(2)}, "": {costs(1), nil, costs(2)}} {
		r := &review.Result{}
		for i, c := range of {
			r.Pools = append(r.Pools, review.Pool{Name: fmt.Sprint(i), Change: review.Deleted, Cost: c})
		}
		blocks := renderReview(r).blocks
		if got := strings.Join(blocks[0].body(), "\n"); len(blocks) != 1 || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%d blocks of %d pools, with %q instead of %q", len(blocks), len(of), got, want)
		}
	}
}

// The number of changed fields includes the fields that the result does not list. Pools with such fields are not merged,
// because these fields may differ.
func TestFieldsThatAreNotListedAreCounted(t *testing.T) {
	r := &review.Result{Verdict: review.Allowed}
	for _, name := range []string{"a", "b"} {
		p := review.Pool{Name: name, Change: review.Changed, Classes: []review.Class{review.Settings}, MoreFields: 190}
		for i := range 60 {
			p.Fields = append(p.Fields, review.FieldChange{Path: fmt.Sprintf("metadata.annotations.a%d", i), Class: review.Settings})
		}
		r.Pools = append(r.Pools, p)
	}
	for name, tt := range map[string]struct {
		write func(io.Writer) error
		want  []string
	}{
		"text":     {func(w io.Writer) error { return ReviewText(w, r) }, []string{"pool a: settings · 250 fields\n", "a59: – → –  ()\n  and 190 more fields\n"}},
		"markdown": {func(w io.Writer) error { return ReviewMarkdown(w, "m", r) }, []string{"<summary>250 fields</summary>", "- and 210 more fields\n"}},
	} {
		var b strings.Builder
		err := tt.write(&b)
		for _, want := range tt.want {
			if n := strings.Count(strings.ReplaceAll(b.String(), "pool b", "pool a"), want); n != 2 || err != nil {
				t.Errorf("%s: %q occurs %d times in\n%.300s (%v)", name, want, n, b.String(), err)
			}
		}
	}
}

// Code scanning identifies each policy by its name.
func TestPoliciesThatChangeAlikeStayApart(t *testing.T) {
	r := &review.Result{}
	for _, name := range []string{"RunnerPolicy/ci/a", "RunnerPolicy/ci/b"} {
		r.Policies = append(r.Policies, review.PolicyChange{Policy: name, Change: review.Changed, What: []string{"rules"}})
	}
	if blocks := renderReview(r).blocks; len(blocks) != 2 {
		t.Errorf("got %d blocks", len(blocks))
	}
}

// Each place with a mistake is a finding of its own, also if the mistakes have the same text.
func TestProblemsOfTheHeadAreReportedAtEachPlace(t *testing.T) {
	problem := func(file string, line int32, path string) v1alpha1.Diagnostic {
		return v1alpha1.Diagnostic{File: file, Line: line, Column: 3, Path: path, Message: "must not be negative"}
	}
	r := &review.Result{Verdict: review.Broken}
	r.Head.Diagnostics = []v1alpha1.Diagnostic{
		problem("a.cue", 3, "pools.a.spec.scale.max"), problem("a.cue", 9, "pools.b.spec.scale.max"), problem("b.cue", 3, "pools.a.spec.scale.max"),
		problem("c.cue", 1, ""), problem("c.cue", 2, ""), problem("c.cue", 2, ""),
	}
	var places, identities []string
	log := SARIF("", ReviewFindings(r)).(sarifLog)
	for _, result := range log.Runs[0].Results {
		at := result.Locations[0].PhysicalLocation
		places = append(places, fmt.Sprintf("%s:%d", at.ArtifactLocation.URI, at.Region.StartLine))
		identities = append(identities, result.PartialFingerprints[fingerprintKey])
	}
	if diff := cmp.Diff([]string{"a.cue:3", "a.cue:9", "b.cue:3", "c.cue:1", "c.cue:2"}, places); diff != "" {
		t.Error(diff)
	}
	slices.Sort(identities)
	if n := len(slices.Compact(identities)); n != len(places) {
		t.Errorf("%d results have %d fingerprints", len(places), n)
	}
	var text strings.Builder
	if err := ReviewText(&text, r); err != nil {
		t.Fatal(err)
	}
	for _, at := range places {
		if !strings.Contains(text.String(), at) {
			t.Errorf("the text does not name %s", at)
		}
	}
}
