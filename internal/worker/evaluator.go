// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/turns"
)

// Limit is the limit of one request to a child that evaluates policies. The limits on CPU time and memory need Linux.
type Limit struct {
	// CPU time.
	CPU time.Duration
	// Usual is the CPU time within which nearly all requests finish; 0 if no request counts as slow.
	Usual time.Duration
	// Memory in bytes, in addition to the child's memory before the request.
	Memory uint64
	// Wall is the wall time. Exceeding it is not the fault of a policy: the machine may be busy.
	Wall time.Duration
}

// EvaluatorLimits are the limits for policies.
type EvaluatorLimits struct {
	// Load is for compiling a policy's modules, Ask for one decision, Test for all of its tests.
	Load, Ask, Test Limit
	// Rest is the memory of an idle child, in bytes, above which it is replaced.
	Rest uint64
}

// StartBytes is the memory of a new child.
const StartBytes = 64 << 20

// Most returns the maximum memory, in bytes, of the given number of children, as many slow children, and a spare one.
func (l EvaluatorLimits) Most(children int) int64 {
	return 2*int64(children)*int64(l.Rest+max(l.Load.Memory, l.Ask.Memory)) + StartBytes
}

// DefaultEvaluatorLimits are ample for a policy of v1alpha1.MaxPolicyBytes. A typical decision takes a fifth of a
// millisecond.
func DefaultEvaluatorLimits() EvaluatorLimits {
	return EvaluatorLimits{
		Load: Limit{CPU: 2 * time.Second, Usual: 100 * time.Millisecond, Memory: 192 << 20, Wall: 20 * time.Second},
		Ask:  Limit{CPU: 250 * time.Millisecond, Usual: 20 * time.Millisecond, Memory: 96 << 20, Wall: 5 * time.Second},
		Test: Limit{CPU: time.Minute, Memory: 512 << 20, Wall: 2 * time.Minute},
		Rest: 256 << 20,
	}
}

// Evaluator loads and evaluates policies that have their own modules in long-lived child processes. It is safe for
// concurrent use.
//
// A child handles one request at a time, so its resource usage belongs to that request. Namespaces take turns, and a
// namespace has one request at a time. A child that exceeds its limits is killed, and its request is repeated once in a
// new child. Only if it fails there, alone, is the policy at fault.
//
// A request that takes longer than usual gives up its turn and continues when no one else needs a CPU. The number of
// such requests is limited to the number of children, because each takes memory.
type Evaluator struct {
	// Executable is a binary that runs Main when it is started as a child.
	Executable string
	limits     EvaluatorLimits
	children   int
	slots      *turns.Limiter

	mu     sync.Mutex
	idle   []*process
	busy   int      // namespaces that have the turn, each with its own child
	slow   int      // namespaces that have given up their turn
	spare  *process // a child that has had no request yet; nil if there is none
	asking map[string]chan struct{}
	greedy map[string]bool // namespaces whose last request exceeded its limits
	closed bool
}

// NewEvaluator returns an Evaluator that executes the running binary, with at most the given number of children at once
// and a spare one if there are several. It starts them on demand.
func NewEvaluator(children int, limits EvaluatorLimits) *Evaluator {
	executable, _ := os.Executable() // no child can be started if it is not found
	return &Evaluator{Executable: executable, limits: limits, children: children, slots: turns.New(children), asking: map[string]chan struct{}{}, greedy: map[string]bool{}}
}

// Close ends the children.
func (e *Evaluator) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, p := range append(e.idle, e.spare) {
		if p != nil {
			p.kill()
		}
	}
	e.idle, e.spare = nil, nil
}

// Load loads a policy and returns facts about its rules and diagnostics. A *policy.Excess means that loading exceeded
// its limits. Any other error means that it could not be tried: policy.ErrOutdated if isCurrent, which may be nil,
// returned false when it was the policy's turn.
func (e *Evaluator) Load(ctx context.Context, source policy.Source, isCurrent func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	p := policy.Elsewhere(source, policy.Facts{}, e)
	var answer response
	err := e.inTurn(ctx, source.Namespace, programOf(p), func(child *process) (err error) {
		if isCurrent != nil && !isCurrent() {
			return policy.ErrOutdated
		}
		answer, err = child.load(ctx, p, e.limits.Load)
		return err
	})
	var excess *policy.Excess
	if errors.As(err, &excess) {
		return policy.Facts{}, nil, &policy.Excess{Message: "loading the policy: " + excess.Message + ": make two policies of it, or nest its comprehensions less"}
	}
	return answer.Facts, answer.Diagnostics, err
}

// Ask implements policy.Asker.
func (e *Evaluator) Ask(ctx context.Context, p *policy.Policy, q policy.Question) (answer []byte, err error) {
	err = e.inTurn(ctx, q.Namespace, programOf(p), func(child *process) error {
		if !child.has[programOf(p)] {
			if _, err := child.load(ctx, p, e.limits.Load); err != nil {
				return err
			}
		}
		r, err := child.request(ctx, evaluation{Program: programOf(p), Question: &q}, e.limits.Ask)
		answer = r.Answer
		return err
	})
	return answer, err
}

// Test runs policy.Test in a child.
func (e *Evaluator) Test(ctx context.Context, source policy.Source, options policy.TestOptions) (policy.TestReport, []v1alpha1.Diagnostic, error) {
	var answer response
	err := e.inTurn(ctx, source.Namespace, "", func(child *process) (err error) {
		answer, err = child.request(ctx, evaluation{Source: &source, Test: &options}, e.limits.Test)
		return err
	})
	var excess *policy.Excess
	if errors.As(err, &excess) {
		return policy.TestReport{}, []v1alpha1.Diagnostic{{Message: "the tests of the policy: " + excess.Message}}, nil
	}
	return answer.Report, answer.Diagnostics, err
}

