// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	"github.com/corral-dev/corral/internal/catalog"
)

// checkLeaving finds pools that were deleted, and whose runners are there.
func checkLeaving(v view) symptoms {
	if slices.ContainsFunc(v.Unseen, func(u Unseen) bool { return strings.HasPrefix(u.What, poolsRead) }) {
		return nil // who can't see the pools can't say which are gone
	}
	left := map[object][]Runner{}
	for i := range v.Runners {
		if r := &v.Runners[i]; v.isLeft(r) {
			of := object{poolKind, r.Namespace, r.Spec.PoolRef.Name}
			left[of] = append(left[of], Runner{Object: r, Judgement: Judgement{State: r.Status.State}})
		}
	}
	var all symptoms
	for of, runners := range left {
		gone := Gone(GoneFacts{Runners: runners})
		s := found(of, catalog.RunnersLeaving.With(gone.Leaving), of.String())
		s.what, s.since = gone.Leaving, gone.Deleted.Time
		all = append(all, s)
	}
	return all
}
