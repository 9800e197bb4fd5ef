// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corral-dev/corral/internal/policy"
)

func TestAChildComesAfterItsParent(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child, err := start(executable)
	if err != nil {
		t.Fatal(err)
	}
	defer child.kill()
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	its, err := unix.Getpriority(unix.PRIO_PROCESS, child.pid())
	if want := max(1, own-niceness); err != nil || its != want {
		t.Errorf("the child has priority %d, want %d, its parent has %d (more comes first): %v", its, want, own, err)
	}
}

func TestACompilationHasALowerPriorityThanItsParent(t *testing.T) {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 minus the nice value
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "compiler")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nnice >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := &Compiler{Executable: script, Limits: Limits{Wall: time.Minute, OutputBytes: 1}}
	result, err := c.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := result.Diagnostics[0].Message, fmt.Sprint(min(19, 20-own+niceness)); !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want the nice value %s", got, want)
	}
}

func TestWhatAThreadStartsComesAfterItWhateverItsPriority(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	for range 3 {
		own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := comeSecond(); err != nil {
			t.Fatal(err)
		}
		if its, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || its != max(1, own-niceness) {
			t.Errorf("after %d it is %d (more comes first): %v", own, its, err)
		}
	}
}

// The kernel prevents a namespace with slow rules from delaying others, and no other namespace gets its child.
func TestAChildThatIsAskedForLongComesLast(t *testing.T) {
	e := newEvaluator(t, 1)
	e.limits.Ask = Limit{CPU: time.Hour, Usual: 1, Memory: 1 << 30, Wall: time.Hour}
	slow := load(t, e, of("slow", "p", when("count([1 | some i in numbers.range(1, 400); some j in numbers.range(1, 400); i * j == 7]) == 2")))
	if got, kinds := ask(t, "slow", slow); got != 1 || kinds != nil {
		t.Fatalf("%d, %v", got, kinds)
	}
	child := e.idle[0]
	at, err := unix.SchedGetAttr(child.pid(), 0)
	if err != nil || at.Policy != unix.SCHED_IDLE {
		t.Fatalf("its policy is %+v, want SCHED_IDLE: %v", at, err)
	}
	if got, _ := ask(t, "slow", slow); got != 1 || child.isOver() {
		t.Error("the namespace got another child")
	}
	quiet := policy.Elsewhere(of("quiet", "p", limits(honest)), policy.Facts{Decisions: []string{policy.DecisionScaling}}, e)
	if got, kinds := ask(t, "quiet", quiet); got != 7 || kinds != nil || !child.isOver() {
		t.Errorf("%d, %v; the slow child is over: %t", got, kinds, child.isOver())
	}
}

func TestTheChildOfWhoTookTooMuchComesLastFromTheStart(t *testing.T) {
	e := newEvaluator(t, 2)
	e.limits.Ask.Usual, e.limits.Load.Usual = e.limits.Ask.CPU*3/4, e.limits.Load.CPU*3/4 // an honest rule on a slow machine takes less
	endless, cheap := load(t, e, of("greedy", "p", hostile["never ends"])), load(t, e, of("greedy", "q", limits(honest)))
	quiet := load(t, e, of("quiet", "p", limits(honest)))
	ask(t, "greedy", endless)
	for _, p := range []*policy.Policy{cheap, quiet} {
		if got, kinds := ask(t, p.Source().Namespace, p); got != 7 || kinds != nil {
			t.Fatalf("%d, %v", got, kinds)
		}
	}
	for _, child := range e.idle {
		want := map[string]uint32{"greedy": unix.SCHED_IDLE, "quiet": unix.SCHED_NORMAL}[child.namespace]
		if at, err := unix.SchedGetAttr(child.pid(), 0); err != nil || at.Policy != want {
			t.Errorf("the child of %s has %+v, want policy %d: %v", child.namespace, at, want, err)
		}
	}
	if len(e.idle) != 2 {
		t.Errorf("there are %d children", len(e.idle))
	}
}
