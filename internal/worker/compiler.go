// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker compiles definitions, and evaluates policies, that aren't trusted in child processes which can be
// stopped.
//
// CUE has no cancellation, and 300 bytes of it can take gigabytes or never end; so can a call in Rego. So the
// running binary executes itself: as `corral compile-worker` for one compilation each, with limits on memory, CPU
// time, wall time and output; as `corral policy-worker` for policies, which stay loaded from one question to the next,
// and whose CPU time and memory this process watches. Both have an empty environment and talk over standard input and
// output. What goes beyond a limit is told whoever wrote it.
package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/turns"
	"github.com/corral-dev/corral/internal/wording"
)

// compileCommand is the hidden command under which the binary compiles.
const compileCommand = "compile-worker"

// Limits of one compilation. Memory and CPU time hold on Linux; elsewhere only the wall
// time and the output are bounded.
type Limits struct {
	// Memory in bytes: address space (RLIMIT_AS) beyond what the process has when it starts.
	Memory uint64 `json:"memory"`
	// CPU time, in whole seconds (RLIMIT_CPU).
	CPU time.Duration `json:"cpu"`
	// Wall time from the start of the process to its end. To go beyond it with CPU time left is no fault of the definitions: the machine is busy.
	Wall time.Duration `json:"wall"`
	// OutputBytes of the result's JSON.
	OutputBytes int `json:"outputBytes"`
}

// DefaultLimits are enough for compile.MaxObjects pools from a table in one tree.
func DefaultLimits() Limits {
	return Limits{Memory: 1 << 30, CPU: 15 * time.Second, Wall: 4 * time.Minute, OutputBytes: 24 << 20}
}

// Compiler compiles in child processes, a bounded number at once. It's safe for concurrent use.
type Compiler struct {
	// Executable that runs Main when it is started as a child.
	Executable string
	// Limits of each compilation.
	Limits Limits

	slots *turns.Limiter
}

// NewCompiler returns a Compiler that executes the running binary, at most concurrency at once.
func NewCompiler(concurrency int, limits Limits) (*Compiler, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the running binary: %w", err)
	}
	return &Compiler{Executable: executable, Limits: limits, slots: turns.New(max(1, concurrency))}, nil
}

// flowKey is the key of a context's flow.
type flowKey struct{}

// InFlow says for whom is compiled, such as a namespace. Who waits is served in turn among flows, so that no one's many definitions, or
// slow ones, keep those of others waiting for more than one of them.
func InFlow(ctx context.Context, flow string) context.Context {
	return context.WithValue(ctx, flowKey{}, flow)
}

func flowOf(ctx context.Context) string {
	flow, _ := ctx.Value(flowKey{}).(string)
	return flow
}

// request is what a child reads from standard input.
type request struct {
	Limits     Limits            `json:"limits"`
	Path       string            `json:"path"`
	Tags       map[string]string `json:"tags,omitempty"`
	AllowEmpty bool              `json:"allowEmpty,omitempty"`
	PolicyName string            `json:"policyName,omitempty"`
	Positions  bool              `json:"positions,omitempty"`
	Files      compile.Files     `json:"files,omitempty"`
}

// Compile is compile.Compile in a child process, which also loads the policies that the
// definitions declare. An error means that the child couldn't
// be run, or that ctx ended; what is wrong with the definitions is in the result.
func (c *Compiler) Compile(ctx context.Context, fsys fs.FS, options compile.Options) (compile.Result, error) {
	files, diagnostics := compile.Gather(fsys, options.Path)
	if len(diagnostics) > 0 {
		return compile.Result{Diagnostics: diagnostics}, nil
	}
	return c.ask(ctx, request{
		Limits: c.Limits, Path: options.Path, Tags: options.Tags, AllowEmpty: options.AllowEmpty, PolicyName: options.PolicyName,
		Positions: options.Positions, Files: files,
	})
}

// ask sends a request to a child, in its turn.
func (c *Compiler) ask(ctx context.Context, r request) (compile.Result, error) {
	input, err := json.Marshal(r)
	if err != nil {
		return compile.Result{}, fmt.Errorf("encoding definitions: %w", err)
	}
	round, err := c.slots.Enter(ctx, turns.Looking, flowOf(ctx))
	if err != nil {
		return compile.Result{}, fmt.Errorf("waiting to compile: %w", err)
	}
	defer c.slots.Leave(round, turns.Unknown)
	return c.run(ctx, input)
}

// collectLater lets garbage of a child grow further than usual before it is collected, within the limit of memory: collecting takes half
// the CPU time of compiling.
const collectLater = "GOGC=400"

