// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// NoSignal is the error of a source that has no usable value. The source then keeps its last number.
type NoSignal struct{ Reason string }

// Error returns the reason.
func (e *NoSignal) Error() string { return e.Reason }

// FromJobs returns the number of runners that jobs need, with the reason. perJob is the number of runners per job; nil
// means 1. It returns a *NoSignal if perJob is not a number above 0.
func FromJobs(queued, running int, perJob *v1alpha1.Quantity) (int32, string, error) {
	reason := fmt.Sprintf("%d queued, %d running", queued, running)
	n, cut := atMost(float64(queued) + float64(running))
	if perJob != nil {
		ratio := perJob.Float()
		if !(ratio > 0) || math.IsInf(ratio, 0) {
			return 0, "", &NoSignal{Reason: fmt.Sprintf("runnersPerJob is %s, and must be a number above 0", *perJob)}
		}
		n, cut = atMost(math.Ceil(rounded((float64(queued) + float64(running)) * ratio)))
		reason = fmt.Sprintf("%s, times %s", reason, *perJob)
	}
	return n, withCut(reason, cut), nil
}

// FromValue returns the number of runners that a metric's value requests, with the reason. average is the part of the
// value for one runner; nil means 1. It returns a *NoSignal if the value is NaN, infinite or negative, or if average is
// not a number above 0.
func FromValue(value float64, average *v1alpha1.Quantity) (int32, string, error) {
	shown := strconv.FormatFloat(value, 'g', 6, 64)
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, "", &NoSignal{Reason: fmt.Sprintf("the value is %s, which is not a valid number of jobs", shown)}
	}
	share := 1.0
	reason := "the value is " + shown
	if average != nil {
		share = average.Float()
		reason = fmt.Sprintf("%s, at %s per runner", reason, *average)
	}
	if !(share > 0) || math.IsInf(share, 0) {
		return 0, "", &NoSignal{Reason: fmt.Sprintf("averageValue is %s, and must be a number above 0", *average)}
	}
	n, cut := atMost(math.Ceil(rounded(value / share)))
	return n, withCut(reason, cut), nil
}

// rounded rounds numbers that differ from an integer only by a floating-point error. Otherwise, math.Ceil would turn
// 0.07 × 100, which is computed as 7.000000000000001, into 8.
func rounded(v float64) float64 {
	if whole := math.Round(v); math.Abs(v-whole) < 1e-9*math.Max(1, math.Abs(v)) {
		return whole
	}
	return v
}

func withCut(reason string, cut bool) string {
	if cut {
		return fmt.Sprintf("%s, cut to %d", reason, MostJobs)
	}
	return reason
}

// FromBusy proposes a total: the previous number of runners (before), raised or lowered if the share of busy runners
// reaches a threshold. If before is 0, it proposes 0, because without runners none can be busy.
func FromBusy(b *v1alpha1.BusyMetric, busy, before int32) (int32, string) {
	busy, before = max(0, busy), min(max(0, before), MostJobs)
	if before == 0 {
		return 0, "no runners, so none can be busy"
	}
	percent := int64(busy) * 100 / int64(before)
	reason := fmt.Sprintf("%d of %d busy", busy, before)
	switch {
	case int64(busy)*100 >= int64(before)*int64(b.GetScaleUpThresholdPercent()):
		return changed(before, 1, b.GetScaleUpBy()), fmt.Sprintf("%s: %d %%, at least the threshold of %d %%", reason, percent, b.GetScaleUpThresholdPercent())
	case int64(busy)*100 < int64(before)*int64(b.GetScaleDownThresholdPercent()):
		return changed(before, -1, b.GetScaleDownBy()), fmt.Sprintf("%s: %d %%, below the threshold of %d %%", reason, percent, b.GetScaleDownThresholdPercent())
	}
	return before, reason
}

// changed returns the previous number plus (sign 1) or minus (sign -1) by, which is a number of runners or a percentage
// of the previous number, rounded up.
func changed(before, sign int32, by intstr.IntOrString) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(&by, int(before), true)
	if err != nil {
		n = 0 // the CRD schema rejects such a value
	}
	return int32(min(max(int64(before)+int64(sign)*int64(n), 0), MostJobs)) //nolint:gosec // it is bounded
}
