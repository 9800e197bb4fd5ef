// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// maxGuesses is the maximum number of combinations of a deleted and an added pool. If there are more, renames are not
// detected.
const maxGuesses = 40_000

// pairUp pairs the pools of both sides by name, and then detects renamed pools.
func pairUp(base, head *side) []*pair {
	var pairs []*pair
	for _, name := range names(base.pools, head.pools) {
		pairs = append(pairs, &pair{base: base.pools[name], head: head.pools[name]})
	}
	deleted := slices.DeleteFunc(slices.Clone(pairs), func(p *pair) bool { return p.head != nil })
	added := slices.DeleteFunc(slices.Clone(pairs), func(p *pair) bool { return p.base != nil })
	matchRenamed(deleted, added)
	return slices.DeleteFunc(pairs, func(p *pair) bool { return p.either() == nil })
}

// matchRenamed pairs added pools with deleted pools, the most similar ones first. Such a pair is a renamed pool.
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

// similarity scores how likely it is that two pools are the same pool under different names; 0 means that they are not. Both
// must have the same registration and a connection of the same name, and have in common a declared scale set name, declared
// labels, or the whole spec.
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
