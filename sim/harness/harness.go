// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package harness is what the tests of the whole share: a world, the controller as
// a process of its own in it, Git repositories to declare pools in, and words to wait with.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/world"
)

// World is a world and the corral command to run in it.
type World struct {
	*world.World
	// Binary is the path of the corral command.
	Binary string
}

// Run makes a world for the tests of a package, hands it to ready, runs the tests and
// ends the world. It returns the exit code for TestMain. What ready returns is called when
// the tests are over; it may be nil.
func Run(m *testing.M, options world.Options, ready func(*World) (end func() error, err error)) int {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	binary, err := Build(context.Background())
	if err != nil {
		return fail(err)
	}
	w, err := start(context.Background(), options)
	if err != nil {
		return fail(err)
	}
	code := 1
	end, err := ready(&World{World: w, Binary: binary})
	if err == nil {
		code = m.Run()
	}
	for _, err := range []error{err, call(end), w.Stop()} {
		if err != nil {
			code = fail(err)
		}
	}
	return code
}

// start makes a world. Its control plane has one thread at a time for Go code: others would look for work in vain, and take CPU from the tests.
func start(ctx context.Context, options world.Options) (*world.World, error) {
	if _, err := localcluster.Assets(ctx, os.Stderr); err != nil { // which may have to be built
		return nil, err
	}
	const threads = "GOMAXPROCS"
	before, isSet := os.LookupEnv(threads)
	if err := os.Setenv(threads, "1"); err != nil {
		return nil, err
	}
	w, err := world.Start(ctx, options)
	if !isSet {
		return w, errors.Join(err, os.Unsetenv(threads))
	}
	return w, errors.Join(err, os.Setenv(threads, before))
}

// Build makes the corral command, which go leaves alone while it is up to date. Packages whose tests run at the same time
// wait for the one that builds.
func Build(ctx context.Context) (binary string, err error) {
	cache, unlock, err := localcluster.LockCache(ctx, "corral")
	if err != nil {
		return "", err
	}
	defer unlock()
	return build(ctx, cache)
}

// build makes the corral command in a folder.
func build(ctx context.Context, folder string, flags ...string) (binary string, err error) {
	binary = filepath.Join(folder, "corral")
	flags = slices.Concat([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", binary}, flags, []string{"github.com/corral-dev/corral/cmd/corral"})
	if out, err := exec.CommandContext(ctx, "go", flags...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building corral: %w\n%s", err, out)
	}
	return binary, nil
}

func call(end func() error) error {
	if end == nil {
		return nil
	}
	return end()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Controller runs the controller until the test ends; its log is shown if the test fails.
func (w *World) Controller(t *testing.T, args ...string) *world.Controller {
	t.Helper()
	c, err := w.RunController(t.Context(), w.Binary, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		ShowLog(t, c)
	})
	return c
}

// Corral runs the corral command as the cluster's administrator and returns what it says; it must end well.
func (w *World) Corral(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), w.Binary, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+w.Cluster.Kubeconfig())
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("corral %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// ShowLog shows the end of the controller's log if the test failed: little enough for the failure to be in sight.
func ShowLog(t *testing.T, c *world.Controller) {
	if !t.Failed() {
		return
	}
	text, err := os.ReadFile(c.LogPath)
	if err != nil {
		t.Log(err)
	}
	t.Logf("the controller's log ends with:\n%s", text[max(0, len(text)-4_000):])
}

// Patience bounds the wait for anything that must come about. It is ample: machines are
// busy, and how long something takes is not a test's business.
const Patience = 8 * time.Minute

// Eventually waits until check returns nil, looking again whenever the world may
// have moved on; the last complaint is the failure.
func Eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	if err := world.Until(t.Context(), Patience, check); err != nil {
		t.Fatal(err)
	}
}

// Must ends the test if something went wrong that is not what it tests.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
