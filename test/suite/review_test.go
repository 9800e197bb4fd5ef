// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// A review with access to the cluster reports facts that only the cluster knows. Here, the cluster has a different
// pool under a name of the base. The review changes nothing.
func TestAReviewAsksTheClusterWhatItWouldSay(t *testing.T) {
	t.Parallel()
	const namespace = "reviewed"
	must(t, shared.Cluster.CreateNamespace(t.Context(), namespace))
	runs := newPool(namespace, "moved", "acme")
	runs.Spec.Registration = v1alpha1.RegisterREST
	must(t, shared.Client.Create(t.Context(), runs))
	folder := t.TempDir()
	for most, side := range []string{"base", "head"} {
		must(t, os.MkdirAll(filepath.Join(folder, side), 0o700))
		text := fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {[string]: {
	metadata: namespace: %q
	spec: {connectionRef: name: "acme", registration: "ScaleSet", scale: max: %d, template: spec: containers: [{name: "runner", image: "x"}]}
}}
pools: moved: {}
pools: fine: {}
`, namespace, most+1)
		must(t, os.WriteFile(filepath.Join(folder, side, "pools.cue"), []byte(text), 0o600))
	}
	c := exec.CommandContext(t.Context(), shared.Binary, "review", "base", "head", "--live")
	c.Dir, c.Env = folder, append(os.Environ(), "KUBECONFIG="+shared.Cluster.Kubeconfig(), "GITHUB_WORKSPACE=")
	out, err := c.Output()
	if c.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{
		"Broken: the head can't be applied (1 problem)", "\nhead/pools.cue:9: the cluster refuses it: ", "registration is immutable: create another pool",
		"limits · max 1 → 2", "the cluster has no pool reviewed/fine", "now reviewed/moved: jobs unknown, 0 runners", "the pool in the cluster differs from the base: ",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
	is := &v1alpha1.RunnerPool{}
	must(t, shared.Client.Get(t.Context(), key(namespace, "moved"), is))
	if is.ResourceVersion != runs.ResourceVersion {
		t.Errorf("it changed the pool: %+v", is.Spec)
	}
	if err := shared.Client.Get(t.Context(), key(namespace, "fine"), is); !errors.IsNotFound(err) {
		t.Errorf("it made a pool, or %v", err)
	}
}
