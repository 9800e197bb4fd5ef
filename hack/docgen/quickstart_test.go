// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/corral-dev/corral/test/quickstart"
)

// The page must be short. test/chart/release tests its content.
func TestQuickStartIsQuick(t *testing.T) {
	const maxCommands, maxWords = 12, 900
	page := read(t, filepath.Join(top, "docs/quickstart.md"))
	if words := len(strings.Fields(page)); words > maxWords {
		t.Errorf("%d words, want %d at most", words, maxWords)
	}
	commands := 0
	for _, block := range quickstart.Blocks(page) {
		switch block.Language {
		case "console":
			for _, step := range block.Steps() {
				commands += step.Commands()
			}
		case "rego", "yaml":
		default:
			t.Errorf("a block of %q: is it a command?", block.Language)
		}
	}
	if commands == 0 || commands > maxCommands {
		t.Errorf("%d commands, want %d at most", commands, maxCommands)
	}
	for _, permission := range []string{"Organization: Self-hosted runners", "Repository: Administration", "Repository: Actions", "Repository: Commit statuses and Checks"} {
		if !strings.Contains(page, "| "+permission+" | Read") {
			t.Errorf("the table of the App's permissions has no %s", permission)
		}
	}
}
