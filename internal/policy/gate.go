// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Most rules about pods check a field that most pods do not set. A library rule lists such fields in its metadata as
// custom.only_with. It is not evaluated for a pod that sets none of them, anywhere, to a value other than null or
// false. A name with a trailing slash stands for all names with that prefix.

// onlyWith returns fields with the property that a rule can hold only for pods that set at least one of them. It returns
// none if the rule can hold for any pod.
func onlyWith(rule *ast.Rule) []string {
	var fields []string
	for _, a := range rule.Annotations {
		list, _ := a.Custom["only_with"].([]any)
		for _, field := range list {
			if name, ok := field.(string); ok {
				fields = append(fields, name)
			}
		}
	}
	return fields
}

// gates are the fields that rules of the library list.
var gates = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, m := range library() {
		for _, rule := range m.module.Rules {
			for _, field := range onlyWith(rule) {
				names[field] = true
			}
		}
	}
	return names
})

// answersOf returns the name of the set of answers of rules that need a field; "" for rules that need none.
func answersOf(field string) string {
	if field == "" {
		return answers
	}
	return answers + "_" + field
}

// isAnswers reports whether a rule is one of the engine's copies.
func isAnswers(rule *ast.Rule) bool { return strings.HasPrefix(ruleName(rule), answers) }

// gatedQuery is the query of a decision's rules that need a field; "" for rules that need none.
type gatedQuery struct {
	field string
	query ast.Body
}

// noteSet records which of the named fields are set. A name matches exactly, or by its prefix up to the slash.
func noteSet(t *ast.Term, named, sets map[string]bool) {
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(func(element *ast.Term) { noteSet(element, named, sets) })
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) {
			name := textOf(key)
			if slash := strings.IndexByte(name, '/'); slash >= 0 {
				name = name[:slash+1]
			}
			if named[name] && !value.Equal(ast.InternedTerm(false)) {
				sets[name] = true
			}
			noteSet(value, named, sets)
		})
	}
}
