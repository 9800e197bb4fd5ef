// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/valyala/fastjson"
)

// Question is the input of one decision, for evaluation in this process or in another.
type Question struct {
	Decision string `json:"decision"`
	// Namespace is the namespace of the pool.
	Namespace string `json:"namespace"`
	// Now is in nanoseconds since 1970.
	Now   int64           `json:"now"`
	Input json.RawMessage `json:"input"`
}

// question is a Question with its hash and its parsed input.
type question struct {
	Question
	sum    [sha256.Size]byte
	parsed func() (parsedInput, error)
	// subject identifies the decision and the pool, and asked is the time of the question. The quarantine of policies uses
	// both.
	subject string
	asked   time.Time
	// output of print.
	output bytes.Buffer
}

// id returns the ID of a decision: a part of the hash of the policies and the input.
func (q *question) id() string { return hex.EncodeToString(q.sum[:8]) }

// ask creates the question for an input.
func (b *Bound) ask(decision string, pool Pool, now int64, input any) *question {
	text, _ := json.Marshal(input) // if the pod is not valid JSON, the text is empty and parseInput fails
	q := newQuestion(Question{Decision: decision, Namespace: pool.Namespace, Now: now, Input: text})
	q.subject, q.asked = decision+" "+pool.Name, time.Unix(0, now)
	h := newHash()
	h.text(b.digest, decision, string(text))
	q.sum = h.sum()
	return q
}

func newQuestion(asked Question) *question {
	return &question{Question: asked, parsed: sync.OnceValues(func() (parsedInput, error) { return parseInput(asked.Decision, asked.Input) })}
}

// aboutScaling creates the question for corral.scaling.
func (b *Bound) aboutScaling(in ScalingInput) *question {
	in.Pool, in.Usage = in.Pool.filled(), in.Usage.filled()
	return b.ask(DecisionScaling, in.Pool, in.Now, in)
}

// aboutPod creates the question for corral.template.
func (b *Bound) aboutPod(in TemplateInput) *question {
	in.Pool = in.Pool.filled()
	return b.ask(DecisionTemplate, in.Pool, in.Now, in)
}

// aboutUpdate creates the question for corral.update.
func (b *Bound) aboutUpdate(in UpdateInput) *question {
	in.Pool = in.Pool.filled()
	return b.ask(DecisionUpdate, in.Pool, in.Now, in)
}

// Reading returns a hash of the policies and of the part of an input that their scaling rules read, without the time.
func (b *Bound) Reading(in ScalingInput) [sha256.Size]byte {
	return b.aboutScaling(b.needs.of(in)).sum
}

// ReadingOfUpdate returns a hash of the policies and of an input, without the time.
func (b *Bound) ReadingOfUpdate(in UpdateInput) [sha256.Size]byte {
	in.Now = 0
	return b.aboutUpdate(in).sum
}

// parsedInput is an input in the form in which rules read it.
type parsedInput struct {
	term *ast.Term
	sets map[string]bool // the fields in gates that the pod sets to a value other than false
}

func parseInput(decision string, text json.RawMessage) (parsedInput, error) {
	r := readers.Get().(*inputReader) // encoding/json wrote the text, so fastjson needs no strict checks
	defer readers.Put(r)
	value, err := r.parser.ParseBytes(text)
	if err != nil {
		return parsedInput{}, fmt.Errorf("reading the input: %w", err)
	}
	in := parsedInput{term: r.termOf(value), sets: map[string]bool{}}
	if decision != DecisionTemplate {
		return in, nil
	}
	if value.GetObject("pod") == nil {
		return parsedInput{}, errors.New("reading the pod: it isn't an object")
	}
	noteSet(in.term, gates(), in.sets)
	return in, nil
}

// inputReader converts JSON to terms. It is several times faster than a conversion through Go values, because it reuses
// the terms of short texts.
type inputReader struct {
	parser fastjson.Parser
	known  map[string]*ast.Term
}

// maxKnown is the maximum number of texts that a reader remembers, and maxKnownText the maximum size of each in bytes.
const maxKnown, maxKnownText = 2000, 64

var readers = sync.Pool{New: func() any { return &inputReader{known: map[string]*ast.Term{}} }}

func (r *inputReader) textTerm(text []byte) *ast.Term {
	if known, ok := r.known[string(text)]; ok {
		return known
	}
	term := ast.StringTerm(string(text))
	if len(text) <= maxKnownText {
		if len(r.known) >= maxKnown {
			clear(r.known)
		}
		r.known[string(text)] = term
	}
	return term
}

func (r *inputReader) termOf(v *fastjson.Value) *ast.Term {
	switch v.Type() {
	case fastjson.TypeObject:
		object := v.GetObject()
		properties := make([][2]*ast.Term, 0, object.Len())
		object.Visit(func(name []byte, value *fastjson.Value) {
			properties = append(properties, [2]*ast.Term{r.textTerm(name), r.termOf(value)})
		})
		return ast.ObjectTerm(properties...)
	case fastjson.TypeArray:
		values := v.GetArray()
		elements := make([]*ast.Term, len(values))
		for i, value := range values {
			elements[i] = r.termOf(value)
		}
		return ast.ArrayTerm(elements...)
	case fastjson.TypeString:
		return r.textTerm(v.GetStringBytes())
	case fastjson.TypeNumber:
		if n, err := v.Int(); err == nil {
			return ast.InternedTerm(n)
		}
		return ast.NewTerm(ast.Number(v.String()))
	case fastjson.TypeNull:
		return ast.InternedNullTerm
	default:
		return ast.InternedTerm(v.Type() == fastjson.TypeTrue)
	}
}
