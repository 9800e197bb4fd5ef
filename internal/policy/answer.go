// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/internal/wording"
)

// maxText is the maximum size of each text of an answer in bytes; longer texts are truncated.
const maxText = 1024

// elementsOf contains the elements of one policy's answer.
type elementsOf[T any] struct {
	policy   *Policy
	elements []T
}

// replies holds the answers of all policies to a question.
type replies[T any] struct {
	enforced []T
	audited  []elementsOf[T]
	failures []Failure
	audit    []Audit
}

// askEach asks each policy that takes part in the decision. If an answer also contains invalid elements, its valid
// elements still count, because each element can only narrow the result. After a failure, the controller evaluates the
// pool again anyway, so askEach skips policies that have since been deleted or replaced. Otherwise deleted rules that
// time out would still cost time.
func askEach[T any](ctx context.Context, b *Bound, q *question, decode func(*Policy, *element) T) replies[T] {
	var h replies[T]
	for _, p := range b.policies {
		if !mayDecide(p, q.Decision) || len(h.failures) > 0 && p.retired.Load() {
			continue
		}
		elements, failure := askOne(ctx, p, q, decode)
		switch {
		case failure != nil && isAudited(p):
			h.audit = append(h.audit, Audit{Policy: p.Ref(), Message: fmt.Sprintf("%s: %s", failure.Kind, failure.Message)})
		case failure != nil:
			h.failures = append(h.failures, *failure)
		}
		if isAudited(p) {
			h.audited = append(h.audited, elementsOf[T]{policy: p, elements: elements})
		} else {
			h.enforced = append(h.enforced, elements...)
		}
	}
	slices.SortFunc(h.failures, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Message, b.Message))
	})
	return h
}

// askOne asks one policy, in this process or in another.
func askOne[T any](ctx context.Context, p *Policy, q *question, decode func(*Policy, *element) T) ([]T, *Failure) {
	switch {
	case !p.isLoaded():
		return nil, p.failure(NotLoaded, "%s", p.whyNotLoaded())
	case !p.quarantine.admit(q):
		return nil, p.quarantined(q)
	case ctx.Err() != nil:
		return nil, p.failure(TimedOut, "it wasn't evaluated: no time was left for the decision")
	}
	if p.program != nil {
		here, end := p.limited(ctx)
		elements, failure := askHere(here, p, q, decode)
		end()
		switch {
		case failure == nil || failure.Kind != TimedOut:
			p.quarantine.answered(q)
			return elements, failure
		case p.asker == nil || ctx.Err() != nil: // the question ended before the policy could exceed or meet its limits
			return elements, failure
		}
	}
	text, failure := p.askElsewhere(ctx, q)
	if failure != nil {
		return nil, failure
	}
	var r reply[T]
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, p.failure(EvaluationError, "reading its answer: %v", err)
	}
	return r.Elements, r.Failure
}

// askHere evaluates the rules in this process and decodes their answer.
func askHere[T any](ctx context.Context, p *Policy, q *question, decode func(*Policy, *element) T) ([]T, *Failure) {
	given, err := p.program.evaluate(ctx, q)
	switch {
	case err != nil && (topdown.IsCancel(err) || ctx.Err() != nil):
		return nil, p.failure(TimedOut, "the time for the decision was over before it answered")
	case err != nil:
		return nil, p.failure(EvaluationError, "%s", describe(err))
	case q.Decision != DecisionTemplate && len(given) > maxElements:
		return nil, p.failure(InvalidAnswer, "it gave %d elements, more than %d: give one for each limit", len(given), maxElements)
	}
	all := make([]T, 0, len(given))
	var failure *Failure
	for _, g := range given {
		e := p.program.elementOf(g)
		decoded := decode(p, e)
		switch {
		case e.err == nil:
			all = append(all, decoded)
		case failure == nil:
			failure = p.failure(InvalidAnswer, "%s:%d: %s: %v", e.rule.File, e.rule.Line, e.rule.Name, e.err)
		}
	}
	return all, failure
}

// element reads the properties of an element of an answer. It keeps the first error as err.
type element struct {
	// origin is the rule that produced it.
	*origin
	value *ast.Term
	// plain is set if the element is a string.
	plain string
	err   error
}

