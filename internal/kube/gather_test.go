// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"testing"
	"time"
)

// Where more namespaces have writes than there may be in a second, a namespace that always comes first leaves each other one its part.
func TestEachOfManyNamespacesHasItsWrites(t *testing.T) {
	const perSecond, others, seconds = 25, 60, 60
	now := time.Unix(1_000_000, 0)
	g := Gather(time.Second, perSecond, func() time.Time { return now })
	writes, total := map[string]int{}, 0
	ask := func(namespace string) {
		if g.allows(namespace, now) {
			writes[namespace]++
			total++
		}
	}
	for range seconds {
		for range 2 * perSecond {
			ask("greedy")
		}
		for i := range others {
			ask(fmt.Sprint("other-", i))
		}
		now = now.Add(time.Second)
	}
	for i := range others {
		if n := writes[fmt.Sprint("other-", i)]; n < seconds/4 {
			t.Errorf("namespace %d had %d writes in %d seconds", i, n, seconds)
		}
	}
	if total > 2*perSecond*seconds {
		t.Errorf("there were %d writes in %d seconds", total, seconds)
	}
	now = now.Add(-time.Hour)
	if ask("late"); writes["late"] != 1 {
		t.Error("a clock that was set back keeps writes waiting")
	}
}
