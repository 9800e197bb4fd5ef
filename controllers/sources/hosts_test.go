// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"fmt"
	"testing"

	"github.com/corral-dev/corral/internal/gitsource"
)

// atOnce tells how many calls to servers get a turn while those before are under way, and what
// the first one without is told. Each call ends with err.
func atOnce(h *hosts, calls int, server func(i int) string, err error) (turns int, refusal error) {
	if calls == 0 {
		return 0, nil
	}
	result := h.ask("ci", server(calls), func() error {
		turns, refusal = atOnce(h, calls-1, server, err)
		turns++
		return err
	})
	if turns == 0 {
		return 0, result
	}
	return turns, refusal
}

func TestServersThatNeverAnswerDoNotHoldAllWorkers(t *testing.T) {
	one := func(int) string { return "https://git.example.com/pools.git" }
	many := func(i int) string { return fmt.Sprintf("https://git-%d.example.com/pools.git", i) }
	disk := func(int) string { return "file:///pools.git" }
	for name, tc := range map[string]struct {
		workers int
		server  func(int) string
		late    bool
		want    int
		refusal error
	}{
		"one server":                            {8, one, false, 4, errBusy},
		"one server that did not answer lately": {8, one, true, 1, errLate},
		"many servers":                          {8, many, false, 8, nil},
		"many that did not answer lately":       {8, many, true, 4, errLate},
		"a single worker":                       {1, one, true, 1, errLate},
		"no server":                             {8, disk, true, 8, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(tc.workers)
			if tc.late {
				for i := range 9 {
					_ = h.ask("ci", tc.server(i), func() error { return fmt.Errorf("asking: %w", gitsource.ErrTimeout) })
				}
			}
			got, refusal := atOnce(h, 8, tc.server, nil)
			if got != tc.want || !errors.Is(refusal, tc.refusal) {
				t.Errorf("%d of 8 get a turn, not %d; the next is told %v, not %v", got, tc.want, refusal, tc.refusal)
			}
		})
	}
}

func TestAServerThatAnswersAgainIsNotLate(t *testing.T) {
	h := newHosts(8)
	server := func(int) string { return "https://git.example.com/pools.git" }
	_ = h.ask("ci", server(0), func() error { return gitsource.ErrTimeout })
	_ = h.ask("ci", server(0), func() error { return gitsource.ErrNotFound })
	if got, _ := atOnce(h, 8, server, nil); got != 4 {
		t.Errorf("%d of 8 get a turn", got)
	}
	if len(h.turns) != 0 || len(h.tries) != 0 {
		t.Errorf("turns are left: %v, %v", h.turns, h.tries)
	}
}

// A tenant says how long its sources wait, and so makes any server late for itself.
func TestAServerThatIsLateForOneNamespaceIsNotForOthers(t *testing.T) {
	h := newHosts(8)
	server := func(int) string { return "https://git.example.com/pools.git" }
	_ = h.ask("impatient", server(0), func() error { return gitsource.ErrTimeout })
	err := h.ask("impatient", server(0), func() error {
		if got, refusal := atOnce(h, 8, server, nil); got != 3 || !errors.Is(refusal, errBusy) {
			t.Errorf("%d others get a turn, not the 3 that are left; the next is told %v", got, refusal)
		}
		if err := h.ask("impatient", server(0), nil); !errors.Is(err, errLate) {
			t.Errorf("another of the namespace is told %v", err)
		}
		return gitsource.ErrTimeout
	})
	if got, _ := atOnce(h, 8, server, nil); !errors.Is(err, gitsource.ErrTimeout) || got != 4 {
		t.Errorf("%d of 8 get a turn; %v", got, err)
	}
}
