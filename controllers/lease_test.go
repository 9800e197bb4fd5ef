// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// written is a lock with the last written record.
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
}

// A standby's requests are always sent, as are all reads. Writes of a process that led are not sent once its lease is over.
func TestWritesAreSentWhileTheLeaseIsHeld(t *testing.T) {
	now := time.Unix(1000, 0)
	l := &lease{Interface: &written{}, duration: DefaultLeaseDuration, now: func() time.Time { return now }}
	sent := 0
	network := l.guard(promhttp.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	check := func(when string, want map[string]bool) {
		t.Helper()
		for method, isSent := range want {
			before := sent
			r, err := http.NewRequestWithContext(t.Context(), method, "https://example.com", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := network.RoundTrip(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			if got := sent > before; got != isSent || isSent == errors.Is(err, errLeaseOver) {
				t.Errorf("%s: %s was sent: %t, want %t; %v", when, method, got, isSent, err)
			}
		}
	}
	all := map[string]bool{http.MethodGet: true, http.MethodPost: true, http.MethodPatch: true, http.MethodDelete: true}
	reads := map[string]bool{http.MethodGet: true, http.MethodPost: false, http.MethodPatch: false, http.MethodDelete: false}
	check("before it leads", all)
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "corral-0"}); err != nil {
		t.Fatal(err)
	}
	check("while it leads", all)
	now = now.Add(DefaultLeaseDuration)
	check("once the lease is over", reads)
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	check("once it gave the lease up", reads)
}

func TestALeaseWithoutAnElection(t *testing.T) {
	began, server := time.Now(), time.Now().Add(-time.Hour) // known only once it has answered
	without := &lease{now: time.Now, server: func() time.Time { return server }, began: began}
	if !without.Held() || without.isOver() || without.Key() != "" {
		t.Errorf("held %t, key %q", without.Held(), without.Key())
	}
	if d := server.Sub(without.Former()); d < 0 || d > time.Minute {
		t.Errorf("the process before it ended %s before the server's time", d)
	}
}

// The clocks of replicas differ by hours, and their credentials may have been replaced. The lease's information about the
// previous leader stays valid.
func TestLeadersHaveAKeyAndAClockInCommon(t *testing.T) {
	api, server := fake.NewClientset(), time.Unix(100_000, 0)
	replica := func(name string, own time.Duration) *lease {
		l := &lease{now: func() time.Time { return server.Add(own) }, server: func() time.Time { return server }, duration: DefaultLeaseDuration}
		l.Interface = &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "corral-system", Name: leaseName}, Client: leases{api.CoordinationV1().Leases("corral-system"), l},
			LockConfig: resourcelock.ResourceLockConfig{Identity: name}, Labels: map[string]string{"of": name},
		}
		return l
	}
	record := func(l *lease) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), RenewTime: metav1.Time{Time: l.now()}}
	}
	first, standby := replica("corral-0", -time.Hour), replica("corral-1", 3*time.Minute)
	if err := first.Create(t.Context(), record(first)); err != nil {
		t.Fatal(err)
	}
	key := first.Key()
	for _, l := range []*lease{first, standby, replica("corral-2", 0)} { // one leads after the other
		former := server
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		server = server.Add(time.Minute)
		if err := l.Update(t.Context(), record(l)); err != nil {
			t.Fatal(err)
		}
		if key == "" || l.Key() != key || !l.Held() || l != first && !l.Former().Equal(former) {
			t.Errorf("%s: key %q, held %t, the former leader was alive at %s, want %s", l.Identity(), l.Key(), l.Held(), l.Former(), former)
		}
	}
	if err := api.CoordinationV1().Leases("corral-system").Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := standby.Create(t.Context(), record(standby)); err != nil || standby.Key() != key {
		t.Errorf("after somebody deleted the lease: key %q, %v", standby.Key(), err)
	}
}
