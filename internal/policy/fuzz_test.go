// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"unicode/utf8"
)

// FuzzAnswers makes rules return arbitrary JSON. The answer must be refused, or keep the numbers in order.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"field": "max", "atMost": 3, "reason": "r", "assignedJobs": "Wait", "until": "2026-01-01T00:00:00Z"}`,
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
