// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	rowOfRights = regexp.MustCompile("(?m)^\\| (`[^|]+) \\| ([a-z, ]+) \\| [^|]+ \\|$")
	resource    = regexp.MustCompile("`([a-z/*]+)`")
)

// Security reviewers read the table in the docs rather than the role. Both must list the same permissions.
func TestTheTableOfRightsIsTheRole(t *testing.T) {
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(generated(t, "rbac")["role.yaml"].Object, role); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for _, rule := range role.Rules {
		for _, name := range rule.Resources {
			want[name] = slices.Sorted(slices.Values(rule.Verbs))
		}
	}
	page, err := os.ReadFile(filepath.FromSlash("../../docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, row := range rowOfRights.FindAllStringSubmatch(string(page), -1) {
		for _, name := range resource.FindAllStringSubmatch(row[1], -1) {
			got[name[1]] = slices.Sorted(strings.SplitSeq(row[2], ", "))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the role (-) and docs/security.md (+) differ:\n%s", diff)
	}
}
