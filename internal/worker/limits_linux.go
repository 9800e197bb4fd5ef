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

// limit limits this process. Soft and hard limits are equal, so that the kernel kills it. For CPU time, there is a
// second to report that it is used up: the parent cannot find out, because the kernel reports less CPU time to it than
// it counts for this limit.
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

// exitOnSignal ends this process when it receives a signal.
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

// goFirst makes the kernel choose this process, not its parent, when memory runs out.
func goFirst() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) }

// comeSecond lowers the priority of processes that this thread starts: they get a third of the CPU time that this
// process gets when both need it, even if this process has a low priority itself.
func comeSecond() error {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value
	if err != nil {
		return fmt.Errorf("reading the priority: %w", err)
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, min(19, 20-own+5))
}

// comeLast makes a process run only when no one else needs the CPU, permanently. The kernel treats a CPU that runs only
// such processes as idle. The nice value is not enough, because a waking thread would then be placed on another busy
// CPU instead.
func comeLast(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads { // threads that they start later inherit it
		if tid, failed := strconv.Atoi(t.Name()); failed == nil {
			err = errors.Join(err, unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0))
		}
	}
	return err == nil
}

// isolate puts the child into its own process group, which is killed as a whole, and ties its life to its parent's.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cmd.Cancel != nil { // it has a context
		cmd.Cancel = func() error { return killAll(cmd) }
	}
}

// killAll kills the child with all that it started.
func killAll(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