// programOf returns a child's key for a policy. It covers everything that determines the policy's answers.
func programOf(p *policy.Policy) string { return p.Ref() + " " + p.Digest() }

// inTurn runs do with a child when it is the namespace's turn, and once more with a new child if the first child ended.
func (e *Evaluator) inTurn(ctx context.Context, namespace, program string, do func(*process) error) error {
	t, err := e.enter(ctx, namespace)
	if err != nil {
		return fmt.Errorf("waiting for its turn: %w", err)
	}
	defer t.end()
	child, err := e.acquire(namespace, program)
	if err != nil {
		return err
	}
	fresh := child.requests == 0
	err = e.do(child, t, do)
	if e.giveBack(child) || fresh || ctx.Err() != nil {
		return err
	}
	if child, err = e.fresh(); err != nil {
		return err
	}
	defer func() { e.giveBack(child) }()
	return e.do(child, t, do)
}

// do runs a request on a child. If the request exceeds its limits or crashes the child, the namespace has to wait for
// as long as the request took. After an excess, the namespace's next child has the lowest priority from the start.
func (e *Evaluator) do(child *process, t *turn, do func(*process) error) error {
	child.namespace, child.onSlow = t.namespace, t.give
	e.mu.Lock()
	greedy := e.greedy[t.namespace]
	e.mu.Unlock()
	if greedy {
		child.comeLast()
	}
	began := time.Now()
	err := do(child)
	var excess *policy.Excess
	var crash *crashError
	isExcess := errors.As(err, &excess)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.greedy, t.namespace)
	if e.limits.Ask.Usual > 0 && (isExcess || errors.As(err, &crash)) {
		e.greedy[t.namespace] = isExcess
		t.rest += time.Since(began)
	}
	return err
}

// turn is a namespace's turn.
type turn struct {
	of        *Evaluator
	namespace string
	alone     chan struct{}
	round     int           // of the slots
	given     bool          // the turn was given up; guarded by the Evaluator's lock
	rest      time.Duration // until the namespace may ask again
}

// enter waits until the namespace has no other request in progress, and for its turn.
func (e *Evaluator) enter(ctx context.Context, namespace string) (*turn, error) {
	e.mu.Lock()
	alone := e.asking[namespace]
	if alone == nil {
		alone = make(chan struct{}, 1)
		e.asking[namespace] = alone
	}
	e.mu.Unlock()
	select {
	case alone <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	round, err := e.slots.Enter(ctx, turns.Looking, namespace)
	if err != nil {
		<-alone
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy++
	return &turn{of: e, namespace: namespace, alone: alone, round: round}, nil
}

// give gives up the turn, unless too many namespaces have done so. The request continues.
func (t *turn) give() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.given || t.of.slow == t.of.children {
		return
	}
	t.given = true
	t.of.slow++
	t.of.busy--
	t.of.slots.Leave(t.round, turns.Unknown)
}

// end ends the turn and any request that continued without one.
func (t *turn) end() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.given {
		t.of.slow--
	} else {
		t.of.busy--
		t.of.slots.Leave(t.round, turns.Unknown)
	}
	if t.rest == 0 {
		<-t.alone
		return
	}
	time.AfterFunc(t.rest, func() { <-t.alone })
}

// acquire returns an idle child. To avoid that one namespace's excess kills a child with another namespace's programs,
// a namespace gets its own last child, or else a new child while there may be more, or else preferably a child that has
// loaded the program. A child with low priority, due to another namespace's slow request, is replaced by a new one.
func (e *Evaluator) acquire(namespace, program string) (*process, error) {
	e.mu.Lock()
	own := func(p *process) bool { return p.namespace == namespace }
	isQuick := func(p *process) bool { return !p.comesLast.Load() }
	chosen := slices.IndexFunc(e.idle, own)
	if chosen < 0 && len(e.idle) > 0 && len(e.idle)+e.busy > e.children {
		chosen = slices.IndexFunc(e.idle, func(p *process) bool { return p.has[program] && isQuick(p) })
		if chosen < 0 {
			chosen = max(0, slices.IndexFunc(e.idle, isQuick))
		}
	}
	if chosen < 0 {
		e.mu.Unlock()
		return e.fresh()
	}
	p := e.idle[chosen]
	e.idle = slices.Delete(e.idle, chosen, chosen+1)
	e.mu.Unlock()
	if !own(p) && !isQuick(p) {
		p.kill()
		return e.fresh()
	}
	return p, nil
}

// fresh returns a new child, and starts the next spare one, unless there is only one child: a command would pay for
// two.
func (e *Evaluator) fresh() (*process, error) {
	e.mu.Lock()
	p := e.spare
	e.spare = nil
	e.mu.Unlock()
	if e.children > 1 {
		go e.prepare()
	}
	if p != nil && !p.isOver() {
		return p, nil
	}
	return start(e.Executable)
}

// prepare starts a spare child.
func (e *Evaluator) prepare() {
	p, err := start(e.Executable)
	if err != nil {
		return // the next caller gets the error
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.spare != nil {
		p.kill()
		return
	}
	e.spare = p
}

// giveBack returns a child to the idle ones. It reports whether the child is usable, or was only replaced because it
// had grown.
func (e *Evaluator) giveBack(p *process) bool {
	if p.isOver() {
		return false
	}
	var err error
	if p.rest, err = memoryOf(p.pid()); err != nil || p.rest > e.limits.Rest {
		p.kill()
		return err == nil
	}
	e.mu.Lock()
	isKept := !e.closed && len(e.idle) < e.children
	if isKept {
		e.idle = append(e.idle, p)
	}
	e.mu.Unlock()
	if !isKept {
		p.kill()
	}
	return true
}
