// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

// Whatever was written down, what is made of it is within bounds, and can be written down again.
func FuzzHistory(f *testing.F) {
	f.Add(`{"wanted":[[1770000000000,1,5],[1770000060000,2,2]],"done":[[1770000000000,-3]],"rose":1770000000000,"number":4}`, int32(9), int64(1_770_000_100), int32(60), int32(3))
	f.Add(`{"done":[[0,-2147483648],[0,-2147483648]]}`, int32(-1), int64(0), int32(3600), int32(100000))
	f.Fuzz(func(t *testing.T, text string, wanted int32, second int64, window, value int32) {
		h, err := demand.ParseHistory(text)
		if err != nil || window < 1 || value < 1 {
			return // the API server refuses such rules
		}
		rules := &v1alpha1.ScalingRules{
			StabilizationWindowSeconds: &window, Tolerance: new(resource.MustParse("0.1")),
			Policies: []v1alpha1.ScalingPolicy{percent(value, window), pods(value, window)},
		}
		b := &v1alpha1.ScalingBehavior{ScaleUp: rules, ScaleDown: rules, ScaleDownDelay: &metav1.Duration{Duration: time.Minute}}
		bounds := demand.Bounds{Min: 1, Max: 1000}
		if s := h.Behave(b, bounds, 5, wanted, time.Unix(second%(1<<35), 0)); s.Number < 1 || s.Number > 1000 || s.Next < 0 {
			t.Errorf("%+v", s)
		}
		if again := h.Encode(); len(again) > 16<<10 {
			t.Errorf("%d bytes", len(again))
		}
	})
}
