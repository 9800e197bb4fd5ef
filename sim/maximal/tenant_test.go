// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	return objects
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

// With room for all of it, every list of a pool is full, and its texts are as long as they may be.
func TestEachBoundOfAPoolIsReached(t *testing.T) {
	tenant := Tenant{Namespace: "maximal", Connection: "acme"}
	spec := map[string]any{"connectionRef": map[string]any{"name": "acme"}, "template": template(100 << 10)}
	object, err := tenant.largest("RunnerPool", "wide", spec, poolPins(2), 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path ...string) []any {
		list, _, err := unstructured.NestedSlice(object, path...)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	slack, metrics := get("spec", "demand", "slack"), get("spec", "demand", "metrics")
	names := slack[7].(map[string]any)["names"].([]any)
	selector := metrics[0].(map[string]any)["external"].(map[string]any)["selector"].(map[string]any)["matchExpressions"].([]any)
	values := selector[63].(map[string]any)["values"].([]any)
	got := []int{len(get("spec", "labels")), len(get("spec", "scale", "schedules")), len(slack), len(names), len(names[31].(string)), len(metrics), len(selector), len(values), len(values[63].(string))}
	if want := []int{50, 32, 8, 32, 255, 8, 64, 64, 63}; !reflect.DeepEqual(got, want) {
		t.Errorf("lists and texts have %v, want %v", got, want)
	}
	containers := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	if len(containers) != 64 {
		t.Errorf("a pod has %d containers", len(containers))
	}
}
