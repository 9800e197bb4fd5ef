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

// callUnlisted is corral.unlisted(object, lists): the set of [path, name] of fields whose value is not allowed. Each
// list is [fields, allowed]. A field is written as spec.volumes[*].csi.driver: [*] is each element; containers are
// initContainers and ephemeralContainers too; *text* is each key with that text, whatever its letters; * is each key, and at
// the end the name is KEY=VALUE, of which an allowed name without = is the key. In allowed names, * is any characters. What is
// null, false, 0 or an empty array is not set.
func callUnlisted(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) (err error) {
	s := search{found: ast.NewSet(), path: make([]string, 0, 16)}
	each(operands[1], func(list *ast.Term) {
		pair, ok := list.Value.(*ast.Array)
		if !ok || pair.Len() != 2 {
			err = fmt.Errorf("a list is [fields, allowed], not %s", clean(list.String()))
			return
		}
		s.allowed = pair.Elem(1)
		each(pair.Elem(0), func(field *ast.Term) { s.look(operands[0], textOf(field)) })
	})
	if err != nil {
		return err
	}
	return give(ast.NewTerm(s.found))
}

// search looks for fields whose values aren't allowed.
type search struct {
	allowed *ast.Term
	found   ast.Set
	// path of what is looked at, in parts that follow each other.
	path []string
}

var containerLists = []string{"containers", "initContainers", "ephemeralContainers"}

// look follows a field from a value on.
func (s *search) look(in *ast.Term, field string) {
	step, rest, more := strings.Cut(field, ".")
	step, each := strings.CutSuffix(step, "[*]")
	object, ok := in.Value.(ast.Object)
	switch {
	case !ok:
	case strings.Contains(step, "*"):
		part := strings.Trim(step, "*")
		object.Foreach(func(k, v *ast.Term) {
			if part == "" || strings.Contains(strings.ToLower(textOf(k)), part) {
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

// enter goes on at the value of a key, or at each of its elements, and judges it where the field ends.
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
			s.look(list.Elem(i), rest)
		}
	case more && !each:
		s.look(v, rest)
	case !each:
		s.judge(k, v, keyed)
	}
}

var unset = []*ast.Term{ast.InternedNullTerm, ast.InternedTerm(false), ast.InternedTerm(0), ast.InternedEmptyArray}

// judge notes a value unless it is allowed, or not set.
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

// matches tells whether a name is as one that is allowed, if keyed by the key, or by that and the value.
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

// matches tells whether a text is as a pattern has it, in which * is any characters.
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
