// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// The connection reports why GitHub cannot be used. If the connection is ready, the pool reports it after a minute.
func TestAConnectionsTroubleIsToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		connection string // reason of its condition; empty if it is ready
		recovers   bool   // before the minute is over
		reason     string // of the scale set
		warnings   []int  // of the pool: at once, after half a minute, after a minute, a minute later
	}{
		"the connection tells":        {v1alpha1.CredentialsRefusedReason, false, v1alpha1.CredentialsRefusedReason, []int{0, 0, 0, 0}},
		"it told, and is well again":  {v1alpha1.GitHubUnavailableReason, true, v1alpha1.GitHubUnavailableReason, []int{0, 0, 0, 0, 1}},
		"it doesn't":                  {"", false, v1alpha1.GitHubUnavailableReason, []int{0, 0, 1, 1}},
		"it tells of another trouble": {v1alpha1.WebhookSecretMissingReason, false, v1alpha1.PermissionMissingReason, []int{1, 1, 1, 1}},
		"it is the pool's":            {v1alpha1.GitHubUnavailableReason, false, v1alpha1.RunnerGroupNotFoundReason, []int{1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.now = time.Now()
			connect := func(reason string, at time.Time) {
				conn := &v1alpha1.GitHubConnection{}
				must(t, b.Client.Get(t.Context(), types.NamespacedName{Namespace: "ci", Name: "acme"}, conn))
				conn.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.SucceededReason, LastTransitionTime: metav1.Time{Time: at}}}
				if reason != "" {
					conn.Status.Conditions[0].Status, conn.Status.Conditions[0].Reason = metav1.ConditionFalse, reason
				}
				must(t, b.Client.Update(t.Context(), conn))
			}
			connect(tc.connection, b.now.Add(-time.Hour))
			b.start()
			b.allEvents()
			set := &v1alpha1.RunnerScaleSet{}
			must(t, b.Client.Get(t.Context(), key, set))
			conditions.MarkFalse(set, v1alpha1.ReadyCondition, tc.reason, "GitHub said so")
			must(t, b.Client.Status().Update(t.Context(), set))
			warnings := 0
			for i, want := range tc.warnings {
				if tc.recovers && i == 2 {
					connect("", b.now)
				}
				b.reconcile()
				for _, e := range b.allEvents() {
					if strings.HasPrefix(e, "Warning "+tc.reason) {
						warnings++
					}
				}
				if warnings != want {
					t.Errorf("%d Warnings at %d, want %d", warnings, i, want)
				}
				b.now = b.now.Add(31 * time.Second)
			}
			if !strings.HasPrefix(b.readyReason(), "False "+tc.reason) {
				t.Errorf("ready: %s", b.readyReason())
			}
		})
	}
}

// The object that reported a problem also reports its end.
func TestThePoolIsSilentAboutTheEndOfItsConnectionsTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   string
	}{
		"the connection told": {v1alpha1.CredentialsRefusedReason, ""},
		"the pool told":       {v1alpha1.RunnerGroupNotFoundReason, "Normal Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.now = time.Now()
			b.start()
			b.reconcile()
			tell := func(connection, set func(conditions.Setter)) {
				conn, scaleSet := &v1alpha1.GitHubConnection{}, &v1alpha1.RunnerScaleSet{}
				must(t, b.Client.Get(t.Context(), types.NamespacedName{Namespace: "ci", Name: "acme"}, conn))
				must(t, b.Client.Get(t.Context(), key, scaleSet))
				connection(conn)
				set(scaleSet)
				must(t, b.Client.Update(t.Context(), conn))
				must(t, b.Client.Status().Update(t.Context(), scaleSet))
				b.now = b.now.Add(time.Second)
				b.reconcile()
			}
			well := func(o conditions.Setter) {
				conditions.MarkTrue(o, v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "well")
			}
			amiss := func(reason string) func(conditions.Setter) {
				return func(o conditions.Setter) {
					conditions.MarkFalse(o, v1alpha1.ReadyCondition, reason, "GitHub said so")
				}
			}
			for range 2 { // each time
				tell(amiss(v1alpha1.CredentialsRefusedReason), amiss(tc.reason))
				tell(amiss(v1alpha1.CredentialsRefusedReason), amiss(tc.reason))
				b.allEvents()
				tell(well, well)
				reported := strings.Join(b.allEvents(), "\n")
				if !strings.HasPrefix(b.readyReason(), "True") || (reported == "") != (tc.want == "") || !strings.HasPrefix(reported, tc.want) {
					t.Errorf("ready: %s; told:\n%s", b.readyReason(), reported)
				}
			}
		})
	}
}

// A pool whose jobs were never counted does not report zero jobs.
func TestJobsThatNobodyEverCountedAreNotNone(t *testing.T) {
	b := newBench(t)
	before := testutil.CollectAndCount(jobsGauge)
	b.snapshot.Known = false
	b.start()
	b.reconcile()
	if s := b.pool().Status; s.Jobs != nil || s.Decision == nil {
		t.Errorf("%d jobs, decided: %+v", s.GetJobs(), s.Decision)
	}
	if n := testutil.CollectAndCount(jobsGauge) - before; n != 0 {
		t.Errorf("%d numbers of jobs are measured", n)
	}
	b.snapshot.Known = true
	b.reconcile()
	if s := b.pool().Status; s.Jobs == nil || *s.Jobs != 0 {
		t.Errorf("counted: %+v", s.Jobs)
	}
}

// A pool that cannot reach GitHub counts the runners that have a job.
func TestJobsThatNobodyCountsAreThoseThatRun(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	b.run(b.runners()[0])
	b.work(b.runners()[0].Name)
	b.change(func(p *v1alpha1.RunnerPool) { p.Status.Jobs = new(int32(0)) })
	b.snapshot.Known = false
	b.reconcile()
	if s := b.pool().Status; s.GetJobs() != 1 || s.Runners.Busy != 1 {
		t.Errorf("%d jobs, %+v", s.GetJobs(), s.Runners)
	}
}
