// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

func TestFromBusy(t *testing.T) {
	for name, tc := range map[string]struct {
		metric             v1alpha1.BusyMetric
		busy, before, want int32
		reason             string
	}{
		"at the threshold there are more":             {v1alpha1.BusyMetric{}, 4, 5, 7, "4 of 5 busy: 80 %, at least the threshold of 80 %"}, // ARC: ceil(5 × 1.3)
		"between the thresholds as many":              {v1alpha1.BusyMetric{}, 2, 5, 5, "2 of 5 busy"},
		"at the lower threshold as many":              {v1alpha1.BusyMetric{}, 3, 10, 10, "3 of 10 busy"},
		"below it there are fewer":                    {v1alpha1.BusyMetric{}, 1, 5, 3, "1 of 5 busy: 20 %, below the threshold of 30 %"}, // ARC: floor(5 × 0.7)
		"none busy leads to zero":                     {v1alpha1.BusyMetric{}, 0, 1, 0, "0 of 1 busy: 0 %, below the threshold of 30 %"},
		"at zero there is nothing to go by":           {v1alpha1.BusyMetric{}, 0, 0, 0, "no runners, so none can be busy"},
		"more busy than there were to be":             {v1alpha1.BusyMetric{}, 9, 5, 7, "9 of 5 busy: 180 %, at least the threshold of 80 %"},
		"its own thresholds and changes":              {v1alpha1.BusyMetric{ScaleUpThresholdPercent: new(int32(50)), ScaleUpBy: new(intstr.FromString("100%"))}, 3, 6, 12, "3 of 6 busy: 50 %, at least the threshold of 50 %"},
		"a number instead of a percentage, upwards":   {v1alpha1.BusyMetric{ScaleUpBy: new(intstr.FromInt32(2))}, 10, 10, 12, "10 of 10 busy: 100 %, at least the threshold of 80 %"},
		"a number instead of a percentage, downwards": {v1alpha1.BusyMetric{ScaleDownBy: new(intstr.FromInt32(4))}, 0, 3, 0, "0 of 3 busy: 0 %, below the threshold of 30 %"},
		"as many as there may be":                     {v1alpha1.BusyMetric{ScaleUpBy: new(intstr.FromString("900%"))}, math.MaxInt32, math.MaxInt32, demand.MostJobs, "2147483647 of 100000 busy: 2147483 %, at least the threshold of 80 %"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, reason := demand.FromBusy(&tc.metric, tc.busy, tc.before); got != tc.want || reason != tc.reason {
				t.Errorf("got %d (%s), want %d (%s)", got, reason, tc.want, tc.reason)
			}
		})
	}
}

func TestFromValue(t *testing.T) {
	quantity := func(s string) *v1alpha1.Quantity { return new(v1alpha1.Quantity(s)) }
	for name, tc := range map[string]struct {
		value   float64
		average *v1alpha1.Quantity
		want    int32
		reason  string
		silent  bool
	}{
		"one runner for each":         {value: 7, want: 7, reason: "the value is 7"},
		"a part is a runner":          {value: 7.01, want: 8, reason: "the value is 7.01"},
		"a runner for so much":        {value: 25, average: quantity("10"), want: 3, reason: "the value is 25, at 10 per runner"},
		"fractions are exact":         {value: 0.3, average: quantity("100m"), want: 3, reason: "the value is 0.3, at 100m per runner"},
		"zero is a number":            {value: 0, want: 0, reason: "the value is 0"},
		"more than may be is cut":     {value: 1e300, average: quantity("1m"), want: demand.MostJobs, reason: "the value is 1e+300, at 1m per runner, cut to 100000"},
		"no number":                   {value: math.NaN(), reason: "the value is NaN, which is not a valid number of jobs", silent: true},
		"without end":                 {value: math.Inf(1), reason: "the value is +Inf, which is not a valid number of jobs", silent: true},
		"negative":                    {value: -1, reason: "the value is -1, which is not a valid number of jobs", silent: true},
		"for nothing":                 {value: 1, average: quantity("0"), reason: "averageValue is 0, and must be a number above 0", silent: true},
		"an average beyond any scale": {value: 1, average: quantity("1e400"), reason: "averageValue is 1e400, and must be a number above 0", silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, reason, err := demand.FromValue(tc.value, tc.average)
			if silence := (*demand.NoSignal)(nil); errors.As(err, &silence) != tc.silent || (err != nil && err.Error() != tc.reason) {
				t.Fatalf("error %v", err)
			}
			if !tc.silent && (got != tc.want || reason != tc.reason) {
				t.Errorf("got %d (%s), want %d (%s)", got, reason, tc.want, tc.reason)
			}
		})
	}
}

