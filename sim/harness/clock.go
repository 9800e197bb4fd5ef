// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	_ "embed" // for the time package of a command built for tests
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/localcluster"
)

// clockEnv is the environment variable with the path of the file that contains the clock offset, for a command built by
// BuildWithClock.
const clockEnv = "CORRAL_TEST_CLOCK"

// skew is the code that is added to Go's package time.
//
//go:embed skew.go.txt
var skew []byte

// BuildWithClock builds a corral command whose clock can be set with a Clock. The product has no code for this: the
// command is built with a different time.Now, through go's -overlay flag, so that it affects every use of the clock,
// including those in libraries. The first build takes some minutes, because all packages are compiled.
func BuildWithClock(ctx context.Context) (binary string, err error) {
	cache, unlock, err := localcluster.LockCache(ctx, "corral-clock")
	if err != nil {
		return "", err
	}
	defer unlock()
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("looking for Go's packages: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", fmt.Errorf("reading package time: %w", err)
	}
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), reading) != 1 {
		return "", fmt.Errorf("time.Now of this version of Go does not read the clock as expected: %q", reading)
	}
	replaced := map[string]string{}
	for name, content := range map[string][]byte{
		"time.go": []byte(strings.Replace(string(source), reading, reading+"\tsec += skew.Load()\n", 1)), "skew.go": skew,
	} {
		path := filepath.Join(cache, name)
		replaced[filepath.Join(std, name)] = path
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return "", fmt.Errorf("writing package time: %w", err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("encoding the overlay: %w", err)
	}
	path := filepath.Join(cache, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return build(ctx, cache, "-overlay", path)
}

// Clock is the clock of processes that run a command built by BuildWithClock.
type Clock struct {
	t    *testing.T
	path string
}

// NewClock returns a clock that is ahead of the real time.
func NewClock(t *testing.T, ahead time.Duration) *Clock {
	t.Helper()
	c := &Clock{t: t, path: filepath.Join(t.TempDir(), "clock")}
	c.Set(ahead)
	return c
}

// Env returns the environment entry that makes a process use this clock.
func (c *Clock) Env() string { return clockEnv + "=" + c.path }

// Set sets how far the clock is ahead, in whole seconds. A running process sees the change after some milliseconds.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	next := c.path + ".next"
	Must(c.t, os.WriteFile(next, []byte(strconv.Itoa(int(ahead.Seconds()))), 0o600))
	Must(c.t, os.Rename(next, c.path)) // atomically
}
