// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
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

// varying is what differs between objects that have one cause.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\d+`)

// alike returns a text of another program, or a parameter, without names and numbers.
func alike(text string) string { return varying.ReplaceAllString(text, "*") }

// likeness identifies what conditions of several objects have in common: codes, with alike parameters and details. A condition without causes, such
// as of an older release, is known by its message.
func (c *Condition) likeness() (key string) {
	for i := range c.Causes {
		cause := &c.Causes[i]
		role := catalog.Of(cause.Code).Role
		if role == catalog.Meanwhile {
			continue
		}
		key += "|" + cause.Code
		if role == catalog.Lead || role == catalog.Aside { // of each object another
			continue
		}
		for _, p := range cause.Parameters {
			key += "|" + alike(p.Value)
		}
		key += "|" + alike(cause.Detail)
	}
	return cmp.Or(key, alike(c.Message))
}
