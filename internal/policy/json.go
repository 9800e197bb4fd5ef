// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxPodNesting bounds how deep a pod's fields are. Pods are some ten deep.
const maxPodNesting = 64

// ParsedPod is a pod as rules read it. To parse it once serves all decisions about it.
type ParsedPod struct {
	value value
	sets  map[string]bool // the fields that are set anywhere to more than false, of those that rules name
}

// ParsePod reads the JSON of a core/v1 Pod.
func ParsePod(text json.RawMessage) (*ParsedPod, error) {
	if !json.Valid(text) {
		return nil, errors.New("reading the pod: it isn't JSON")
	}
	r := jsonReader{text: string(text), valid: utf8.Valid(text), named: gates(), sets: map[string]bool{}}
	term, err := r.value(0)
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if _, ok := term.Value.(ast.Object); !ok {
		return nil, errors.New("reading the pod: it isn't an object")
	}
	return &ParsedPod{value: value{term: term, sum: sha256.Sum256(text)}, sets: r.sets}, nil
}

// jsonReader makes terms of valid JSON, several times faster than by way of Go's values. Texts
// are parts of one string, and terms are allocated many at once.
type jsonReader struct {
	text string
	// valid is true when all of text is valid UTF-8.
	valid bool
	at    int
	terms []ast.Term
	// properties and elements of what is being read, those of the outer first.
	properties [][2]*ast.Term
	elements   []*ast.Term
	// sets are the names of properties that were seen with more than false, of those that are named.
	named, sets map[string]bool
}

func (r *jsonReader) term(v ast.Value) *ast.Term {
	const many = 64
	if len(r.terms) == 0 {
		r.terms = make([]ast.Term, many)
	}
	t := &r.terms[0]
	r.terms = r.terms[1:]
	t.Value = v
	return t
}

func (r *jsonReader) skipSpace() {
	for r.at < len(r.text) && (r.text[r.at] == ' ' || r.text[r.at] == '\n' || r.text[r.at] == '\t' || r.text[r.at] == '\r') {
		r.at++
	}
}

// next returns the next byte that isn't space, and stays on it.
func (r *jsonReader) next() byte {
	r.skipSpace()
	return r.text[r.at]
}

func (r *jsonReader) value(depth int) (*ast.Term, error) {
	if depth > maxPodNesting {
		return nil, fmt.Errorf("it is nested more than %d deep", maxPodNesting)
	}
	switch r.next() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		text, err := r.string()
		return r.term(ast.String(text)), err
	case 't':
		r.at += len("true")
		return ast.InternedTerm(true), nil
	case 'f':
		r.at += len("false")
		return ast.InternedTerm(false), nil
	case 'n':
		r.at += len("null")
		return ast.InternedNullTerm, nil
	default:
		return r.number(), nil
	}
}

func (r *jsonReader) object(depth int) (*ast.Term, error) {
	outer := len(r.properties)
	r.at++
	for r.next() != '}' {
		if r.text[r.at] == ',' {
			r.at++
			r.skipSpace()
		}
		name, err := r.string()
		if err != nil {
			return nil, err
		}
		r.next()
		r.at++ // the colon
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		r.note(name, v)
		r.properties = append(r.properties, property(name, v))
	}
	r.at++
	object := objectOf(r.properties[outer:])
	r.properties = r.properties[:outer]
	return r.term(object), nil
}

// note notes a property that rules name, by its name or the beginning of it up to its slash.
func (r *jsonReader) note(name string, v *ast.Term) {
	if slash := strings.IndexByte(name, '/'); slash >= 0 {
		name = name[:slash+1]
	}
	if r.named[name] && !v.Equal(ast.InternedTerm(false)) {
		r.sets[name] = true
	}
}

func (r *jsonReader) array(depth int) (*ast.Term, error) {
	outer := len(r.elements)
	r.at++
	for r.next() != ']' {
		if r.text[r.at] == ',' {
			r.at++
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		r.elements = append(r.elements, v)
	}
	r.at++
	array := ast.NewArray(slices.Clone(r.elements[outer:])...)
	r.elements = r.elements[:outer]
	return r.term(array), nil
}

// objectOf makes an object of properties, of which the last of a name holds. To insert one by one
// costs more, and is needed only for many, or for two of a name.
func objectOf(properties [][2]*ast.Term) ast.Object {
	const few = 32
	alike := func(p [2]*ast.Term, others [][2]*ast.Term) bool {
		return slices.ContainsFunc(others, func(o [2]*ast.Term) bool { return o[0].Value == p[0].Value })
	}
	distinct := len(properties) <= few
	for i := 0; distinct && i < len(properties); i++ {
		distinct = !alike(properties[i], properties[:i])
	}
	if distinct {
		return ast.NewObject(properties...)
	}
	object := ast.NewObject()
	for _, p := range properties {
		object.Insert(p[0], p[1])
	}
	return object
}

// string reads a string: as it stands, unless something in it is escaped.
func (r *jsonReader) string() (string, error) {
	start := r.at
	r.at++
	plain := r.valid
	for ; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			plain = false
			r.at++
		}
	}
	r.at++
	if plain {
		return r.text[start+1 : r.at-1], nil
	}
	var text string
	err := json.Unmarshal([]byte(r.text[start:r.at]), &text)
	return text, err
}

func (r *jsonReader) number() *ast.Term {
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(",]} \n\t\r", r.text[r.at]) < 0 {
		r.at++
	}
	return r.term(ast.Number(r.text[start:r.at]))
}
