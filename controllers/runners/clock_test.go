// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/poolstatus"
)

// Changes that this process saw happen to a container use its own clock, whatever the node's clock shows. Other changes use
// the times in the pod.
func TestContainerMemory(t *testing.T) {
	epoch := time.Unix(100_000, 0)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	waiting := poolstatus.Observation{HasPod: true}
	running := func(started int) poolstatus.Observation {
		return poolstatus.Observation{HasPod: true, StartedAt: at(started)}
	}
	ended := func(started, ended int) poolstatus.Observation {
		return poolstatus.Observation{HasPod: true, StartedAt: at(started), EndedAt: at(ended)}
	}
	down := func(since int) poolstatus.Observation {
		return poolstatus.Observation{HasPod: true, StartedAt: at(5), Stay: poolstatus.Stay{Restarting: at(since)}}
	}
	type want struct{ started, ended, noticed, restarting int } // 0 for never
	for name, tc := range map[string]struct {
		seen []poolstatus.Observation // one every ten seconds, the first at 10
		want want
	}{
		"seen to start":                 {[]poolstatus.Observation{waiting, running(-3600), running(-3600)}, want{started: 20}},
		"it ran before":                 {[]poolstatus.Observation{running(5), running(5)}, want{started: 5}},
		"seen to start and to end":      {[]poolstatus.Observation{waiting, running(3600), ended(3600, 7200), ended(3600, 7200)}, want{started: 20, ended: 30, noticed: 30}},
		"seen to end":                   {[]poolstatus.Observation{running(5), ended(5, 6)}, want{started: 5, ended: 20, noticed: 20}},
		"it had ended before":           {[]poolstatus.Observation{ended(5, 6), ended(5, 6)}, want{started: 5, ended: 6, noticed: 10}},
		"seen to restart":               {[]poolstatus.Observation{running(5), down(-3600), down(-3600)}, want{started: 20, restarting: 20}},
		"down twice":                    {[]poolstatus.Observation{down(-3600), down(-3500)}, want{started: 20, restarting: 20}},
		"it runs again":                 {[]poolstatus.Observation{running(5), down(-3600), running(5), running(5)}, want{started: 30}},
		"the pod is not there yet":      {[]poolstatus.Observation{{}, running(5)}, want{started: 5}},
		"the end of one that never ran": {[]poolstatus.Observation{waiting, {HasPod: true, EndedAt: at(15)}}, want{ended: 15, noticed: 20}},
	} {
		t.Run(name, func(t *testing.T) {
			c, got := containerMemory{}, poolstatus.Observation{}
			for i := range tc.seen {
				for range 2 { // as in one pass
					got = tc.seen[i]
					c.follow(&got, at(10*(i+1)))
				}
			}
			for what, pair := range map[string][2]any{
				"started": {got.StartedAt, tc.want.started}, "ended": {got.EndedAt, tc.want.ended}, "noticed": {got.Noticed, tc.want.noticed}, "restarting": {got.Restarting, tc.want.restarting},
			} {
				is, second := pair[0].(time.Time), pair[1].(int)
				if second == 0 && !is.IsZero() || second != 0 && !is.Equal(at(second)) {
					t.Errorf("%s at %s, want %d s after %s", what, is, second, epoch)
				}
			}
		})
	}
}
