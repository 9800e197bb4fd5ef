// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/scaling"
)

// seeds is how many random stories are simulated.
const seeds = 600

// The promises hold for any events in any order (check tests them after each pass), and an update ends when nothing
// holds it.
func TestNoPromiseIsBrokenInAnyOrderOfEvents(t *testing.T) {
	ends, told := map[string]int{}, 0
	for seed := range uint64(seeds) {
		c := newCluster(t, rand.New(rand.NewPCG(seed, 1)))
		c.say("seed %d", seed)
		c.choose()
		for range 60 {
			c.disturb()
			c.run(tick)
		}
		ends[c.settle()]++
		told++
	}
	t.Logf("stories end with: %v", ends)
	for _, end := range []string{"done", "rolled back"} {
		if ends[end] < told/20 {
			t.Errorf("only %d stories end with %q: %v", ends[end], end, ends)
		}
	}
}

// choose chooses a random pool and the fates of its templates.
func (c *cluster) choose() {
	r := c.random
	c.choosePool()
	strategies := []v1alpha1.UpdateStrategy{"", v1alpha1.RollingUpdate, v1alpha1.RollingUpdate, v1alpha1.Recreate, v1alpha1.OnIdle}
	c.spec.Strategy = strategies[r.IntN(len(strategies))]
	if r.IntN(2) == 0 {
		surge := intstr.FromInt32(r.Int32N(4))
		c.spec.MaxSurge = &surge
	}
	if r.IntN(2) == 0 {
		unavailable := intstr.FromString(fmt.Sprintf("%d%%", r.IntN(60)))
		c.spec.MaxUnavailable = &unavailable
	}
	if r.IntN(2) == 0 {
		c.spec.Canary = canary(1+r.Int32N(4), time.Duration(r.IntN(60))*time.Second)
	}
	for _, revision := range []string{"A", "B", "C"} {
		c.chooseFate(revision)
	}
}

// chooseFate chooses a random fate for new runners of a revision.
func (c *cluster) chooseFate(revision string) {
	fates := []fate{
		{}, {}, {}, {starts: 40 * time.Second},
		{cause: v1alpha1.CauseImagePull, lasts: 30 * time.Second}, {cause: v1alpha1.CauseCrash, lasts: 10 * time.Second},
		{cause: v1alpha1.CauseNeverConnected, lasts: 30 * time.Second},
	}
	c.fates[revision] = fates[c.random.IntN(len(fates))]
	c.say("runners of %s: %+v", revision, c.fates[revision])
}

func (c *cluster) choosePool() {
	most := 1 + c.random.Int32N(12)
	c.limits = v1alpha1.Scale{Max: most, Idle: c.random.Int32N(most + 1), Min: c.random.Int32N(most/2 + 1)}
}

// disturb causes a random event from time to time.
func (c *cluster) disturb() {
	r := c.random
	switch r.IntN(40) {
	case 0, 1, 2:
		c.edit(string("ABC"[r.IntN(3)]))
	case 3, 4, 5, 6:
		c.addJobs(1 + r.IntN(5))
	case 7:
		c.freeze("frozen")
	case 8, 9:
		c.freeze("")
	case 10:
		c.say("other limits")
		c.choosePool()
	case 11:
		c.say("the status is lost")
		c.state, c.stored = nil, ""
	case 12:
		c.say("the state of the update is lost")
		c.state = nil
	case 13:
		c.say("the controller starts anew")
		c.circuits, c.tried = map[string]scaling.Circuit{}, map[string][]time.Time{}
	case 14:
		c.denied = []string{string("ABC"[r.IntN(3)])}
		c.say("%s is denied", c.denied)
	case 15:
		c.denied = nil
	case 16, 17:
		c.chooseFate(string("ABC"[r.IntN(3)]))
	}
}

// settle removes everything that holds the update, waits, and returns how it ended.
func (c *cluster) settle() string {
	c.t.Helper()
	c.say("nothing holds it any more")
	c.hold, c.denied = "", nil
	c.limits.Max += 20 // for queued jobs
	c.run(15 * time.Minute)
	left := c.usable("") - c.usable(c.to) - c.count("A", v1alpha1.RunnerBusy)
	jobs := c.queued + c.assigned
	bad, isFormerGood := c.fates[c.to].cause != "", false
	s := c.state
	if s != nil && s.From != "" {
		isFormerGood = c.fates[s.From].cause == ""
	}
	if (!bad || isFormerGood) && jobs > 0 {
		c.t.Fatalf("%d jobs are left although one of the two templates works\n%s", jobs, c.log.String())
	}
	switch {
	case s == nil && !bad:
		if left > 0 {
			c.t.Fatalf("it is over with %d former runners left\n%s", left, c.log.String())
		}
		return "done"
	case s != nil && s.Phase == v1alpha1.UpdateRolledBack:
		if !bad && c.circuits[s.From].Open() && c.plan.Desired > 0 {
			c.t.Fatalf("a good template stays rolled back to one that fails\n%s", c.log.String())
		}
		if n := c.count(s.To, v1alpha1.RunnerPending); n > 0 && isFormerGood {
			c.t.Fatalf("rolled back with %d runners of the failed template starting\n%s", n, c.log.String())
		}
		return "rolled back"
	case bad:
		return "bad"
	case c.plan.Desired == 0:
		return "untried"
	case c.spec.Strategy == v1alpha1.OnIdle:
		return "waits for jobs"
	case left > 0 && c.circuits[c.to].Open():
		return "waits for room" // to try a runner: idle runners of the previous template take all of it until the next job
	}
	c.t.Fatalf("the update doesn't end\n%s", c.log.String())
	return ""
}
