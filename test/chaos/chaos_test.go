// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package chaos lets GitHub, the pods, the nodes and the controller itself fail at random, all at
// once, and then checks that every job was done once and that nothing is left.
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
	// seedsVariable names the seeds to run, as "7", "1-20" or "3,5,8-10".
	seedsVariable = "CORRAL_CHAOS_SEEDS"
	defaultSeeds  = "1"
	// keepVariable, when set, keeps the logs of storms that pass, too.
	keepVariable = "CORRAL_CHAOS_KEEP"
	maxSeeds     = 1000
)

var w *harness.World // shared by the storms, which have a namespace, a GitHub, nodes and a controller each

// atOnce is how many storms blow at the same time, however few processors there are: a storm mostly waits.
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

// seeds reads the seeds to run.
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
			return nil, fmt.Errorf("reading seeds %q: %q is no range of at most %d", text, part, maxSeeds)
		}
		for ; from <= to; from++ {
			all = append(all, from)
		}
	}
	return all, nil
}

// Several storms blow at the same time, each in a world of its own but for the API server.
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
