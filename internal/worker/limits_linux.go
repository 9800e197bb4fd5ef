// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limit sets the resource limits of this process. Soft and hard limits are equal, except for CPU time: at the soft
// limit the process has one more second to report the reason and exit, and at the hard limit the kernel kills it. The
// parent could not find the reason, because the kernel reports less CPU time to it than the kernel counts for this
// limit.
func limit(l Limits) error {
	reserved, _, err := sizeOf("self")
	if err != nil {
		return err
	}
	most := func(value uint64) unix.Rlimit { return unix.Rlimit{Cur: value, Max: value} }
	limits := map[int]unix.Rlimit{unix.RLIMIT_AS: most(reserved + l.Memory), unix.RLIMIT_CORE: most(0), unix.RLIMIT_FSIZE: most(0)}
	if l.CPU > 0 {
		seconds := max(1, uint64(l.CPU/time.Second))
		limits[unix.RLIMIT_CPU] = unix.Rlimit{Cur: seconds, Max: seconds + 1}
		go exitOnSignal(unix.SIGXCPU, outOfCPUTime)
	}
	for resource, value := range limits {
		if err := unix.Setrlimit(resource, &value); err != nil {
			return fmt.Errorf("setting resource limit %d: %w", resource, err)
		}
	}
	return nil
}

// exitOnSignal ends this process with a message when it receives a signal.
func exitOnSignal(s os.Signal, message string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, s)
	<-signals
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}

// cpuOf returns the CPU time that a process of this user has used.
func cpuOf(pid int) (time.Duration, error) {
	var at unix.Timespec
	clock := int32(^pid<<3 | 2) //nolint:gosec // the kernel's form of a process's clock, see clock_getcpuclockid(3); pids fit
	if err := unix.ClockGettime(clock, &at); err != nil {
		return 0, fmt.Errorf("reading the CPU time of a child: %w", err)
	}
	return time.Duration(at.Nano()), nil
}

// memoryOf returns the bytes of memory that a process has in use.
func memoryOf(pid int) (uint64, error) {
	_, resident, err := sizeOf(strconv.Itoa(pid))
	return resident, err
}

// sizeOf returns the bytes of address space and of memory that a process has in use. Go's runtime reserves more than a
// gigabyte of address space at the start without using any memory.
func sizeOf(process string) (reserved, resident uint64, err error) {
	data, err := os.ReadFile("/proc/" + process + "/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &reserved, &resident)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading the size of a process: %w", err)
	}
	page := uint64(os.Getpagesize())
	return reserved * page, resident * page, nil
}

// goFirst makes the kernel kill this process, not its parent, when memory runs out.
func goFirst() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) }

// niceness is how much nicer children are than this process. If a child and this process both need a CPU, the child gets
// half of the time that this process gets. With less, children end at their deadlines on a machine that others keep busy.
const niceness = 3

// comeSecond lowers the priority of the calling thread and of the processes that it starts by niceness, even if this process
// has a low priority itself.
func comeSecond() error {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 minus the nice value
	if err != nil {
		return fmt.Errorf("reading the priority: %w", err)
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, min(19, 20-own+niceness))
}

// comeLast permanently makes a process run only when no other process needs the CPU. The kernel treats a CPU that runs
// only such processes as idle. A high nice value would not suffice, because the kernel would not treat the CPU as idle
// and could place a waking thread on another, busy CPU.
func comeLast(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads { // threads that these start later inherit the policy
		if tid, failed := strconv.Atoi(t.Name()); failed == nil {
			err = errors.Join(err, unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0))
		}
	}
	return err == nil
}

// isolate puts the child into its own process group, which is killed as a whole, and ties its life to its parent's.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cmd.Cancel != nil { // the command has a context
		cmd.Cancel = func() error { return killAll(cmd) }
	}
}

// killAll kills the child and all processes in its group.
func killAll(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
