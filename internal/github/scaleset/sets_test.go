// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

func TestCountsOfGitHubAreBounded(t *testing.T) {
	got := statisticsOf(&official.RunnerScaleSetStatistic{TotalAvailableJobs: math.MaxInt64, TotalAssignedJobs: -3, TotalIdleRunners: 2})
	if want := (Statistics{AvailableJobs: math.MaxInt32, IdleRunners: 2}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

// A server that sends messages of unknown parts as fast as it can does not fill the log.
func TestUnknownPartsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		client, err := NewClient(github.Credentials{ConfigURL: "https://github.com/acme", Token: "t"}, github.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a := &sessionLoop{Listener: NewListener(Config{Client: client, Log: slog.New(slog.NewTextHandler(&log, nil))})}
		for range 100 {
			a.noteUnknown(&message{unknown: []unknownPart{{partEvent, "Odd"}, {partEvent, "Odder"}}})
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "Message not understood"); n != 2 {
			t.Errorf("%d lines in 100 s:\n%s", n, log.String())
		}
	})
}

// Brief, which callers use under a lock, does not wait while events of runners are copied or looked through.
func TestABriefLookWaitsForNoEvents(t *testing.T) {
	o := newObservation(github.Options{}.WithDefaults(1).For(github.Credentials{}).Keep)
	o.add(&message{events: []JobEvent{{Type: JobStarted, RunnerName: "r", JobID: "1"}}, statistics: &Statistics{AssignedJobs: 1}}, time.Now())
	looked := 0
	o.retain(func(string) bool {
		seen := make(chan Snapshot, 1)
		go func() { seen <- o.brief() }()
		select {
		case s := <-seen:
			looked += s.Assigned
		case <-time.After(10 * time.Second):
		}
		return true
	})
	if looked != 1 {
		t.Error("it waits for the events of runners")
	}
}

// Brief, which callers use under a lock, copies none of the events that a server may have sent.
func TestABriefLookCopiesNoEvents(t *testing.T) {
	o := newObservation(github.Options{}.WithDefaults(1).For(github.Credentials{}).Keep)
	for i := range 2 * mostRunners {
		o.add(&message{events: []JobEvent{{Type: JobStarted, RunnerName: fmt.Sprint("r", i), JobID: "1"}}}, time.Now())
	}
	if n := len(o.get().Started); n != mostRunners {
		t.Errorf("%d events are kept", n)
	}
	if n := testing.AllocsPerRun(10, func() { o.brief() }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
