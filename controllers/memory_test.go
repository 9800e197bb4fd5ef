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
	// restMemory is for everything else that the controller keeps: objects in caches, and policies. The performance report has
	// 131 MiB.
	restMemory = 256 << 20
	// roomForSessions and roomForConnections are how many fit into the chart's limit. docs/install.md explains how to raise it
	// for more.
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
		"children that compile and that evaluate policies": childrenMemory(),
		"PoolSources that are worked on":                   sourceWorkers * gitsource.FetchBytes,
		"compiled revisions":                               sources.CacheMemory,
		"webhook bodies, in buffers that double":           2 * webhook.IntakeBytes,
		"GitHub's answers that are read or wait":           github.AnswerMemory,
		"what is kept of GitHub's answers":                 github.KeptMemory,
		"sessions that wait for messages":                  roomForSessions * scaleset.SessionMemory,
		"connections":                                      roomForConnections * github.ConnectionMemory,
		"jobs that no pool is for":                         jobs.UnmatchedMemory,
		"jobs that pools know":                             jobs.MaxAllEntries * jobs.EntrySize,
		"all else":                                         restMemory,
	} {
		t.Logf("%5d MiB for %s", bytes>>20, name)
		sum += bytes
	}
	limit := values.Resources.Limits.Memory.Value()
	t.Logf("%5d MiB together; the limit is %d MiB", sum>>20, limit>>20)
	if sum > limit {
		t.Errorf("what may be held at once is %d MiB, and the chart's limit %d MiB", sum>>20, limit>>20)
	}
	if values.Concurrency.Others > sourceWorkers {
		t.Errorf("the chart has %d objects of a kind worked on; of PoolSources %d are", values.Concurrency.Others, sourceWorkers)
	}
}

func TestTheControllersMemoryIsWhatItsChildrenLeave(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		want       int64
	}{
		"cgroup v2":            {"memory.max", "8589934592\n", 8<<30 - childrenMemory()},
		"cgroup v1":            {"memory/memory.limit_in_bytes", "8589934592\n", 8<<30 - childrenMemory()},
		"less than theirs":     {"memory.max", "1073741824\n", 256 << 20},
		"no limit":             {"memory.max", "max\n", 0},
		"no cgroup":            {"cpu.max", "max\n", 0},
		"not what is expected": {"memory.max", "lots", 0},
	} {
		if got := memoryFor(fstest.MapFS{tc.file: {Data: []byte(tc.text)}}); got != tc.want {
			t.Errorf("%s: %d bytes, not %d", name, got, tc.want)
		}
	}
}
