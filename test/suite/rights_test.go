// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// This story uses permissions that other stories rarely use. Git adds and removes a connection, and a pool moves
// to it and back. The controller does not stream lists, as with an API server that does not support this.
func TestPoolMovesBetweenConnectionsWithoutStreamedLists(t *testing.T) {
	w := newStory(t, "rights")
	w.Env = []string{"KUBE_FEATURE_WatchListClient=false"} // client-go reads its feature gates from variables with this prefix
	w.controller(t)
	g := w.newGitops(t, "rights", 5*time.Second) // the source retries pruning at this interval
	one := definitions(3, "linux", "runner:1", false)
	g.Write("pools.cue", one)
	g.sync(g.Push("One pool"))
	waitForConnection := func(connection string) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			set := &v1alpha1.RunnerScaleSet{}
			if err := w.Client.Get(ctx, key("rights", "linux"), set); err != nil {
				return err
			}
			if set.Spec.ConnectionRef.Name != connection || set.Status.ID == 0 {
				return fmt.Errorf("the scale set belongs to connection %s and has the id %d", set.Spec.ConnectionRef.Name, set.Status.ID)
			}
			return nil
		})
	}
	waitForConnection("acme")

	g.Write("connections.cue", fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

connections: schema.#Connections
connections: other: spec: {
	url: %q
	secretRef: name: "acme"
}
`, w.GitHub.ConfigURL("rights-org")))
	g.Write("pools.cue", strings.ReplaceAll(one, `"acme"`, `"other"`))
	g.sync(g.Push("Move to a connection of its own"))
	waitForConnection("other")

	g.Remove("connections.cue")
	g.Write("pools.cue", one)
	g.Push("Move back")
	g.request()
	waitForConnection("acme")
	eventually(t, func(ctx context.Context) error {
		err := w.Client.Get(ctx, key("rights", "other"), &v1alpha1.GitHubConnection{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the connection still exists (%v)", err)
		}
		return nil
	})
	w.cleanUp(t, "rights")
}
