// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Most rules on pods are about a field that most pods don't set. A rule of the library names such fields in its
// metadata, as custom.only_with, and is not asked about a pod that sets none of them, anywhere, to more than false.
// One that ends with a slash stands for all names that begin with it.

// onlyWith are the fields of which a pod must set one for a rule to hold; none if it may hold for any.
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

// gates are the fields that rules of the library name.
var gates = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	all, err := library()
	if err != nil {
		return names // nothing of it can be loaded
	}
	for _, m := range all {
		for _, rule := range m.module.Rules {
			for _, field := range onlyWith(rule) {
				names[field] = true
			}
		}
	}
	return names
})

// answersOf is the name of the set of answers of rules that need a field; "" for those that need none.
func answersOf(field string) string {
	if field == "" {
		return answers
	}
	return answers + "_" + field
}

// isAnswers tells whether a rule is one of the engine's copies.
func isAnswers(rule *ast.Rule) bool { return strings.HasPrefix(ruleName(rule), answers) }

// asked is the query of a decision's rules that need a field; "" for those that need none.
type asked struct {
	field string
	query ast.Body
}

// wants tells whether a decision's rules that need a field are known already.
func wants(list []asked, field string) bool {
	return slices.ContainsFunc(list, func(a asked) bool { return a.field == field })
}

// noteSet notes the fields that are set, of those that are named: by their name, or the beginning of it up to its slash.
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
