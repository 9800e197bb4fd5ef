// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	"github.com/corral-dev/corral/internal/catalog"
)

// checkLeaving finds deleted pools whose runners still exist.
func (l *search) checkLeaving() {
	if slices.ContainsFunc(l.Unseen, func(u Unseen) bool { return strings.HasPrefix(u.What, poolsRead) }) {
		return // without reading the pools, it is unknown which were deleted
	}
	left := map[object][]Runner{}
	for r := range pointers(l.Runners) {
		if l.isLeft(r) {
			of := object{poolKind, r.Namespace, r.Spec.PoolRef.Name}
			left[of] = append(left[of], reported(r))
		}
	}
	for of, runners := range left {
		gone := Gone(GoneFacts{Runners: runners})
		s := found(of, catalog.RunnersLeaving.With(gone.Leaving), of.String()).from(gone.Deleted.Time)
		s.what = gone.Leaving
		l.add(s)
	}
}
