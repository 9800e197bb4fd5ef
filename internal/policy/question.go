// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/valyala/fastjson"
)

// Question is what policies are asked in one decision, here or in another process.
type Question struct {
	Decision string `json:"decision"`
	// Namespace that asks.
	Namespace string `json:"namespace"`
	// Now in nanoseconds since 1970; 0 for a decision without a clock.
	Now   int64           `json:"now"`
	Input json.RawMessage `json:"input"`
}

// question is a Question with its hash, and what rules here read of it.
type question struct {
	Question
	sum    [sha256.Size]byte
	parsed func() (parsedInput, error)
}

// id tells decisions apart.
func (q *question) id() string { return hex.EncodeToString(q.sum[:8]) }

// ask makes a question of an input.
func (b *Bound) ask(decision, namespace string, now int64, input any) *question {
	text, err := json.Marshal(input)
	q := newQuestion(Question{Decision: decision, Namespace: namespace, Now: now, Input: text})
	if err != nil { // of a pod that isn't JSON
		q.parsed = func() (parsedInput, error) { return parsedInput{}, fmt.Errorf("reading the input: %w", err) }
	}
	h := newHash()
	h.text(b.digest, decision, string(text))
	q.sum = h.sum()
	return q
}

func newQuestion(asked Question) *question {
	return &question{Question: asked, parsed: sync.OnceValues(func() (parsedInput, error) { return parseInput(asked.Decision, asked.Input) })}
}

// aboutScaling makes the question of corral.scaling.
func (b *Bound) aboutScaling(in ScalingInput) *question {
	in.Pool, in.Usage = in.Pool.filled(), in.Usage.filled()
	return b.ask(DecisionScaling, in.Pool.Namespace, in.Now, in)
}

// aboutPod makes the question of corral.template.
func (b *Bound) aboutPod(in TemplateInput) *question {
	in.Pool = in.Pool.filled()
	return b.ask(DecisionTemplate, in.Pool.Namespace, 0, in)
}

// aboutUpdate makes the question of corral.update.
func (b *Bound) aboutUpdate(in UpdateInput) *question {
	in.Pool = in.Pool.filled()
	return b.ask(DecisionUpdate, in.Pool.Namespace, in.Now, in)
}

// Reading is a hash of what the policies and their scaling rules read of an input, but for the clock.
func (b *Bound) Reading(in ScalingInput) [sha256.Size]byte {
	in.Now = 0
	if !b.needs.Jobs {
		in.Jobs = 0
	}
	if !b.needs.Runners {
		in.Runners = Runners{}
	}
	if !b.needs.Granted {
		in.Usage.Granted = 0
	}
	return b.aboutScaling(in).sum
}

// ReadingOfUpdate is a hash of all that the policies may read of an input, but for the clock.
func (b *Bound) ReadingOfUpdate(in UpdateInput) [sha256.Size]byte {
	in.Now = 0
	return b.aboutUpdate(in).sum
}

// parsedInput is an input as rules read it.
type parsedInput struct {
	term *ast.Term
	sets map[string]bool // the fields that the pod sets anywhere to more than false, of those that rules name
}

func parseInput(decision string, text json.RawMessage) (parsedInput, error) {
	parser := parsers.Get() // the text is encoding/json's: what is left is to be quick
	defer parsers.Put(parser)
	value, err := parser.ParseBytes(text)
	if err != nil {
		return parsedInput{}, fmt.Errorf("reading the input: %w", err)
	}
	in := parsedInput{term: names{}.termOf(value), sets: map[string]bool{}}
	if decision != DecisionTemplate {
		return in, nil
	}
	object, _ := in.term.Value.(ast.Object)
	pod := member(object, podKey)
	if _, ok := pod.Value.(ast.Object); !ok {
		return parsedInput{}, fmt.Errorf("reading the pod: it isn't an object, but %s", ast.ValueName(pod.Value))
	}
	noteSet(pod, gates(), in.sets)
	return in, nil
}

var parsers fastjson.ParserPool

// names are those of an input: the same ones come again and again.
type names map[string]*ast.Term

func (n names) of(name []byte) *ast.Term {
	known, ok := n[string(name)]
	if !ok {
		known = ast.StringTerm(string(name))
		n[string(name)] = known
	}
	return known
}

// termOf makes a term of JSON, several times faster than by way of Go's values.
func (n names) termOf(v *fastjson.Value) *ast.Term {
	switch v.Type() {
	case fastjson.TypeObject:
		object := v.GetObject()
		properties := make([][2]*ast.Term, 0, object.Len())
		object.Visit(func(name []byte, value *fastjson.Value) {
			properties = append(properties, [2]*ast.Term{n.of(name), n.termOf(value)})
		})
		return ast.ObjectTerm(properties...)
	case fastjson.TypeArray:
		values := v.GetArray()
		elements := make([]*ast.Term, len(values))
		for i, value := range values {
			elements[i] = n.termOf(value)
		}
		return ast.ArrayTerm(elements...)
	case fastjson.TypeString:
		return ast.StringTerm(string(v.GetStringBytes()))
	case fastjson.TypeNumber:
		return ast.NewTerm(ast.Number(v.String()))
	case fastjson.TypeNull:
		return ast.InternedNullTerm
	default:
		return ast.InternedTerm(v.Type() == fastjson.TypeTrue)
	}
}

var podKey = ast.StringTerm("pod")

// member returns what an object has under a name; null if it has nothing.
func member(object ast.Object, name *ast.Term) *ast.Term {
	if object != nil {
		if v := object.Get(name); v != nil {
			return v
		}
	}
	return ast.InternedNullTerm
}
