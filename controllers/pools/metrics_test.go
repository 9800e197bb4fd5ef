// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
)

// A pool that uses every feature has a series of each metric, and a deleted pool has none.
func TestMetricsComeAndGoWithTheirPool(t *testing.T) {
	key := types.NamespacedName{Namespace: "ci", Name: "measured"}
	series := func() []int {
		var counts []int
		for _, c := range Collectors() {
			counts = append(counts, testutil.CollectAndCount(c))
		}
		return counts
	}
	before := series()
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	pool.Spec.StopPolicy = v1alpha1.StopDrain
	pool.Status = v1alpha1.RunnerPoolStatus{
		Jobs:          new(int32(0)),
		Decision:      &v1alpha1.Decision{Limits: &v1alpha1.DecidedLimits{Max: new(int32(v1alpha1.UnboundedMax))}},
		Demand:        []v1alpha1.DemandStatus{{Name: "webhook", Jobs: new(int32(1))}},
		RunnerVersion: &v1alpha1.RunnerVersionStatus{Version: "2.0.0", UpdateBy: &metav1.Time{Time: time.Unix(1, 0)}},
	}
	measure(pool, 1, 1)
	if n := testutil.ToFloat64(suspendGauge.WithLabelValues(key.Namespace, key.Name)); n != 1 {
		t.Errorf("suspended is told as %v", n)
	}
	createdTotal.WithLabelValues(key.Namespace, key.Name).Inc()
	setLeft(key, 1)
	countFailed(observation{pool: pool, health: health{failures: []runners.Failure{{Cause: v1alpha1.CauseCrash}, {HadJob: true}}}})
	if n := testutil.ToFloat64(failuresTotal.WithLabelValues(key.Namespace, key.Name, causeWithJob)); n != 1 {
		t.Errorf("%v runners are counted that failed with a job", n)
	}
	if max := testutil.ToFloat64(limitGauge.WithLabelValues(key.Namespace, key.Name, "max")); !math.IsInf(max, 1) {
		t.Errorf("no bound is told as %v", max)
	}
	during := series()
	unmeasure(key)
	for i, after := range series() {
		if during[i] <= before[i] {
			t.Errorf("metric %d of Collectors isn't measured", i)
		}
		if after != before[i] {
			t.Errorf("metric %d of Collectors has %d series of a pool that is gone", i, after-before[i])
		}
	}
}
