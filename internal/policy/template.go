// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// finding is one element of corral.template.deny or corral.template.warn.
type finding struct {
	v1alpha1.PolicyFinding
	Denies bool `json:"denies,omitempty"`
}

// MaxFindings is the maximum number of findings that a child process returns for one policy, and maxFindingBytes the
// maximum size of their texts together.
const MaxFindings, maxFindingBytes = 1000, 2 << 20

// Template decides whether a pod may run.
func (b *Bound) Template(ctx context.Context, in TemplateInput) Template {
	if !b.isAsked(DecisionTemplate) {
		return Template{Digest: b.digest}
	}
	q := b.aboutPod(in)
	replies := askEach(ctx, b, q, decodeFinding)
	answer := Template{ID: q.id(), Digest: b.digest, Failures: replies.failures, Audit: replies.audit}
	for _, f := range replies.enforced {
		if f.Denies {
			answer.Denials = append(answer.Denials, f.PolicyFinding)
		} else {
			answer.Warnings = append(answer.Warnings, f.PolicyFinding)
		}
	}
	slices.SortFunc(answer.Denials, compareFindings)
	slices.SortFunc(answer.Warnings, compareFindings)
	for _, a := range replies.audited {
		for _, f := range a.elements {
			answer.Audit = append(answer.Audit, Audit{Policy: a.policy.Ref(), Message: f.wouldBe()})
		}
	}
	answer.Audit = sortAudit(answer.Audit)
	return answer
}

func (f finding) wouldBe() string {
	verb := "would warn"
	if f.Denies {
		verb = "would deny the pod"
	}
	return fmt.Sprintf("%s: %s (%s)", verb, f.Message, rulePlace(f.Rule))
}

func decodeFinding(_ *Policy, e *element) finding {
	f := finding{Denies: e.promise.set == "deny", PolicyFinding: v1alpha1.PolicyFinding{
		Rule: e.rule, Message: cmp.Or(e.plain, e.text("msg")), Path: e.text("path"), Code: cmp.Or(e.text("code"), e.code),
		Severity: cmp.Or(e.text("severity"), e.severity), Remediation: cmp.Or(e.text("remediation"), e.remediation),
	}}
	e.require(f.Message != "", "it must have a msg")
	return f
}

// fewFindings returns the findings that fit into an answer, denials first. Dropping some of many denials does not
// change the decision.
func fewFindings(all []finding) []finding {
	warnings := slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return f.Denies })
	all = append(slices.DeleteFunc(all, func(f finding) bool { return !f.Denies }), warnings...)
	bytes := 0
	for i, f := range all {
		if bytes += len(f.Message) + len(f.Path) + len(f.Code) + len(f.Severity) + len(f.Remediation); i == MaxFindings || bytes > maxFindingBytes {
			return all[:i]
		}
	}
	return all
}

func compareFindings(a, b v1alpha1.PolicyFinding) int {
	return cmp.Or(
		compareRules(a.Rule, b.Rule), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message),
		cmp.Compare(a.Code, b.Code), cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Remediation, b.Remediation),
	)
}
