// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoolsWhoseJobsRunAsPodsComeWithAnAccount(t *testing.T) {
	const claimed = "\tcontainerMode: {type: \"Kubernetes\", kubernetes: workVolumeClaim: size: \"1Gi\"}\n"
	mode := func(mode, template string) string {
		return pool(mode + "\ttemplate: spec: {" + template + "containers: [{name: \"runner\", image: \"r\"}]}\n")
	}
	all := []string{
		"ServiceAccount/linux-hooks pools.cue:6:8 pools.linux", "Role/linux-hooks pools.cue:6:8 pools.linux",
		"RoleBinding/linux-hooks pools.cue:6:8 pools.linux", "RunnerPool/linux pools.cue:6:8 pools.linux",
	}
	alone := all[3:]
	noVolume := []string{strings.Replace(all[0], "-hooks", "-hooks-novolume", 1), strings.Replace(all[1], "-hooks", "-hooks-novolume", 1), strings.Replace(all[2], "-hooks", "-hooks-novolume", 1), all[3]}
	for name, tc := range map[string]struct {
		cue  string
		want []string
	}{
		"on a volume":             {mode(claimed, ""), all},
		"without one":             {mode("\tcontainerMode: type: \"KubernetesNoVolume\"\n", ""), noVolume},
		"an account of their own": {mode(claimed, `serviceAccountName: "mine", `), alone},
		"by its former name":      {mode(claimed, `serviceAccount: "mine", `), alone},
		"by Docker":               {mode("\tcontainerMode: type: \"Docker\"\n", ""), alone},
		"no mode":                 {onePool, alone},
	} {
		r := Compile(repository(tc.cue), Options{})
		if diff := cmp.Diff(tc.want, declared(r)); diff != "" || len(r.Diagnostics) > 0 {
			t.Errorf("%s: %s%v", name, diff, texts(r))
		}
	}
	r := Compile(repository(mode(claimed, "")), Options{})
	text, err := json.Marshal(r.Objects[2].Manifest.Object)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"labels":{"corral.dev/pool":"linux"},"name":"linux-hooks"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"linux-hooks"},"subjects":[{"kind":"ServiceAccount","name":"linux-hooks"}]}`
	if string(text) != want {
		t.Errorf("got %s", text)
	}
}

func TestHooksRulesAreThoseOfTheHooks(t *testing.T) {
	told := func(rules []any) (lines []string) {
		for _, r := range rules {
			rule := r.(map[string]any)
			line, _ := json.Marshal([]any{rule["apiGroups"], rule["resources"], rule["verbs"]})
			lines = append(lines, string(line))
		}
		return lines
	}
	copying := []string{
		`[[""],["pods"],["get","list","create","delete"]]`, `[[""],["pods/exec"],["get","create"]]`,
		`[[""],["pods/log"],["get","list","watch"]]`, `[[""],["secrets"],["get","list","create","delete"]]`,
	}
	if diff := cmp.Diff(copying, told(hooksRules("KubernetesNoVolume"))); diff != "" {
		t.Error(diff)
	}
	sharing := append(copying, `[["batch"],["jobs"],["get","list","create","delete"]]`)
	if diff := cmp.Diff(sharing, told(hooksRules("Kubernetes"))); diff != "" {
		t.Error(diff)
	}
}

func TestRolesAreNotDeclared(t *testing.T) {
	r := Compile(repository(onePool+"role: {apiVersion: \"rbac.authorization.k8s.io/v1\", kind: \"Role\", metadata: name: \"a\", rules: []}\n"), Options{})
	if got := strings.Join(texts(r), "\n"); !strings.Contains(got, "is not applied from here: it is written for pools whose containerMode needs it") {
		t.Errorf("got %s", got)
	}
}
