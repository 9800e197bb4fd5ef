// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
	"github.com/corral-dev/corral/internal/compile"
)

func objectsOf(t *testing.T, pools, wide int) []*unstructured.Unstructured {
	t.Helper()
	tenant := Tenant{Namespace: "maximal", Connection: "acme", Pools: pools, Wide: wide, URL: "https://github.example/acme", Secret: "acme", Source: "https://git.example/acme.git"}
	objects, err := tenant.Objects()
	if err != nil {
		t.Fatal(err)
	}
	committed, err := tenant.PoolObjects()
	if err != nil {
		t.Fatal(err)
	}
	return append(objects, committed...)
}

func TestTheTenantIsTheSameEachTimeAndIsTaken(t *testing.T) {
	objects, counts, bytes := objectsOf(t, 8, 1), map[string]int{}, 0
	if !reflect.DeepEqual(objects, objectsOf(t, 8, 1)) {
		t.Error("it differs from time to time")
	}
	for _, o := range objects {
		if counts[o.GetKind()]++; o.GetKind() == "RunnerPool" && strings.HasPrefix(o.GetName(), "pool-") {
			bytes += length(o.Object)
		}
		if errs := admission.Check(o.Object); len(errs) > 0 {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), errs.ToAggregate())
		}
	}
	want := map[string]int{"GitHubConnection": connections, "PoolSource": sources, "RunnerPolicy": mostPolicies, "RunnerPool": 9}
	if share := 8 * compile.MaxOutputBytes / MostPools; !reflect.DeepEqual(counts, want) || bytes > share || bytes < share*3/4 {
		t.Errorf("there are %v, and the pools have %d bytes of %d", counts, bytes, share)
	}
}

// A pool cannot have all its lists full at once. The largest pool that is accepted has all of its lists and almost the
// maximum number of bytes.
func TestAPoolIsAsLargeAsItMayBe(t *testing.T) {
	tenant := Tenant{Namespace: "maximal", Connection: "acme"}
	spec := map[string]any{"connectionRef": map[string]any{"name": "acme"}, "template": template(100 << 10)}
	object, err := tenant.largest("RunnerPool", "wide", spec, poolPins(2), 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	if bytes := length(object["spec"].(map[string]any)); bytes > v1alpha1.MaxPoolBytes || bytes < v1alpha1.MaxPoolBytes*3/4 {
		t.Errorf("it has %d bytes of %d", bytes, v1alpha1.MaxPoolBytes)
	}
	for _, path := range []string{"runnerLabels", "scale.schedules", "demand.boosts", "demand.metrics"} {
		list, _, err := unstructured.NestedSlice(object, append([]string{"spec"}, strings.Split(path, ".")...)...)
		if err != nil || len(list) < 2 {
			t.Errorf("%s has %d items: %v", path, len(list), err)
		}
	}
	containers := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	if len(containers) != 64 {
		t.Errorf("a pod has %d containers", len(containers))
	}
}

// Each commit compiles to the given pools.
func TestACommitDeclaresThePools(t *testing.T) {
	var pools []*unstructured.Unstructured
	for i := range 8 {
		spec := map[string]any{"connectionRef": map[string]any{"name": "acme"}, "template": template(8 << 10), "registration": string(v1alpha1.RegisterREST)}
		pools = append(pools, named(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "RunnerPool", "spec": spec}, fmt.Sprint("pool-", i)))
	}
	r, err := newRepository(t.Context(), filepath.Join(t.TempDir(), "pools"), pools)
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.commit(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := r.commit(t.Context(), 1); err != nil || first == second {
		t.Errorf("the second commit is %s, the first %s: %v", second, first, err)
	}
	got := compile.Compile(os.DirFS(r.folder), compile.Options{Check: admission.Check})
	if len(got.Diagnostics) > 0 || len(got.Objects) != len(pools) {
		t.Fatalf("%d objects, %+v", len(got.Objects), got.Diagnostics)
	}
	for i, o := range got.Objects {
		labels, _, _ := unstructured.NestedStringSlice(o.Manifest.Object, "spec", "runnerLabels")
		if o.Manifest.GetName() != pools[i].GetName() || !slices.Equal(labels, []string{Shared, "commit-1"}) {
			t.Errorf("object %d is %s with labels %v", i, o.Manifest.GetName(), labels)
		}
	}
}
