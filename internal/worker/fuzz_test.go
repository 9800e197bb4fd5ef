// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
)

// FuzzWorker compiles arbitrary bytes in children with small limits. There must be a valid result within the limits,
// and this process must survive. Inputs that use unlimited resources are included.
func FuzzWorker(f *testing.F) {
	const same = "package pools\n"
	for _, seed := range []string{
		pools, growing(), endless, "", same, same + "x: [...] & [for a in x for b in x {a+b}]",
		same + "import \"strings\"\nx: strings.Repeat(\"x\", 1000000)+x", same + "import \"list\"\nx: list.Range(0, 5000000, 1)",
		same + "x: {a: 1} | {b: 2} | {c: 3}\ny: x & x & x & x & x & x", same + "#a: {b: #a, c: #a}\nx: #a",
	} {
		f.Add([]byte(seed), []byte(pools), ".")
		f.Add([]byte(same), []byte(seed), "team")
	}
	limits := Limits{Memory: 192 << 20, CPU: time.Second, Wall: time.Minute, OutputBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, root, team []byte, path string) {
		result, err := NewCompiler(1, limits).Compile(t.Context(), compile.Files{"root.cue": root, "team/team.cue": team}, compile.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(result); err != nil || len(text) > 2*limits.OutputBytes {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		for _, d := range result.Diagnostics {
			if text := compile.Format(d); len(text) > 4<<10 || !utf8.ValidString(text) || d.Message == "" {
				t.Errorf("not fit to be shown: %q", text)
			}
		}
	})
}

// FuzzPolicies loads arbitrary text as rules in a child with small limits, and evaluates them. The policy must either
// have diagnostics or be usable, and this process and the Evaluator must survive.
func FuzzPolicies(f *testing.F) {
	for _, seed := range []string{
		"", "package a", limits(`{"field": "max", "atMost": 60, "reason": "r"}`), hostile["never ends"], hostile["grows a text"],
		"package corral.template\ndefault deny := false", "package corral.template\ndeny[x] if x := 1",
		"package corral.template\ndeny contains x if { some i; x := [y | y := [z | z := i]] }",
		"package corral.scaling\nlimit contains $\"{input.pool.name}\" if every x in [1] { x }",
		"# METADATA\n# title: a\npackage corral.update\n# METADATA\n# custom: {code: 1}\nrollout contains {\"hold\": true} if { not input.jobs with input as {} }",
		"package corral.template\ndeny contains msg if { msg := {\"a\": 1}.a } else := 3 if false\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e := newEvaluator(t, 1)
		source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": text}}
		facts, found, err := e.Load(t.Context(), source, nil)
		var excess *policy.Excess
		if errors.As(err, &excess) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			if d.Message == "" || !utf8.ValidString(d.Message) || d.Line < 0 {
				t.Errorf("diagnostic %+v of %q", d, text)
			}
		}
		if len(found) > 0 {
			return
		}
		pool := policy.Pool{Namespace: "ci", Name: "linux"}
		b := policy.NewSet(policy.Elsewhere(source, facts, e)).For(pool)
		failures := b.Scaling(t.Context(), policy.ScalingInput{Pool: pool}).Failures
		failures = append(failures, b.Template(t.Context(), policy.TemplateInput{Pool: pool, Pod: json.RawMessage("{}")}).Failures...)
		for _, failure := range append(failures, b.Update(t.Context(), policy.UpdateInput{Pool: pool}).Failures...) {
			if failure.Message == "" || !utf8.ValidString(failure.Message) {
				t.Errorf("%q fails with %+v", text, failure)
			}
		}
	})
}
