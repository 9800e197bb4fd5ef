// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// maxGuesses limits the number of pairs of a deleted and an added pool that are compared to detect renames.
const maxGuesses = 40_000

// pairUp pairs the pools of both sides by name, and then detects renamed pools.
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

// matchRenamed pairs each added pool with the most similar deleted pool.
func matchRenamed(deleted, added []*pair) {
	if len(deleted)*len(added) > maxGuesses {
		return
	}
	guesses := map[int][][2]*pair{}
	for _, from := range deleted {
		for _, to := range added {
			score := similarity(from.base, to.head)
			guesses[score] = append(guesses[score], [2]*pair{from, to})
		}
	}
	delete(guesses, 0)
	for _, score := range slices.Backward(slices.Sorted(maps.Keys(guesses))) {
		for _, g := range guesses[score] {
			if from, to := g[0], g[1]; from.base != nil && to.base == nil {
				to.base, from.base = from.base, nil
			}
		}
	}
}

// similarity returns how likely it is that two pools are the same pool under different names; 0 if they are not. They must use
// the same connection and serve the same jobs, or be equal apart from what depends on the name.
func similarity(a, b *pool) int {
	if a.Spec.ConnectionRef.Name != b.Spec.ConnectionRef.Name || a.Spec.GetRegistration() != b.Spec.GetRegistration() {
		return 0
	}
	points := map[bool]int{true: 1}
	score := 4*points[a.Spec.ScaleSetName != "" && a.Spec.ScaleSetName == b.Spec.ScaleSetName] +
		4*points[len(a.Spec.RunnerLabels) > 0 && isSame(a.Spec.RunnerLabels, b.Spec.RunnerLabels)] +
		2*points[equality.Semantic.DeepEqual(a.Spec, b.Spec)]
	return score + points[score > 0 && a.Namespace == b.Namespace]
}
