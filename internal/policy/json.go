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

// ofNoRule are the names of fields that no rule of the library reads, and env.FIELD those of a container's variables.
// They are half of a pod and more.
var ofNoRule = map[string]bool{"args": true, "command": true, "env.name": true, "env.value": true, "volumeMounts": true}

// ParsePod reads the JSON of a core/v1 Pod.
func ParsePod(text json.RawMessage) (*ParsedPod, error) { return parsePod(text, nil) }

// parsePod reads a pod without the fields of the names to leave out.
func parsePod(text json.RawMessage, without map[string]bool) (*ParsedPod, error) {
	// The zero byte ends what can be read: it is part of no JSON.
	r := jsonReader{text: string(text) + "\x00", valid: utf8.Valid(text), named: gates(), sets: map[string]bool{}, without: without}
	term, err := r.value(0)
	if err == nil && (r.next() != 0 || r.at != len(text)) {
		err = r.unexpected()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if _, ok := term.Value.(ast.Object); !ok {
		return nil, errors.New("reading the pod: it isn't an object")
	}
	return &ParsedPod{value: value{term: term, sum: sha256.Sum256(text)}, sets: r.sets}, nil
}

// jsonReader makes terms of JSON, several times faster than by way of Go's values. Texts are parts
// of one string, and terms are allocated many at once.
type jsonReader struct {
	text string // ends with a zero byte
	// valid is true when all of text is valid UTF-8.
	valid bool
	at    int
	terms []ast.Term
	// properties and elements of what is being read, those of the outer first.
	properties [][2]*ast.Term
	elements   []*ast.Term
	// sets are the names of properties that were seen with more than false, of those that are named.
	named, sets map[string]bool
	// without are the names of properties that are left out, and leaving is true in one of them.
	without map[string]bool
	leaving bool
	// inEnv is true among a container's variables.
	inEnv bool
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

// unexpected is the error of what is no JSON.
func (r *jsonReader) unexpected() error { return fmt.Errorf("it isn't JSON: byte %d", r.at+1) }

// take goes past one of the given bytes, and says which.
func (r *jsonReader) take(either, or byte) (byte, error) {
	c := r.next()
	if c != either && c != or {
		return 0, r.unexpected()
	}
	r.at++
	return c, nil
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
		if r.leaving {
			return nil, err
		}
		return r.term(ast.String(text)), err
	case 't':
		return r.word("true", ast.InternedTerm(true))
	case 'f':
		return r.word("false", ast.InternedTerm(false))
	case 'n':
		return r.word("null", ast.InternedNullTerm)
	default:
		return r.number()
	}
}

func (r *jsonReader) word(word string, means *ast.Term) (*ast.Term, error) {
	if !strings.HasPrefix(r.text[r.at:], word) {
		return nil, r.unexpected()
	}
	r.at += len(word)
	return means, nil
}

func (r *jsonReader) object(depth int) (*ast.Term, error) {
	outer := len(r.properties)
	r.at++
	for first := true; ; first = false {
		if first && r.next() == '}' {
			r.at++
			break
		}
		if err := r.property(depth); err != nil {
			return nil, err
		}
		end, err := r.take(',', '}')
		if err != nil {
			return nil, err
		}
		if end == '}' {
			break
		}
	}
	if r.leaving {
		return nil, nil
	}
	if len(r.properties) == outer {
		return ast.InternedEmptyObject, nil
	}
	object := objectOf(r.properties[outer:])
	r.properties = r.properties[:outer]
	return r.term(object), nil
}

func (r *jsonReader) property(depth int) error {
	if r.next() != '"' {
		return r.unexpected()
	}
	name, err := r.string()
	if err != nil {
		return err
	}
	if _, err := r.take(':', ':'); err != nil {
		return err
	}
	leaves := !r.leaving && (r.without[name] || r.inEnv && r.without["env."+name])
	r.leaving = r.leaving || leaves
	outer := r.inEnv
	r.inEnv = name == "env"
	v, err := r.value(depth + 1)
	if err != nil {
		return err
	}
	r.inEnv = outer
	r.note(name, v)
	if !r.leaving {
		r.properties = append(r.properties, property(name, v))
	}
	r.leaving = r.leaving && !leaves
	return nil
}

// note notes a property that rules name, by its name or the beginning of it up to its slash.
func (r *jsonReader) note(name string, v *ast.Term) {
	if slash := strings.IndexByte(name, '/'); slash >= 0 {
		name = name[:slash+1]
	}
	if r.named[name] && (v == nil || !v.Equal(ast.InternedTerm(false))) {
		r.sets[name] = true
	}
}

func (r *jsonReader) array(depth int) (*ast.Term, error) {
	outer := len(r.elements)
	r.at++
	for first := true; ; first = false {
		if first && r.next() == ']' {
			r.at++
			break
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if !r.leaving {
			r.elements = append(r.elements, v)
		}
		end, err := r.take(',', ']')
		if err != nil {
			return nil, err
		}
		if end == ']' {
			break
		}
	}
	if r.leaving {
		return nil, nil
	}
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
		switch {
		case r.text[r.at] < ' ': // the end too
			return "", r.unexpected()
		case r.text[r.at] == '\\':
			plain = false
			r.at++
			if r.text[r.at] == 0 {
				return "", r.unexpected()
			}
		}
	}
	r.at++
	if plain {
		return r.text[start+1 : r.at-1], nil
	}
	var text string
	if err := json.Unmarshal([]byte(r.text[start:r.at]), &text); err != nil {
		return "", fmt.Errorf("it isn't JSON: the string at byte %d: %w", start+1, err)
	}
	return text, nil
}

func (r *jsonReader) number() (*ast.Term, error) {
	start := r.at
	for r.text[r.at] > ' ' && strings.IndexByte(",]}", r.text[r.at]) < 0 {
		r.at++
	}
	text := r.text[start:r.at]
	if !json.Valid([]byte(text)) {
		r.at = start
		return nil, r.unexpected()
	}
	if r.leaving {
		return nil, nil
	}
	return r.term(ast.Number(text)), nil
}
