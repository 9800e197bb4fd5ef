// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// policy returns the source of one RunnerPolicy. Its spec begins at line 6.
func policy(spec string) string {
	return head + "policies: schema.#Policies\npolicies: guard: spec: {\n" + spec + "\n}\n" +
		"pools: schema.#Pools\npools: linux: spec: {\n" + body + "}\n"
}

func TestPoliciesInCUE(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want string // in the only diagnostic; none if empty
	}{
		"nothing":                 {`{}`, ""},
		"a module":                {`modules: "limits.rego": "package corral.scaling"`, ""},
		"a module without ending": {`modules: limits: "package corral.scaling"`, "modules are named NAME.rego"},
		"a mode":                  {`mode: "Audit"`, ""},
		"no such mode":            {`mode: "Warn"`, "mode"},
		"images":                  {`library: images: {allowed: ["ghcr.io/acme/", "library/alpine", "*"], requireDigest: true}`, ""},
		"an image without slash":  {`library: images: allowed: ["ghcr.io"]`, "an allowed image must be * or contain a slash"},
		"a misspelt family":       {`library: image: {}`, "library.image: field not allowed"},
		"a level":                 {`library: podSecurity: {level: "baseline", byTrust: public: "restricted", hostPaths: ["/var/cache"]}`, ""},
		"no such level":           {`library: podSecurity: level: "high"`, "level"},
		"quantities":              {`library: resources: maxPerPod: {cpu: 4, memory: "8Gi", "nvidia.com/gpu": "1"}`, ""},
		"no path":                 {`library: podSecurity: {level: "baseline", hostPaths: ["var"]}`, "hostPaths[0]"},
		"hours":                   {`library: hours: {timeZone: "Europe/Berlin", open: [{days: ["Monday"], from: "08:00", to: "24:00"}], closed: max: 0}`, ""},
		"no such time":            {`library: hours: open: [{from: "8:00", to: "24:00"}]`, "from"},
		"closed without open":     {`library: hours: closed: max: 0`, "closed requires open"},
		"a freeze":                {`library: hours: freezes: [{name: "x", from: "2026-12-20T00:00:00Z", to: "2027-01-02T00:00:00+01:00"}]`, ""},
		"ceilings":                {`library: ceilings: [{name: "a", by: "All", max: 3}, {name: "b", by: "Label", labelKey: "team", max: 3, overrides: web: 4}]`, ""},
		"a label is missing":      {`library: ceilings: [{name: "b", by: "Label", max: 3}]`, "labelKey must be set when by is Label"},
		"a label too many":        {`library: ceilings: [{name: "b", by: "All", labelKey: "team", max: 3}]`, "labelKey must not be set"},
		"a pause":                 {`library: pause: {reason: "incident 42", scope: "Updates"}`, ""},
		"parameters":              {`parameters: teams: payments: 60, data: zones: ["a"]`, ""},
		"a selector":              {`selector: matchLabels: team: "web"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result := Compile(repository(policy(tc.spec)), Options{})
			found := strings.Join(texts(result), "\n")
			switch {
			case tc.want == "" && found != "":
				t.Error(found)
			case tc.want != "" && (len(result.Diagnostics) != 1 || !strings.Contains(found, tc.want) || !strings.HasPrefix(found, "pools.cue:")):
				t.Errorf("got %q, want one at pools.cue that says %q", found, tc.want)
			}
		})
	}
}

func TestPoliciesAreDeclared(t *testing.T) {
	result := Compile(repository(policy(`library: images: allowed: ["ghcr.io/acme/"]`)), Options{})
	want := []string{"RunnerPolicy/guard pools.cue:6:11 policies.guard", "RunnerPool/linux pools.cue:10:8 pools.linux"}
	if diff := cmp.Diff(want, declared(result)); diff != "" || len(result.Diagnostics) > 0 {
		t.Error(diff, texts(result))
	}
}
