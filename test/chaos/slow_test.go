// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

const (
	// shortDeadline is the startup and connect deadline of runners on an idle machine.
	shortDeadline = 10 * time.Second
	// slowAnswer is the delay of each API answer while the cluster is slow.
	slowAnswer = 2 * time.Second
	// probes is the number of requests that measure the machine's speed. quietProbe is the maximum duration of one
	// on an idle machine.
	probes     = 50
	quietProbe = 8 * time.Millisecond
	// mostSlowness is the upper limit for the factor by which deadlines grow on a busy machine.
	mostSlowness = 6
)

// slowness returns how many times slower API writes are than on an idle machine, between 1 and mostSlowness.
// Runner deadlines are extended by this factor. Otherwise, a busy machine would cause failures that are not in the
// schedule.
func (s *storm) slowness(when string) int64 {
	s.Helper()
	began := time.Now()
	for i := range probes {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("probe-%s-%d", when, i)}}
		harness.Must(s.T, w.Client.Create(s.Context(), o))
		harness.Must(s.T, w.Client.Delete(s.Context(), o))
	}
	took := time.Since(began) / (2 * probes)
	times := min(max(1, int64((took+quietProbe-1)/quietProbe)), mostSlowness)
	s.Logf("seed %d: a request takes %s; deadlines are %d times as long", s.seed, took.Round(time.Millisecond), times)
	return times
}

// slowDown slows the cluster down while each pool gets a job: API answers take seconds, and pods start more slowly
// than their deadline allows. After the cluster recovers, each pool must reach its wanted size within one startup
// deadline, with a bounded number of attempts.
func (s *storm) slowDown() {
	s.Helper()
	s.log.add("", "cluster", "is slow")
	for _, r := range s.replicas {
		r.api.Inject(apiproxy.Fault{Kind: apiproxy.Delay, Resource: apiproxy.All, For: slowAnswer})
	}
	start := s.node.Inject(nodeplay.Fault{Kind: nodeplay.StartsSlowly})
	begin := time.Now()
	for i := range pools {
		job := githubsim.Job{Repository: connectionName(i) + "/app", Labels: []string{poolName(i)}, Name: fmt.Sprintf("slow-%02d", i), Duration: time.Millisecond, Result: githubsim.ResultSucceeded}
		s.schedule.arrivals = append(s.schedule.arrivals, arrival{job: job})
		if _, err := s.github.AddJob(job); err != nil {
			s.Error(err)
		}
	}
	s.until(begin.Add(2*s.startup + s.startup/2))
	for _, r := range s.replicas {
		r.api.ClearFaults()
	}
	start()
	s.log.add("", "cluster", "is fast again")
	made, healed := s.github.Report().RunnersMade, time.Now()
	s.recovers()
	s.log.add("", "cluster", "%d runners were registered in the %s until all was back", s.github.Report().RunnersMade-made, time.Since(healed).Round(time.Millisecond))
	s.waits(healed, made)
}

// waits fails the storm if a pool took longer than its startup deadline to recover, plus the same time again to
// allow for a slow machine. It also fails if the pools created more runners than one for each missing runner and
// one for each that was starting.
func (s *storm) waits(healed time.Time, made int) {
	s.Helper()
	const staying = 10 // persistent runners that are replaced at their maximum age
	missing := pools   // for the jobs
	for i := range pools {
		missing += wanted(i)
	}
	if n := s.github.Report().RunnersMade - made; n > 2*missing+staying {
		s.complain("%d runners were registered after the cluster was slow, for %d that may have been missing", n, missing)
	}
	took := time.Since(healed)
	if took > 2*s.startup && took > 2*time.Duration(s.slowness("after"))*shortDeadline { // the machine may have become slower
		s.complain("the pools reached their wanted size %s after the cluster was slow; their startup deadline is %s", took.Round(time.Second), s.startup)
	}
}
