// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// longAnswers has rules that give as many elements as they may, each with the longest texts.
const longAnswers = `package corral.%s

long := "LONG"

%s
`

// A tenant has thousands of pools, and what its policies answer about each is remembered.
func TestRememberedAnswersAreAboutAsLargeAsAPool(t *testing.T) {
	e := newEngine()
	for i := range 3 {
		for decision, rule := range map[string]string{
			"scaling":  `limit contains {"field": "max", "atMost": 1, "reason": sprintf("%d %s", [i, long])} if some i in numbers.range(1, 100)`,
			"template": `deny contains {"msg": sprintf("%d %s", [i, long]), "path": long, "code": long, "severity": long, "remediation": long} if some i in numbers.range(1, 600)`,
			"update":   `rollout contains {"hold": true, "reason": sprintf("%d %s", [i, long])} if some i in numbers.range(1, 100)`,
		} {
			mode := []v1alpha1.PolicyMode{v1alpha1.PolicyEnforce, v1alpha1.PolicyEnforce, v1alpha1.PolicyAudit}[i]
			put(t, e, policy.Source{
				Kind: policy.KindRunnerPolicy, Namespace: large, Name: fmt.Sprint(decision, i), Mode: mode,
				Modules: map[string]string{"a.rego": fmt.Sprintf(strings.ReplaceAll(longAnswers, "LONG", strings.Repeat("é", 600)), decision, rule)},
			})
		}
	}
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: large, Name: "p"}}
	pool.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"a:1"}]}}`)
	facts := policy.PoolOf(pool)
	facts.Scale.Max = 10
	bound := e.For(facts)
	scaling := e.Scaling(context.Background(), bound, policy.ScalingInput{Pool: facts, Jobs: 5, Now: e.Now().UnixNano(), Zone: "UTC"}).Answer
	update := e.Update(context.Background(), bound, policy.UpdateInput{Pool: facts})
	template, err := e.Permit(context.Background(), pool, "r", pool.Spec.Template.Raw, podspec.Network{})
	if err != nil {
		t.Fatal(err)
	}
	if scaling.Scale.Max != 1 || len(scaling.Bounds) != maxKept || !update.Hold || len(template.Denials) != policy.MaxFindings {
		t.Errorf("max %d by %d bounds, hold %v, %d denials", scaling.Scale.Max, len(scaling.Bounds), update.Hold, len(template.Denials))
	}
	known := e.pools.get(keyOf(facts))
	for what, kept := range map[string]any{"limits": known.scaling.answer, "update": known.update.answer, "findings": known.audit, "verdict": oneOf(known.verdicts)} {
		text, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) < 1000 || len(text) > 128<<10 {
			t.Errorf("%s: %d bytes are remembered", what, len(text))
		}
	}
}

func oneOf(verdicts map[judged]judgement) any {
	for _, j := range verdicts {
		return j.answer
	}
	return nil
}
