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

// What takes memory has places, and each place is as large as the largest use of it. All places together fit into the chart's limit.
const (
	// compilers is how many child processes compile at once.
	compilers = 2
	// evaluators is how many child processes evaluate policies at once, beside as many that are slow and a spare one.
	evaluators = 2
	// sourceWorkers is how many PoolSources are worked on at most, as each may list references, fetch or hold what was compiled.
	sourceWorkers = 8
)

// childrenMemory is what child processes take together at most, in bytes.
func childrenMemory() int64 {
	return compilers*int64(worker.DefaultLimits().Memory+worker.StartBytes) + worker.DefaultEvaluatorLimits().Most(evaluators)
}

// LimitMemory has this process collect garbage harder when it comes near the container's limit less what its child processes may take. The
// limit is read from a cgroup of either version. GOMEMLIMIT, if it is set, counts instead.
func LimitMemory(cgroup fs.FS, set string) {
	if limit := memoryFor(cgroup); limit > 0 && set == "" {
		debug.SetMemoryLimit(limit)
	}
}

// memoryFor returns how much memory, in bytes, this process has beside its child processes, and a quarter of the container's limit at
// least; 0 if the container has no limit.
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
