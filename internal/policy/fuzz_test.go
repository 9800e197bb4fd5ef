// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzAnswers has rules answer any JSON. It must be refused, or leave the numbers in order.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"field": "max", "atMost": 3, "reason": "r", "hard": true, "until": "2026-01-01T00:00:00Z"}`,
		`{"field": "min", "atLeast": 1e400, "reason": "r", "until": 99999999999999999999}`, `{"field": "idle", "atMost": 0.5e1, "reason": ""}`,
		`{"hold": true, "canary": 3, "strategy": "OnIdle", "maxSurge": 2147483648, "reason": "r"}`, `[]`, `null`, `"\u0000"`, `{"1": {}}`, `-0.0`,
	} {
		f.Add(seed)
	}
	policy := players(f)[0].policy
	f.Fuzz(func(t *testing.T, answer string) {
		p := pool()
		p.Annotations = map[string]string{"p0-limits": "[" + answer + "]", "p0-rollouts": "[" + answer + "]", "p0-findings": "[]"}
		b := NewSet(policy).For(p)
		s := b.Scaling(t.Context(), ScalingInput{Pool: p})
		if len(s.Failures) == 0 {
			decided{Scaling: s}.numbersStayInOrder(t)
		}
		for _, failure := range append(s.Failures, b.Update(t.Context(), UpdateInput{Pool: p}).Failures...) {
			if failure.Message == "" || !utf8.ValidString(failure.Message) {
				t.Errorf("%q fails with %+v", answer, failure)
			}
		}
	})
}

// FuzzPods compares with encoding/json.
func FuzzPods(f *testing.F) {
	for _, seed := range []string{
		`{"a": [1, {"b": "c\n"}], "a": null}`, `{}`, ` { "a" : [ ] } `, `{"a": [1,]}`, `{"a": tru}`, `{"a": -01}`, `{"a": "\u12"}`, `{"a"`, `{"a": "`, `{"a": "\`,
		`{} {}`, "{\"a\": \"\t\"}", "{}\x00", `{"a": 1.5e+3, "b": true, "c": false}`, `{,}`, `[`, `{"a" 1}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pod, err := ParsePod(json.RawMessage(text))
		if _, without := parsePod(json.RawMessage(text), map[string]bool{"a": true}); (without == nil) != (err == nil) {
			t.Errorf("ParsePod(%q): %v; without a: %v", text, err, without)
		}
		var object map[string]json.RawMessage
		if is := json.Unmarshal([]byte(text), &object) == nil && object != nil; is != (err == nil) && strings.Count(text, "[")+strings.Count(text, "{") < maxPodNesting {
			t.Errorf("ParsePod(%q): %v; an object of JSON: %t", text, err, is)
		}
		if err != nil {
			return
		}
		if want := byGo(t, text); pod.value.term.Value.Compare(want) != 0 {
			t.Errorf("ParsePod(%q) = %v, want %v", text, pod.value.term, want)
		}
	})
}
