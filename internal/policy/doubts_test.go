// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"
)

// doubtsOf loads a policy with one module of the package corral.template, and returns its doubts as LINE: MESSAGE.
func doubtsOf(t *testing.T, rules string) string {
	t.Helper()
	p, diagnostics := Load(Source{Kind: KindClusterRunnerPolicy, Name: "a", Modules: map[string]string{"a.rego": "package corral.template\n" + rules}})
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	var lines []string
	for _, d := range p.Facts().Doubts {
		lines = append(lines, fmt.Sprintf("%d: %s", d.Line, d.Message))
	}
	return strings.Join(lines, "\n")
}

func TestDoubtsAboutRules(t *testing.T) {
	const (
		every      = `deny contains "x" if { some path, c in data.corral.pod.containers; `
		containers = "2: the rule looks at containers and not at initContainers"
		quantity   = "2: input.pod.spec.containers[_].resources.limits.memory is a quantity such as 16Gi"
		lacking    = " may be missing, and != then never holds"
	)
	for name, tc := range map[string]struct{ rules, want string }{
		"a quantity":                    {every + `c.resources.limits.memory > "2Gi" }`, quantity},
		"a quantity in a variable":      {every + `m := c.resources.limits.memory; "2Gi" < m }`, quantity},
		"a quantity in a comprehension": {every + `count([1 | c.resources.limits.memory > 3]) > 0 }`, quantity},
		"quantities as numbers":         {every + `corral.quantity(c.resources.limits.memory) > corral.quantity("2Gi") }`, ""},
		"the size of a volume":          {`deny contains "x" if input.pod.spec.volumes[_].emptyDir.sizeLimit > "1Gi"`, "2: input.pod.spec.volumes[_].emptyDir.sizeLimit is a quantity"},

		"a field that may be missing": {every + `c.securityContext.runAsNonRoot != true }`, "2: input.pod.spec.containers[_].securityContext.runAsNonRoot" + lacking},
		"a label":                     {`deny contains "x" if input.pool.labels["acme.example/team"] != "a"`, `2: input.pool.labels["acme.example/team"]` + lacking},
		"a field of the pod":          {`deny contains "x" if input.pod.spec.runtimeClassName != "gvisor"`, "2: input.pod.spec.runtimeClassName" + lacking},
		"a field in a variable":       {"deny contains \"x\" if {\n\tclass := input.pod.spec.runtimeClassName\n\tclass != \"gvisor\"\n}", "4: input.pod.spec.runtimeClassName" + lacking},
		"a helper":                    {"deny contains \"x\" if other\nother if input.pod.spec.runtimeClassName != \"gvisor\"", "3: input.pod.spec.runtimeClassName" + lacking},
		"a helper under not":          {"deny contains \"x\" if not good\ngood if input.pod.spec.runtimeClassName != \"runc\"", ""},
		"another rule for absence":    {"deny contains \"x\" if input.pod.spec.runtimeClassName != \"gvisor\"\ndeny contains \"y\" if not input.pod.spec.runtimeClassName", ""},
		"a field that is always set":  {`deny contains "x" if { input.pool.runnerGroup != "a"; input.pool.name != "b" }`, ""},
		"the image":                   {every + `c.image != "a" }`, ""},
		"presence":                    {`deny contains "x" if { input.pod.spec.runtimeClassName != ""; input.pod.spec.hostname != null; input.pod.spec.hostPID != false }`, ""},
		"not equal":                   {`deny contains "x" if not input.pod.spec.runtimeClassName == "gvisor"`, ""},
		"a default":                   {`deny contains "x" if object.get(input.pod.spec, "runtimeClassName", "") != "gvisor"`, ""},

		"containers only":             {`deny contains "x" if { some i, c in input.pod.spec.containers; c.securityContext.privileged }`, containers},
		"containers by an index":      {`warn contains "x" if input.pod.spec.containers[_].tty`, containers},
		"containers in a function":    {"deny contains \"x\" if { some c in input.pod.spec.containers; bad(c) }\nbad(c) if c.tty", containers},
		"containers in a helper":      {"deny contains \"x\" if { some c in all; c.tty }\nall contains c if { some c in input.pod.spec.containers; c.image }", containers},
		"every container":             {every + `c.securityContext.privileged }`, ""},
		"both lists":                  {`deny contains "x" if { some kind in ["containers", "initContainers"]; input.pod.spec[kind][_].tty }`, ""},
		"a rule for each list":        {"deny contains \"x\" if input.pod.spec.containers[_].tty\ndeny contains \"y\" if input.pod.spec.initContainers[_].tty", ""},
		"the runner":                  {`deny contains "x" if { some c in input.pod.spec.containers; c.name == "runner"; not c.command }`, ""},
		"the number of containers":    {`deny contains "x" if count(input.pod.spec.containers) > 1`, ""},
		"names of containers":         {`deny contains sprintf("%s", [c.name]) if { some c in input.pod.spec.containers; input.pool.trust == "public" }`, ""},
		"not a rule about pods alone": {every + `c.tty; input.pod.spec.containers[0].tty }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := doubtsOf(t, tc.rules)
			if !strings.HasPrefix(got, tc.want) || (tc.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
