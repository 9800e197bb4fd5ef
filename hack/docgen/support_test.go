// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testedVersions has for each row of docs/support.md the file and the expression that say which versions the tests use.
var testedVersions = []struct{ program, file, version string }{
	{"Kubernetes", "sim/localcluster/localkube/go.mod", `k8s\.io/kubernetes v(\d+\.\d+)`},
	{"Kubernetes", "internal/poolstatus/testdata/kubernetes-reasons.txt", `(?m)^v(\d+\.\d+)`},
	{"Kubernetes", "charts/corral/Chart.yaml", `kubeVersion: ">=(\d+\.\d+)`},
	{"GitHub Enterprise Server", "test/interop/github/fetch.sh", `ghes-(\d+\.\d+)`},
	{"Helm", "go.mod", `helm\.sh/helm/v4 v(\d+\.\d+)`},
	{"Flux", "test/interop/flux/source-controller/go.mod", `fluxcd/source-controller v(\d+\.\d+)`},
	{"Flux", "test/interop/flux/kustomize-controller/go.mod", `fluxcd/kustomize-controller v(\d+\.\d+)`},
	{"Argo CD", "test/interop/argocd/go.mod", `argoproj/argo-cd/v3 v(\d+\.\d+)`},
}

func TestTheSupportMatrixIsTested(t *testing.T) {
	rows := map[string]string{}
	for line := range strings.Lines(read(t, filepath.Join(top, "docs/support.md"))) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			rows[strings.TrimSpace(cells[1])] = line
		}
	}
	for _, v := range testedVersions {
		found := map[string]bool{}
		for _, match := range regexp.MustCompile(v.version).FindAllStringSubmatch(read(t, filepath.Join(top, v.file)), -1) {
			found[match[1]] = true
		}
		if len(found) == 0 {
			t.Errorf("%s has no version of %s", v.file, v.program)
		}
		for _, version := range slices.Sorted(maps.Keys(found)) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(version) + `\b`).MatchString(rows[v.program]) {
				t.Errorf("docs/support.md does not mention %s %s, which %s uses", v.program, version, v.file)
			}
		}
	}
}
