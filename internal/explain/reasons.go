// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/corral-dev/corral/internal/catalog"
)

// varying matches the parts of a text that differ between objects with the same cause.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\d+`)

// alike returns a text of another program, or a parameter, with * in place of quoted names and numbers.
func alike(text string) string { return varying.ReplaceAllString(text, "*") }

// likeness returns a key for conditions with the same cause in several objects. It consists of codes, and of parameters and
// details without names and numbers. A condition without causes, for example from an older release, is identified by its
// message.
func (c *Condition) likeness() (key string) {
	for _, cause := range c.Causes {
		switch catalog.Of(cause.Code).Role {
		case catalog.Meanwhile:
		case catalog.Lead, catalog.Aside: // differs between objects
			key += "|" + cause.Code
		default:
			key += "|" + cause.Code + alike(fmt.Sprint(cause.Parameters, cause.Detail))
		}
	}
	return cmp.Or(key, alike(c.Message))
}
