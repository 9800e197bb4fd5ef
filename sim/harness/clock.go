// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	_ "embed" // the clock of a command that is built for tests
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

// clockEnv is where a command that BuildWithClock made finds the name of the file with its clock's offset.
const clockEnv = "CORRAL_TEST_CLOCK"

// skew is added to Go's package time.
//
//go:embed skew.go.txt
var skew []byte

// BuildWithClock makes a corral command whose machine has a wrong clock, by a Clock. The product knows nothing of that: it is built with another
// time.Now, by go's flag -overlay, so that each use of the clock meets it, those in libraries included. The first time takes some minutes, as all
// packages are compiled.
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

// Clock is the machine's clock of processes that run a command which BuildWithClock made.
type Clock struct {
	t    *testing.T
	path string
}

// NewClock returns a clock that is ahead by so much.
func NewClock(t *testing.T, ahead time.Duration) *Clock {
	t.Helper()
	c := &Clock{t: t, path: filepath.Join(t.TempDir(), "clock")}
	c.Set(ahead)
	return c
}

// Env tells a process that this is its clock.
func (c *Clock) Env() string { return clockEnv + "=" + c.path }

// Set puts the clock forward or back, so that it is ahead by so many seconds. A process that runs takes some milliseconds to see it.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	next := c.path + ".next"
	Must(c.t, os.WriteFile(next, []byte(strconv.Itoa(int(ahead.Seconds()))), 0o600))
	Must(c.t, os.Rename(next, c.path)) // at once
}
