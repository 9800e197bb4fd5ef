// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"fmt"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// Causes writes the causes of a condition without their rendered text, one per line: the code, the subject and the parameters, such as
// `ConnectionFailed connection="acme" reason="CredentialsRefused"`. Details are the texts of other programs, joined.
func Causes(obj kube.Object, condition string) (causes, details string) {
	var lines, texts []string
	for _, c := range v1alpha1.CausesOf(*obj.Causes(), condition) {
		line := c.Code
		if c.Subject != nil {
			line += fmt.Sprintf(" %s/%s/%s", c.Subject.Kind, c.Subject.Namespace, c.Subject.Name)
		}
		for _, p := range c.Parameters {
			line += fmt.Sprintf(" %s=%q", p.Name, p.Value)
		}
		lines, texts = append(lines, line), append(texts, c.Detail)
	}
	return strings.Join(lines, "\n"), strings.Join(texts, "\n")
}

// Facts returns the codes, the subjects, the parameters and the details of a condition's causes, separated by line breaks.
func Facts(obj kube.Object, condition string) string {
	var facts []string
	for _, c := range v1alpha1.CausesOf(*obj.Causes(), condition) {
		facts = append(facts, c.Code)
		if c.Subject != nil {
			facts = append(facts, fmt.Sprintf("%s/%s/%s", c.Subject.Kind, c.Subject.Namespace, c.Subject.Name))
		}
		for _, p := range c.Parameters {
			facts = append(facts, p.Value)
		}
		facts = append(facts, c.Detail)
	}
	return strings.Join(facts, "\n")
}
