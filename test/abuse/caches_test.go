// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// cached adds a cache to a pool.
func cached(most int32, missing v1alpha1.CacheMissing) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) {
		p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: most, OnMissing: missing}
	}
}

// hasClaims waits until the pool has the given number of claims and no runners.
func (s *fixture) hasClaims(pool string, count int) {
	s.Helper()
	eventually(s.T, func(ctx context.Context) error {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := w.Client.List(ctx, claims, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.CacheLabel}); err != nil {
			return err
		}
		if runners, err := s.runners(ctx, pool); err != nil || len(runners) > 0 || len(claims.Items) != count {
			return fmt.Errorf("%d claims, %d runners: %w", len(claims.Items), len(runners), err)
		}
		return nil
	})
}

// The volume of a claim is in the zone in which its first pod ran. No node in that zone has room any more.
func TestAClaimThatNoNodeCanHave(t *testing.T) {
	a := newPodFixture(t)
	a.admit(shortDeadlines, cached(2, v1alpha1.StartWithout), func(p *v1alpha1.RunnerPool) { p.Spec.Deadlines.Startup = &metav1.Duration{Duration: time.Minute} }) // long enough for the look on a slow machine
	a.allDone(a.addJobs(struck, 1, time.Millisecond))
	a.hasClaims(struck, 1)
	heal := a.inject(nodeplay.VolumeElsewhere, 1)
	jobs := a.addJobs(struck, 1, time.Millisecond)
	const text = "0/3 nodes are available: 3 node(s) had volume node affinity conflict"
	runner := a.runnerSays(v1alpha1.RunnerPending, v1alpha1.CauseCache, "Unschedulable: "+text)
	a.look("Cache", 0, "pool/"+struck, "runner/"+runner)
	a.sparedGoesOn()
	a.allDone(jobs)
	heal()
	a.isGone(runner)
	a.hasClaims(struck, 2)
	a.isHealthy()
	a.gitHubIsContent("none")
}

// With an exhausted quota, one pool's runners start without a cache, and another pool's runners wait for one.
func TestAQuotaOnClaimsThatIsUsedUp(t *testing.T) {
	s := newFixture(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "storage"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")}},
	}
	s.create(quota)
	s.listening("linux", cached(5, v1alpha1.StartWithout))
	long := s.addJobs("linux", 2, harness.LongJob)
	patient := s.pool("patient", cached(5, v1alpha1.WaitForClaim))
	waiting := s.addJobs("patient", 1, time.Millisecond)
	s.says(patient, verdict{
		Ready: metav1.ConditionFalse, Reason: v1alpha1.QuotaExceededReason,
		Causes: "ClaimQuota\nOfRunner runner=\"RUNNER\"",
		Details: []string{`persistentvolumeclaims "corral-cache-patient-0" is forbidden: exceeded quota: storage, ` +
			"requested: persistentvolumeclaims=1, used: persistentvolumeclaims=1, limited: persistentvolumeclaims=1"},
	})
	s.look("exceeded quota: storage", 1, "pool/patient")
	s.othersGoOn()
	s.patch(quota, `{"spec":{"hard":{"persistentvolumeclaims":"3"}}}`)
	s.allDone(waiting)
	harness.CutShort(s.T, s.github, long...)
	s.ready(patient)
}
