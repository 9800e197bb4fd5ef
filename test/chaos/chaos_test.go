// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package chaos injects random, simultaneous failures of GitHub, pods, nodes and the controller. Afterwards it
// checks that every job ran exactly once and that nothing is left over.
package chaos

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
	"github.com/corral-dev/corral/test/sources"
)

const (
	// seedsVariable lists the seeds to run, such as "7", "1-20" or "3,5,8-10".
	seedsVariable = "CORRAL_CHAOS_SEEDS"
	defaultSeeds  = "1"
	// keepVariable keeps the logs of storms that pass, if it is set.
	keepVariable = "CORRAL_CHAOS_KEEP"
	maxSeeds     = 1000
)

var w *harness.World // shared by the storms; each has its own namespace, GitHub, nodes and controller

// atOnce is the number of storms that run in parallel. It does not depend on the number of processors, because a
// storm spends most of its time waiting.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(harness.Run(m, world.Options{NoNodes: true}, func(made *harness.World) (func() error, error) {
		w = made
		return nil, nil
	}))
}

// seeds parses a list of seeds.
func seeds(text string) ([]uint64, error) {
	var all []uint64
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading seeds %q: %w", text, err)
		}
		to, err := strconv.ParseUint(last, 10, 64)
		if err != nil || to < from || to-from >= maxSeeds {
			return nil, fmt.Errorf("reading seeds %q: %q is not a range of at most %d", text, part, maxSeeds)
		}
		for ; from <= to; from++ {
			all = append(all, from)
		}
	}
	return all, nil
}

// Several storms run in parallel. They share only the API server.
func TestStorm(t *testing.T) {
	sources.Open(t, "../..")
	text := os.Getenv(seedsVariable)
	if text == "" {
		text = defaultSeeds
	}
	all, err := seeds(text)
	harness.Must(t, err)
	for _, seed := range all {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			blow(t, seed)
		})
	}
}
