// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/corral-dev/corral/"

// deps lists all that a package reaches.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("listing what %s reaches: %v\n%s", pkg, err, out)
	}
	return strings.Fields(string(out))
}

func TestPurePackagesReachNoClient(t *testing.T) {
	never := []string{
		"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/actions/scaleset",
		"github.com/google/go-github", "github.com/go-git", module + "internal/kube", module + "controllers",
	}
	for _, adapter := range Adapters.Packages {
		never = append(never, module+adapter)
	}
	for _, pkg := range slices.Concat(Shared.Packages, Pure.Packages, Review.Packages) {
		t.Run(pkg, func(t *testing.T) { reachesNone(t, pkg, never) })
	}
}

func TestPurePackagesMeetOnlyThroughValuesOfTheAPI(t *testing.T) {
	for _, pkg := range Pure.Packages {
		var others []string
		for _, other := range Pure.Packages {
			if other != pkg && other != "apis/v1alpha1" {
				others = append(others, module+other)
			}
		}
		t.Run(pkg, func(t *testing.T) { reachesNone(t, pkg, others) })
	}
}

func TestSharedPackagesReachNothingOfOurs(t *testing.T) {
	for _, pkg := range Shared.Packages {
		for _, dep := range deps(t, pkg) {
			if strings.HasPrefix(dep, module) && dep != module+pkg {
				t.Errorf("%s reaches %s", pkg, dep)
			}
		}
	}
}

func TestEachPackageHasALayer(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", module+"apis/...", module+"internal/...").CombinedOutput()
	if err != nil {
		t.Fatalf("listing packages: %v\n%s", err, out)
	}
	for _, pkg := range strings.Fields(string(out)) {
		within := func(layered string) bool { return strings.HasPrefix(pkg+"/", module+layered+"/") }
		if !slices.ContainsFunc(Layers, func(l Layer) bool { return slices.ContainsFunc(l.Packages, within) }) {
			t.Errorf("%s is in no layer", pkg)
		}
	}
}

func TestTheTwoClientsOfGitHubDontKnowEachOther(t *testing.T) {
	reachesNone(t, "internal/github/rest", []string{module + "internal/github/scaleset"})
	reachesNone(t, "internal/github/scaleset", []string{module + "internal/github/rest"})
}

func TestTheShippedBinaryHoldsNoSimulatedWorld(t *testing.T) {
	reachesNone(t, "cmd/corral", []string{
		module + "sim",
		"sigs.k8s.io/controller-runtime/pkg/envtest",
	})
}

func reachesNone(t *testing.T, pkg string, never []string) {
	t.Helper()
	for _, dep := range deps(t, pkg) {
		for _, prefix := range never {
			if dep == prefix || strings.HasPrefix(dep, prefix+"/") {
				t.Errorf("%s reaches %s", pkg, dep)
			}
		}
	}
}
