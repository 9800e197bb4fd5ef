// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"maps"
	"slices"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

func TestARunnerGetsOfTheNetworkWhatItNeeds(t *testing.T) {
	network := github.Network{HTTPSProxy: "http://user:word@proxy", NoProxy: "a,b", CA: []byte("pem")}
	keys := func(n github.Network) []string { return slices.Sorted(maps.Keys(networkData(n))) }
	if got := keys(network); !slices.Equal(got, []string{"ca.crt"}) {
		t.Errorf("keys %v", got)
	}
	network.RunnersUseProxy = true
	if got := keys(network); !slices.Equal(got, []string{"HTTPS_PROXY", "NO_PROXY", "ca.crt"}) {
		t.Errorf("keys with proxies %v", got)
	}
}

// The folder that jobs work in is part of the registration, by a scale set and without.
func TestJobsWorkInTheFolderOfTheirRevision(t *testing.T) {
	for name, newBench := range map[string]func(*testing.T) *bench{"with a scale set": newBench, "by REST": newRESTBench} {
		for declared, want := range map[string]string{"": "_work", "/builds": "/builds"} {
			b := newBench(t)
			r := b.runner()
			r.Spec.WorkFolder = declared
			b.update(r)
			b.reconcile()
			config, err := runnerwire.Decode(string(get(b, &corev1.Secret{}, "linux-a-jit").Data[podspec.JITKey]))
			if err != nil || config.Settings.WorkFolder != want {
				t.Errorf("%s, %q: %+v, %v", name, declared, config.Settings, err)
			}
		}
	}
}

// It was deleted with its pool, and the garbage collector is on its way: nobody made it by hand.
func TestARunnerWhosePoolWasDeletedIsNoTrouble(t *testing.T) {
	b := newBench(t)
	if err := b.Client.Delete(t.Context(), b.pool()); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if c := conditions.Get(b.runner(), v1alpha1.ReadyCondition); c.Status != metav1.ConditionUnknown || c.Message != "its RunnerPool was deleted; it ends, too" {
		t.Errorf("ready: %+v", c)
	}
}
