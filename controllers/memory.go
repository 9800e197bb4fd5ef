// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"io/fs"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/internal/worker"
)

// Limits on the concurrency of work that uses much memory. If all of this work uses its maximum memory at the same time,
// the process and its children stay within the memory limit of the chart.
const (
	// compilers is how many child processes compile concurrently.
	compilers = 2
	// evaluators is how many child processes evaluate policies concurrently. In addition, the same number of child
	// processes may be busy with slow requests, and one spare child process waits for a request.
	evaluators = 2
	// sourceWorkers is how many PoolSources are reconciled concurrently. It is limited because each may list references,
	// fetch files, or hold a compiled revision.
	sourceWorkers = 8
)

// childrenMemory returns the maximum memory of all child processes, in bytes.
func childrenMemory() int64 {
	return compilers*int64(worker.DefaultLimits().Memory+worker.StartBytes) + worker.DefaultEvaluatorLimits().Most(evaluators)
}

// LimitMemory makes this process collect garbage more often when its memory approaches the container's limit minus the
// memory of its child processes. It reads the limit from a cgroup of version 1 or 2. set is the value of GOMEMLIMIT, which
// takes precedence unless it is empty.
func LimitMemory(cgroup fs.FS, set string) {
	if limit := memoryFor(cgroup); limit > 0 && set == "" {
		debug.SetMemoryLimit(limit)
	}
}

// memoryFor returns the memory, in bytes, that the container's limit leaves to this process next to its child processes,
// but at least a quarter of the limit. It returns 0 if the container has no limit.
func memoryFor(cgroup fs.FS) int64 {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, err := fs.ReadFile(cgroup, name)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil {
			return max(limit-childrenMemory(), limit/4)
		}
	}
	return 0
}
