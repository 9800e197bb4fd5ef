// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite tells whole stories: the real API server, the controller as a
// process of its own with its own rights, a simulated GitHub, and pods that run.
package suite

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/githubsim"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/world"
	"github.com/corral-dev/corral/test/harness"
)

// w is shared by the stories, which use namespaces and accounts of their own.
var w *harness.World

// Words of the harness.
var (
	must       = harness.Must
	eventually = harness.Eventually
	newPool    = harness.NewPool
	key        = harness.Key
)

func TestMain(m *testing.M) {
	options := world.Options{GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 10 * time.Second}, Audit: true}
	os.Exit(harness.Run(m, options, func(made *harness.World) (func() error, error) {
		w = made
		return func() error { return w.CheckRights(context.Background()) }, nil
	}))
}

// controller runs the controller until the test ends; its log is shown if the test fails.
func controller(t *testing.T, args ...string) *world.Controller {
	t.Helper()
	return w.Controller(t, args...)
}

// eachItem calls do with every object of a list of ours.
func eachItem(list client.ObjectList, do func(kube.Object) error) error {
	return meta.EachListItem(list, func(item runtime.Object) error { return do(item.(kube.Object)) })
}
