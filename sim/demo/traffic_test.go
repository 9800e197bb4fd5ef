// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTrafficIsTheSameForASeed(t *testing.T) {
	pools := []string{"a", "b"}
	once, again := planTraffic(7, 50, time.Minute, pools), planTraffic(7, 50, time.Minute, pools)
	if diff := cmp.Diff(once, again); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(once, planTraffic(8, 50, time.Minute, pools)) {
		t.Error("another seed makes the same traffic")
	}
}

func TestTrafficHasEveryJobInTimeAndEveryPool(t *testing.T) {
	pools := []string{"a", "b", "c"}
	for seed := range uint64(50) {
		for _, jobs := range []int{1, 2, 12, 120, 1000} {
			plan := planTraffic(seed, jobs, time.Minute, pools)
			count, last := 0, time.Duration(0)
			seen := map[string]bool{}
			for _, b := range plan {
				if b.At < last || b.At >= time.Minute || len(b.Jobs) == 0 {
					t.Fatalf("seed %d: %d jobs at %s after %s", seed, len(b.Jobs), b.At, last)
				}
				for _, d := range b.Jobs {
					if d < shortest || d > longFactor*(shortest+spread) {
						t.Errorf("seed %d: a job takes %s", seed, d)
					}
				}
				last = b.At
				seen[b.Pool] = true
				count += len(b.Jobs)
			}
			if count != jobs || plan[0].At != 0 || len(seen) != min(len(plan), len(pools)) {
				t.Errorf("seed %d: %d of %d jobs, first at %s, in %v", seed, count, jobs, plan[0].At, seen)
			}
		}
	}
}
