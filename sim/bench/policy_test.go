// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/corral-dev/corral/internal/worker"
)

func TestMain(m *testing.M) {
	if worker.IsChild() {
		worker.Main()
	}
	os.Exit(m.Run())
}

// BenchmarkDecisions is the scenario policy-1000 for profiling: it evaluates a fleet after a policy change.
func BenchmarkDecisions(b *testing.B) {
	rules := worker.NewEvaluator(judgingChildren, worker.DefaultEvaluatorLimits())
	defer rules.Close()
	for name, rules := range map[string]*worker.Evaluator{"library": nil, "modules": rules} {
		b.Run(name, func(b *testing.B) {
			f, err := newFleet(b.Context(), rules, judgedNamespaces)
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				if err := f.load(b.Context(), 398+int32(i%2)); err != nil {
					b.Fatal(err)
				}
				if err := f.judge(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A pool is not evaluated again if nothing has changed for it, wherever the rules come from.
func TestAPolicyIsAskedAgainOnlyWhenWhatItsRulesReadChanged(t *testing.T) {
	const namespaces = 4 // the number of namespaces that are evaluated concurrently
	f, err := judge(t.Context(), namespaces)
	if err != nil {
		t.Fatal(err)
	}
	// The library's ceiling leaves enough room that a grant affects no other pool; modules can read the usage in any
	// way.
	for prefix, sharers := range map[string]float64{"library_": 0, "modules_": judgedPools - 1} {
		want := map[string]float64{"asked": 2 * namespaces * judgedPools, "asked_again": 0, "sharers": sharers}
		for key, n := range want {
			if f[prefix+key] != n {
				t.Errorf("%s%s is %v, not %v", prefix, key, f[prefix+key], n)
			}
		}
	}
}

func TestTheJudgedPodIsOfAboutFourKilobytes(t *testing.T) {
	if n := len(judgedPool("team", "pool").Spec.Template.Raw); n < 3300 || n > 4500 {
		t.Errorf("it has %d bytes", n)
	}
}
