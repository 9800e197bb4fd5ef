// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/corral-dev/corral/internal/catalog"
)

// reasons returns the reasons of conditions, and for each whether one of its causes stalls.
func reasons() map[string]bool {
	stalls := map[string]bool{}
	for _, row := range catalog.Rows() {
		if row.Role != catalog.Finding && row.Reason != "" {
			stalls[row.Reason] = stalls[row.Reason] || row.Stalls
		}
	}
	return stalls
}

// eachLine calls check with each line of the matching files.
func eachLine(t *testing.T, pattern string, check func(file, line string)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			check(file, line)
		}
	}
}

// The tables of conditions in docs/spec list only reasons from the catalog. Those listed as Stalled stall there.
func TestDocumentedReasonsAreInTheCatalog(t *testing.T) {
	row, name := regexp.MustCompile(`^\| (?:True|False|Unknown)[^|]*\|`), regexp.MustCompile("`(\\w+)`")
	stalled := regexp.MustCompile("(?:`(\\w+)`, Stalled|Stalled, `(\\w+)`)")
	known, found := reasons(), 0
	check := func(file, line string) {
		for _, m := range name.FindAllStringSubmatch(row.FindString(line), -1) {
			found++
			if _, isReason := known[m[1]]; !isReason {
				t.Errorf("%s: the reason %s is not in the catalog: %s", file, m[1], line)
			}
		}
		for _, m := range stalled.FindAllStringSubmatch(line, -1) {
			if reason := m[1] + m[2]; !known[reason] {
				t.Errorf("%s: no cause with the reason %s stalls: %s", file, reason, line)
			}
		}
	}
	eachLine(t, "docs/spec/*.md", check)
	eachLine(t, "docs/faults.md", check)
	if found < 50 {
		t.Errorf("found only %d reasons in the tables of docs/spec", found)
	}
}

// Argo CD's health scripts list reasons that resolve without a user. Each of them is in the catalog.
func TestReasonsOfHealthScriptsAreInTheCatalog(t *testing.T) {
	entry, known, found := regexp.MustCompile(`(\w+) = true`), reasons(), 0
	eachLine(t, "examples/argocd/resource_customizations/corral.dev/*/health.lua", func(file, line string) {
		if strings.HasPrefix(strings.TrimSpace(line), "--") {
			return
		}
		for _, m := range entry.FindAllStringSubmatch(line, -1) {
			found++
			if _, isReason := known[m[1]]; !isReason {
				t.Errorf("%s waits for the reason %s, which is not in the catalog", file, m[1])
			}
		}
	})
	if found == 0 {
		t.Error("the scripts name no reasons")
	}
}
