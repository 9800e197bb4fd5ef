// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
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
	// failoverVariable is for how many minutes TestFailover runs; it is skipped without one.
	failoverVariable = "CORRAL_FAILOVER_MINUTES"
	// zombie is how long a leader is stopped: its lease ends meanwhile, and it goes on as if nothing had happened.
	zombie = 45 * time.Second
)

// Two replicas live through one storm after the other, with a leader that is stopped for longer than its lease in each.
func TestFailover(t *testing.T) {
	minutes, _ := strconv.Atoi(os.Getenv(failoverVariable))
	if minutes == 0 {
		t.Skipf("%s is not set: this is a test for a night", failoverVariable)
	}
	all, err := seeds(os.Getenv(seedsVariable))
	harness.Must(t, err)
	seed := all[0]
	t.Logf("%s=%d %s=%d make failover", seedsVariable, seed, failoverVariable, minutes)
	s := newStorm(t, seed, 2)
	for end := time.Now().Add(time.Duration(minutes) * time.Minute); time.Now().Before(end) && !t.Failed(); seed++ {
		s.later(time.Duration(seed%30)*time.Second, func() { s.freeze(s.replicas[seed%2]) })
		s.rage(seed)
	}
	s.judge()
}

// freeze stops the process of a replica, which goes on later.
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

// elect lets the replicas agree on a leader in the storm's namespace.
func (s *storm) elect() {
	s.Helper()
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	harness.Must(s.T, w.Client.Get(s.Context(), harness.Key(world.SystemNamespace, "corral-leader"), role))
	harness.Must(s.T, w.Client.Get(s.Context(), harness.Key(world.SystemNamespace, "corral-leader"), binding))
	role.Namespace, role.ResourceVersion, binding.Namespace, binding.ResourceVersion = s.namespace, "", s.namespace, ""
	harness.Must(s.T, w.Client.Create(s.Context(), role))
	harness.Must(s.T, w.Client.Create(s.Context(), binding))
}
