// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// maxGuesses bounds how many pairs of a deleted and an added pool are looked at for a new name.
const maxGuesses = 40_000

// pairUp finds the pools of both sides that belong together, by name, and then those that go on under another name.
func pairUp(base, head *side) []*pair {
	var pairs, deleted, added []*pair
	for _, name := range names(base.pools, head.pools) {
		p := &pair{base: base.pools[name], head: head.pools[name]}
		pairs = append(pairs, p)
		switch {
		case p.base == nil:
			added = append(added, p)
		case p.head == nil:
			deleted = append(deleted, p)
		}
	}
	matchRenamed(deleted, added)
	return slices.DeleteFunc(pairs, func(p *pair) bool { return p.either() == nil })
}

// matchRenamed gives added pools the deleted ones that they most likely are.
func matchRenamed(deleted, added []*pair) {
	if len(deleted)*len(added) > maxGuesses {
		return
	}
	guesses := map[int][][2]*pair{}
	for _, from := range deleted {
		for _, to := range added {
			likes := likeness(from.base, to.head)
			guesses[likes] = append(guesses[likes], [2]*pair{from, to})
		}
	}
	delete(guesses, 0)
	for _, likes := range slices.Backward(slices.Sorted(maps.Keys(guesses))) {
		for _, g := range guesses[likes] {
			if from, to := g[0], g[1]; from.base != nil && to.base == nil {
				to.base, from.base = from.base, nil
			}
		}
	}
}

// likeness says how much two pools are the same under two names; 0 if they aren't: they serve the same jobs of the same connection, or
// are the same but for what follows from the name.
func likeness(a, b *pool) int {
	if a.Spec.ConnectionRef.Name != b.Spec.ConnectionRef.Name || a.Spec.GetRegistration() != b.Spec.GetRegistration() {
		return 0
	}
	likes := 0
	for _, one := range []struct {
		likes int
		is    bool
	}{
		{4, a.Spec.ScaleSetName != "" && a.Spec.ScaleSetName == b.Spec.ScaleSetName},
		{4, len(a.Spec.RunnerLabels) > 0 && isSame(a.Spec.RunnerLabels, b.Spec.RunnerLabels)},
		{2, equality.Semantic.DeepEqual(a.Spec, b.Spec)},
	} {
		if one.is {
			likes += one.likes
		}
	}
	if likes > 0 && a.Namespace == b.Namespace {
		likes++
	}
	return likes
}
