// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/podspec"
)

// Pods take longer than their deadline. If one runner of a longer round starts in time, the others are not ended.
func TestARunnerThatStartsEndsNoneThatStillStart(t *testing.T) {
	b := newBench(t)
	b.start()
	for _, n := range []string{"1", "2"} { // two rounds that were too slow
		name := b.stem() + n
		b.results.Failures = append(b.results.Failures, runners.Failure{Runner: name, Revision: b.pool().Status.Revision, Cause: v1alpha1.CauseSlow, Message: "not running within 10m0s", Began: b.now, At: b.now})
		b.reconcile()
		b.now = b.now.Add(time.Minute)
	}
	b.snapshot.Assigned = 3
	b.reconcile()
	if n := len(b.runners()); n != 3 {
		t.Fatalf("%d runners", n)
	}
	b.now = b.now.Add(v1alpha1.DefaultStartupDeadline + time.Minute)
	b.run(b.runners()[2])
	for range 3 {
		b.reconcile()
		b.now = b.now.Add(healthy)
	}
	if s := b.pool().Status; s.Runners.Failed != 0 || s.Runners.Pending != 2 {
		t.Errorf("runners %+v", s.Runners)
	}
}

func (b *bench) stem() string { return podspec.NameStem(key.Name, b.pool().UID) }
