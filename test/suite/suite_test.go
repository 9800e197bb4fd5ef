// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite tells whole stories: the real API server, the controller as a
// process of its own with its own rights, a simulated GitHub, and pods that run.
package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/githubsim"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/world"
)

var (
	binary string       // the corral command
	w      *world.World // shared by the stories, which use namespaces and accounts of their own
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "corral-suite-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "corral")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", binary, "../../cmd/corral").CombinedOutput(); err != nil {
		return fail(fmt.Errorf("building corral: %w\n%s", err, out))
	}
	w, err = world.Start(context.Background(), world.Options{GitHub: githubsim.Options{SessionExpiry: 3 * time.Second, LostAfter: 10 * time.Second}})
	if err != nil {
		return fail(err)
	}
	code := m.Run()
	if err := w.Stop(); err != nil {
		return fail(err)
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// patience bounds the wait for anything that must come about.
const patience = 90 * time.Second

// eventually waits until check returns nil, looking again whenever the world may
// have moved on; the last complaint is the failure.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s: %v", patience, err)
		}
	}
}

// controller runs the controller until the test ends; its log is shown if the test fails.
func controller(t *testing.T, args ...string) *world.Controller {
	t.Helper()
	c, err := w.RunController(t.Context(), binary, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		showLog(t, c)
	})
	return c
}

func showLog(t *testing.T, c *world.Controller) {
	if !t.Failed() {
		return
	}
	text, err := os.ReadFile(c.LogPath)
	if err != nil {
		t.Log(err)
	}
	t.Logf("the controller's log ends with:\n%s", text[max(0, len(text)-20_000):])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newPool is a pool of runners with all that is required.
func newPool(namespace, name, connection string, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	maximum := int32(10)
	p := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.LocalObjectReference{Name: connection},
			Labels:        []string{name},
			Scale:         v1alpha1.ScaleSpec{Max: &maximum},
			Template:      runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`)},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// left lists what Corral made in a namespace and what it left on GitHub there.
func left(ctx context.Context, namespace string) error {
	for _, list := range []client.ObjectList{&v1alpha1.RunnerList{}, &v1alpha1.ScaleSetList{}} {
		if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if items := meta.LenList(list); items > 0 {
			return fmt.Errorf("%d of %T left", items, list)
		}
	}
	return nil
}

// eachItem calls do with every object of a list of ours.
func eachItem(list client.ObjectList, do func(kube.Object) error) error {
	return meta.EachListItem(list, func(item runtime.Object) error { return do(item.(kube.Object)) })
}
