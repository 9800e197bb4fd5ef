// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of times in /proc, per second: 100 on Linux, whatever the kernel's own.
const userHZ = 100

// CPUTime is what the controller has used so far, in user and kernel mode.
func (c *Controller) CPUTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("reading the controller's CPU time: %w", err)
	}
	return parseCPUTime(string(text))
}

// parseCPUTime reads utime and stime, fields 14 and 15 of proc_pid_stat(5).
func parseCPUTime(stat string) (time.Duration, error) {
	// The name before is in brackets and may hold any of these characters itself.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading the controller's CPU time: %q is not a line of /proc/PID/stat", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the controller's CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}

// PID of the controller's process.
func (c *Controller) PID() int { return c.command.Process.Pid }

// Memory reads a field of the controller's proc_pid_status(5), as VmHWM or VmRSS, in MiB.
func (c *Controller) Memory(field string) (float64, error) { return MemoryOf(c.PID(), field) }

// MemoryOf is Memory of any process.
func MemoryOf(pid int, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of a process: %w", err)
	}
	return parseMemory(string(text), field)
}

// Children lists the processes that a process has started and that run.
func Children(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	var all []int
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		if text, err := os.ReadFile(file); err == nil && parentOf(string(text)) == parent {
			all = append(all, pid)
		}
	}
	return all
}

// parentOf reads ppid, field 4 of proc_pid_stat(5); 0 if the process has ended.
func parentOf(stat string) int {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1]) // 0 has no children of ours
	return parent
}

func parseMemory(status, field string) (float64, error) {
	for text := range strings.Lines(status) {
		value, found := strings.CutPrefix(text, field+":")
		if !found {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", field, err)
		}
		return kib / 1024, nil
	}
	return 0, fmt.Errorf("reading the memory of a process: there is no %s", field)
}
