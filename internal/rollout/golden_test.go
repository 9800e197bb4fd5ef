// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/test/golden"
)

func canary(n int32, pause time.Duration) *v1alpha1.CanarySpec {
	return &v1alpha1.CanarySpec{Runners: intstr.FromInt32(n), Pause: &metav1.Duration{Duration: pause}}
}

// edit changes the pool's template.
func (c *cluster) edit(to string) {
	c.say("the template changes from %s to %s", c.to, to)
	c.to = to
}

func (c *cluster) freeze(reason string) {
	c.say("hold: %q", reason)
	c.hold = reason
}

func (c *cluster) addJobs(n int) {
	c.say("%d jobs", n)
	c.queued += n
}

// The golden logs let reviewers see the effect of a change on whole updates. UPDATE_GOLDEN=1 renews them.
func TestUpdatesMatchTheirGoldenLogs(t *testing.T) {
	warm := v1alpha1.Scale{Max: 8, Idle: 8}
	cases := map[string]func(c *cluster){
		"rolling": func(c *cluster) {
			c.limits = v1alpha1.Scale{Max: 12, Idle: 8}
			c.run(20 * time.Second)
			c.addJobs(2)
			c.run(5 * time.Second)
			c.edit("B")
			c.run(4 * time.Minute)
		},
		"canary": func(c *cluster) {
			c.limits, c.spec.Canary = warm, canary(2, time.Minute)
			c.run(20 * time.Second)
			c.edit("B")
			c.run(4 * time.Minute)
		},
		"canary-from-zero": func(c *cluster) {
			c.limits, c.spec.Canary = v1alpha1.Scale{Max: 4}, canary(1, time.Minute)
			c.run(10 * time.Second)
			c.edit("B")
			c.run(time.Minute)
			c.addJobs(3)
			c.run(2 * time.Minute)
			c.addJobs(2)
			c.run(2 * time.Minute)
		},
		"recreate": func(c *cluster) {
			c.limits, c.spec.Strategy = warm, v1alpha1.Recreate
			c.run(20 * time.Second)
			c.addJobs(2)
			c.run(5 * time.Second)
			c.edit("B")
			c.run(2 * time.Minute)
		},
		"on-idle": func(c *cluster) {
			c.limits, c.spec.Strategy = v1alpha1.Scale{Max: 8, Idle: 3}, v1alpha1.OnIdle
			c.run(20 * time.Second)
			c.edit("B")
			c.run(30 * time.Second)
			c.addJobs(2)
			c.run(time.Minute)
			c.addJobs(2)
			c.run(2 * time.Minute)
		},
		"bad-image": func(c *cluster) {
			c.limits = warm
			c.run(20 * time.Second)
			c.fates["B"] = fate{cause: v1alpha1.CauseImagePull, lasts: time.Minute}
			c.addJobs(2)
			c.edit("B")
			c.run(3 * time.Minute)
			c.addJobs(4)
			c.run(time.Minute)
			c.edit("C")
			c.run(3 * time.Minute)
		},
		"bad-image-at-zero": func(c *cluster) {
			c.limits = v1alpha1.Scale{Max: 5}
			c.fates["B"] = fate{cause: v1alpha1.CauseImagePull, lasts: time.Minute}
			c.run(10 * time.Second)
			c.edit("B")
			c.run(10 * time.Second)
			c.addJobs(3)
			c.run(4 * time.Minute)
		},
		"never-connects": func(c *cluster) {
			c.limits, c.spec.Canary = v1alpha1.Scale{Max: 8, Idle: 4}, canary(3, 5*time.Minute)
			c.run(20 * time.Second)
			c.fates["B"] = fate{cause: v1alpha1.CauseNeverConnected, lasts: 25 * time.Second}
			c.edit("B")
			c.run(3 * time.Minute)
			c.say("the network works again")
			delete(c.fates, "B")
			c.run(8 * time.Minute)
		},
		"freeze-and-thaw": func(c *cluster) {
			c.limits = warm
			c.run(20 * time.Second)
			c.edit("B")
			c.run(30 * time.Second)
			c.freeze("no updates at night")
			c.addJobs(5)
			c.run(2 * time.Minute)
			c.freeze("")
			c.run(4 * time.Minute)
		},
		"edit-during-an-update": func(c *cluster) {
			c.limits = warm
			c.run(20 * time.Second)
			c.edit("B")
			c.run(40 * time.Second)
			c.edit("C")
			c.run(5 * time.Minute)
		},
		"reverted-during-an-update": func(c *cluster) {
			c.limits, c.spec.Canary = warm, canary(2, time.Minute)
			c.run(20 * time.Second)
			c.edit("B")
			c.run(40 * time.Second)
			c.edit("A")
			c.run(2 * time.Minute)
		},
		"max-falls-during-an-update": func(c *cluster) {
			c.limits = v1alpha1.Scale{Max: 8, Idle: 4}
			c.run(20 * time.Second)
			c.addJobs(6)
			c.run(5 * time.Second)
			c.edit("B")
			c.run(10 * time.Second)
			c.say("max falls to 3")
			c.limits = v1alpha1.Scale{Max: 3, Idle: 3}
			c.run(3 * time.Minute)
		},
		"unavailable-instead-of-surge": func(c *cluster) {
			c.limits = warm
			none, two := intstr.FromInt32(0), intstr.FromInt32(2)
			c.spec.MaxSurge, c.spec.MaxUnavailable = &none, &two
			c.run(20 * time.Second)
			c.edit("B")
			c.run(3 * time.Minute)
		},
	}
	for name, story := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, nil)
			story(c)
			if c.state != nil && c.state.Phase != v1alpha1.UpdateRolledBack {
				t.Errorf("the update did not end: %+v", c.state)
			}
			golden.Compare(t, filepath.Join("testdata", name+".log"), c.log.String())
		})
	}
}
