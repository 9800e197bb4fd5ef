// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// elsewhere is set in the process that runs the GitHub of TestIdleSessionsAreSmall.
const elsewhere = "CORRAL_TEST_GITHUB"

// TestGitHubElsewhere is that process.
func TestGitHubElsewhere(t *testing.T) {
	if os.Getenv(elsewhere) == "" {
		t.Skip("this is a process for another test")
	}
	sim, err := githubsim.Start(githubsim.Options{Hold: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	sim.AddOrg("acme")
	sim.AddToken("secret")
	fmt.Fprintln(os.Stderr, sim.ConfigURL("acme"))
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the other process ends
}

// githubElsewhere runs a GitHub in a separate process and returns the organization's URL.
func githubElsewhere(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGitHubElsewhere$")
	cmd.Env = append(os.Environ(), elsewhere+"=1")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait() // the deferred close of its stdin ends it
	})
	url, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// inUse returns the memory of the heap and the stacks.
func inUse() uint64 {
	for range 3 {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestIdleSessionsAreSmall(t *testing.T) {
	const sessions, most = 200, SessionMemory
	url := githubElsewhere(t)
	network := github.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	polled := make(chan struct{}, sessions)
	c, err := NewClient(github.Credentials{ConfigURL: url, Token: "secret"}, github.Options{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet && req.Header.Get("X-ScaleSetMaxCapacity") != "" {
			polled <- struct{}{}
		}
		return network.RoundTrip(req)
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(testContext(t), github.DefaultRunnerGroupID, "none"); err != nil {
		t.Fatal(err)
	}
	before, goroutines := inUse(), runtime.NumGoroutine()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for i := range sessions {
		set, err := c.Create(ctx, Set{Name: fmt.Sprintf("linux-%d", i), GroupID: github.DefaultRunnerGroupID})
		if err != nil {
			t.Fatal(err)
		}
		l := NewListener(Config{Client: c, SetID: set.ID, Owner: owner, Recorder: slowRecorder{}})
		l.Announce(10)
		running.Go(func() { l.Run(ctx) })
	}
	for range sessions {
		<-polled
	}
	c.idle.sweep()
	c.idle.sweep()
	after := inUse()
	t.Logf("%d KiB and %.1f goroutines for each session", (after-before)/sessions>>10, float64(runtime.NumGoroutine()-goroutines)/sessions)
	if after > before+sessions*most {
		t.Errorf("%d KiB for each session", (after-before)/sessions>>10)
	}
	cancel()
	running.Wait()
}
