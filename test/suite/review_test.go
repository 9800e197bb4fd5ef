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

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// The cluster has another pool of the name than the base declares: what only it knows is told by a review that asks it, which changes nothing.
func TestAReviewAsksTheClusterWhatItWouldSay(t *testing.T) {
	t.Parallel()
	const namespace = "reviewed"
	must(t, shared.Cluster.CreateNamespace(t.Context(), namespace))
	pool := func(name, kind string, most int) string {
		return fmt.Sprintf("{apiVersion: \"corral.dev/v1alpha1\", kind: \"RunnerPool\", metadata: {name: %q, namespace: %q}, spec: {%sconnectionRef: {name: \"acme\"}, "+
			"scale: {max: %d}, template: {spec: {containers: [{name: \"runner\", image: \"x\"}]}}}}\n", name, namespace, kind, most)
	}
	must(t, shared.Cluster.Apply(t.Context(), []byte(pool("moved", `registration: "REST", `, 1))))
	folder := t.TempDir()
	for most, side := range []string{"base", "head"} {
		must(t, os.MkdirAll(filepath.Join(folder, side), 0o700))
		text := "package pools\nmoved: " + pool("moved", "", most+1) + "fine: " + pool("fine", "", most+1)
		must(t, os.WriteFile(filepath.Join(folder, side, "pools.cue"), []byte(text), 0o600))
	}
	c := exec.CommandContext(t.Context(), shared.Binary, "review", "base", "head", "--live")
	c.Dir, c.Env = folder, append(os.Environ(), "KUBECONFIG="+shared.Cluster.Kubeconfig(), "GITHUB_WORKSPACE=")
	out, err := c.Output()
	if c.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Broken: the head can't be applied (1 problem)", "head/pools.cue:2:", "the cluster refuses it: ", "registration", "max 1 → 2"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "wasn't asked") {
		t.Errorf("it wasn't asked:\n%s", out)
	}
	is := &v1alpha1.RunnerPool{}
	must(t, shared.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "moved"}, is))
	if is.Spec.Scale.Numbers().Max != 1 {
		t.Errorf("it changed the pool: %+v", is.Spec.Scale)
	}
	must(t, client.IgnoreNotFound(shared.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fine"}, is)))
	if is.Name == "fine" {
		t.Error("it made a pool")
	}
}
