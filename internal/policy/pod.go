// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// parsedPod is a pod as rules read it.
type parsedPod struct {
	term *ast.Term
	sets map[string]bool // the fields that are set anywhere to more than false, of those that rules name
}

// parsePod reads the JSON of a core/v1 Pod.
func parsePod(text json.RawMessage) (parsedPod, error) {
	value, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return parsedPod{}, fmt.Errorf("reading the pod: %w", err)
	}
	if _, ok := value.(ast.Object); !ok {
		return parsedPod{}, errors.New("reading the pod: it isn't an object")
	}
	pod := parsedPod{term: ast.NewTerm(value), sets: map[string]bool{}}
	pod.note(pod.term, gates())
	return pod, nil
}

// note notes the fields that are set, of those that are named: by their name, or the beginning of it up to its slash.
func (p *parsedPod) note(t *ast.Term, named map[string]bool) {
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(func(element *ast.Term) { p.note(element, named) })
	case ast.Object:
		v.Foreach(func(key, value *ast.Term) {
			name := textOf(key)
			if slash := strings.IndexByte(name, '/'); slash >= 0 {
				name = name[:slash+1]
			}
			if named[name] && !value.Equal(ast.InternedTerm(false)) {
				p.sets[name] = true
			}
			p.note(value, named)
		})
	}
}
