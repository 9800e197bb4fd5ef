// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"github.com/corral-dev/corral/internal/catalog"
)

// checkLeaving finds deleted pools whose runners still exist.
func (l *search) checkLeaving() {
	left := map[object][]Runner{}
	for _, r := range l.left() {
		of := object{poolKind, r.Namespace, r.Spec.PoolRef.Name}
		left[of] = append(left[of], reported(r))
	}
	for of, runners := range left {
		gone := Gone(GoneFacts{Runners: runners})
		s := found(of, catalog.RunnersLeaving.With(gone.Leaving), of.String()).from(gone.Deleted.Time)
		s.what = gone.Leaving
		l.add(s)
	}
}
