// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// endedPool has one idle runner. The kubelet ends or rejects its pod because of a field in its spec.
const endedPool = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: ended}
spec:
  connectionRef: {name: acme}
  scale: {max: 1, idle: 1}
  template:
    spec:
      FIELD
      containers: [{name: runner, image: "corral.test/runner:1", imagePullPolicy: Never, command: [/home/runner/run.sh], resources: {requests: {cpu: "CPU"}}}]
`

// The real kubelet produces the same cause, actor and reason as the simulated one.
func (b *bed) theKubeletEndsRunners(t *testing.T) {
	for name, tc := range map[string]struct {
		field, cpu string
		cause      v1alpha1.RunnerCause
		reason     string
	}{
		"deadline": {"activeDeadlineSeconds: 15", "50m", v1alpha1.CauseConfig, "DeadlineExceeded"}, // too short for any job
		"outofcpu": {"nodeName: " + nodeName, "900", v1alpha1.CauseNode, "OutOfcpu"},
	} {
		t.Run(name, func(t *testing.T) {
			b.pool(t, "ends-"+name, strings.NewReplacer("FIELD", tc.field, "CPU", tc.cpu).Replace(endedPool))
			pool := &v1alpha1.RunnerPool{}
			eventually(t, func(ctx context.Context) error {
				if err := b.world.Client.Get(ctx, client.ObjectKey{Namespace: "ends-" + name, Name: "ended"}, pool); err != nil {
					return err
				}
				if len(pool.Status.Failures) == 0 {
					return fmt.Errorf("no runner has failed yet: %+v", pool.Status.Runners)
				}
				return nil
			})
			f := pool.Status.Failures[0]
			t.Logf("%s: %s; %s", f.Cause, f.Reason, f.Exit)
			if f.Cause != tc.cause || f.Exit == nil || f.Exit.Actor != v1alpha1.ActorNode || f.Exit.Reason != tc.reason {
				t.Errorf("it failed with %s (%s), want %s (%s) by the node", f.Cause, f.Exit, tc.cause, tc.reason)
			}
			b.end(t, "ends-"+name, "ended")
		})
	}
}
