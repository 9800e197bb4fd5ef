// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
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
	// subject is the decision and the pool, and asked is when it was asked: for the policies' quarantine.
	subject string
	asked   time.Time
}

// id tells decisions apart.
func (q *question) id() string { return hex.EncodeToString(q.sum[:8]) }

// ask makes a question of an input.
func (b *Bound) ask(decision string, pool Pool, now int64, input any) *question {
	text, err := json.Marshal(input)
	q := newQuestion(Question{Decision: decision, Namespace: pool.Namespace, Now: now, Input: text})
	q.subject, q.asked = decision+" "+pool.Name, time.Unix(0, now)
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
	return b.ask(DecisionScaling, in.Pool, in.Now, in)
}

// aboutPod makes the question of corral.template.
func (b *Bound) aboutPod(in TemplateInput) *question {
	in.Pool = in.Pool.filled()
	q := b.ask(DecisionTemplate, in.Pool, 0, in)
	q.asked = time.Unix(0, in.Now)
	return q
}

// aboutUpdate makes the question of corral.update.
func (b *Bound) aboutUpdate(in UpdateInput) *question {
	in.Pool = in.Pool.filled()
	return b.ask(DecisionUpdate, in.Pool, in.Now, in)
}

// Reading is a hash of what the policies and their scaling rules read of an input, but for the clock.
func (b *Bound) Reading(in ScalingInput) [sha256.Size]byte {
	return b.aboutScaling(b.needs.of(in)).sum
}

// ReadingOfUpdate is a hash of all that the policies may read of an input, but for the clock.
func (b *Bound) ReadingOfUpdate(in UpdateInput) [sha256.Size]byte {
	in.Now = 0
	return b.aboutUpdate(in).sum
}

// parsedInput is an input as rules read it.
type parsedInput struct {
	term *ast.Term
	sets map[string]bool // the fields set anywhere to more than false, of those that rules name
}

func parseInput(decision string, text json.RawMessage) (parsedInput, error) {
	r := readers.Get().(*inputReader) // the text is encoding/json's: what is left is to be quick
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

// inputReader makes terms of JSON, several times faster than by way of Go's values: the same short texts come again and again.
type inputReader struct {
	parser fastjson.Parser
	known  map[string]*ast.Term
}

// maxKnown is how many texts a reader knows, and maxKnownText how long each is at most.
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
