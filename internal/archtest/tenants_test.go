// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// productFiles calls a function with the name and the text of each Go file of the product.
func productFiles(t *testing.T, call func(name, text string)) {
	t.Helper()
	for _, pkg := range deps(t, "cmd/corral") {
		folder, ours := strings.CutPrefix(pkg, module)
		if !ours {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, "_test.go") {
				call(name, string(text))
			}
		}
	}
}

// The usual queue of a controller is one line for the objects of all namespaces.
func TestNamespacesTakeTurnsAtEachController(t *testing.T) {
	controllers := 0
	productFiles(t, func(name, text string) {
		for _, made := range strings.Split(text, "NewControllerManagedBy(")[1:] {
			controllers++
			options, _, isMade := strings.Cut(made, "Complete(")
			if build, _, isBuilt := strings.Cut(made, "Build("); isBuilt && (!isMade || len(build) < len(options)) {
				options = build
			}
			if !strings.Contains(options, "WithOptions(kube.Fair(") && !strings.Contains(options, "WithOptions(kube.Places(") {
				t.Errorf("%s creates a controller at which namespaces do not take turns", name)
			}
		}
	})
	if controllers < 10 {
		t.Errorf("%d controllers were found", controllers)
	}
}

// DeletePartialMatch visits the series of all objects under a lock that each measurement needs. So the series of one object are dropped by their
// names, or by internal/meter.Owned.
func TestNoMetricIsSearchedForAnObjectsSeries(t *testing.T) {
	productFiles(t, func(name, text string) {
		if strings.Contains(text, ".DeletePartialMatch(") {
			t.Errorf("%s calls DeletePartialMatch: use internal/meter.Owned", name)
		}
	})
}
