// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func withCache(p *v1alpha1.RunnerPool) {
	p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 3, TimeToLive: &metav1.Duration{Duration: time.Hour}}
}

// claim creates a claim that a runner took some time ago.
func (b *bench) claim(number int, holder string, size string, ago time.Duration) {
	b.t.Helper()
	must(b.t, b.Client.Create(b.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: fmt.Sprintf("corral-cache-linux-%d", number), Labels: map[string]string{v1alpha1.CacheLabel: "linux"},
			Annotations: map[string]string{
				v1alpha1.CacheHolderAnnotation: holder, v1alpha1.CacheTakenAnnotation: b.now.Add(-ago).UTC().Format(time.RFC3339),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b.pool(), v1alpha1.GroupVersion.WithKind("RunnerPool"))},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}))
}

func (b *bench) claims() []string {
	b.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	must(b.t, b.Client.List(b.t.Context(), list))
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	return names
}

// A pool that was deleted without its dependents leaves its claims behind, and nothing else deletes them.
func TestClaimsThatNoPoolOwnsAreDeleted(t *testing.T) {
	b := newBench(t)
	b.change(withCache)
	b.start()
	for number, holder := range []string{"linux-gone-1/u", "", "linux-gone-2/u"} {
		b.claim(number, holder, "1Gi", time.Minute)
	}
	for number, owners := range [][]metav1.OwnerReference{nil, nil, {{APIVersion: "corral.dev/v1alpha1", Kind: "RunnerPool", Name: "linux", UID: "former", Controller: new(true)}}} {
		c := &corev1.PersistentVolumeClaim{}
		must(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: fmt.Sprintf("corral-cache-linux-%d", number)}, c))
		c.OwnerReferences = owners
		must(t, b.Client.Update(t.Context(), c))
	}
	b.reconcile()
	want := []string{"corral-cache-linux-1", "corral-cache-linux-2"} // the claim without a holder may have been created by anyone, and the other one is deleted with its pool
	if diff := cmp.Diff(want, b.claims()); diff != "" {
		t.Error(diff)
	}
}

func TestClaimsOfNoUseAreDeleted(t *testing.T) {
	b := newBench(t)
	b.change(withCache)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	busy := b.runners()[0]
	b.claim(0, busy.Name+"/"+string(busy.UID), "1Gi", 2*time.Hour)
	b.claim(1, "linux-gone-1/u", "1Gi", 2*time.Hour)
	b.claim(2, "linux-gone-2/u", "1Gi", time.Minute)
	b.reconcile()
	if diff := cmp.Diff([]string{"corral-cache-linux-0", "corral-cache-linux-2"}, b.claims()); diff != "" {
		t.Error(diff)
	}
	b.reconcile()
	if diff := cmp.Diff(&v1alpha1.CacheStatus{Claims: 2, InUse: 1}, b.pool().Status.Cache); diff != "" {
		t.Error(diff)
	}
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Cache.Size = "2Gi" })
	b.reconcile()
	if diff := cmp.Diff([]string{"corral-cache-linux-0"}, b.claims()); diff != "" {
		t.Errorf("of another size: %s", diff)
	}
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Cache = nil })
	b.reconcile()
	if got := b.claims(); len(got) != 1 {
		t.Errorf("the claim of a runner that is there: %v", got)
	}
	told := b.allEvents()
	for _, want := range []string{"deleted cache claim corral-cache-linux-1: no runner took it for 1h0m0s", "another class, size or access mode"} {
		if !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("not told: %s in %v", want, told)
		}
	}
}

// For example, an admission policy keeps volumes. The pool continues to work, and so does the protection of its jobs.
func TestAClaimOfNoUseThatMayNotBeDeletedHoldsUpNoPool(t *testing.T) {
	b := newBench(t)
	b.change(withCache)
	b.start()
	b.claim(0, "linux-gone-1/u", "1Gi", 2*time.Hour)
	b.claim(1, "linux-gone-1/u", "1Gi", 2*time.Hour)
	inner := b.Client.(client.WithWatch)
	b.Claims.Client = interceptor.NewClient(inner, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if o.GetName() == "corral-cache-linux-0" {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, o.GetName(), nil)
		}
		return c.Delete(ctx, o, opts...)
	}})
	b.reconcile()
	if told := strings.Join(b.allEvents(), "\n"); !strings.Contains(told, "Warning CacheKept Corral is not allowed to delete cache claim corral-cache-linux-0, although no runner took it for 1h0m0s") {
		t.Errorf("told: %s", told)
	}
	if diff := cmp.Diff([]string{"corral-cache-linux-0"}, b.claims()); diff != "" {
		t.Error(diff)
	}
	if got := b.readyReason(); !strings.HasPrefix(got, "True") {
		t.Errorf("ready: %s", got)
	}
}

