// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
)

// The API server lists the policies of a namespace once for all of its new pools, however many there are, and without their
// content. The pools wait for a policy that the cache does not show.
func TestNewPoolsShareOneListOfPolicies(t *testing.T) {
	lists := 0
	live := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		&v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: large, Name: "late"}}, &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: small, Name: "other"}},
	).WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*metav1.PartialObjectMetadataList); !ok {
			t.Errorf("a %T is read without a cache", list)
		}
		lists++
		return c.List(ctx, list, opts...)
	}}).Build()
	cache := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	e := newEngine()
	woken := queueOf(t, e)
	add := func(i int) policy.Pool {
		p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: large, Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}}
		if err := cache.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return policy.PoolOf(p)
	}
	knows := func(i int, p policy.Pool) bool {
		known, err := e.KnowsNew(t.Context(), cache, live, p, types.UID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	const n = 50
	var pools []policy.Pool
	for i := range n {
		pools = append(pools, add(i))
	}
	for i, p := range pools {
		if knows(i, p) {
			t.Fatalf("pool %d does not wait for a policy that the cache doesn't show", i)
		}
	}
	if lists != 2 || len(e.listings) != 0 {
		t.Errorf("%d lists for %d pools, %d are kept", lists, n, len(e.listings))
	}
	putSource(t, e, policy.Source{Kind: policy.KindRunnerPolicy, Namespace: large, Name: "late"})
	if woken.Len() != n {
		t.Errorf("%d of %d pools are woken", woken.Len(), n)
	}
	if late := add(n); !knows(n, late) || lists != 4 {
		t.Errorf("a pool that is made later: %d lists", lists)
	}
}

// The goroutine that receives the events of ConfigMaps serves all namespaces.
func TestAConfigMapWakesItsReadersOnly(t *testing.T) {
	builder := fake.NewClientBuilder().WithScheme(kube.Scheme())
	for _, kind := range []client.Object{&v1alpha1.RunnerPolicy{}, &v1alpha1.ClusterRunnerPolicy{}} {
		builder.WithIndex(kind, configMapField, indexConfigMaps)
	}
	for i := range 10 {
		own := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: large, Name: fmt.Sprint("p", i)}}
		own.Spec.ModulesFrom = []v1alpha1.ModulesSource{{ConfigMapRef: v1alpha1.LocalObjectReference{Name: fmt.Sprint("rules-", i)}}}
		all := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}
		all.Spec.ModulesFrom = []v1alpha1.ClusterModulesSource{{ConfigMapRef: v1alpha1.NamespacedObjectReference{Namespace: large, Name: fmt.Sprint("rules-", i)}}}
		builder.WithObjects(own, all)
	}
	cache := builder.Build()
	for kind, want := range map[string]types.NamespacedName{policy.KindRunnerPolicy: {Namespace: large, Name: "p3"}, policy.KindClusterRunnerPolicy: {Name: "c3"}} {
		r := &Reconciler{Kind: kind, Reporter: kube.Reporter{Client: cache}}
		config := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: large, Name: "rules-3"}}
		if got := r.readers(t.Context(), config); len(got) != 1 || got[0].NamespacedName != want {
			t.Errorf("%s: %v", kind, got)
		}
		config.Namespace = small
		if got := r.readers(t.Context(), config); len(got) != 0 {
			t.Errorf("%s: %v read another namespace's", kind, got)
		}
	}
}
