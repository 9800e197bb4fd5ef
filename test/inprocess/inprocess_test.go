// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package inprocess_test

import (
	"fmt"
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/cli"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/test/inprocess"
)

func TestMain(m *testing.M) {
	if worker.IsChild() {
		worker.Main()
	}
	os.Exit(m.Run())
}

func TestEvaluatorAnswersAsAChildDoes(t *testing.T) {
	child := worker.NewEvaluator(1, worker.DefaultEvaluatorLimits())
	t.Cleanup(child.Close)
	for name, text := range map[string]string{
		"an answer": `package corral.scaling
limit contains {"field": "max", "atMost": 1, "reason": "r"}`,
		"an error": `package corral.scaling
limit contains {"field": "max", "atMost": to_number(input.pool.name)}`,
		"an answer of none": `package corral.scaling
limit contains {"field": "max", "atMost": "many"}`,
		"what can't load": "package corral.scaling\nlimit contains {",
	} {
		source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{
			"p.rego": text, "p_test.rego": "package corral.scaling_test\nimport data.corral.scaling\ntest_it if count(scaling.limit) == 1\n",
		}}
		all := func(e cli.Evaluator) string {
			facts, diagnostics, err := e.Load(t.Context(), source, nil)
			got := fmt.Sprint(facts, diagnostics, err)
			if len(diagnostics) == 0 {
				pool := policy.Pool{Namespace: "ci", Name: "linux", Scale: policy.Scale{Max: 100}}
				got += fmt.Sprintf("%+v", policy.NewSet(policy.Elsewhere(source, facts, e)).For(pool).Scaling(t.Context(), policy.ScalingInput{Pool: pool, Jobs: 1}))
			}
			report, diagnostics, err := e.Test(t.Context(), source, policy.TestOptions{})
			for i := range report.Tests {
				report.Tests[i].Duration = 0
			}
			return fmt.Sprint(got, report, diagnostics, err)
		}
		if diff := cmp.Diff(all(child), all(&inprocess.Evaluator{})); diff != "" {
			t.Errorf("%s (-child +process):\n%s", name, diff)
		}
	}
}

func TestCompilerCompilesAsAChildDoes(t *testing.T) {
	child := worker.NewCompiler(1, worker.DefaultLimits())
	for name, files := range map[string]fstest.MapFS{
		"a pool": {"a.cue": {Data: []byte(`package pools

pools: linux: spec: {
	connectionRef: name: "acme"
	template: spec: containers: [{name: "runner", image: "ghcr.io/actions/actions-runner:latest"}]
}
`)}},
		"a problem": {"a.cue": {Data: []byte("package pools\n\npools: linux: spec: scale: {max: 1, min: 2}\n")}},
		"a policy":  {"p.rego": {Data: []byte("package corral.scaling\nlimit contains {")}},
	} {
		all := func(c cli.Compiler) string {
			result, err := c.Compile(t.Context(), files, compile.Options{AllowEmpty: true, Positions: true})
			return fmt.Sprintf("%+v %v", result, err)
		}
		if diff := cmp.Diff(all(child), all(inprocess.Compiler{})); diff != "" {
			t.Errorf("%s (-child +process):\n%s", name, diff)
		}
	}
}
