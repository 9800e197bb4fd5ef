// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// TestRulesAreAskedAboutPodsThatBreakThem breaks one Pod Security rule at a time, because only the names of fields
// determine which rules are evaluated.
func TestRulesAreAskedAboutPodsThatBreakThem(t *testing.T) {
	const context = `"allowPrivilegeEscalation": false, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}`
	pod := func(metadata, spec, container, securityContext string) string {
		return `{"metadata": {` + metadata + `}, "spec": {` + spec + `"containers": [{"name": "runner", ` + container + `"securityContext": {` + securityContext + `}}]}}`
	}
	secure := context + `, "capabilities": {"drop": ["ALL"]}`
	for code, text := range map[string]string{
		"":               pod("", "", "", secure),
		"CORRAL-PSS-001": pod("", "", "", secure+`, "windowsOptions": {"hostProcess": true}`),
		"CORRAL-PSS-002": pod("", `"hostPID": true, `, "", secure),
		"CORRAL-PSS-003": pod("", "", "", secure+`, "privileged": true`),
		"CORRAL-PSS-004": pod("", "", "", context+`, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}`),
		"CORRAL-PSS-005": pod("", `"volumes": [{"name": "a", "hostPath": {"path": "/"}}], `, "", secure),
		"CORRAL-PSS-006": pod("", "", `"ports": [{"containerPort": 1, "hostPort": 2}], `, secure),
		"CORRAL-PSS-007": pod("", "", `"livenessProbe": {"httpGet": {"host": "elsewhere"}}, `, secure),
		"CORRAL-PSS-008": pod("", "", "", secure+`, "appArmorProfile": {"type": "Unconfined"}`),
		"CORRAL-PSS-009": pod(`"annotations": {"container.apparmor.security.beta.kubernetes.io/runner": "unconfined"}`, "", "", secure),
		"CORRAL-PSS-010": pod("", "", "", secure+`, "seLinuxOptions": {"type": "spc_t"}`),
		"CORRAL-PSS-011": pod("", `"securityContext": {"seLinuxOptions": {"user": "root"}}, `, "", secure),
		"CORRAL-PSS-012": pod("", "", "", secure+`, "procMount": "Unmasked"`),
		"CORRAL-PSS-013": pod("", "", "", strings.Replace(secure, "RuntimeDefault", "Unconfined", 1)),
		"CORRAL-PSS-014": pod("", `"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}, `, "", secure),
		"CORRAL-PSS-101": pod("", `"volumes": [{"name": "a", "nfs": {}}], `, "", secure),
		"CORRAL-PSS-102": pod("", "", "", strings.Replace(secure, `"allowPrivilegeEscalation": false`, `"allowPrivilegeEscalation": true`, 1)),
		"CORRAL-PSS-103": pod("", "", "", strings.Replace(secure, `"runAsNonRoot": true`, `"runAsNonRoot": false`, 1)),
		"CORRAL-PSS-104": pod("", "", "", secure+`, "runAsUser": 0`),
		"CORRAL-PSS-105": pod("", "", "", strings.Replace(secure, `"seccompProfile": {"type": "RuntimeDefault"}`, `"runAsGroup": 1`, 1)),
		"CORRAL-PSS-106": pod("", "", "", context),
	} {
		library := &v1alpha1.PolicyLibrary{PodSecurity: &v1alpha1.PodSecurityRules{Level: "restricted"}}
		p := load(t, Source{Kind: KindClusterRunnerPolicy, Name: "guard", Library: library})
		answer := NewSet(p).For(pool()).Template(t.Context(), TemplateInput{Pool: pool(), Pod: json.RawMessage(text)})
		var codes []string
		for _, d := range answer.Denials {
			codes = append(codes, d.Code)
		}
		if want := strings.Fields(code); len(answer.Failures) > 0 || !slices.Equal(codes, want) {
			t.Errorf("a pod that breaks %q is denied for %q, failures %v", code, codes, answer.Failures)
		}
	}
}

// TestRulesNameTheFieldsThatTheyRead finds each field in a rule's only_with in the text of the rule.
func TestRulesNameTheFieldsThatTheyRead(t *testing.T) {
	found := 0
	for _, m := range library() {
		for _, rule := range m.module.Rules {
			for _, field := range onlyWith(rule) {
				found++
				if !strings.Contains(string(rule.Location.Text)+rule.String(), field) {
					t.Errorf("%s:%d: the rule doesn't read %s", rule.Location.File, rule.Location.Row, field)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no rule names a field")
	}
}
