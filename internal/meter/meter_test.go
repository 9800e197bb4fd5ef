// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// visited counts the series that are looked at.
type visited struct {
	*prometheus.GaugeVec
	series int
}

func (v *visited) WithLabelValues(values ...string) prometheus.Gauge {
	v.series++
	return v.GaugeVec.WithLabelValues(values...)
}

func (v *visited) DeleteLabelValues(values ...string) bool {
	v.series++
	return v.GaugeVec.DeleteLabelValues(values...)
}

// Each pass over a pool replaces series. The cost does not grow with the number of other pools.
func TestAnObjectsSeriesAreReplacedWithoutThoseOfOthers(t *testing.T) {
	var work []int
	for _, others := range []int{10, 100, 1000, 5000} {
		vec := &visited{GaugeVec: Gauges("demand", "Demand.", "namespace", "pool", "source")}
		gauges := OwnedBy[prometheus.Gauge](vec)
		for i := range others {
			gauges.WithLabelValues("large", fmt.Sprint("pool-", i), "webhook").Set(1)
		}
		replace := func() {
			gauges.Drop("small", "pool")
			for _, source := range []string{"webhook", "jobs", "webhook"} {
				gauges.WithLabelValues("small", "pool", source).Set(2)
			}
		}
		replace()
		vec.series = 0
		replace()
		work = append(work, vec.series)
		if n := testutil.CollectAndCount(gauges); n != others+2 {
			t.Errorf("%d series, want %d", n, others+2)
		}
		gauges.Drop("small", "pool")
		if n := testutil.CollectAndCount(gauges); n != others || len(gauges.series) != others {
			t.Errorf("%d series and %d objects are left, want %d", n, len(gauges.series), others)
		}
	}
	for _, n := range work {
		if n != 5 {
			t.Errorf("series that were visited beside 10, 100, 1000 and 5000 others: %v", work)
		}
	}
}