func TestFromJobs(t *testing.T) {
	for name, tc := range map[string]struct {
		queued, running int
		perJob          string
		want            int32
		reason          string
	}{
		"one for each":            {3, 4, "", 7, "3 queued, 4 running"},
		"one for two, rounded up": {3, 4, "500m", 4, "3 queued, 4 running, times 500m"},
		"two for one":             {3, 0, "2", 6, "3 queued, 0 running, times 2"},
		"a tenth, exactly":        {30, 0, "100m", 3, "30 queued, 0 running, times 100m"},
		"cut":                     {300_000, 0, "", demand.MostJobs, "300000 queued, 0 running, cut to 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			var perJob *v1alpha1.Quantity
			if tc.perJob != "" {
				perJob = new(v1alpha1.Quantity(tc.perJob))
			}
			if got, reason, err := demand.FromJobs(tc.queued, tc.running, perJob); err != nil || got != tc.want || reason != tc.reason {
				t.Errorf("got %d (%s), %v; want %d (%s)", got, reason, err, tc.want, tc.reason)
			}
		})
	}
	if _, _, err := demand.FromJobs(1, 1, new(v1alpha1.Quantity("-1"))); err == nil || err.Error() != "runnersPerJob is -1, and must be a number above 0" {
		t.Errorf("error %v", err)
	}
}