// run executes one child and reads its result.
func (c *Compiler) run(ctx context.Context, input []byte) (compile.Result, error) {
	wallCtx, cancel := context.WithTimeout(ctx, c.Limits.Wall)
	defer cancel()
	stdout := &capped{limit: c.Limits.OutputBytes, full: cancel}
	stderr := &capped{limit: 64 << 10}
	cmd := exec.CommandContext(wallCtx, c.Executable, compileCommand)
	cmd.Dir = "/"
	cmd.Env = []string{collectLater}
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 5 * time.Second
	isolate(cmd)
	err := runOnOneThread(cmd)
	switch {
	case ctx.Err() != nil:
		return compile.Result{}, fmt.Errorf("compiling: %w", ctx.Err())
	case cmd.ProcessState == nil:
		return compile.Result{}, fmt.Errorf("starting the compiler: %w", err)
	case stdout.overflowed:
		return refused("the objects take more than %d bytes, the most that is accepted: declare fewer or smaller ones", c.Limits.OutputBytes), nil
	case err != nil:
		return c.explain(cmd.ProcessState, wallCtx.Err(), stderr)
	}
	var result compile.Result
	if err := json.Unmarshal(stdout.kept, &result); err != nil {
		return compile.Result{}, fmt.Errorf("reading the compiler's result: %w", err)
	}
	return result, nil
}

// runOnOneThread runs cmd so that its parent, to the kernel the thread that started it,
// lives as long as it does: the signal for an orphan is sent when that thread ends.
func runOnOneThread(cmd *exec.Cmd) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOneThread(func() { err = cmd.Run() })
	}()
	<-done
	return err
}

// onOneThread calls f on a thread that does nothing else meanwhile.
func onOneThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}

// outOfCPUTime are the last words of a child whose CPU time is used up.
const outOfCPUTime = "out of CPU time"

// What users can do about definitions that need too much.
const advice = "look for lists that multiply (comprehensions in comprehensions), values that contain each other, or large `&` of alternatives"

// explain turns the end of a child that failed into a diagnostic, or into an error where it isn't due to the definitions.
func (c *Compiler) explain(state *os.ProcessState, wall error, said *capped) (compile.Result, error) {
	places, stderr := split(string(said.kept))
	var result compile.Result
	switch {
	case isOutOfMemory(stderr):
		result = refused("compiling needs more than %d MiB of memory, the most that is allowed: %s", c.Limits.Memory>>20, advice)
	case strings.Contains(stderr, stackExceeds):
		result = refused("compiling recurses too deeply: %s", advice)
	case strings.Contains(stderr, outOfCPUTime):
		result = refused("compiling takes more than %s of CPU time, the most that is allowed: %s", c.Limits.CPU, advice)
	case errors.Is(wall, context.DeadlineExceeded) && cpuTime(state) < c.Limits.CPU:
		return compile.Result{}, fmt.Errorf("the compiler got %s of CPU time in %s, too little: the machine is busy, or the container's CPU limit is low", cpuTime(state).Round(time.Millisecond), c.Limits.Wall)
	case errors.Is(wall, context.DeadlineExceeded): // where CPU time has no limit
		result = refused("compiling takes longer than %s, the most that is allowed: %s", c.Limits.Wall, advice)
	case stderr == "":
		return compile.Result{}, fmt.Errorf("the compiler was ended from outside (%s)", state)
	default:
		result = refused("the compiler ended with %s: %s", state, wording.FirstLine(strings.TrimSpace(stderr)))
	}
	if len(places) > 0 && !said.overflowed {
		result.Diagnostics[0].File = places[len(places)-1]
	}
	return result, nil
}

func cpuTime(state *os.ProcessState) time.Duration { return state.UserTime() + state.SystemTime() }

// split tells where the child was, in order, from what else it said.
func split(stderr string) (places []string, rest string) {
	for strings.HasPrefix(stderr, placeMark) {
		place, after, whole := strings.Cut(stderr[len(placeMark):], "\n")
		if !whole {
			break
		}
		places, stderr = append(places, place), after
	}
	return places, stderr
}

// stackExceeds is in the last words of Go's runtime about a recursion without an end.
const stackExceeds = "stack exceeds"

// isOutOfMemory knows the last words of Go's runtime, and of the race detector's.
func isOutOfMemory(stderr string) bool {
	signs := []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "failed to reserve", "failed to allocate", "address space collisions"}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(stderr, sign) })
}

func refused(format string, args ...any) compile.Result {
	return compile.Result{Diagnostics: []v1alpha1.Diagnostic{{Message: fmt.Sprintf(format, args...)}}}
}

// capped keeps the first limit bytes written to it, and calls full once there are more.
type capped struct {
	kept       []byte
	limit      int
	full       func()
	overflowed bool
}

func (c *capped) Write(data []byte) (int, error) {
	room := c.limit - len(c.kept)
	c.kept = append(c.kept, data[:min(room, len(data))]...)
	if len(data) > room && !c.overflowed {
		c.overflowed = true
		if c.full != nil {
			c.full()
		}
	}
	return len(data), nil
}
