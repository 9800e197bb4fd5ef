// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/scaling"
)

// fourJobs is a pool with 4 jobs and no runners. Its max is 10, and was 3 at the last decision.
func fourJobs() observation {
	pool := &v1alpha1.RunnerPool{}
	pool.Status.Revision = "linux-1"
	pool.Status.Decision = &v1alpha1.Decision{Desired: 3, Announced: 3, ID: "last", Limits: &v1alpha1.DecidedLimits{Max: new(int32(3))}}
	return observation{
		pool: pool, now: time.Unix(1_000_000, 0),
		policies:  appliedPolicies{bound: &policy.Bound{}},
		template:  templateState{revision: "linux-1"},
		revisions: storedRevisions{templates: map[string][]byte{"linux-1": nil}},
		demand:    poolDemand{accepted: 4, Demand: demand.Demand{Known: true, Jobs: 4}},
		scale:     currentScale{Scale: v1alpha1.Scale{Max: 10}},
	}
}

func TestDecide(t *testing.T) {
	answer := policy.Scaling{ID: "this", Scale: policy.Scale{Max: 10}}
	failed := answer
	failed.Failures = []policy.Failure{{Message: "it timed out"}}
	cases := map[string]struct {
		change  func(*observation)
		answer  policy.Scaling
		granted int32
		desired int32
		create  int32
		id      string
		reason  string
		ready   string // the reason why it is not ready
		wanted  int32  // without policies
	}{
		"within the limits": {answer: answer, desired: 4, create: 4, id: "this", reason: "4 jobs", wanted: 4},
		"a policy lowers max": {
			answer: policy.Scaling{ID: "this", Scale: policy.Scale{Max: 2}, AssignedJobs: v1alpha1.AssignedJobsWait}, desired: 2, create: 2, id: "this",
			reason: "4 jobs, bounded by max 2; 2 jobs accepted before wait, by policy", wanted: 4,
		},
		"a policy fails": {
			answer: failed, desired: 4, create: 4, id: "last",
			reason: "4 jobs accepted before max fell to 3 are served", ready: v1alpha1.PolicyFailedReason, wanted: 4,
		},
		"a policy fails, and the pool has a share of a ceiling": {
			change: func(o *observation) {
				o.memory.limits = &v1alpha1.DecidedLimits{Max: new(int32(3)), Shared: true, AssignedJobs: v1alpha1.AssignedJobsWait}
			},
			answer: failed, granted: 1, desired: 1, create: 1, id: "last",
			reason: "4 jobs, bounded by max 1; 3 jobs accepted before wait, by policy", ready: v1alpha1.PolicyFailedReason, wanted: 4,
		},
		"a policy fails that never answered": {
			change: func(o *observation) { o.pool.Status.Decision = nil },
			answer: failed, reason: "policies have not decided yet: Corral neither starts nor deletes runners", ready: v1alpha1.PolicyPendingReason,
		},
		"a policy is not loaded": {
			change: func(o *observation) { o.policies.unloaded = []policy.Failure{policies.Unloaded} },
			answer: answer, desired: 4, create: 4, id: "last",
			reason: "4 jobs accepted before max fell to 3 are served", wanted: 4, // the last decision stays in force
		},
		"a policy is not loaded for long": {
			change: func(o *observation) {
				o.policies.unloaded, o.policies.areLate = []policy.Failure{policies.Unloaded}, true
			},
			answer: answer, desired: 4, create: 4, id: "last",
			reason: "4 jobs accepted before max fell to 3 are served", ready: v1alpha1.PolicyFailedReason, wanted: 4,
		},
		"the connection may not be used": {
			change: func(o *observation) {
				o.denied = errors.New("not allowed")
				o.demand.accepted = 0
			},
			answer: answer, id: "this", reason: "the connection may not be used: serving 0 jobs",
		},
		"runners fail": {
			change: func(o *observation) {
				c := scaling.Circuit{Revision: "linux-1", Failures: 3, Cause: v1alpha1.CauseImagePull, Message: "no such image", Last: o.now}
				o.memory.health.circuits = map[string]scaling.Circuit{"linux-1": c}
			},
			answer: answer, desired: 4, id: "this", ready: v1alpha1.RunnersFailingReason, wanted: 4,
			reason: "4 jobs; 3 runners in a row failed (ImagePull: no such image); next try 13:46:50Z",
		},
		"behavior paces": {
			change: func(o *observation) {
				o.pool.Spec.Scale.Behavior = &v1alpha1.ScalingBehavior{ScaleUp: &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{{Type: v1alpha1.ScalePods, Value: 1, PeriodSeconds: 60}}}}
				o.pool.Status.Decision.Desired, o.demand.accepted = 0, 0
			},
			answer: answer, desired: 1, create: 1, id: "this", reason: "4 jobs; 4 wanted, changed by 1 runner in 1m0s at most", wanted: 4,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := fourJobs()
			if tc.change != nil {
				tc.change(&o)
			}
			d := decide(o, updateLimits{}, tc.answer, tc.granted)
			if d.plan.Desired != tc.desired || d.plan.Create != tc.create || d.record.ID != tc.id || d.plan.Reason != tc.reason || reasonOf(d.notReady) != tc.ready {
				t.Errorf("%d desired, %d created, decision %q, %q: %s", d.plan.Desired, d.plan.Create, d.record.ID, reasonOf(d.notReady), d.plan.Reason)
			}
			if want := (policies.Grant{Granted: tc.desired, Wanted: tc.wanted}); d.grant != want {
				t.Errorf("granted %+v, want %+v", d.grant, want)
			}
			all := cmp.Exporter(func(reflect.Type) bool { return true })
			if diff := cmp.Diff(d, decide(o, updateLimits{}, tc.answer, tc.granted), all); diff != "" {
				t.Errorf("the second time it decides otherwise:\n%s", diff)
			}
		})
	}
}

// reasonOf returns the reason of Ready; empty if nothing is wrong.
func reasonOf(n notReady) string {
	if len(n.causes) == 0 {
		return ""
	}
	return catalog.Of(n.causes[0].Code).Reason
}
