// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// callUnlisted implements corral.unlisted(object, lists), which returns a set with one [path, name] for each field
// whose value is not in the list of allowed names. Each list has the form [fields, allowed].
//
// A field is written like spec.volumes[*].csi.driver, where [*] stands for each element of a list, and containers
// includes initContainers and ephemeralContainers. *text* stands for each key that contains text; upper and lower case
// are the same. * stands for each key. If a field ends with *, its name is KEY=VALUE, and an allowed name without =
// matches the key with any value. In allowed names, * matches any characters. A value of null, false, 0 or an empty array
// counts as not set.
func callUnlisted(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) (err error) {
	s := search{found: ast.NewSet(), path: make([]string, 0, 16)}
	each(operands[1], func(list *ast.Term) {
		fields, allowed, ok := pairOf(list)
		if !ok {
			err = fmt.Errorf("a list is [fields, allowed], not %s", clean(list.String()))
			return
		}
		s.allowed = allowed
		each(fields, func(field *ast.Term) {
			if text := textOf(field); isField(text) {
				s.look(operands[0], text)
				return
			}
			err = fmt.Errorf("a field is like spec.volumes[*].csi.driver, not %s", clean(field.String()))
		})
	})
	if err != nil {
		return err
	}
	return give(ast.NewTerm(s.found))
}

// pairOf returns the parts of a list of the form [fields, allowed], in which fields is an array or a set.
func pairOf(list *ast.Term) (fields, allowed *ast.Term, ok bool) {
	pair, isArray := list.Value.(*ast.Array)
	if !isArray || pair.Len() != 2 {
		return nil, nil, false
	}
	switch pair.Elem(0).Value.(type) {
	case *ast.Array, ast.Set:
		return pair.Elem(0), pair.Elem(1), true
	}
	return nil, nil, false
}

// isField reports whether search can look for a field. A misspelt field such as a[_] would select nothing, so that a rule
// would silently allow every value.
func isField(field string) bool {
	for step := range strings.SplitSeq(field, ".") {
		step = strings.TrimSuffix(step, "[*]")
		if step == "" || strings.ContainsAny(step, "[]") || strings.Contains(strings.Trim(step, "*"), "*") {
			return false
		}
	}
	return true
}

// search looks for fields whose values are not allowed.
type search struct {
	allowed *ast.Term
	found   ast.Set
	// path is the path of the current value, in parts.
	path []string
}

var containerLists = []string{"containers", "initContainers", "ephemeralContainers"}

// look resolves the remaining steps of a field, starting at a value. It calls judge with each value at the end of the
// field.
func (s *search) look(in *ast.Term, field string) {
	step, rest, more := strings.Cut(field, ".")
	step, each := strings.CutSuffix(step, "[*]")
	object, ok := in.Value.(ast.Object)
	switch {
	case !ok:
	case strings.Contains(step, "*"):
		part := strings.ToLower(strings.Trim(step, "*"))
		object.Foreach(func(k, v *ast.Term) {
			if strings.Contains(strings.ToLower(textOf(k)), part) {
				s.enter(k, v, rest, each, more, part == "" && !more)
			}
		})
	case step == containerLists[0]:
		for _, list := range containerLists {
			s.enter(ast.StringTerm(list), object.Get(ast.StringTerm(list)), rest, each, more, false)
		}
	default:
		s.enter(ast.StringTerm(step), object.Get(ast.StringTerm(step)), rest, each, more, false)
	}
}

// enter continues at the value v of the key k, or at each element of v if each is true. more is true if the field has
// further steps; otherwise enter calls judge. keyed is true if the key is a part of the name.
func (s *search) enter(k, v *ast.Term, rest string, each, more, keyed bool) {
	if v == nil {
		return
	}
	depth := len(s.path)
	defer func() { s.path = s.path[:depth] }()
	name := textOf(k)
	if strings.ContainsAny(name, "./") {
		s.path = append(s.path, "[", name, "]")
	} else {
		s.path = append(s.path, ".", name)
	}
	named := len(s.path)
	list, isList := v.Value.(*ast.Array)
	switch {
	case each && isList:
		for i := range list.Len() {
			s.path = append(s.path[:named], "[", strconv.Itoa(i), "]")
			if more {
				s.look(list.Elem(i), rest)
			} else {
				s.judge(k, list.Elem(i), false)
			}
		}
	case more && !each:
		s.look(v, rest)
	case !each:
		s.judge(k, v, keyed)
	}
}

var unset = []*ast.Term{ast.InternedNullTerm, ast.InternedTerm(false), ast.InternedTerm(0), ast.InternedEmptyArray}

// judge adds a field to the result unless its value is allowed or not set.
func (s *search) judge(k, v *ast.Term, keyed bool) {
	if slices.ContainsFunc(unset, v.Equal) {
		return
	}
	text := ""
	switch value := v.Value.(type) {
	case ast.String:
		text = string(value)
	case ast.Number:
		text = string(value)
	default:
		keyed = true
	}
	name := text
	if keyed {
		name, v = textOf(k), k
	}
	if set, ok := s.allowed.Value.(ast.Set); ok && set.Contains(v) || s.matches(name, text, keyed) {
		return
	}
	if keyed && text != "" {
		name += "=" + text
	}
	path := strings.TrimPrefix(strings.Join(s.path, ""), ".")
	s.found.Add(ast.ArrayTerm(ast.StringTerm(path), ast.StringTerm(name)))
}

// matches reports whether a name is allowed. If keyed is true, the name is a key, and an allowed name has the form KEY
// or KEY=VALUE.
func (s *search) matches(name, value string, keyed bool) (ok bool) {
	each(s.allowed, func(t *ast.Term) {
		pattern, values, paired := textOf(t), "", false
		if keyed {
			pattern, values, paired = strings.Cut(pattern, "=")
		}
		ok = ok || matches(pattern, name) && (!paired || matches(values, value))
	})
	return ok
}

// matches reports whether a text matches a pattern, in which * stands for any characters.
func matches(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !star || !ok {
		return ok && text == ""
	}
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		if _, text, ok = strings.Cut(text, part); !ok {
			return false
		}
		rest = next
	}
}
