// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// writeTimeline writes the events as lines of MILLISECONDS,queued|pod,POOL.
func writeTimeline(path string, began time.Time, demands, pods map[string][]time.Time) error {
	var out bytes.Buffer
	for what, all := range map[string]map[string][]time.Time{"queued": demands, "pod": pods} {
		for _, pool := range slices.Sorted(maps.Keys(all)) {
			for _, at := range all[pool] {
				fmt.Fprintf(&out, "%d,%s,%s\n", at.Sub(began).Milliseconds(), what, pool)
			}
		}
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	return nil
}
