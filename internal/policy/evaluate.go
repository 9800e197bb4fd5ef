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
	// Rules may compute with time zones. The host may have no time zone database, or another version of it.
	_ "time/tzdata"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// maxElements is the maximum number of limits or update bounds that one policy may return.
const maxElements = 100

// quarantined returns the failure of a policy that is in quarantine for the question's namespace. The message does not
// contain the time of the next attempt, so that it stays the same during the quarantine.
func (p *Policy) quarantined(q *question) *Failure {
	return p.failure(Quarantined, "it took too much time or memory %d times in a row for pools of namespace %s; Corral asks it again from time to time, and at once when it changes: make its rules cheaper",
		quarantineAfter, q.Namespace)
}

func (p *Policy) failure(kind FailureKind, format string, args ...any) *Failure {
	return &Failure{Policy: p.Ref(), Kind: kind, Message: clean(fmt.Sprintf(format, args...))}
}

// whyNotLoaded returns the first diagnostic and the number of further ones.
func (p *Policy) whyNotLoaded() string {
	first := p.diagnostics[0]
	first.Path = "" // the failure names the policy
	message := first.String()
	if more := len(p.diagnostics) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// evaluate runs the queries of a decision and returns the elements of all results, sorted. It skips queries whose rules
// require a field that the input does not set.
func (p *program) evaluate(ctx context.Context, q *question) (elements []*ast.Term, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("OPA failed by a fault of its own (%v): simplify the rules changed last", fault)
		}
	}()
	txn := storage.NewTransactionOrDie(ctx, p.store) // the store is in memory, so this cannot fail
	defer p.store.Abort(ctx, txn)
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	shared := topdown.NewVirtualCache()
	input, err := q.parsed()
	if err != nil {
		return nil, err
	}
	set := ast.NewSet()
	for _, a := range p.queries[q.Decision] {
		if a.field != "" && !input.sets[a.field] {
			continue
		}
		query := topdown.NewQuery(a.query).
			WithCompiler(p.compiler).WithStore(p.store).WithTransaction(txn).WithInput(input.term).
			WithTime(time.Unix(0, q.Now)).WithCancel(cancel).WithStrictBuiltinErrors(true).WithMetrics(metrics.NoOp()).
			WithVirtualCache(shared).WithPrintHook(topdown.NewPrintHook(&q.output))
		if p.tracer != nil {
			query = query.WithQueryTracer(p.tracer)
		}
		err = query.Iter(ctx, func(result topdown.QueryResult) error {
			result[answer].Value.(ast.Set).Foreach(set.Add)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", q.Decision, err)
		}
	}
	return set.Slice(), nil
}

// describe formats an evaluation error, with its position and a hint.
func describe(err error) string {
	var e *topdown.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	var d diagnostics
	d.add(e.Location, "%s", strings.Join(strings.Fields(e.Message), " "))
	message := d[0].String()
	switch e.Code {
	case topdown.BuiltinErr, topdown.TypeErr:
		return message + "; check the value before the call"
	case topdown.ConflictErr:
		return message + "; let only one of the rules hold at a time"
	default:
		return message
	}
}

// sortAudit sorts by policy and message, and removes duplicates.
func sortAudit(list []Audit) []Audit {
	slices.SortFunc(list, func(a, b Audit) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(list)
}
