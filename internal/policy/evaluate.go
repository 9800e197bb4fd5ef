// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	// Rules compute in time zones. The host may have no time zone database, or a different version.
	_ "time/tzdata"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// maxElements is how many limits or update bounds one policy may return.
const maxElements = 100

// given is an element of an answer, and the rule that produced it.
type given struct {
	element ast.Value
	origin  *origin
}

// unasked returns the reason why a policy is not evaluated, or nil.
func (p *Policy) unasked(ctx context.Context, q *question) *Failure {
	switch {
	case !p.isLoaded():
		return p.failure(NotLoaded, "%s", p.whyNotLoaded())
	case !p.quarantine.admit(q):
		return p.quarantined(q)
	case ctx.Err() != nil:
		return p.failure(TimedOut, "it wasn't evaluated: no time was left for the decision")
	}
	return nil
}

// quarantined returns the failure of a policy that is in quarantine for the question's namespace. It does not name the
// time of the next attempt, so that messages stay the same while nothing changes.
func (p *Policy) quarantined(q *question) *Failure {
	return p.failure(Quarantined, "it took too much time or memory %d times in a row for pools of namespace %s; Corral asks it again from time to time, and at once when it changes: make its rules cheaper",
		quarantineAfter, q.Namespace)
}

// ask evaluates the rules in this process. It returns either an answer or a failure.
func (p *Policy) ask(ctx context.Context, q *question) ([]given, *Failure) {
	set, err := p.program.evaluate(ctx, q)
	switch {
	case err == nil:
		return p.origins(set)
	case topdown.IsCancel(err) || ctx.Err() != nil:
		return nil, p.failure(TimedOut, "the time for the decision was over before it answered")
	}
	return nil, p.failure(EvaluationError, "%s", describe(err))
}

func (p *Policy) failure(kind FailureKind, format string, args ...any) *Failure {
	return &Failure{Policy: p.Ref(), Kind: kind, Message: clean(fmt.Sprintf(format, args...))}
}

// whyNotLoaded returns the first diagnostic and the number of further ones.
func (p *Policy) whyNotLoaded() string {
	if len(p.diagnostics) == 0 {
		return "it could not be loaded"
	}
	d := p.diagnostics[0]
	message := place(d.File, int(d.Line), int(d.Column)) + d.Message
	if more := len(p.diagnostics) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// place formats a position as the beginning of a message.
func place(file string, line, column int) string {
	switch {
	case file == "":
		return ""
	case line == 0:
		return file + ": "
	default:
		return fmt.Sprintf("%s:%d:%d: ", file, line, column)
	}
}

// evaluate runs the queries of a decision that can produce elements, and returns the union of their results.
func (p *program) evaluate(ctx context.Context, q *question) (set ast.Set, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("OPA failed by a fault of its own (%v): simplify the rules changed last", fault)
		}
	}()
	txn, err := p.store.NewTransaction(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading data: %w", err)
	}
	defer p.store.Abort(ctx, txn)
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	shared := topdown.NewVirtualCache()
	input, err := q.parsed()
	if err != nil {
		return nil, err
	}
	for _, a := range p.queries[q.Decision] {
		if a.field != "" && !input.sets[a.field] {
			continue
		}
		query := topdown.NewQuery(a.query).
			WithCompiler(p.compiler).WithStore(p.store).WithTransaction(txn).WithInput(input.term).
			WithTime(time.Unix(0, q.Now)).WithCancel(cancel).WithStrictBuiltinErrors(true).WithMetrics(metrics.NoOp()).
			WithVirtualCache(shared)
		if p.prints {
			query = query.WithPrintHook(topdown.NewPrintHook(&q.output))
		}
		if p.tracer != nil {
			query = query.WithQueryTracer(p.tracer)
		}
		err = query.Iter(ctx, func(result topdown.QueryResult) error {
			set = union(set, result[answer].Value)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", q.Decision, err)
		}
	}
	return set, nil
}

// union adds the elements of one query's result to a set.
func union(set ast.Set, given ast.Value) ast.Set {
	more, _ := given.(ast.Set)
	switch {
	case more == nil:
		return set
	case set == nil:
		return more
	}
	return set.Union(more)
}

// origins finds the rules that produced the elements of a set.
func (p *Policy) origins(set ast.Set) ([]given, *Failure) {
	if set == nil || set.Len() == 0 {
		return nil, nil
	}
	all := make([]given, 0, set.Len())
	for _, term := range set.Slice() {
		wrapped := term.Value.(ast.Object)
		index, _ := wrapped.Get(indexKey).Value.(ast.Number).Int()
		all = append(all, given{element: wrapped.Get(valueKey).Value, origin: &p.program.origins[index]})
		if o := all[0].origin.promise; o.decision != DecisionTemplate && set.Len() > maxElements {
			return nil, p.failure(InvalidAnswer, "it gave %d elements, more than %d: give one for each limit", set.Len(), maxElements)
		}
	}
	return all, nil
}

var indexKey, valueKey = ast.StringTerm("i"), ast.StringTerm("v")

// describe formats an evaluation error, with its position and a hint.
func describe(err error) string {
	var e *topdown.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	where := ""
	if e.Location != nil {
		where = place(e.Location.File, e.Location.Row, e.Location.Col)
	}
	message := where + strings.Join(strings.Fields(e.Message), " ")
	switch e.Code {
	case topdown.BuiltinErr, topdown.TypeErr:
		return message + "; check the value before the call"
	case topdown.ConflictErr:
		return message + "; let only one of the rules hold at a time"
	default:
		return message
	}
}

// sortFailures sorts failures by policy.
func sortFailures(list []Failure) {
	slices.SortFunc(list, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Message, b.Message))
	})
}

// sortAudit sorts by policy.
func sortAudit(list []Audit) []Audit {
	slices.SortFunc(list, func(a, b Audit) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(list)
}
