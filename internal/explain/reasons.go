// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/corral-dev/corral/internal/catalog"
)

// varying is what differs between objects that have one cause.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\d+`)

// alike returns a text of another program, or a parameter, without names and numbers.
func alike(text string) string { return varying.ReplaceAllString(text, "*") }

// likeness identifies what conditions of several objects have in common: codes, with alike parameters and details. A condition without causes, such
// as of an older release, is known by its message.
func (c *Condition) likeness() (key string) {
	for _, cause := range c.Causes {
		switch catalog.Of(cause.Code).Role {
		case catalog.Meanwhile:
		case catalog.Lead, catalog.Aside: // of each object another
			key += "|" + cause.Code
		default:
			key += "|" + cause.Code + alike(fmt.Sprint(cause.Parameters, cause.Detail))
		}
	}
	return cmp.Or(key, alike(c.Message))
}
