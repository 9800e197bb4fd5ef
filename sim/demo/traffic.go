// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// Jobs take from shortest up to shortest+spread. One in longEvery takes longFactor times as long.
	shortest   = 200 * time.Millisecond
	spread     = 2800 * time.Millisecond
	longEvery  = 15
	longFactor = 4
	// smallestBurst is the smallest value of the maximum burst size, which grows with the number of jobs.
	smallestBurst = 4
)

// burst is a group of jobs that arrive together, as when a push starts a workflow with a matrix.
type burst struct {
	// At is the time since the first burst.
	At time.Duration
	// Pool is the pool whose label the jobs request.
	Pool string
	// Jobs contains the duration of each job.
	Jobs []time.Duration
}

// planTraffic distributes jobs in bursts of random size over pools and time. The same seed gives the same plan. The
// first burst is at the beginning, all others before the time over. Each pool gets one burst before any gets a second
// one; after that, the first pool gets half of them.
func planTraffic(seed uint64, jobs int, over time.Duration, pools []string) []burst {
	random := rand.New(rand.NewPCG(seed, 0))
	largest := max(smallestBurst, jobs/10)
	var plan []burst
	for left := jobs; left > 0; {
		b := burst{Jobs: make([]time.Duration, min(left, 1+random.IntN(largest)))}
		for i := range b.Jobs {
			b.Jobs[i] = jobDuration(random)
		}
		if len(plan) > 0 {
			b.At = time.Duration(random.Int64N(int64(over)))
		}
		left -= len(b.Jobs)
		plan = append(plan, b)
	}
	slices.SortFunc(plan, func(a, b burst) int { return cmp.Compare(a.At, b.At) })
	for i := range plan {
		plan[i].Pool = pools[pickPool(random, i, len(pools))]
	}
	return plan
}

func jobDuration(random *rand.Rand) time.Duration {
	d := shortest + time.Duration(random.Int64N(int64(spread)))
	if random.IntN(longEvery) == 0 {
		d *= longFactor
	}
	return d.Round(time.Millisecond)
}

// pickPool returns the index of the pool for the nth burst.
func pickPool(random *rand.Rand, n, pools int) int {
	switch {
	case n < pools:
		return n
	case random.IntN(2) == 0:
		return 0
	}
	return random.IntN(pools)
}
