// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"
)

// firstPause and longestPause bound the time between two looks, which grows by half with each: what takes long is looked
// at less often, as looks cost the API server more than what they look at. A look that takes long itself is followed by three
// times its time, longestRest at most.
const (
	firstPause, longestPause = 50 * time.Millisecond, 500 * time.Millisecond
	longestRest              = 2 * time.Second
)

// Until looks again and again until check returns nil, for a time at most. What it
// complained of last, while there was time, is part of the error.
func Until(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	pause := firstPause
	for complaint := error(nil); ; {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || complaint == nil {
			complaint = err // what is said once the time is up is only that
		}
		select {
		case <-time.After(max(pause, min(3*time.Since(began), longestRest))):
			pause = min(pause*3/2, longestPause)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), complaint)
		}
	}
}
