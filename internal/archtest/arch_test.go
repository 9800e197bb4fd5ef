// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the fence that linters can't see: what packages reach
// through others.
package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/corral-dev/corral/"

// pure packages decide on values.
var pure = []string{"internal/compile", "internal/demand", "internal/explain", "internal/jobmatch", "internal/podspec", "internal/policy", "internal/poolstatus", "internal/reservation", "internal/rollout", "internal/scaling", "internal/schedule"}

// meeting are pure packages in which the others meet, beside controllers.
var meeting = []string{"internal/review"}

// leaves are small packages that others share. They reach nothing of this module.
var leaves = []string{"internal/wording", "internal/memfs", "internal/prune", "internal/silence", "internal/wallclock", "internal/yamldoc"}

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
	for _, pkg := range slices.Concat([]string{"apis/v1alpha1"}, pure, meeting, leaves) {
		t.Run(pkg, func(t *testing.T) { reachesNone(t, pkg, never) })
	}
}

func TestPurePackagesMeetOnlyThroughValuesOfTheAPI(t *testing.T) {
	for _, pkg := range pure {
		var others []string
		for _, other := range pure {
			if other != pkg {
				others = append(others, module+other)
			}
		}
		t.Run(pkg, func(t *testing.T) { reachesNone(t, pkg, others) })
	}
}

func TestLeavesReachNothingOfOurs(t *testing.T) {
	for _, pkg := range leaves {
		for _, dep := range deps(t, pkg) {
			if strings.HasPrefix(dep, module) && dep != module+pkg {
				t.Errorf("%s reaches %s", pkg, dep)
			}
		}
	}
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
