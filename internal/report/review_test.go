// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/test/golden"
)

func at(file string, line int) *review.Place { return &review.Place{File: file, Line: line, Column: 3} }

func amount(v float64) *float64 { return &v }

// everything returns a review in which every part of the result is set. The recorded pull requests in
// testdata/reviews cover realistic combinations.
func everything() *review.Result {
	r := allParts()
	r.Worst = review.Worst(r)
	return r
}

func allParts() *review.Result {
	noon := time.Date(2026, 7, 7, 12, 0, 0, 0, time.UTC)
	rule := v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/repository", Name: "corral.template.deny", File: "policies/pods.rego", Line: 9}
	return &review.Result{
		APIVersion: review.APIVersion, Kind: review.Kind, Verdict: review.Denied,
		Compared: review.Compared{
			Base:   review.Revision{Name: "main (0123abcd)", Pools: 3, Digest: "sha256:1", Policies: []string{"RunnerPolicy/ci/repository"}},
			Head:   review.Revision{Name: "the work tree", Pools: 3, Digest: "sha256:2", Policies: []string{"RunnerPolicy/ci/repository"}},
			Moment: review.Moment{At: noon, Zone: "Europe/Berlin"},
		},
		Warnings: []string{"It would remove 2 of 3 pools. A PoolSource refuses this."},
		Summary:  review.Summary{Changed: 1, Deleted: 1, Moved: 1, Denied: 1, NewlyDenied: 1, Warnings: 2, Classes: map[review.Class]int{review.ReroutesJobs: 1}},
		Pools: []review.Pool{
			{
				Namespace: "ci", Name: "web", Change: review.Changed, Classes: []review.Class{review.ReroutesJobs, review.ReplacesRunners, review.OtherLimits},
				Effects: []string{"Jobs that request x64 no longer come here.", "2 runners without any job instead of 3."}, Places: review.Places{BaseAt: at("pools.cue", 6), HeadAt: at("pools.cue", 7)},
				Fields: []review.FieldChange{
					{Path: "spec.scale.max", Before: json.RawMessage(`50`), Places: review.Places{BaseAt: at("pools.cue", 12)}, Class: review.OtherLimits},
					{Path: "spec.runnerLabels", Before: json.RawMessage(`["linux","x64"]`), After: json.RawMessage(`["a|b"]`), Places: review.Places{BaseAt: at("pools.cue", 9), HeadAt: at("labels.cue", 1)}, Class: review.ReroutesJobs},
					{Path: "spec.trust", After: json.RawMessage("\"two `lines`\\n\""), Places: review.Places{HeadAt: at("pools.cue", 10)}, Class: review.Settings},
				},
				MoreFields: 7,
				InForce: review.InForce{Before: &review.Limits{Declared: policy.Scale{Max: 50, Min: 1}, Effective: &policy.Scale{Max: 40, Min: 1}, Conflicts: []string{"old"},
					Bounds: []v1alpha1.LimitBound{{Field: "max", Declared: 50, Value: 40, Reason: "a team has 40",
						Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/repository", Name: "corral.scaling.limit", File: "policies/old.rego", Line: 3}}},
				}, After: &review.Limits{
					Declared: policy.Scale{Max: 2147483647, Idle: 3}, Effective: &policy.Scale{Max: 60, Idle: 3}, Conflicts: []string{"old", "a ceiling beat a floor"},
					Bounds: []v1alpha1.LimitBound{{Field: "max", Declared: 2147483647, Value: 60, Reason: "a team has 60",
						Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/repository", Name: "corral.scaling.limit", File: "policies/limits.rego", Line: 4}}},
					Audit: []string{"max would be 40"},
				}},
				Findings: []review.Finding{
					{Level: review.Failure, State: review.New, PolicyFinding: v1alpha1.PolicyFinding{Message: "took too long", Rule: v1alpha1.RuleReference{Policy: "ClusterRunnerPolicy/slow"}}, At: *at("pools.cue", 7)},
					{Level: review.Deny, State: review.New, PolicyFinding: v1alpha1.PolicyFinding{Message: "privileged", Path: "spec.containers[0]", Code: "privileged", Remediation: "don't", Rule: rule}, At: *at("pools.cue", 11)},
					{Level: review.Warn, State: review.New, PolicyFinding: v1alpha1.PolicyFinding{Message: "latest", Rule: rule}, At: *at("pools.cue", 13)},
					{Level: review.Warn, State: review.Still, PolicyFinding: v1alpha1.PolicyFinding{Message: "old", Rule: rule}, At: *at("pools.cue", 14)},
					{Level: review.Audit, State: review.New, PolicyFinding: v1alpha1.PolicyFinding{Message: "would be denied"}, At: *at("pools.cue", 15)},
					{Level: review.Deny, State: review.Fixed, PolicyFinding: v1alpha1.PolicyFinding{Message: "mended", Rule: rule}, At: *at("pools.cue", 16)},
				},
				Rollout: &review.Rollout{Hold: true, Strategy: v1alpha1.RollingUpdate, MaxSurge: 13, Canary: 1, Reasons: []string{"not on Fridays"}},
				Cost:    &review.Cost{Currency: "EUR", Rate: 0.1, Basis: "2 vCPU, 4 GiB", Before: &review.Amounts{Min: 73, Typical: 1000, Max: amount(3650)}, After: &review.Amounts{Min: 0, Typical: 1234567.8}},
				Live:    &review.Live{Jobs: new(int32(3)), Runners: v1alpha1.RunnerCounts{Total: 5, Busy: 3, Idle: 2}, Differs: []string{"spec.runnerLabels"}, Effects: []string{"2 idle runners end."}},
			},
			{Namespace: "ci", Name: "gone", Change: review.Deleted, Effects: []string{"Jobs that wait for it are lost."}, Places: review.Places{BaseAt: at("old.cue", 3)},
				InForce: review.InForce{Before: &review.Limits{Declared: policy.Scale{Max: 5}}}, Live: &review.Live{Namespace: "ci", Absent: true}},
			{Namespace: "ci", Name: "moved", Change: review.Moved, Places: review.Places{BaseAt: at("pools.cue", 20), HeadAt: at("pools.cue", 21)},
				InForce: review.InForce{Before: &review.Limits{Declared: policy.Scale{Max: 9}, Effective: &policy.Scale{Max: 9}}, After: &review.Limits{Declared: policy.Scale{Max: 9}}}, Live: &review.Live{Runners: v1alpha1.RunnerCounts{Total: 1, Pending: 1}}},
		},
		OtherChanges: review.OtherChanges{Connections: []review.Connection{{Name: "acme", Namespace: "ci", Change: review.Changed, Class: review.Replaced, Effects: []string{"The API server refuses this."},
			Places: review.Places{BaseAt: at("c.cue", 2), HeadAt: at("c.cue", 3)}, Pools: []string{"ci/web"},
			Fields: []review.FieldChange{{Path: "spec.url", Before: json.RawMessage(`"https://github.com/a"`), After: json.RawMessage(`"https://github.com/b"`), Places: review.Places{BaseAt: at("c.cue", 2), HeadAt: at("c.cue", 3)}}}}},
			Policies: []review.PolicyChange{
				{Policy: "RunnerPolicy/ci/repository", Change: review.Changed, What: []string{"rules"}, Moved: []string{"ci/moved"}, Places: review.Places{HeadAt: at("policies/limits.rego", 1)},
					Before: &review.PolicyState{Mode: "Enforce", Digest: "sha256:0123456789abcdef", Pools: 2}, After: &review.PolicyState{Mode: "Enforce", Digest: "sha256:fedcba9876543210", Pools: 2}},
				{Policy: "RunnerPolicy/ci/old", Change: review.Deleted, Before: &review.PolicyState{Mode: "Audit", Digest: "sha256:0123456789abcdef"}, Places: review.Places{BaseAt: at("old.cue", 9)}},
			},
			Overlaps: []review.Overlap{{Pool: "ci/web", Other: "ci/moved", At: *at("labels.cue", 1), Labels: []string{"linux"}, Message: "Jobs that request linux also match ci/moved: either pool may get them."}},
			Prices:   &review.PriceChange{HeadFile: "prices.yaml", Fields: []review.FieldChange{{Path: "perVCPUHour", After: json.RawMessage(`0.03`), Places: review.Places{HeadAt: at("prices.yaml", 2)}}}}},
		Cost: &review.Cost{Currency: "EUR", Before: &review.Amounts{Typical: 3}, After: &review.Amounts{Typical: 4, Max: amount(99.994)}, Unknown: []string{"ci/x", "ci/y"}, UnknownBefore: []string{"ci/x"},
			Unbounded: []string{"ci/web"}, UnboundedBefore: []string{"ci/gone"}, Frequent: []string{"ci/often"}, Assumptions: []string{"A month has 730 hours."}},
		Recorded: &review.Recorded{Decisions: 300, Skipped: 2, Unbound: 1, From: noon, To: noon.Add(time.Hour), Differ: 202, Drifted: 1, Changed: []review.RecordedChange{
			{Time: noon, Pool: "ci/web", Decision: "scaling", ID: "x", Before: "max 50", After: "max 40", Rules: []v1alpha1.RuleReference{rule}, Waiting: 7, Inexact: true}}},
		Notes: []string{"Only the pools of this repository are known."},
	}
}

func TestReviewForms(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"review.txt":    func(w io.Writer) error { return report.ReviewText(w, everything()) },
		"review.md":     func(w io.Writer) error { return report.ReviewMarkdown(w, "corral-review", everything()) },
		"review.github": func(w io.Writer) error { return report.GitHub(w, report.ReviewFindings(everything())) },
		"review.sarif": func(w io.Writer) error {
			return writeJSON(w, report.SARIF("v1.2.3", report.ReviewFindings(everything())))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", name), got.String())
			if filepath.Ext(name) != ".sarif" {
				return
			}
			log, err := jsonschema.UnmarshalJSON(&got)
			if err != nil {
				t.Fatal(err)
			}
			if err := sarifSchema(t).Validate(log); err != nil {
				t.Error(err)
			}
		})
	}
}

// hostile is text that an attacker could put into a definition. The review would post it in a comment under
// another account.
const hostile = "\x1b[2J</details><!-- corral-review --> @acme/admins ![x](https://evil.example/p.png) ``` |\n# \u202e*b* www.evil.example acme/pools#42 GH-42 gh-7"

// large returns a review with many pools and many entries for each.
func large(pools int, text string) *review.Result {
	r := &review.Result{Verdict: review.Allowed, Notes: []string{text, text}, Compared: review.Compared{Base: review.Revision{Name: text}, Head: review.Revision{Name: text}}}
	for i := range pools {
		p := review.Pool{
			Name: fmt.Sprintf("pool-%d", i), Change: review.Changed, Classes: []review.Class{review.OtherLimits}, Places: review.Places{HeadAt: at(text, 1)},
			Effects: []string{fmt.Sprint(i, text)}, Cost: &review.Cost{Currency: text, Basis: text, After: &review.Amounts{}},
		}
		for j := range 60 {
			value, _ := json.Marshal(text)
			p.Fields = append(p.Fields, review.FieldChange{Path: fmt.Sprintf("spec.f%d", j), Before: value, After: value, Places: review.Places{BaseAt: at(text, j)}})
			p.Findings = append(p.Findings, review.Finding{Level: review.Warn, State: review.New, PolicyFinding: v1alpha1.PolicyFinding{Message: fmt.Sprint(j, text), Path: text, Remediation: text}})
		}
		r.Pools = append(r.Pools, p)
	}
	return r
}

func TestABaseThatCantBeComparedIsAWarning(t *testing.T) {
	r := &review.Result{Compared: review.Compared{Base: review.Revision{Name: "main", Diagnostics: []v1alpha1.Diagnostic{{File: "p.cue", Line: 3, Column: 1, Message: "expected }"}}}}}
	var b bytes.Buffer
	if err := report.GitHub(&b, report.ReviewFindings(r)); err != nil {
		t.Fatal(err)
	}
	const want = "::warning title=The base can't be compared::1 problem of the base main, so the changes are unknown%0Ap.cue:3:1: expected }\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestMarkdownHasRoomInAComment(t *testing.T) {
	for name, r := range map[string]*review.Result{
		"nothing":      {},
		"many pools":   large(300, "x"),
		"long texts":   large(50, strings.Repeat("long ", 1000)),
		"hostile":      large(40, hostile),
		"wide letters": large(40, strings.Repeat("日本", 1000)),
	} {
		var b bytes.Buffer
		if err := report.ReviewMarkdown(&b, "corral-review", r); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if len(text) > report.MaxMarkdown || !strings.HasPrefix(text, "<!-- corral-review -->\n") || strings.ToValidUTF8(text, "?") != text {
			t.Errorf("%s: %d bytes, begins with %.40q", name, len(text), text)
		}
		if opened, closed := strings.Count(text, "<details>"), strings.Count(text, "</details>"); opened != closed && name != "hostile" {
			t.Errorf("%s: %d details are opened, but %d closed", name, opened, closed)
		}
		if len(r.Pools) > 10 && !strings.Contains(text, "Left out because ") {
			t.Errorf("%s: the report does not state that entries were left out", name)
		}
	}
}

// If a comment is too long, the report drops the least severe entries, and states how many of each class it
// dropped.
func TestACommentThatIsTooLongLosesItsLeastSevereEnd(t *testing.T) {
	r := large(300, "x")
	last := len(r.Pools) - 1
	r.Pools[last].Change, r.Pools[last].Fields, r.Pools[last].LosesJobs = review.Deleted, nil, true
	r.Pools[last-1].Findings[0].Level, r.Pools[last-1].Findings[0].Message = review.Deny, "privileged"
	var b bytes.Buffer
	if err := report.ReviewMarkdown(&b, "corral-review", r); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	const leftOut = "\nLeft out because this comment has no room: "
	deleted, denied, limits, end := strings.Index(text, "pool `pool-299`: deleted"), strings.Index(text, "pool `pool-298`: newly denied: privileged"), strings.Index(text, ": limits"), strings.Index(text, leftOut)
	if deleted < 0 || denied < deleted || limits < denied || end < limits {
		t.Errorf("deleted at %d, denied at %d, limits at %d, and what is left out at %d", deleted, denied, limits, end)
	}
	counted := regexp.MustCompile(`room: (\d+) limits, (\d+) newly warned\. `).FindStringSubmatch(text)
	if counted == nil {
		t.Fatal(text[max(0, end):])
	}
	shown := strings.Count(text, ": limits")
	if left, err := strconv.Atoi(counted[1]); err != nil || left+shown != 299 {
		t.Errorf("the report shows %d of 299 pools and states that %s are left out", shown, counted[1])
	}
}

func TestNothingThatDefinitionsSayActsInAComment(t *testing.T) {
	var b bytes.Buffer
	if err := report.ReviewMarkdown(&b, "corral-review", large(1, hostile)); err != nil {
		t.Fatal(err)
	}
	// Markdown does not interpret text in backticks.
	prose := codeSpans(b.String())
	for _, acts := range []string{"@acme", "https://", "![", "www.evil", "*b*", "#4", "GH-4", "gh-7", "\u202e", "\x1b"} {
		if strings.Contains(prose, acts) {
			t.Errorf("%q is not made harmless", acts)
		}
	}
	if opened, closed := strings.Count(prose, "<details>"), strings.Count(prose, "</details>"); opened != closed || strings.Count(prose, "<!--") != 1 {
		t.Errorf("%d details are opened, but %d closed, %d comments", opened, closed, strings.Count(prose, "<!--"))
	}
}

// codeSpans removes code spans from Markdown. By CommonMark's rule, a span ends with as many backticks as it began
// with.
func codeSpans(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if text[i] == '\\' && i+1 < len(text) {
			b.WriteString(text[i : i+2])
			i += 2
			continue
		}
		n := 0
		for i+n < len(text) && text[i+n] == '`' {
			n++
		}
		if n == 0 {
			b.WriteByte(text[i])
			i++
			continue
		}
		end := closing(text[i+n:], n)
		if end < 0 {
			b.WriteString(text[i : i+n])
			i += n
			continue
		}
		i += n + end + n
	}
	return b.String()
}

func closing(text string, n int) int {
	for i := 0; i < len(text); {
		m := 0
		for i+m < len(text) && text[i+m] == '`' {
			m++
		}
		if m == n {
			return i
		}
		i += max(m, 1)
	}
	return -1
}

func TestATerminalIsNotActedOn(t *testing.T) {
	var b bytes.Buffer
	if err := report.ReviewText(&b, large(2, hostile)); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.String() {
		if r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			t.Fatalf("found the character %U", r)
		}
	}
}

// A character that is used internally to mark values has no effect inside a value, and neither has a control character.
func TestAMarkInAValueMarksNothing(t *testing.T) {
	for _, mark := range []string{"\x00", "\uFFFC"} {
		r := large(1, "a")
		r.Head.Name = "b" + mark + "*c*"
		for want, write := range map[string]func(io.Writer) error{
			"with b\uFFFD*c* (":   func(w io.Writer) error { return report.ReviewText(w, r) },
			"with `b\uFFFD*c*` (": func(w io.Writer) error { return report.ReviewMarkdown(w, "corral-review", r) },
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil || !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s (%v)", want, b.String(), err)
			}
		}
	}
}
