// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/reservation"
)

// maxUnclaimed is how many jobs of a namespace are remembered that no pool is for.
const maxUnclaimed = 2_048

// unclaimed is a job that waits and that no pool is for, as long as this process lives: who makes a pool, or mends one, a minute
// after its jobs were queued expects it to have them.
type unclaimed struct {
	news news
	at   time.Time
}

// leave remembers a job that no pool is for while it waits.
func (s *space) leave(key jobKey, n news, now time.Time) {
	if n.observes {
		return // those who observe are asked with the others
	}
	if n.event.State > reservation.Queued || isHosted(n.job.Labels) {
		delete(s.unclaimed, key)
		return
	}
	if len(s.unclaimed) >= maxUnclaimed {
		s.forgetUnclaimed(now)
	}
	if before, known := s.unclaimed[key]; len(s.unclaimed) < maxUnclaimed && before.news.event.State < n.event.State {
		if known {
			now = before.at
		}
		s.unclaimed[key] = unclaimed{news: n, at: now}
	}
}

// isHosted says whether a job asks for one of GitHub's own runners, of which there may be any number:
// https://docs.github.com/actions/reference/runners/github-hosted-runners
func isHosted(labels []string) bool {
	return len(labels) == 0 || slices.ContainsFunc(labels, func(l string) bool {
		l = strings.ToLower(l)
		return strings.HasPrefix(l, "ubuntu-") || strings.HasPrefix(l, "windows-") || strings.HasPrefix(l, "macos-")
	})
}

// forgetUnclaimed forgets jobs that were not heard of for as long as one counts.
func (s *space) forgetUnclaimed(now time.Time) {
	for key, u := range s.unclaimed {
		if now.Sub(u.at) >= v1alpha1.DefaultHoldFor {
			delete(s.unclaimed, key)
		}
	}
}

// claimAll gives jobs that no pool was for to the pools that they are for by now.
func (k *Desk) claimAll(s *space, now time.Time) {
	s.forgetUnclaimed(now)
	for key, u := range s.unclaimed {
		k.enter(s, u.news.observed(), now)
		if k.winner(s.class(false), u.news.job) != nil {
			delete(s.unclaimed, key)
			k.enter(s, u.news, now)
		}
	}
}
