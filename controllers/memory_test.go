// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"os"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/controllers/jobs"
	"github.com/corral-dev/corral/controllers/sources"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/webhook"
)

const (
	// restMemory is an allowance for everything else that the controller keeps, such as cached objects and policies. The
	// largest value in docs/performance.md is 131 MiB for the whole controller.
	restMemory = 256 << 20
	// roomForSessions and roomForConnections are the numbers of sessions and connections that must fit into the chart's memory
	// limit. docs/install.md explains how to raise the limit for more.
	roomForSessions, roomForConnections = 1000, 50
)

func TestAllBoundsFitIntoTheChartsMemoryLimit(t *testing.T) {
	text, err := os.ReadFile("../charts/corral/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Concurrency struct {
			Others int64 `json:"others"`
		} `json:"concurrency"`
		Resources struct {
			Limits struct {
				Memory resource.Quantity `json:"memory"`
			} `json:"limits"`
		} `json:"resources"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for name, bytes := range map[string]int64{
		"child processes for CUE and policies":   childrenMemory(),
		"PoolSources that workers process":       sourceWorkers * gitsource.FetchBytes,
		"cached compiled revisions":              sources.CacheMemory,
		"webhook bodies, in buffers that double": 2 * webhook.IntakeBytes,
		"answers of GitHub that workers process": github.AnswerMemory,
		"cached answers of GitHub":               github.KeptMemory,
		"sessions that wait for messages":        roomForSessions * scaleset.SessionMemory,
		"connections":                            roomForConnections * github.ConnectionMemory,
		"jobs that match no pool":                jobs.UnmatchedMemory,
		"jobs of pools":                          jobs.MaxAllEntries * jobs.EntrySize,
		"everything else":                        restMemory,
	} {
		t.Logf("%5d MiB for %s", bytes>>20, name)
		sum += bytes
	}
	limit := values.Resources.Limits.Memory.Value()
	t.Logf("%5d MiB in total; the limit is %d MiB", sum>>20, limit>>20)
	if sum > limit {
		t.Errorf("the bounds add up to %d MiB, which exceeds the chart's memory limit of %d MiB", sum>>20, limit>>20)
	}
	if values.Concurrency.Others > sourceWorkers {
		t.Errorf("concurrency.others of the chart is %d, but the controller has at most %d workers for PoolSources", values.Concurrency.Others, sourceWorkers)
	}
}

// The controller's memory limit is the container's limit minus the maximum memory of the child processes.
func TestMemoryForLeavesRoomForChildren(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		want       int64
	}{
		"cgroup v2":                       {"memory.max", "8589934592\n", 8<<30 - childrenMemory()},
		"cgroup v1":                       {"memory/memory.limit_in_bytes", "8589934592\n", 8<<30 - childrenMemory()},
		"less than the children's memory": {"memory.max", "1073741824\n", 256 << 20},
		"no limit":                        {"memory.max", "max\n", 0},
		"no memory limit file":            {"cpu.max", "max\n", 0},
		"not a number":                    {"memory.max", "lots", 0},
	} {
		if got := memoryFor(fstest.MapFS{tc.file: {Data: []byte(tc.text)}}); got != tc.want {
			t.Errorf("%s: got %d bytes, want %d", name, got, tc.want)
		}
	}
}
