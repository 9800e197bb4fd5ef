// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// PID is the process ID of the controller.
func (c *Controller) PID() int { return c.command.Process.Pid }

// CPUTime is the CPU time that the controller has used so far, in user and kernel mode.
func (c *Controller) CPUTime() (time.Duration, error) {
	process, err := procfs.NewProc(c.PID())
	if err != nil {
		return 0, fmt.Errorf("reading the controller's CPU time: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the controller's CPU time: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// Memory is the current and the peak resident memory of a process, in MiB.
type Memory struct{ Resident, Peak float64 }

// Memory returns the memory use of the controller.
func (c *Controller) Memory() (Memory, error) { return MemoryOf(c.PID()) }

// MemoryOf returns the memory use of a process.
func MemoryOf(pid int) (Memory, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	const mib = 1 << 20
	return Memory{Resident: float64(status.VmRSS) / mib, Peak: float64(status.VmHWM) / mib}, nil
}

// Children returns the running child processes of a process.
func Children(parent int) []int {
	processes, _ := procfs.AllProcs() // without /proc there are none to see
	var all []int
	for _, p := range processes {
		if stat, err := p.Stat(); err == nil && stat.PPID == parent && stat.State != "Z" {
			all = append(all, p.PID)
		}
	}
	return all
}
