// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import "testing"

// A runner whose poll was cut polls again at once, possibly before the server notices the end of the first poll.
func TestARunnerThatPollsAgainIsOnlineThoughItLeftAnotherPoll(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	set := &scaleSet{scope: &scope{name: "acme"}}
	rn := s.register(set, "r1")
	rn.session, rn.polls = "s", 2
	s.setOnline(rn, true)
	set.free.push(rn)
	if s.stepOut(rn, "s", true); !rn.online || rn.inLine == nil || set.stats.Idle != 1 {
		t.Errorf("with another poll: online %t, in line %t, %+v", rn.online, rn.inLine != nil, set.stats)
	}
	if s.stepOut(rn, "s", true); rn.online || rn.inLine != nil || set.stats.Idle != 0 {
		t.Errorf("without any: online %t, in line %t, %+v", rn.online, rn.inLine != nil, set.stats)
	}
}
