// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUpdateByIsThirtyDaysAfterTheNextRelease(t *testing.T) {
	day := func(n int) time.Time { return time.Unix(0, 0).AddDate(0, 0, n) }
	releases := []Release{{"2.331.0", day(40)}, {"2.330.1", day(20)}, {"2.330.0", day(10)}, {"2.332.0-beta", day(1)}, {"nightly", day(1)}}
	for name, tc := range map[string]struct {
		version  string
		releases []Release
		latest   string
		by       *metav1.Time
		ok       bool
	}{
		"the latest":           {"2.331.0", releases, "2.331.0", nil, true},
		"newer than all":       {"2.340.0", releases, "2.331.0", nil, true},
		"one behind":           {"2.330.1", releases, "2.331.0", new(metav1.NewTime(day(70))), true},
		"two behind":           {"2.330.0", releases, "2.331.0", new(metav1.NewTime(day(50))), true},
		"older than the list":  {"2.300.0", releases, "2.331.0", new(metav1.NewTime(day(40))), true},
		"of no known form":     {"main", releases, "", nil, false},
		"without releases":     {"2.331.0", nil, "", nil, false},
		"with pre-releases":    {"2.331.0", releases[3:], "", nil, false},
		"a pre-release itself": {"2.331.0-beta", releases, "2.331.0", new(metav1.NewTime(day(70))), true},
	} {
		t.Run(name, func(t *testing.T) {
			latest, by, ok := UpdateBy(tc.version, tc.releases)
			if latest != tc.latest || !by.Equal(tc.by) || ok != tc.ok {
				t.Errorf("got %q, %s, %v", latest, by, ok)
			}
		})
	}
}
