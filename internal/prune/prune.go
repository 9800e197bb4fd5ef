// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package prune holds the rule about how many pools may go at once: a source keeps it, and a review tells of it beforehand.
package prune

import (
	"fmt"
	"strings"
)

// few is how many pools are named.
const few = 10

// TooMuch says why a revision with so many pools removes more of those held than is done without being asked twice: so many that
// none is left, or more than half. One of two may go, one of one or two of three may not. It is empty when they may go.
func TooMuch(held int, removed []string, pools int) string {
	switch {
	case len(removed) == 0:
		return ""
	case pools == 0 && len(removed) == 1:
		return fmt.Sprintf("It would remove the only pool, %s", removed[0])
	case pools == 0:
		return fmt.Sprintf("It would remove all %d pools: %s", len(removed), list(removed))
	case 2*len(removed) > held:
		return fmt.Sprintf("It would remove %d of %d pools, more than half: %s", len(removed), held, list(removed))
	}
	return ""
}

// list names the first few.
func list(names []string) string {
	text := strings.Join(names[:min(len(names), few)], ", ")
	if rest := len(names) - few; rest > 0 {
		text += fmt.Sprintf(", and %d more", rest)
	}
	return text
}
