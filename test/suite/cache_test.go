// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// claims lists the cache claims of a namespace.
func (w *story) claims(ctx context.Context, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	err := w.Client.List(ctx, list, client.InNamespace(namespace), client.HasLabels{v1alpha1.CacheLabel})
	return list.Items, err
}

// oneFreeClaim waits until there are no runners, and returns the only claim.
func (w *story) oneFreeClaim(t *testing.T, namespace string) (claim corev1.PersistentVolumeClaim, holder string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		runners := &v1alpha1.RunnerList{}
		if err := w.Client.List(ctx, runners, client.InNamespace(namespace)); err != nil {
			return err
		}
		all, err := w.claims(ctx, namespace)
		if err != nil {
			return err
		}
		if len(runners.Items) > 0 || len(all) != 1 || !all[0].DeletionTimestamp.IsZero() {
			return fmt.Errorf("%d runners, %d claims", len(runners.Items), len(all))
		}
		claim = all[0]
		return nil
	})
	holder, _, _ = strings.Cut(claim.Annotations[v1alpha1.CacheHolderAnnotation], "/")
	return claim, holder
}

// noClaims waits until there are no claims.
func (w *story) noClaims(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		all, err := w.claims(ctx, namespace)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d claims are left", len(all))
		}
		return err
	})
}

func TestTheNextRunnerTakesOverTheCacheAndADeadOnesIsDeleted(t *testing.T) {
	w := newStory(t, "cache")
	must(t, w.Connect(t.Context(), "cache", "acme", "cache-org"))
	w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool("cache", "linux", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 2}
	})))
	w.allDone(t, w.addJobs(t, "cache-org", "linux", 1, 50*time.Millisecond))
	first, maker := w.oneFreeClaim(t, "cache")
	w.allDone(t, w.addJobs(t, "cache-org", "linux", 1, 50*time.Millisecond))
	second, taker := w.oneFreeClaim(t, "cache")
	if second.UID != first.UID || maker == "" || taker == maker {
		t.Errorf("claim %s of %s, then claim %s of %s", first.UID, maker, second.UID, taker)
	}
	if own := metav1.GetControllerOf(&second); own == nil || own.Name != "linux" {
		t.Errorf("the claim is owned by %v", own)
	}

	heal := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.KilledInJob, Namespace: "cache", Times: 1})
	w.addJobs(t, "cache-org", "linux", 1, time.Minute)
	w.noClaims(t, "cache")
	heal()
	ids := w.addJobs(t, "cache-org", "linux", 2, 50*time.Millisecond)
	w.allDone(t, ids)
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := w.Client.Get(ctx, key("cache", "linux"), p); err != nil {
			return err
		}
		if c := p.Status.Cache; c == nil || c.Claims == 0 || c.InUse != 0 {
			return fmt.Errorf("status.cache is %+v", c)
		}
		return nil
	})
	w.cleanUp(t, "cache")
	w.noClaims(t, "cache")
}

// After the cluster was slow for a while, every free claim is suspected of delaying its pods, and so is the claim
// of one idle runner.
func TestASlowClusterLeavesNoPoolWithoutRunners(t *testing.T) {
	w := newStory(t, "slow")
	must(t, w.Connect(t.Context(), "slow", "acme", "slow-org"))
	slow := w.Node.Inject(nodeplay.Fault{Kind: nodeplay.StartsSlowly, Namespace: "slow", Skip: 1})
	w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool("slow", "linux", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 3, OnMissing: v1alpha1.WaitForClaim}
		p.Spec.Scale.Idle = new(int32(2))
		p.Spec.Deadlines.Startup = &metav1.Duration{Duration: 5 * time.Second}
	})))
	eventually(t, func(ctx context.Context) error {
		all, err := w.claims(ctx, "slow")
		blamed := 0
		for i := range all {
			if all[i].Annotations[v1alpha1.CacheFailedAtAnnotation] != "" {
				blamed++
			}
		}
		if err == nil && blamed < 2 {
			err = fmt.Errorf("%d of %d claims are blamed", blamed, len(all))
		}
		return err
	})
	slow()
	before := w.GitHub.Report().RunnersMade
	eventually(t, func(context.Context) error {
		for _, set := range w.GitHub.Report().ScaleSets {
			if set.Statistics.Idle >= 2 {
				return nil
			}
		}
		return errors.New("not two idle runners")
	})
	if n := w.GitHub.Report().RunnersMade - before; n > 3 {
		t.Errorf("%d runners were registered until two were idle", n)
	}
	w.cleanUp(t, "slow")
}
