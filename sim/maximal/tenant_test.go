// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"reflect"
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

// A pool can't have all its lists full at once. The largest one that is taken has nearly as many bytes as a pool may have, and each of its lists.
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
