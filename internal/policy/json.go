// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxPodNesting bounds how deep a pod's fields are. Pods are some ten deep.
const maxPodNesting = 64

// ParsedPod is a pod as rules read it. To parse it once serves all decisions about it.
type ParsedPod struct{ value value }

// ParsePod reads the JSON of a core/v1 Pod.
func ParsePod(text json.RawMessage) (*ParsedPod, error) {
	if !json.Valid(text) {
		return nil, errors.New("reading the pod: it isn't JSON")
	}
	r := jsonReader{text: text}
	term, err := r.value(0)
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if _, ok := term.Value.(ast.Object); !ok {
		return nil, errors.New("reading the pod: it isn't an object")
	}
	return &ParsedPod{value: valueOf(term)}, nil
}

// jsonReader makes terms of valid JSON, several times faster than by way of Go's values.
type jsonReader struct {
	text []byte
	at   int
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
		return ast.StringTerm(text), err
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
	var properties [][2]*ast.Term
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
		properties = append(properties, property(name, v))
	}
	r.at++
	return objectOf(properties), nil
}

// objectOf makes an object of properties, of which the last of a name holds. To insert one by one
// costs more, and is needed only for many, or for two of a name.
func objectOf(properties [][2]*ast.Term) *ast.Term {
	const few = 32
	alike := func(p [2]*ast.Term, others [][2]*ast.Term) bool {
		return slices.ContainsFunc(others, func(o [2]*ast.Term) bool { return o[0].Value == p[0].Value })
	}
	distinct := len(properties) <= few
	for i := 0; distinct && i < len(properties); i++ {
		distinct = !alike(properties[i], properties[:i])
	}
	if distinct {
		return ast.ObjectTerm(properties...)
	}
	object := ast.NewObject()
	for _, p := range properties {
		object.Insert(p[0], p[1])
	}
	return ast.NewTerm(object)
}

func (r *jsonReader) array(depth int) (*ast.Term, error) {
	var elements []*ast.Term
	r.at++
	for r.next() != ']' {
		if r.text[r.at] == ',' {
			r.at++
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		elements = append(elements, v)
	}
	r.at++
	return ast.ArrayTerm(elements...), nil
}

// string reads a string: as it stands, unless something in it is escaped.
func (r *jsonReader) string() (string, error) {
	start := r.at
	r.at++
	plain := true
	for ; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			plain = false
			r.at++
		}
	}
	r.at++
	if content := r.text[start+1 : r.at-1]; plain && utf8.Valid(content) {
		return string(content), nil
	}
	var text string
	err := json.Unmarshal(r.text[start:r.at], &text)
	return text, err
}

func (r *jsonReader) number() *ast.Term {
	start := r.at
	for r.at < len(r.text) && !bytes.ContainsRune([]byte(",]} \n\t\r"), rune(r.text[r.at])) {
		r.at++
	}
	return ast.NumberTerm(json.Number(r.text[start:r.at]))
}
