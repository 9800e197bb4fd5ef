// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker compiles untrusted definitions and evaluates untrusted policies in child processes, which can be
// stopped.
//
// An evaluation of CUE cannot be canceled, and 300 bytes of CUE can take gigabytes or never end. The same is true of a
// function call in Rego. So the running binary starts itself as a child process. It runs `corral compile-worker` once
// for each compilation, with limits on memory, CPU time, wall time and output. It runs `corral policy-worker` for
// policies, which stay loaded between questions; the parent watches the CPU time and memory of the child. Both children
// get no environment variables except GOGC, and communicate over standard input and output. If a definition or policy
// exceeds a limit, its author gets an error.
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
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/turns"
	"github.com/corral-dev/corral/internal/wording"
)

// compileCommand is the hidden command that runs a compilation.
const compileCommand = "compile-worker"

// Limits are the limits of one compilation. The limits on memory and CPU time need Linux; on other systems, only the
// wall time and the output are limited.
type Limits struct {
	// Memory in bytes: the additional address space (RLIMIT_AS) after the start of the process.
	Memory uint64 `json:"memory"`
	// CPU time, in whole seconds (RLIMIT_CPU).
	CPU time.Duration `json:"cpu"`
	// Wall time from the start of the process to its end. If a compilation exceeds it with CPU time left, the machine is
	// busy, and the definitions are not to blame.
	Wall time.Duration `json:"wall"`
	// OutputBytes is the maximum size of the result's JSON.
	OutputBytes int `json:"outputBytes"`
}

// DefaultLimits returns limits that suffice for one tree with compile.MaxObjects pools from a table.
func DefaultLimits() Limits {
	return Limits{Memory: 1 << 30, CPU: 15 * time.Second, Wall: 4 * time.Minute, OutputBytes: 24 << 20}
}

// Compiler compiles definitions in child processes and limits their number. It is safe for concurrent use.
type Compiler struct {
	// Executable is a binary that runs Main when it is started as a child.
	Executable string
	// Limits of each compilation.
	Limits Limits

	slots *turns.Limiter
	alone alone // one compilation of each flow at a time
}

// NewCompiler returns a Compiler that executes the running binary, with at most concurrency processes at once.
func NewCompiler(concurrency int, limits Limits) *Compiler {
	executable, _ := os.Executable() // if this fails, starting a child returns an error
	return &Compiler{Executable: executable, Limits: limits, slots: turns.New(max(1, concurrency))}
}

// flowKey is the context key of the flow.
type flowKey struct{}

// InFlow returns a context for compilations of a flow, such as a namespace. A flow has one compilation at a time, so that
// a flow with many or slow definitions does not delay another. Compilations without a flow are not limited.
func InFlow(ctx context.Context, flow string) context.Context {
	return context.WithValue(ctx, flowKey{}, flow)
}

func flowOf(ctx context.Context) string {
	flow, _ := ctx.Value(flowKey{}).(string)
	return flow
}

// request is the input of a child.
type request struct {
	Limits  Limits
	Options compile.Options
	Files   compile.Files
}

// Compile runs compile.Compile in a child process, which also loads the declared policies. An error means that the
// child could not be run or that ctx ended; errors in the definitions are in the result.
func (c *Compiler) Compile(ctx context.Context, fsys fs.FS, options compile.Options) (compile.Result, error) {
	files, diagnostics := compile.Gather(fsys, options.Path)
	if len(diagnostics) > 0 {
		return compile.Result{Diagnostics: diagnostics}, nil
	}
	input, err := json.Marshal(request{c.Limits, options, files})
	if err != nil {
		return compile.Result{}, fmt.Errorf("encoding definitions: %w", err)
	}
	leave, err := c.enter(ctx, flowOf(ctx))
	if err != nil {
		return compile.Result{}, fmt.Errorf("waiting to compile: %w", err)
	}
	defer leave()
	return c.run(ctx, input)
}

// enter waits until the flow has no other compilation, and for a slot. It returns the function that ends the turn.
func (c *Compiler) enter(ctx context.Context, flow string) (leave func(), err error) {
	end := func() {}
	if flow != "" {
		end, err = c.alone.enter(ctx, flow)
	}
	if err != nil {
		return nil, err
	}
	round, err := c.slots.Enter(ctx, turns.Looking, flow)
	if err != nil {
		end()
		return nil, err
	}
	return func() {
		c.slots.Leave(round, turns.Unknown)
		end()
	}, nil
}

// collectLater makes a child collect garbage less often than usual, because the usual rate takes half of the CPU time
// of a compilation. The memory limit still applies.
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
	ended := make(chan error, 1)
	inBackground(func() { ended <- cmd.Run() })
	err := <-ended
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

// outOfCPUTime is the last line of a child that has used up its CPU time.
const outOfCPUTime = "out of CPU time"

// advice tells users how to fix definitions that exceed a limit.
const advice = "look for lists that multiply (comprehensions in comprehensions), values that contain each other, or large `&` of alternatives"

// explain converts the failure of a child into a diagnostic, or into an error if the definitions did not cause it.
func (c *Compiler) explain(state *os.ProcessState, wall error, output *capped) (compile.Result, error) {
	places, stderr := split(string(output.kept))
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
	case errors.Is(wall, context.DeadlineExceeded): // if CPU time is not limited
		result = refused("compiling takes longer than %s, the most that is allowed: %s", c.Limits.Wall, advice)
	case stderr == "":
		return compile.Result{}, fmt.Errorf("the compiler was killed from outside (%s)", state)
	default:
		result = refused("the compiler ended with %s: %s", state, wording.FirstLine(strings.TrimSpace(stderr)))
	}
	if len(places) > 0 && !output.overflowed {
		result.Diagnostics[0].File = places[len(places)-1]
	}
	return result, nil
}

func cpuTime(state *os.ProcessState) time.Duration { return state.UserTime() + state.SystemTime() }

// split separates the lines that name the compiled places from the rest of the child's standard error.
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

// stackExceeds is part of the Go runtime's message about an endless recursion.
const stackExceeds = "stack exceeds"

// isOutOfMemory recognizes the out-of-memory messages of the Go runtime and of the race detector.
func isOutOfMemory(stderr string) bool {
	signs := []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "failed to reserve", "failed to allocate", "address space collisions"}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(stderr, sign) })
}

func refused(format string, args ...any) compile.Result {
	return compile.Result{Diagnostics: []v1alpha1.Diagnostic{{Message: fmt.Sprintf(format, args...)}}}
}

// capped keeps the first limit bytes that are written to it. It calls full once when it receives more.
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
