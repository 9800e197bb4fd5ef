// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/policy"
)

// logLine returns a line of a decision log, with the number of jobs and the decision some minutes after sunday.
func logLine(t *testing.T, minute int, jobs int32, result string) string {
	t.Helper()
	in := policy.ScalingInput{
		Pool: policy.Pool{Namespace: "ci", Name: "linux", Scale: policy.Scale{Max: 50, Idle: 2}}, Jobs: jobs, Now: sunday.UnixNano(), Zone: "UTC",
	}
	return encodeLine(t, minute, "scaling", in, result)
}

func encodeLine(t *testing.T, minute int, decision string, input any, result string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"level": "info", "logger": "decision", "msg": "Decision", "decision_id": fmt.Sprint("id", minute), "path": "corral/" + decision,
		"input": input, "result": json.RawMessage(result), "erased": []string{}, "masked": []string{},
		"timestamp": sunday.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339Nano),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const as50 = `{"outcome": "Unchanged", "limits": {"min": 0, "max": 50, "idle": 2}}`

func recordsOf(t *testing.T, lines ...string) ([]Record, int) {
	t.Helper()
	records, skipped, err := ReadRecords(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return records, skipped
}

func TestRecordedDecisionsAreJudgedAgain(t *testing.T) {
	pod := `{"pool": {"namespace": "ci", "name": "linux"}, "pod": {"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}}}`
	update := policy.UpdateInput{Pool: policy.Pool{Namespace: "ci", Name: "linux"}, Change: policy.Change{From: "a", To: "b", Strategy: "RollingUpdate", MaxSurge: 3}}
	const hold = "package corral.update\n\nimport rego.v1\n\nrollout contains {\"hold\": true, \"reason\": \"freeze\"}\n"
	tests := map[string]struct {
		base, head files
		lines      []string
		want       []string
	}{
		"a lower ceiling": {
			files{"r.rego": ceiling}, files{"r.rego": change(t, ceiling, "60", "20")},
			[]string{logLine(t, 2, 30, as50), logLine(t, 1, 5, as50), `{"msg": "something else"}`, "not JSON"},
			[]string{
				"2 judged, 0 skipped, 2 differ, 0 drifted, 18:01 to 18:02",
				"18:01 ci/linux scaling id1: max 50, min 0, idle 2 -> max 20, min 0, idle 2 by r.rego:5, 0 wait",
				"18:02 ci/linux scaling id2: max 50, min 0, idle 2 -> max 20, min 0, idle 2 by r.rego:5, 10 wait",
			},
		},
		"a policy of another source took part": {
			files{"r.rego": ceiling}, files{"r.rego": ceiling}, []string{logLine(t, 1, 5, `{"limits": {"min": 0, "max": 7, "idle": 2}}`)},
			[]string{"1 judged, 0 skipped, 0 differ, 1 drifted, 18:01 to 18:01"},
		},
		"a pod that is denied now": {
			files{}, files{"d.rego": denyOld}, []string{encodeLine(t, 1, "template", json.RawMessage(pod), `{"outcome": "Allowed"}`)},
			[]string{
				"1 judged, 0 skipped, 1 differ, 0 drifted, 18:01 to 18:01",
				"18:01 ci/linux template id1: allowed -> denied: image is old by d.rego:5, 0 wait",
			},
		},
		"an update that is held now": {
			files{"r.rego": ceiling}, files{"r.rego": ceiling, "u.rego": hold},
			[]string{encodeLine(t, 1, "update", update, `{"outcome": "Unchanged"}`)},
			[]string{
				"1 judged, 0 skipped, 1 differ, 0 drifted, 18:01 to 18:01",
				"18:01 ci/linux update id1: RollingUpdate, maxSurge 3, maxUnavailable 0, canary 0 -> hold, RollingUpdate, maxSurge 3, maxUnavailable 0, canary 0 by u.rego:5, 0 wait",
			},
		},
		"no policy, and what isn't understood": {
			files{}, files{}, []string{logLine(t, 1, 5, as50), `{"path": "corral/dreams", "input": {}, "decision_id": "x"}`, `{"path": "corral/scaling", "decision_id": "y"}`, `{"decision_id`, `{"decision_id": 1}`},
			[]string{"0 judged, 4 skipped, 0 differ, 0 drifted, 00:00 to 00:00", "1 unbound"},
		},
		"policies of another namespace": {
			files{"r.rego": ceiling}, files{"r.rego": change(t, ceiling, "60", "20")},
			[]string{strings.ReplaceAll(logLine(t, 1, 5, as50), `"ci"`, `"elsewhere"`)},
			[]string{"0 judged, 1 skipped, 0 differ, 0 drifted, 00:00 to 00:00", "1 unbound"},
		},
		"a policy that fails": {
			files{"r.rego": ceiling}, files{"r.rego": change(t, ceiling, `"atMost": 60`, `"atMost": "many"`)}, []string{logLine(t, 1, 5, as50)},
			[]string{
				"1 judged, 0 skipped, 1 differ, 0 drifted, 18:01 to 18:01",
				"18:01 ci/linux scaling id1: max 50, min 0, idle 2 -> no decision: a policy fails by , 0 wait",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.base["p.cue"], tt.head["p.cue"] = linux, linux
			in := Input{Base: sideOf(t, "base", tt.base), Head: sideOf(t, "head", tt.head)}
			in.Records, in.Unread = recordsOf(t, tt.lines...)
			r := compareInput(t, in).Recorded
			got := []string{fmt.Sprintf("%d judged, %d skipped, %d differ, %d drifted, %s to %s",
				r.Decisions, r.Skipped, r.Differ, r.Drifted, r.From.Format("15:04"), r.To.Format("15:04"))}
			if r.Unbound > 0 {
				got = append(got, fmt.Sprintf("%d unbound", r.Unbound))
			}
			for _, c := range r.Changed {
				var rules []string
				for _, rule := range c.Rules {
					rules = append(rules, fmt.Sprintf("%s:%d", rule.File, rule.Line))
				}
				got = append(got, fmt.Sprintf("%s %s %s %s: %s -> %s by %s, %d wait",
					c.Time.Format("15:04"), c.Pool, c.Decision, c.ID, c.Before, c.After, strings.Join(rules, " "), c.Waiting))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRecordedJobsMakeTheTypicalCost(t *testing.T) {
	// 10 jobs for half an hour, then 98. With idle 2 and max 50, this gives 12 and then 50 runners, at 200 each.
	in := Input{Base: sideOf(t, "base", files{})}
	in.Records, _ = recordsOf(t, logLine(t, 0, 10, as50), logLine(t, 30, 98, as50), logLine(t, 60, 0, as50))
	for _, tt := range []struct{ spec, want string }{{"", "400 6200 10000"}, {"stopPolicy: \"Drain\"\n\t\t", "0 0 0"}, {"mode: \"Observe\"\n\t\t", "0 0 0"}} {
		in.Head = sideOf(t, "head", files{"p.cue": change(t, linux, "scale:", tt.spec+"scale:"), "prices.yaml": prices})
		if got := amounts(compareInput(t, in).Pools[0].Cost.After); got != tt.want {
			t.Errorf("%s: %s", tt.spec, got)
		}
	}
}

func TestADecisionLogIsReadWithinBounds(t *testing.T) {
	long := `{"path": "corral/scaling", "input": {"x": "` + strings.Repeat("x", 2<<20) + `"}}`
	records, skipped := recordsOf(t, long, logLine(t, 1, 5, as50), long)
	if len(records) != 3 || skipped != 0 {
		t.Errorf("%d read, %d skipped", len(records), skipped)
	}
	many := strings.Repeat(`{"path":"corral/scaling","input":{}}`+"\n", maxRecords+1)
	if _, _, err := ReadRecords(strings.NewReader(many)); err == nil || !strings.Contains(err.Error(), "more than 50000 recorded decisions") {
		t.Error(err)
	}
}