func TestAPoolWhoseRunnersWaitForClaimsTakesInNoMore(t *testing.T) {
	for missing, want := range map[v1alpha1.CacheMissing]int{v1alpha1.WaitForClaim: 2, v1alpha1.StartWithout: 5} {
		b := newBench(t)
		b.change(withCache)
		b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Cache.OnMissing = missing })
		b.start()
		b.snapshot.Assigned = 3
		b.reconcile()
		waiting := b.runners()[0]
		waiting.Status.Cause, waiting.Status.Reason = v1alpha1.CauseCache, "none is free"
		must(t, b.Client.Status().Update(t.Context(), &waiting))
		b.reconcile()
		if got := b.lastAnnounced(); got != want {
			t.Errorf("%s: %d announced, want %d", missing, got, want)
		}
		if got := b.readyReason(); (got == "False CacheUnavailable: runner "+waiting.Name+": none is free") != (missing == v1alpha1.WaitForClaim) {
			t.Errorf("%s: ready: %s", missing, got)
		}
	}
}

// block prevents a runner from getting a pod, with a cause.
func (b *bench) block(r v1alpha1.Runner, cause v1alpha1.RunnerCause) {
	b.t.Helper()
	r.Status.Cause, r.Status.Reason = cause, "no room"
	conditions.MarkFalse(&r, v1alpha1.ReadyCondition, v1alpha1.GitHubUnavailableReason, "no room")
	must(b.t, b.Client.Status().Update(b.t.Context(), &r))
}

// Otherwise Ready would turn True each time that a runner which GitHub does not register is replaced.
func TestReadyDoesNotFlapWhileACauseRepeats(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	first := b.runners()[0]
	b.block(first, v1alpha1.CauseGitHub)
	b.now = b.now.Add(passing)
	if b.reconcile(); b.readyReason() != "False GitHubUnavailable: runner "+first.Name+": no room" {
		t.Fatalf("ready: %s", b.readyReason())
	}
	unready := b.readyReason()
	b.now = b.now.Add(v1alpha1.DefaultStartupDeadline) // it is given up, and another one replaces it
	b.reconcile()
	replacement := b.runners()[1]
	if got := b.readyReason(); got != unready || replacement.Name == first.Name {
		t.Errorf("while runner %s is replaced by %s, ready: %s", first.Name, replacement.Name, got)
	}
	if b.reconcile(); b.readyReason() != unready {
		t.Errorf("before the replacement is registered, ready: %s", b.readyReason())
	}
	b.run(replacement)
	if b.reconcile(); !strings.HasPrefix(b.readyReason(), "True") {
		t.Errorf("once the replacement runs, ready: %s", b.readyReason())
	}
}

// The API server refuses the Runners that Corral creates because of a quota on Runners, or an admission webhook or policy.
func TestRefusedRunnersAreToldAndPaced(t *testing.T) {
	for why, reason := range map[string]string{"exceeded quota: objects": v1alpha1.QuotaExceededReason, "denied the request: no label team": v1alpha1.RunnerRefusedReason} {
		t.Run(reason, func(t *testing.T) { refuseRunners(t, why, reason) })
	}
}

func refuseRunners(t *testing.T, why, reason string) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.reconcile()
	b.snapshot.Assigned = 5
	tries := 0
	direct := b.Client
	b.Client = interceptor.NewClient(direct.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*v1alpha1.Runner); ok {
			tries++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "runners"}, o.GetName(), errors.New(why))
		}
		return c.Create(ctx, o, opts...)
	}})
	_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if got := b.readyReason(); !strings.HasPrefix(got, "False "+reason+": ") {
		t.Errorf("ready: %s", got)
	}
	if d := b.pool().Status.Decision; d == nil || d.Desired != 5 {
		t.Errorf("decision %+v", d)
	}
	first := tries
	for range 60 { // seconds
		b.now = b.now.Add(time.Second)
		_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	}
	if tries-first > 6 || b.lastAnnounced() > 3 {
		t.Errorf("%d attempts in a minute, %d announced with 2 runners", tries-first, b.lastAnnounced())
	}
	b.Client = direct
	b.now = b.now.Add(createRetry)
	for range 3 {
		b.reconcile()
	}
	if n := len(b.runners()); n != 5 || !strings.HasPrefix(b.readyReason(), "True") {
		t.Errorf("%d runners once the quota is raised, ready: %s", n, b.readyReason())
	}
}

// The runner would wait forever: when room becomes available, only runners of the current template are created.
func TestABlockedRunnerOfAFormerTemplateEnds(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	former := b.runners()[0]
	b.block(former, v1alpha1.CauseQuota)
	b.now = b.now.Add(v1alpha1.DefaultStartupDeadline)
	if b.reconcile(); len(b.runners()) != 1 || !b.runners()[0].DeletionTimestamp.IsZero() {
		t.Fatalf("a blocked runner is replaced: %v", b.runners())
	}
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"smaller"}]}}`)
	})
	b.reconcile()
	b.reconcile()
	all := b.runners()
	if len(all) != 2 || all[0].DeletionTimestamp.IsZero() || all[1].Spec.Revision == former.Spec.Revision {
		t.Errorf("runners %+v", all)
	}
}

func TestATemplateInTheWayOfTheCacheStallsThePool(t *testing.T) {
	b := newBench(t)
	b.change(withCache)
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Raw = []byte(`{"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"name":"runner","image":"r","volumeMounts":[{"name":"v","mountPath":"/cache"}]}]}}`)
	})
	b.reconcile()
	if got := b.readyReason(); !strings.HasPrefix(got, `False TemplateInvalid: spec.cache.mountPath: the template mounts volume "v" at /cache`) {
		t.Errorf("ready: %s", got)
	}
}
