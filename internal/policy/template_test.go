// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const checks = `package corral.template

deny contains "no" if input.pod.spec.hostNetwork

# METADATA
# custom:
#  code: IMG-1
#  severity: high
#  remediation: name a tag
deny contains {"msg": sprintf("image %s", [c.image]), "path": sprintf("spec.containers[%d].image", [i])} if {
	some i, c in input.pod.spec.containers
	not contains(c.image, ":")
}

warn contains {"msg": "w", "code": "W", "severity": "low", "remediation": "r", "path": "p"} if input.pool.trust == ""
`

func TestFindingsAreAllThatPoliciesFind(t *testing.T) {
	const pod = `{"spec": {"hostNetwork": true, "containers": [{"image": "a:1"}, {"image": "b"}]}}`
	rule := func(policy, name string, line int32) v1alpha1.RuleReference {
		return v1alpha1.RuleReference{Policy: policy, Name: name, File: "p.rego", Line: line}
	}
	const ci, cluster = "RunnerPolicy/ci/p", "ClusterRunnerPolicy/guard"
	findings := func(policy string) (denials, warnings []v1alpha1.PolicyFinding) {
		return []v1alpha1.PolicyFinding{
				{Message: "no", Rule: rule(policy, "corral.template.deny", 3)},
				{Message: "image b", Path: "spec.containers[1].image", Code: "IMG-1", Severity: "high", Remediation: "name a tag", Rule: rule(policy, "corral.template.deny[IMG-1]", 10)},
			}, []v1alpha1.PolicyFinding{
				{Message: "w", Path: "p", Code: "W", Severity: "low", Remediation: "r", Rule: rule(policy, "corral.template.warn", 15)},
			}
	}
	clusterWide := namespaced(checks)
	clusterWide.Kind, clusterWide.Namespace, clusterWide.Name = KindClusterRunnerPolicy, "", "guard"
	ours, ourWarnings := findings(ci)
	theirs, theirWarnings := findings(cluster)
	cases := map[string]struct {
		policies []Source
		want     Template
	}{
		"one policy": {[]Source{namespaced(checks)}, Template{Denials: ours, Warnings: ourWarnings}},
		"two policies": {[]Source{namespaced(checks), clusterWide}, Template{
			Denials: append(theirs, ours...), Warnings: append(theirWarnings, ourWarnings...),
		}},
		"audit": {[]Source{namespaced(checks), audited(clusterWide)}, Template{Denials: ours, Warnings: ourWarnings, Audit: []Audit{
			{cluster, "would deny the pod: image b (corral.template.deny[IMG-1], p.rego:10)"},
			{cluster, "would deny the pod: no (corral.template.deny, p.rego:3)"},
			{cluster, "would warn: w (corral.template.warn, p.rego:15)"},
		}}},
		"no say": {[]Source{team(mute)}, Template{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := boundBy(t, c.policies...).Template(t.Context(), TemplateInput{Pool: pool(), Pod: json.RawMessage(pod)})
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Template{}, "ID", "Digest")); diff != "" {
				t.Errorf("the verdict differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTextsOfAnswersAreBounded(t *testing.T) {
	p := namespaced("package corral.template\ndeny contains concat(\"\", [\"a\", concat(\"\", [\"é\" | numbers.range(1, 5000)[_]])])\nwarn contains base64.decode(\"/w==\")\n")
	got := boundBy(t, p).Template(t.Context(), TemplateInput{Pool: pool(), Pod: json.RawMessage("{}")})
	if len(got.Denials) != 1 || len(got.Denials[0].Message) > maxText+len("…") || strings.Contains(got.Denials[0].Message, "\uFFFD") {
		t.Errorf("the message has %d bytes", len(got.Denials[0].Message))
	}
	if len(got.Warnings) != 1 || got.Warnings[0].Message != "\uFFFD" {
		t.Errorf("a text that is none is told as %v", got.Warnings)
	}
}
