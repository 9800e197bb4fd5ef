// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package reword changes the wording of the catalog, to prove that no program depends on the exact text of its
// sentences.
package reword

import (
	"regexp"
	"strings"
	"testing"

	"github.com/corral-dev/corral/internal/catalog"
)

var words = regexp.MustCompile(`\{\w+\}|[^{]+`)

// All writes the templates of the catalog in capitals until the test ends. No other test may run at the same time.
func All(t *testing.T) {
	t.Helper()
	for _, row := range catalog.Rows() {
		before := *row
		for _, template := range []*string{&row.Title, &row.Message, &row.Awaits, &row.Remedy} {
			*template = words.ReplaceAllStringFunc(*template, func(part string) string {
				if strings.HasPrefix(part, "{") {
					return part
				}
				return "REWORDED " + strings.ToUpper(part)
			})
		}
		t.Cleanup(func() { *row = before })
	}
}
