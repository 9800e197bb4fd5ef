// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/corral-dev/corral/"

// reached maps each package of the project to all of its dependencies. It runs the go command once for all packages.
var reached = sync.OnceValues(func() (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, module+"...").Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[fields[0]] = fields[1:]
	}
	return all, nil
})

// deps returns all dependencies of a package.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	all, err := reached()
	if err != nil {
		t.Fatal(err)
	}
	found, ok := all[module+pkg]
	if !ok {
		t.Fatalf("there is no package %s", pkg)
	}
	return found
}

func TestPurePackagesReachNoClient(t *testing.T) {
	never := []string{
		"k8s.io/client-go/rest", "k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/discovery", // its feature gates are no client
		"k8s.io/client-go/tools", "k8s.io/client-go/transport", "k8s.io/client-go/informers", "sigs.k8s.io/controller-runtime", "github.com/actions/scaleset",
		"github.com/google/go-github", "github.com/go-git", module + "internal/kube", module + "controllers",
	}
	for _, adapter := range Adapters.Packages {
		never = append(never, module+adapter)
	}
	for _, pkg := range slices.Concat(Shared.Packages, Pure.Packages, Review.Packages) {
		t.Run(pkg, func(t *testing.T) { reachesNone(t, pkg, never) })
	}
}

func TestPurePackagesImportOnlyLowerOnes(t *testing.T) {
	for i, pkg := range Pure.Packages {
		var higher []string
		for _, other := range Pure.Packages[i+1:] {
			higher = append(higher, module+other)
		}
		t.Run(pkg, func(t *testing.T) { reachesNone(t, pkg, higher) })
	}
}

func TestSharedPackagesReachNothingOfOurs(t *testing.T) {
	for _, pkg := range Shared.Packages {
		for _, dep := range deps(t, pkg) {
			if strings.HasPrefix(dep, module) {
				t.Errorf("%s reaches %s", pkg, dep)
			}
		}
	}
}

func TestEachPackageHasALayer(t *testing.T) {
	all, err := reached()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range all {
		if !strings.HasPrefix(pkg, module+"apis/") && !strings.HasPrefix(pkg, module+"internal/") {
			continue
		}
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

// clientGates is the package of client-go that Kubernetes' validation of pods imports. It has no client.
const clientGates = "k8s.io/client-go/features"

func reachesNone(t *testing.T, pkg string, never []string) {
	t.Helper()
	for _, dep := range deps(t, pkg) {
		if dep == clientGates {
			continue
		}
		for _, prefix := range never {
			if dep == prefix || strings.HasPrefix(dep, prefix+"/") {
				t.Errorf("%s reaches %s", pkg, dep)
			}
		}
	}
}
