// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/webhook"
)

// The GUID of an event is not signed: anyone who has a signed event can send it again under any number of other GUIDs.
func TestBoostsCountAnEventOnceAndNotLongAfterItHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		push := v1alpha1.Boost{Name: "morning", Event: "push"}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.Demand.Boosts = []v1alpha1.Boost{push} }))
		x.lead()
		defer x.end()
		happened := time.Now()
		replay := func(guid, identity string) {
			x.accept(webhook.Delivery{
				GUID: guid, Identity: identity, Happened: happened, Connection: keyOf("acme"), Event: "push", Branch: "main",
				At: time.Now(), Repository: webhook.Repository{FullName: "acme/web"},
			})
		}
		want := func(idle int32) {
			t.Helper()
			if got := *x.tracker.Reading(keyOf("gpu")).Signals[1].Idle; got != idle {
				t.Errorf("boost is %d, want %d", got, idle)
			}
		}
		replay("one", "push a b")
		replay("two", "push a b")
		want(1)
		replay("three", "push b c")
		want(2)
		wait(v1alpha1.DefaultBoostDuration + time.Second)
		want(0)
		replay("four", "push a b")
		want(0)
	})
}
