// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Most rules about pods check a field that most pods do not set. A library rule can list such fields in its metadata as
// custom.only_with. Corral then evaluates the rule only for pods that set at least one of them, at any depth, to a
// value other than false. A name with a trailing slash stands for all names with that prefix.

// onlyWith returns the fields in a rule's only_with. It returns none if the rule can hold for any pod.
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

// gates contains all fields that rules of the library list in only_with.
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

// answersOf returns the name of the set with the answers of the rules that require a field. The field "" stands for the
// rules that require none.
func answersOf(field string) string {
	if field == "" {
		return answers
	}
	return answers + "_" + field
}

// isAnswers reports whether a rule is one of the engine's copies.
func isAnswers(rule *ast.Rule) bool { return strings.HasPrefix(ruleName(rule), answers) }

// gatedQuery is the query for those rules of a decision that require a field. The field "" stands for the rules that
// require none.
type gatedQuery struct {
	field string
	query ast.Body
}

// noteSet records in sets which of the named fields a value sets, at any depth, to a value other than false. A name
// that contains a slash matches by its prefix, including the first slash.
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
