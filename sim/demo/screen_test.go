// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newTestScreen(live bool) (*screen, *strings.Builder) {
	out := &strings.Builder{}
	return &screen{out: out, live: live, started: time.Now(), width: func() int { return 30 }}, out
}

func TestATerminalsViewStaysBelowTheLines(t *testing.T) {
	s, out := newTestScreen(true)
	s.draw(frame{All: 1})
	s.say("one\ntwo")
	s.draw(frame{All: 1, Done: 1})
	s.leave()
	s.print("end")
	const before, after = "0:00  [......................…\n      no pools\n", "0:00  [######################…\n      no pools\n"
	want := before + "\x1b[2A\x1b[J" + "0:00  one\n      two\n" + before + "\x1b[2A\x1b[J" + after + "end\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestElsewhereTheViewIsWrittenNowAndThenWithoutCursorCodes(t *testing.T) {
	s, out := newTestScreen(false)
	for range 3 {
		s.draw(frame{All: 1})
	}
	s.say("one")
	const want = "0:00  [......................…\n      no pools\n0:00  one\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
