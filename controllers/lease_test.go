// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// written is a lock that has what was written last.
type written struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
}

func (w *written) Identity() string { return "corral-0" }

func (w *written) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &w.record, nil, nil
}

func (w *written) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	w.record = record
	return nil
}

func TestTheLeaseKnowsWhoLeads(t *testing.T) {
	now := time.Unix(1000, 0)
	died := now.Add(-time.Minute)
	lock := &written{record: resourcelock.LeaderElectionRecord{HolderIdentity: "corral-0", RenewTime: metav1.Time{Time: died}}}
	l := &lease{Interface: lock, duration: DefaultLeaseDuration, now: func() time.Time { return now }}
	look := func() {
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write := func(holder string) {
		if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: holder, RenewTime: metav1.Time{Time: now}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, held bool) {
		t.Helper()
		if l.Held() != held || !l.Former().Equal(died) {
			t.Errorf("%s: held %t, the former leader died at %s", when, l.Held(), l.Former())
		}
	}
	look()
	check("before it leads", false)
	write("corral-0")
	look()
	check("while it leads", true)
	now = now.Add(DefaultLeaseDuration - time.Second)
	check("before the lease is over", true)
	now = now.Add(time.Second)
	check("once the lease is over", false)
	write("corral-0")
	write("")
	check("once it gave the lease up", false)
	if without := (&lease{now: time.Now}); !without.Held() {
		t.Error("without an election it doesn't lead")
	}
}
