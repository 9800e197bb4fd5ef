// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// failoverVariable is the number of minutes that TestFailover runs. If it is not set, the test is skipped.
	failoverVariable = "CORRAL_FAILOVER_MINUTES"
	// zombie is how long a replica is stopped. It exceeds the lease, so that another replica leads when this one
	// resumes.
	zombie = 45 * time.Second
	// mostAhead is how far a replica's clock may be ahead or behind. The proxies' certificates are valid from one
	// hour before the test.
	mostAhead = 50 * time.Minute
)

// Two replicas run through consecutive storms. In each storm, one replica is stopped for longer than its lease,
// and the clocks of both jump.
func TestFailover(t *testing.T) {
	minutes, _ := strconv.Atoi(os.Getenv(failoverVariable))
	if minutes == 0 {
		t.Skipf("%s is not set: this test runs nightly", failoverVariable)
	}
	all, err := seeds(os.Getenv(seedsVariable))
	harness.Must(t, err)
	seed := all[0]
	t.Logf("%s=%d %s=%d make failover", seedsVariable, seed, failoverVariable, minutes)
	s := newStorm(t, seed, 2)
	for end := time.Now().Add(time.Duration(minutes) * time.Minute); time.Now().Before(end) && !t.Failed(); seed++ {
		s.later(time.Duration(seed%30)*time.Second, func() { s.freeze(s.replicas[seed%2]) })
		s.skew(seed)
		s.rage(seed)
	}
	s.judge()
}

// giveClocks gives each replica its own clock, which starts with the correct time.
func (s *storm) giveClocks() {
	var err error
	s.clockBinary, err = harness.BuildWithClock(s.Context())
	harness.Must(s.T, err)
	for _, r := range s.replicas {
		r.clock = harness.NewClock(s.T, 0)
	}
}

// skew lets each replica's clock jump three times during a storm.
func (s *storm) skew(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	for _, r := range s.replicas {
		for range 3 {
			ahead := time.Duration(random.Int64N(int64(2*mostAhead))) - mostAhead
			s.later(time.Duration(random.Int64N(int64(duration))), func() {
				s.log.add("", "clock", "%s: %s ahead", r.name, ahead.Round(time.Second))
				r.clock.Set(ahead)
			})
		}
	}
}

// freeze stops a replica's process, and resumes it later.
func (s *storm) freeze(r *replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.controller == nil {
		return
	}
	s.log.add("", "freeze", "%s", r.name)
	pid := r.controller.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.Error(err)
		return
	}
	s.until(time.Now().Add(zombie))
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		s.Error(err)
	}
}

// elect grants the permissions for leader election in the storm's namespace.
func (s *storm) elect() {
	s.Helper()
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	harness.Must(s.T, w.Client.Get(s.Context(), harness.Key(world.SystemNamespace, "corral-leader"), role))
	harness.Must(s.T, w.Client.Get(s.Context(), harness.Key(world.SystemNamespace, "corral-leader"), binding))
	role.Namespace, role.ResourceVersion, binding.Namespace, binding.ResourceVersion = s.namespace, "", s.namespace, ""
	harness.Must(s.T, w.Client.Create(s.Context(), role))
	harness.Must(s.T, w.Client.Create(s.Context(), binding))
}
