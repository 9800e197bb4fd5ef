// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// maxGuesses bounds how many pairs of a deleted and an added pool are looked at for a new name.
const maxGuesses = 40_000

// pairUp finds the pools of both sides that belong together, by name, and then those that go on under another name.
func pairUp(base, head *side) []*pair {
	var pairs, added []*pair
	for _, p := range head.order {
		pair := &pair{head: p, base: base.pools[p.name()]}
		if pair.base == nil {
			added = append(added, pair)
		}
		pairs = append(pairs, pair)
	}
	var deleted []*pool
	for _, p := range base.order {
		if head.pools[p.name()] == nil {
			deleted = append(deleted, p)
		}
	}
	renamed := matchRenamed(deleted, added)
	for _, p := range deleted {
		if !renamed[p] {
			pairs = append(pairs, &pair{base: p})
		}
	}
	slices.SortStableFunc(pairs, func(a, b *pair) int { return strings.Compare(a.name(), b.name()) })
	return pairs
}

// guess is that an added pool is a deleted one.
type guess struct {
	from  *pool
	to    *pair
	likes int
}

// matchRenamed gives added pools the deleted ones that they most likely are, and returns those.
func matchRenamed(deleted []*pool, added []*pair) map[*pool]bool {
	taken := map[*pool]bool{}
	if len(deleted)*len(added) > maxGuesses {
		return taken
	}
	var guesses []guess
	for _, from := range deleted {
		for _, to := range added {
			if likes := likeness(from, to.head); likes > 0 {
				guesses = append(guesses, guess{from, to, likes})
			}
		}
	}
	slices.SortStableFunc(guesses, func(a, b guess) int { return cmp.Compare(b.likes, a.likes) })
	for _, g := range guesses {
		if !taken[g.from] && g.to.base == nil {
			g.to.base = g.from
			taken[g.from] = true
		}
	}
	return taken
}

// likeness says how much two pools are the same under two names; 0 if they aren't: they serve the same jobs of the same connection, or
// are the same but for what follows from the name.
func likeness(a, b *pool) int {
	if a.Spec.ConnectionRef.Name != b.Spec.ConnectionRef.Name || a.Spec.GetRegistration() != b.Spec.GetRegistration() {
		return 0
	}
	likes := 0
	if a.Spec.ScaleSetName != "" && a.Spec.ScaleSetName == b.Spec.ScaleSetName {
		likes += 4
	}
	if len(a.Spec.Labels) > 0 && len(without(a.Spec.Labels, b.Spec.Labels))+len(without(b.Spec.Labels, a.Spec.Labels)) == 0 {
		likes += 4
	}
	if equality.Semantic.DeepEqual(a.Spec, b.Spec) {
		likes += 2
	}
	if likes > 0 && a.Namespace == b.Namespace {
		likes++
	}
	return likes
}
