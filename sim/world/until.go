// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"
)

// firstPause and longestPause bound the time between two checks, which grows by half each time: slow operations are
// checked less often, because the checks themselves load the API server. A check that takes long is followed by a pause
// of three times its duration, at most longestRest.
const (
	firstPause, longestPause = 50 * time.Millisecond, 500 * time.Millisecond
	longestRest              = 2 * time.Second
)

// Until calls check repeatedly until it returns nil or the limit is reached. The returned error contains the last error
// of check from before the limit.
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
			complaint = err // errors after the limit only say that the time is up
		}
		select {
		case <-time.After(max(pause, min(3*time.Since(began), longestRest))):
			pause = min(pause*3/2, longestPause)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), complaint)
		}
	}
}
