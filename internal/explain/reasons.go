// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"regexp"
	"time"

	"github.com/corral-dev/corral/internal/catalog"
)

// rank is how bad a reason is, and what it is called.
type rank struct {
	severity Severity
	what     string
	// grace is how long it is but a note: what passes by itself is no trouble.
	grace time.Duration
	// lately is what it is called meanwhile, if that is another word.
	lately string
}

// rankOf returns the rank of a reason.
func rankOf(reason string) rank {
	r := catalog.Of(reason)
	return rank{r.Severity, r.Title, r.Grace, r.Early}
}

// varying is what differs in messages of one cause.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\d+`)

// alike returns a message without names and numbers, by which causes of several objects are found to be one.
func alike(message string) string { return varying.ReplaceAllString(message, "*") }
