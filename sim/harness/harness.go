// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package harness contains what the end-to-end tests share: a world, the controller as a separate process in it, Git
// repositories for pool definitions, and functions to wait with.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/sim/gobuild"
	"github.com/corral-dev/corral/sim/localcluster"
	"github.com/corral-dev/corral/sim/world"
)

// World is a world and the corral command to run in it.
type World struct {
	*world.World
	// Binary is the path of the corral command.
	Binary string
}

// storiesAtOnce is the maximum number of a package's stories that run in parallel.
const storiesAtOnce = 8

// Parallel sets how many stories of a package run in parallel, unless the flag -parallel is set. Stories mostly wait, so there
// are two for each processor, and at least four. With more, a machine with two processors is so busy that stories fail.
func Parallel() {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(min(storiesAtOnce, max(4, 2*runtime.NumCPU())))) // a number is always valid
	}
}

// Run starts a world for the tests of a package, passes it to ready, runs the tests and stops the world. It returns the
// exit code for TestMain. The function that ready returns is called after the tests; it can be nil.
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

// start starts a world. Its control plane runs Go code on one thread at a time: more threads would only spin while
// looking for work, and take CPU from the tests.
func start(ctx context.Context, options world.Options) (*world.World, error) {
	if _, err := localcluster.Assets(ctx, gobuild.Terminal(os.Stderr)); err != nil { // may build them
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

// Build builds the corral command, unless it is up to date. If the tests of several packages run concurrently, one
// builds it and the others wait.
func Build(ctx context.Context) (binary string, err error) {
	cache, unlock, err := localcluster.LockCache(ctx, "corral")
	if err != nil {
		return "", err
	}
	defer unlock()
	return build(ctx, cache)
}

// build builds the corral command into a folder.
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

// Controller runs the controller until the test ends. If the test fails, the log is printed.
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

// Corral runs the corral command as the cluster administrator and returns its output. A nonzero exit code fails the
// test.
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

// ShowLog prints the end of the controller's log if the test failed: short enough that the failure remains visible.
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

// Patience bounds every wait for an expected state. It is generous: machines can be slow, and these tests do not
// measure time.
const Patience = 8 * time.Minute

// Eventually waits until check returns nil, and fails the test with its last error otherwise.
func Eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	if err := world.Until(t.Context(), Patience, check); err != nil {
		t.Fatal(err)
	}
}

// Must ends the test on an error that is not the subject of the test.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
