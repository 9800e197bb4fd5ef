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

// Everything that uses much memory has a limited number of places, each as large as its largest use. All places together
// fit into the chart's limit.
const (
	// compilers is how many child processes compile concurrently.
	compilers = 2
	// evaluators is how many child processes evaluate policies concurrently, in addition to as many slow ones and a spare one.
	evaluators = 2
	// sourceWorkers limits how many PoolSources are reconciled concurrently, because each may list references, fetch files, or
	// hold a compiled revision.
	sourceWorkers = 8
)

// childrenMemory returns the maximum memory of all child processes, in bytes.
func childrenMemory() int64 {
	return compilers*int64(worker.DefaultLimits().Memory+worker.StartBytes) + worker.DefaultEvaluatorLimits().Most(evaluators)
}

// LimitMemory makes this process collect garbage more often when its memory approaches the container's limit minus the
// memory of its child processes. The limit is read from a cgroup of either version. GOMEMLIMIT takes precedence if it is
// set.
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
