// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compileworker

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limit bounds this process. Soft and hard limits are one, so that the kernel kills it.
func limit(l Limits) error {
	reserved, err := addressSpace()
	if err != nil {
		return err
	}
	seconds := max(1, uint64(l.CPU/time.Second))
	for resource, value := range map[int]uint64{
		unix.RLIMIT_AS:    reserved + l.Memory,
		unix.RLIMIT_CPU:   seconds,
		unix.RLIMIT_CORE:  0,
		unix.RLIMIT_FSIZE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("setting resource limit %d: %w", resource, err)
		}
	}
	return nil
}

// addressSpace returns the bytes of address space in use: Go's runtime reserves more
// than a gigabyte of it at the start without using any memory.
func addressSpace() (uint64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("reading the size of the process: %w", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(data), &pages); err != nil {
		return 0, fmt.Errorf("reading the size of the process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// isolate gives the child a process group, killed as a whole, and ends it with its parent.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
