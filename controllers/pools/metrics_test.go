// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Each metric is measured of a pool that has everything, and none is left of one that is gone.
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
	measure(key, &v1alpha1.RunnerPoolStatus{
		Decision:      &v1alpha1.Decision{Limits: &v1alpha1.DecidedLimits{}},
		Demand:        []v1alpha1.DemandStatus{{Name: "webhook", Jobs: new(int32(1))}},
		RunnerVersion: &v1alpha1.RunnerVersionStatus{Version: "2.0.0", UpdateBy: &metav1.Time{Time: time.Unix(1, 0)}},
	}, 1, 1)
	createdTotal.WithLabelValues(key.Namespace, key.Name).Inc()
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
