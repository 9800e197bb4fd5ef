// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite contains end-to-end stories with a real API server, the controller as a separate process with its
// own permissions, a simulated GitHub, and pods that run.
package suite

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/recorder"
)

// shared is the world of all stories. They run in parallel, each in namespaces of its own.
var shared *harness.World

// Aliases for functions of the harness.
var (
	must       = harness.Must
	eventually = harness.Eventually
	newPool    = harness.NewPool
	key        = harness.Key
)

func TestMain(m *testing.M) {
	harness.Parallel()
	os.Exit(harness.Run(m, world.Options{Audit: true}, func(made *harness.World) (func() error, error) {
		shared = made
		return func() error { return checkRights(context.Background(), shared) }, nil
	}))
}

// story is a part of the world, with its own simulated GitHub and its own controllers, which watch only the
// story's namespaces.
type story struct {
	*harness.World
	// flags are passed to its controllers.
	flags []string
	// estate is the platform team's namespace in stories about tenants.
	estate string
}

// newStory begins a story that runs in parallel with others.
func newStory(t *testing.T, namespaces ...string) *story {
	t.Helper()
	t.Parallel()
	return newLoneStory(t, "--watch-namespaces="+strings.Join(namespaces, ","), "--leader-elect=false")
}

// newLoneStory begins a story that runs before the parallel ones, because it changes shared objects. When a story
// ends, nothing may be left on its GitHub.
func newLoneStory(t *testing.T, flags ...string) *story {
	t.Helper()
	return newStoryOn(t, githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 20 * time.Second}, flags...)
}

// newStoryOn begins a story on a simulated GitHub with the given options.
func newStoryOn(t *testing.T, options githubsim.Options, flags ...string) *story {
	t.Helper()
	apart, end, err := shared.WithGitHub(options)
	must(t, err)
	w := &story{World: &harness.World{World: apart, Binary: shared.Binary}, flags: flags}
	t.Cleanup(func() {
		w.checkGitHub(t)
		end()
	})
	return w
}

// checkGitHub fails the test if an invariant was violated or something is left on GitHub.
func (w *story) checkGitHub(t *testing.T) {
	t.Helper()
	if broken := w.GitHub.Invariants(); len(broken) > 0 {
		t.Errorf("broken promises: %v", broken)
	}
	if rest := w.GitHub.Leftovers(); len(rest) > 0 {
		t.Errorf("left on GitHub: %v", rest)
	}
}

// elect creates a namespace for the leader election lease of the story's controllers, with the necessary
// permissions.
func (w *story) elect(t *testing.T, namespace string) {
	t.Helper()
	must(t, w.Cluster.CreateNamespace(t.Context(), namespace))
	for _, object := range []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		must(t, w.Client.Get(t.Context(), key(world.SystemNamespace, "corral-leader"), object))
		object.SetNamespace(namespace)
		object.SetResourceVersion("")
		must(t, w.Client.Create(t.Context(), object))
	}
	w.flags = append(w.flags, "--leader-elect", "--leader-election-namespace="+namespace)
}

// controller runs the controller until the test ends. If the test fails, it prints the controller's log.
func (w *story) controller(t *testing.T, args ...string) *world.Controller {
	t.Helper()
	return w.Controller(t, slices.Concat(w.flags, args)...)
}

// recorderOf returns a recorder of the problems in a namespace, for a story of testdata/faults.txtar. The
// controllers' lease is in NAMESPACE-lease.
func recorderOf(t *testing.T, namespace, suffix string, c *world.Controller) *recorder.Recorder {
	return &recorder.Recorder{
		Namespace: namespace, Archive: "testdata/faults.txtar", Story: t.Name() + suffix, LeaseNamespace: namespace + "-lease", Logs: []*world.Controller{c},
		Aside: "bystander",
	}
}

// eachItem calls do with every object of a list of Corral's objects.
func eachItem(list client.ObjectList, do func(kube.Object) error) error {
	return meta.EachListItem(list, func(item runtime.Object) error { return do(item.(kube.Object)) })
}
