// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/admission"
)

// The validation rules between fields, evaluated as an API server does.
func TestParametersThatAnAPIServerRefuses(t *testing.T) {
	for library, want := range map[string]string{
		`{"images":{"allowed":["ghcr.io/acme/","*","library/x"]}}`:                                            "",
		`{"images":{"allowed":["ghcr.io"]}}`:                                                                  "contain a slash",
		`{"images":{}}`:                                                                                       "at least 1",
		`{"podSecurity":{"level":"baseline","hostPaths":["/a/b.."]}}`:                                         "",
		`{"podSecurity":{"level":"baseline","hostPaths":["/a/../b"]}}`:                                        "must not have ..",
		`{"resources":{"requireLimits":["cpu"],"maxPerPod":{"cpu":4,"nvidia.com/gpu":"1"}}}`:                  "",
		`{"resources":{"maxPerPod":{"cpu":"four"}}}`:                                                          "maxPerPod",
		`{"hours":{"open":[{"from":"08:00","to":"24:00"}],"closed":{"max":0,"assignedJobs":"Wait"}}}`:         "",
		`{"hours":{"open":[{"from":"08:00","to":"24:00"}],"closed":{"min":0,"assignedJobs":"Wait"}}}`:         "assignedJobs: Wait needs max",
		`{"hours":{"open":[{"from":"8:00","to":"24:00"}]}}`:                                                   "open[0].from",
		`{"hours":{"closed":{"max":0}}}`:                                                                      "closed requires open",
		`{"hours":{"timeZone":"Local"}}`:                                                                      "timeZone must be",
		`{"hours":{"freezes":[{"name":"a","from":"2026-01-02T00:00:00Z","to":"2026-01-01T23:00:00-05:00"}]}}`: "",
		`{"hours":{"freezes":[{"name":"a","from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}]}}`:      "from must be before",
		`{"ceilings":[{"name":"a","by":"Label","labelKey":"team","max":3,"overrides":{"a":1}}]}`:              "",
		`{"ceilings":[{"name":"a","by":"Label","max":3}]}`:                                                    "labelKey must",
		`{"ceilings":[{"name":"a","by":"All","labelKey":"team","max":3}]}`:                                    "labelKey must",
		`{"ceilings":[{"name":"a","by":"All","max":3,"overrides":{"a":1}}]}`:                                  "overrides require",
		`{"pause":{"reason":"incident 42","until":"2026-01-02T00:00:00Z"}}`:                                   "",
		`{"pause":{}}`: "reason",
		`{"preset":"Tenant","secrets":{"allowed":["npm-*"]},"metadata":{}}`: "",
		`{"preset":"tenant"}`:                                                "Tenant",
		`{"secrets":{"allowed":["two words"]}}`:                              "allowed[0]",
		`{"scheduling":{"tolerations":["ci=true","ci=true"]}}`:               "Duplicate",
		`{"volumes":{"kinds":["nfs","volumeMode=Block"]},"fields":{}}`:       "",
		`{"persistent":{"allowed":["release/*"]}}`:                           "",
		`{"extendedResources":{"allowed":["nvidia.com/mig-*"],"claims":[]}}`: "",
	} {
		var rules map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(library), &rules); err != nil {
			t.Fatal(err)
		}
		err := admission.Check(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "RunnerPolicy", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"library": rules},
		}).ToAggregate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", library, err, want)
		}
	}
}
