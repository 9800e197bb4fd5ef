// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/turns"
)

func TestMain(m *testing.M) {
	if IsChild() {
		Main()
	}
	// Children at the lowest priority must eventually run on a machine that other processes keep busy. Linux first
	// divides CPU time between sessions.
	_, _ = syscall.Setsid() // fails for the leader of a process group, which runs alone
	os.Exit(m.Run())
}

const pools = `package pools

import "corral.dev/schema"

pools: schema.#Pools & {
	linux: spec: {
		connectionRef: name: "acme"
		scale: max: int @tag(max,type=int)
		template: spec: containers: [{name: "runner", image: "runner:1"}]
	}
}
`

func TestAFolderWithoutDefinitionsIsNotAnAbsentOne(t *testing.T) {
	files := compile.Files{"pools/a.cue": []byte(pools), "docs/README.md": []byte("# Docs")}
	for _, folder := range []string{"docs", "none"} {
		got, err := newWorker(t, DefaultLimits()).Compile(t.Context(), files, compile.Options{Path: folder})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(compile.Compile(files, compile.Options{Path: folder}), got); diff != "" {
			t.Error(diff)
		}
	}
}

func newWorker(t *testing.T, limits Limits) *Compiler {
	t.Helper()
	return NewCompiler(2, limits)
}

func TestTheChildCompilesAsThisProcessDoes(t *testing.T) {
	for name, src := range map[string]string{"good": pools, "bad": strings.Replace(pools, "scale", "scal", 1)} {
		t.Run(name, func(t *testing.T) {
			files := compile.Files{"team/a.cue": []byte(src)}
			options := compile.Options{Path: "team", Tags: map[string]string{"max": "7"}}
			got, err := newWorker(t, DefaultLimits()).Compile(t.Context(), files, options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(compile.Compile(files, options), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// growing returns 300 bytes that take gigabytes: each string is ten times the previous one.
func growing() string {
	var b strings.Builder
	b.WriteString("package pools\n\na0: \"0123456789\"\n")
	for i := 1; i <= 8; i++ {
		fmt.Fprintf(&b, "a%d: a%d%s\n", i, i-1, strings.Repeat(fmt.Sprintf("+a%d", i-1), 9))
	}
	return b.String()
}

const endless = `package pools

import "list"

r: list.Range(0, 60, 1)
x: len([for a in r for b in r for c in r for d in r if a+b+c+d < 0 {1}])
`

func TestHostileDefinitionsEndWithADiagnostic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory and CPU time are limited on Linux only")
	}
	limits := DefaultLimits()
	limits.CPU = time.Second
	memory := DefaultLimits()
	memory.Memory = 512 << 20
	wall := DefaultLimits()
	wall.CPU, wall.Wall = 0, 10*time.Second // a child on a busy machine takes seconds to start
	output := DefaultLimits()
	output.OutputBytes = 100
	for name, tc := range map[string]struct {
		cue    string
		limits Limits
		want   string
	}{
		"memory": {growing(), memory, "a.cue: compiling needs more than 512 MiB of memory, the most that is allowed: "},
		"CPU":    {endless, limits, "a.cue: compiling takes more than 1s of CPU time, the most that is allowed: "},
		"wall":   {endless, wall, "a.cue: compiling takes longer than 10s, the most that is allowed: "},
		"output": {strings.Replace(pools, "int @tag(max,type=int)", "3", 1), output, "the objects take more than 100 bytes, the most that is accepted: "},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newWorker(t, tc.limits).Compile(t.Context(), compile.Files{"a.cue": []byte(tc.cue)}, compile.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Diagnostics) != 1 || !strings.HasPrefix(compile.Format(got.Diagnostics[0]), tc.want) {
				t.Errorf("got %v", got.Diagnostics)
			}
		})
	}
}

func TestACompilerThatGetsNoCPUTimeIsNoDiagnostic(t *testing.T) {
	limits := DefaultLimits()
	limits.Wall = 300 * time.Millisecond
	got, err := newWorker(t, limits).Compile(t.Context(), compile.Files{"a.cue": []byte(endless)}, compile.Options{})
	if err == nil || !strings.Contains(err.Error(), "of CPU time in 300ms, too little: the machine is busy") || got.Diagnostics != nil {
		t.Errorf("%v, %v", got.Diagnostics, err)
	}
}

// For example, the kernel may kill it when the node runs out of memory. The definitions are not at fault and are tried
// again.
func TestACompilerThatIsEndedFromOutsideIsNoDiagnostic(t *testing.T) {
	w := newWorker(t, DefaultLimits())
	w.Executable = filepath.Join(t.TempDir(), "compiler")
	if err := os.WriteFile(w.Executable, []byte("#!/bin/sh\necho 'compiling a.cue' >&2\nkill -9 $$\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	got, err := w.Compile(t.Context(), compile.Files{"a.cue": []byte("package pools")}, compile.Options{})
	if err == nil || err.Error() != "the compiler was killed from outside (signal: killed)" || got.Diagnostics != nil {
		t.Errorf("%v, %v", got.Diagnostics, err)
	}
}

func TestNobodysDefinitionsKeepThoseOfOthersWaiting(t *testing.T) {
	// Replaces the compiler and records the order of requests.
	log, script := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "compiler")
	text := fmt.Sprintf("#!/bin/sh\nread -r request\necho \"$request\" >> %s\necho '{}'\n", log)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := NewCompiler(1, DefaultLimits())
		w.Executable = script
		round, err := w.slots.Enter(t.Context(), turns.Looking, "")
		if err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for _, flow := range []string{"greedy", "greedy", "greedy", "quiet"} {
			asking.Go(func() {
				files := compile.Files{flow + "/a.cue": []byte("package pools")}
				if _, err := w.Compile(InFlow(t.Context(), flow), files, compile.Options{Path: flow}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		w.slots.Leave(round, turns.Unknown)
		asking.Wait()
	})
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	for line := range strings.Lines(string(got)) {
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		served = append(served, r.Options.Path)
	}
	if diff := cmp.Diff([]string{"greedy", "quiet", "greedy", "greedy"}, served); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAFlowHasOneCompilationAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewCompiler(2, DefaultLimits())
		entered := map[string]int{}
		for _, flow := range []string{"greedy", "greedy", "quiet"} {
			go func() {
				leave, err := w.enter(t.Context(), flow)
				if err != nil {
					return
				}
				entered[flow]++
				<-t.Context().Done()
				leave()
			}()
			synctest.Wait()
		}
		if entered["greedy"] != 1 || entered["quiet"] != 1 {
			t.Errorf("compilations at once: %v", entered)
		}
	})
}

func TestWhatIsNotTheDefinitionsFaultIsAnError(t *testing.T) {
	files := compile.Files{"a.cue": []byte(endless)}
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := newWorker(t, DefaultLimits()).Compile(ctx, files, compile.Options{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("canceled while others compile", func(t *testing.T) {
		w := newWorker(t, DefaultLimits())
		for range 2 {
			if _, err := w.slots.Enter(t.Context(), turns.Looking, ""); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Compile(ctx, files, compile.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no binary", func(t *testing.T) {
		w := newWorker(t, DefaultLimits())
		w.Executable = "/nonexistent"
		if _, err := w.Compile(t.Context(), files, compile.Options{}); err == nil {
			t.Error("got no error")
		}
	})
}