func TestWarm(t *testing.T) {
	hour := &metav1.Duration{Duration: time.Hour}
	for name, tc := range map[string]struct {
		spec     v1alpha1.ScaleSpec
		activity demand.Activity
		want     demand.Warmth
	}{
		"as declared": {v1alpha1.ScaleSpec{}, demand.Activity{Idle: 3, Busy: 9}, demand.Warmth{Idle: 3}},
		"a percentage of busy ones, rounded up": {
			v1alpha1.ScaleSpec{IdlePercentOfBusy: new(int32(25))}, demand.Activity{Idle: 2, Busy: 9, Jobs: 9}, demand.Warmth{Idle: 3, Reason: "3 idle are 25 % of 9 busy"},
		},
		"no fewer than declared":  {v1alpha1.ScaleSpec{IdlePercentOfBusy: new(int32(25))}, demand.Activity{Idle: 4, Busy: 9}, demand.Warmth{Idle: 4}},
		"none is a part of none":  {v1alpha1.ScaleSpec{IdlePercentOfBusy: new(int32(1000))}, demand.Activity{}, demand.Warmth{}},
		"within what may be":      {v1alpha1.ScaleSpec{IdlePercentOfBusy: new(int32(1000))}, demand.Activity{Busy: math.MaxInt32}, demand.Warmth{Idle: demand.MostJobs, Reason: "100000 idle are 1000 % of 2147483647 busy"}},
		"they stay a while":       {v1alpha1.ScaleSpec{IdleTimeout: hour}, demand.Activity{Idle: 2, LastJob: start.Add(-50 * time.Minute), Now: start}, demand.Warmth{Idle: 2, Next: 10 * time.Minute}},
		"then they end":           {v1alpha1.ScaleSpec{IdleTimeout: hour}, demand.Activity{Idle: 2, LastJob: start.Add(-time.Hour), Now: start}, demand.Warmth{Reason: "no idle ones: no job for 1h0m0s"}},
		"a job brings them back":  {v1alpha1.ScaleSpec{IdleTimeout: hour}, demand.Activity{Idle: 2, Jobs: 1, LastJob: start.Add(-2 * time.Hour), Now: start}, demand.Warmth{Idle: 2}},
		"a busy runner is a job":  {v1alpha1.ScaleSpec{IdleTimeout: hour}, demand.Activity{Idle: 2, Busy: 1, LastJob: start.Add(-2 * time.Hour), Now: start}, demand.Warmth{Idle: 2}},
		"unknown ends nothing":    {v1alpha1.ScaleSpec{IdleTimeout: hour}, demand.Activity{Idle: 2, Now: start}, demand.Warmth{Idle: 2}},
		"a clock that was set on": {v1alpha1.ScaleSpec{IdleTimeout: hour}, demand.Activity{Idle: 2, LastJob: start.Add(time.Hour), Now: start}, demand.Warmth{Idle: 2, Next: 2 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, demand.Warm(tc.spec, tc.activity)); diff != "" {
				t.Errorf("warmth (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	zero := new(v1alpha1.Quantity("0"))
	demandOf := func(d v1alpha1.DemandSpec) v1alpha1.RunnerPoolSpec { return v1alpha1.RunnerPoolSpec{Demand: d} }
	metric := func(m v1alpha1.MetricSource) v1alpha1.RunnerPoolSpec {
		m.Name = "m"
		return demandOf(v1alpha1.DemandSpec{Metrics: []v1alpha1.MetricSource{m}})
	}
	for name, tc := range map[string]struct {
		spec v1alpha1.RunnerPoolSpec
		want string
	}{
		"nothing": {spec: v1alpha1.RunnerPoolSpec{}},
		"all right": {spec: v1alpha1.RunnerPoolSpec{
			Demand: v1alpha1.DemandSpec{
				Boosts:  []v1alpha1.Boost{{Name: "pr"}},
				Metrics: []v1alpha1.MetricSource{{Name: "j", Jobs: &v1alpha1.JobsMetric{Repositories: []string{"acme/*", "web-*"}}}, {Name: "b", Busy: &v1alpha1.BusyMetric{}}},
			},
			Scale: v1alpha1.ScaleSpec{Behavior: &v1alpha1.ScalingBehavior{ScaleUp: &v1alpha1.ScalingRules{Tolerance: zero}}},
		}},
		"two of a name": {
			demandOf(v1alpha1.DemandSpec{Boosts: []v1alpha1.Boost{{Name: "a"}}, Metrics: []v1alpha1.MetricSource{{Name: "a", Busy: &v1alpha1.BusyMetric{}}}}),
			`spec.demand.metrics[0].name: Invalid value: "a": another source of demand has this name: choose a different name`,
		},
		"a name that is taken": {
			demandOf(v1alpha1.DemandSpec{Boosts: []v1alpha1.Boost{{Name: "webhook"}}}),
			`spec.demand.boosts[0].name: Invalid value: "webhook": another source of demand has this name: choose a different name`,
		},
		"no runners for a job": {
			metric(v1alpha1.MetricSource{Jobs: &v1alpha1.JobsMetric{RunnersPerJob: zero}}),
			`spec.demand.metrics[0].jobs.runnersPerJob: Invalid value: "0": it must be above 0`,
		},
		"no repository": {
			metric(v1alpha1.MetricSource{Jobs: &v1alpha1.JobsMetric{Repositories: []string{"a/b/c"}}}),
			`spec.demand.metrics[0].jobs.repositories[0]: Invalid value: "a/b/c": write OWNER/NAME, or NAME in the connection's organization`,
		},
		"thresholds that cross": {
			metric(v1alpha1.MetricSource{Busy: &v1alpha1.BusyMetric{ScaleDownThresholdPercent: new(int32(80))}}),
			`spec.demand.metrics[0].busy.scaleDownThresholdPercent: Invalid value: 80: it must be below scaleUpThresholdPercent`,
		},
		"an average of nothing": {
			metric(v1alpha1.MetricSource{Prometheus: &v1alpha1.PrometheusMetric{AverageValue: zero}}),
			`spec.demand.metrics[0].prometheus.averageValue: Invalid value: "0": it must be above 0`,
		},
		"an age that nothing has": {
			metric(v1alpha1.MetricSource{External: &v1alpha1.ExternalMetric{MaxAge: &metav1.Duration{}}}),
			`spec.demand.metrics[0].external.maxAge: Invalid value: "0s": it must be above 0`,
		},
		"a selector that is none": {
			metric(v1alpha1.MetricSource{External: &v1alpha1.ExternalMetric{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}}),
			`spec.demand.metrics[0].external.selector: Invalid value: "": "Like" is not a valid label selector operator`,
		},
		"a tolerance of all": {
			v1alpha1.RunnerPoolSpec{Scale: v1alpha1.ScaleSpec{Behavior: &v1alpha1.ScalingBehavior{ScaleDown: &v1alpha1.ScalingRules{Tolerance: new(v1alpha1.Quantity("1"))}}}},
			`spec.scale.behavior.scaleDown.tolerance: Invalid value: "1": it must be 0 or more, and below 1`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := demand.Check(&tc.spec).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
