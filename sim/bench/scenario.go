// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// jobDuration is the duration of each job.
const jobDuration = 2 * time.Second

// scenario is a kind of load.
type scenario struct {
	name, about string
	// far means that the scenario is also run with a distant GitHub.
	far bool
	// run measures once, in a new world.
	run func(ctx context.Context, o *options, latency time.Duration) (figures, error)
}

func scenarios() []scenario {
	return []scenario{
		{"burst-100", "100 jobs at once for one pool", true, runBurst(1, 100)},
		{"burst-500", "500 jobs at once for one pool", true, runBurst(1, 500)},
		{"pools-20x25", "25 jobs at once for each of 20 pools", true, runBurst(20, 25)},
		{"poisson", "3 jobs a second, one by one, over 4 pools", false, runStream(4)},
		{"deaf-100", "3 jobs at once for each of 100 pools, while 100 others wait for a GitHub that never answers", false, runDeaf},
		{"webhooks-50", "5,000 deliveries at once for 50 pools, again and again, then a flood of those that mean nothing", false, runWebhooks},
		{"policy-1000", "decisions on 1,000 pools, with the whole library and with additional modules, without a cluster", false, runPolicy},
		{"hostile-rules", "jobs of 4 tenants while a fifth pushes rules that take all memory, CPU and time, and without", true, runHostile},
		{"review-200", "a review of a change of 200 pools, without a cluster", false, runReview},
		{"compile-300", "300 objects from a table compiled, without a cluster", false, runCompile(300)},
		{"compile-5000", "5,000 objects, the most that a tree may declare, compiled likewise", false, runCompile(5000)},
		{"maximal-5000", "jobs of an ordinary tenant alone, and next to a tenant with 5,000 pools that reaches every limit", false, runMaximal},
		{"crash", "a job queued when the leader was just killed, until its pod is there", false, runCrash},
		{"idle-200", "200 pools on one App with nothing to do", false, runIdle},
	}
}

func describe() string {
	var b strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&b, "  %-14s%s\n", s.name, s.about)
	}
	return b.String()
}

// benchCase is a scenario with a latency of GitHub.
type benchCase struct {
	scenario
	latency time.Duration
}

func (c benchCase) String() string {
	return fmt.Sprintf("%s with GitHub at %d ms", c.name, c.latency.Milliseconds())
}

// cases returns the selected scenarios with their latencies. Scenarios that are not run with a distant GitHub have only
// the first latency.
func (o *options) cases(wanted *regexp.Regexp) []benchCase {
	var all []benchCase
	for _, s := range scenarios() {
		if !wanted.MatchString(s.name) {
			continue
		}
		for i, latency := range o.latencies {
			if s.far || i == 0 {
				all = append(all, benchCase{s, latency})
			}
		}
	}
	return all
}
