// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Bounds limits an update. All limits are numbers of runners.
type Bounds struct {
	Strategy v1alpha1.UpdateStrategy
	// MaxSurge and MaxUnavailable are the largest numbers of runners above and below the
	// desired number.
	MaxSurge, MaxUnavailable int32
	// Canary is the number of runners that try the new template first; 0 for no canaries.
	Canary int32
	// Pause is the time that canaries must run without failing.
	Pause time.Duration
}

// Declared converts a pool's declaration into numbers for a desired number of runners, as a
// Deployment does: it rounds surge and canaries up and unavailability down. If surge and
// unavailability are both 0, one runner may be unavailable.
func Declared(spec v1alpha1.UpdateSpec, desired int32) Bounds {
	b := Bounds{
		Strategy: spec.GetStrategy(),
		MaxSurge: scaled(spec.GetMaxSurge(), desired, true), MaxUnavailable: scaled(spec.GetMaxUnavailable(), desired, false),
	}
	if b.MaxSurge == 0 && b.MaxUnavailable == 0 {
		b.MaxUnavailable = 1
	}
	if spec.Canary != nil {
		b.Pause = spec.Canary.GetPause()
		b.Canary = scaled(spec.Canary.Runners, max(1, desired), true)
	}
	return b
}

// Within narrows the bounds if only a limited number of runners, room, can have a resource such as a cache volume. A new
// runner beyond that number would wait for an old one to end, so it does not count as surge. As in a Deployment, if no
// surge is left, one runner may be unavailable.
func (b Bounds) Within(room, desired int32) Bounds {
	b.MaxSurge = min(b.MaxSurge, max(0, room-desired))
	if b.MaxSurge == 0 && b.MaxUnavailable == 0 {
		b.MaxUnavailable = 1
	}
	return b
}

// Narrowed returns the bounds after policies have narrowed them. asked are the bounds that the policies received, and
// answer the bounds that they returned. The strategy always comes from the answer; a number applies only if it is
// stricter.
func (b Bounds) Narrowed(asked, answer Bounds) Bounds {
	b.Strategy = answer.Strategy
	if answer.MaxSurge < asked.MaxSurge {
		b.MaxSurge = min(b.MaxSurge, answer.MaxSurge)
	}
	if answer.MaxUnavailable < asked.MaxUnavailable {
		b.MaxUnavailable = min(b.MaxUnavailable, answer.MaxUnavailable)
	}
	if answer.Canary > 0 && answer.Canary != asked.Canary {
		if b.Canary == 0 {
			b.Pause = v1alpha1.DefaultCanaryPause
		}
		b.Canary = min(cmp.Or(b.Canary, answer.Canary), answer.Canary)
	}
	return b
}

// scaled returns v as a number of runners; total is the base of a percentage. An invalid value counts as 0, and a value
// above the largest int32 as that number.
func scaled(v intstr.IntOrString, total int32, up bool) int32 {
	if v.Type == intstr.Int {
		return max(0, v.IntVal)
	}
	digits, isPercentage := strings.CutSuffix(v.StrVal, "%")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil && n == 0 {
		return 0
	}
	n = min(n, math.MaxInt32)
	if !isPercentage {
		return int32(n) //nolint:gosec // bounded above
	}
	part := n * uint64(max(0, total)) //nolint:gosec // not negative
	if up {
		part += 99
	}
	return int32(min(part/100, math.MaxInt32)) //nolint:gosec // bounded
}
