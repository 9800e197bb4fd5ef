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
	// probes is the number of objects that slowness creates and deletes to measure the machine's speed.
	probes = 50
	// quietRequest is the maximum average duration of such a request on an idle machine.
	quietRequest = 8 * time.Millisecond
	// maxSlowness limits the factor by which a busy machine extends deadlines.
	maxSlowness = 6
)

// slowness returns how many times slower API writes are than on an idle machine, between 1 and maxSlowness.
// The storm extends the deadlines of runners by this factor. Otherwise, a busy machine would cause failures that the
// schedule does not contain.
func (s *storm) slowness(when string) int64 {
	s.Helper()
	began := time.Now()
	for i := range probes {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("probe-%s-%d", when, i)}}
		harness.Must(s.T, w.Client.Create(s.Context(), o))
		harness.Must(s.T, w.Client.Delete(s.Context(), o))
	}
	took := time.Since(began) / (2 * probes)
	times := min(max(1, int64((took+quietRequest-1)/quietRequest)), maxSlowness)
	s.Logf("seed %d: a request takes %s; deadlines are %d times as long", s.seed, took.Round(time.Millisecond), times)
	return times
}

// slowDown slows the cluster down while each pool gets a job: API answers take seconds, and pods start more slowly
// than their deadline allows. After the cluster recovers, each pool must reach its wanted size within a bounded time
// and with a bounded number of registrations: see checkRecovery.
func (s *storm) slowDown() {
	s.Helper()
	s.log.add("", "cluster", "is slow")
	for _, r := range s.replicas {
		r.api.Inject(apiproxy.Fault{Kind: apiproxy.Delay, Resource: apiproxy.All, For: slowAnswer})
	}
	endSlowStarts := s.node.Inject(nodeplay.Fault{Kind: nodeplay.StartsSlowly})
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
	endSlowStarts()
	s.log.add("", "cluster", "is fast again")
	registered, recovered := s.github.Report().RunnersMade, time.Now()
	s.recovers()
	s.log.add("", "cluster", "the pools recovered in %s and registered %d runners", time.Since(recovered).Round(time.Millisecond), s.github.Report().RunnersMade-registered)
	s.checkRecovery(recovered, registered)
}

// checkRecovery fails the storm if the pools needed more than twice their startup deadline to recover; the second half
// allows for a slow machine. It also fails if the pools registered more than two runners for each runner that may have
// been missing: one that was starting, and its replacement. recovered is the time at which the cluster was fast again,
// and registered is the number of registrations until then.
func (s *storm) checkRecovery(recovered time.Time, registered int) {
	s.Helper()
	const aged = 10  // persistent runners that reach their maximum age in this time
	missing := pools // one runner for the job of each pool
	for i := range pools {
		missing += wanted(i)
	}
	if n := s.github.Report().RunnersMade - registered; n > 2*missing+aged {
		s.complain("the pools registered %d runners after the cluster recovered, although at most %d were missing", n, missing)
	}
	took := time.Since(recovered)
	if took > 2*s.startup && took > 2*time.Duration(s.slowness("after"))*shortDeadline { // the machine may have become slower
		s.complain("the pools reached their wanted size %s after the cluster recovered; their startup deadline is %s", took.Round(time.Second), s.startup)
	}
}