// elementOf unwraps an element of the set of answers.
func (p *program) elementOf(wrapped *ast.Term) *element {
	index, _ := within(wrapped, indexKey).Value.(ast.Number).Int()
	e := &element{origin: &p.origins[index], value: within(wrapped, valueKey)}
	switch v := e.value.Value.(type) {
	case ast.Object:
		v.Foreach(func(k, _ *ast.Term) { e.checkKey(k) })
	case ast.String:
		e.plain = clean(string(v))
		e.require(e.promise.plain && e.plain != "", "an element is an object with %s, not a string", strings.Join(e.promise.keys, ", "))
	default:
		e.require(false, "an element is an object with %s, not %s", strings.Join(e.promise.keys, ", "), ast.ValueName(v))
	}
	return e
}

var indexKey, valueKey = ast.StringTerm("i"), ast.StringTerm("v")

func (e *element) checkKey(k *ast.Term) {
	name, ok := k.Value.(ast.String)
	e.require(ok, "a key of an element is a string, not %s", ast.ValueName(k.Value))
	if ok && !slices.Contains(e.promise.keys, string(name)) {
		e.require(false, "an element has no %q: %s", string(name), oneOf(string(name), e.promise.keys))
	}
}

// require records an error if ok is false. Only the first error is kept. The same answer always gives the same error,
// because keys are checked in sorted order.
func (e *element) require(ok bool, format string, args ...any) {
	if !ok && e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// get returns a property, or nil.
func (e *element) get(name string) ast.Value {
	if term := within(e.value, ast.StringTerm(name)); term != nil {
		return term.Value
	}
	return nil
}

// has reports whether the element has a property.
func (e *element) has(name string) bool { return e.get(name) != nil }

// property returns a property that must have the type T, or the zero value if the element does not have the property.
func property[T ast.Value](e *element, name, kind string) (value T) {
	v := e.get(name)
	if v == nil {
		return value
	}
	value, ok := v.(T)
	e.require(ok, "%s is %s, not %s", name, kind, ast.ValueName(v))
	return value
}

func (e *element) text(name string) string {
	return clean(string(property[ast.String](e, name, "a string")))
}

func (e *element) boolean(name string) bool {
	return bool(property[ast.Boolean](e, name, "true or false"))
}

// number reads a number of runners.
func (e *element) number(name string) int32 {
	n := property[ast.Number](e, name, "a number")
	whole, fits := wholeNumber(n)
	e.require(n == "" || fits && whole >= 0 && whole <= math.MaxInt32, "%s is a whole number from 0 to %d, not %s", name, math.MaxInt32, clean(string(n)))
	return int32(whole)
}

// wholeNumber reads a number without a fraction, such as 3, 3.0 or 3e0.
func wholeNumber(n ast.Number) (int64, bool) {
	if i, ok := n.Int64(); ok {
		return i, true
	}
	f, err := json.Number(n).Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	exact, _, err := big.ParseFloat(string(n), 10, 256, big.ToNearestEven)
	return int64(f), err == nil && exact.IsInt()
}

// until reads a time: RFC 3339, or nanoseconds since 1970.
func (e *element) until() time.Time {
	var at time.Time
	switch v := e.get("until").(type) {
	case nil:
	case ast.String:
		var err error
		at, err = time.Parse(time.RFC3339Nano, string(v))
		e.require(err == nil, "until must be a time such as 2026-05-01T06:00:00Z, not %q", clean(string(v)))
	case ast.Number:
		ns, ok := wholeNumber(v)
		e.require(ok, "until is a whole number of nanoseconds, not %s", clean(string(v)))
		at = time.Unix(0, ns)
	default:
		e.require(false, "until is a string or a number, not %s", ast.ValueName(v))
	}
	return at.UTC()
}

// reason reads the property reason. The default is the title in the rule's metadata.
func (e *element) reason() string {
	reason := cmp.Or(e.text("reason"), e.title)
	e.require(reason != "", "it must have a reason")
	return reason
}

// clean makes a text valid UTF-8 and truncates it, because rules can produce any bytes.
func clean(text string) string {
	return wording.Truncate(strings.ToValidUTF8(text, "\uFFFD"), maxText)
}

// earliest returns the first of the times that is after now, or the zero time if there is none.
func earliest(now int64, times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if t.After(time.Unix(0, now)) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
