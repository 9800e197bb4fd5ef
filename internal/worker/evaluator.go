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
	// CPU is the maximum CPU time.
	CPU time.Duration
	// Usual is the CPU time within which nearly all requests finish. A request that takes more counts as slow; 0 means
	// that no request does.
	Usual time.Duration
	// Memory in bytes, in addition to the child's memory before the request.
	Memory uint64
	// Wall is the wall time. A policy is not blamed for exceeding it, because the machine may be busy.
	Wall time.Duration
}

// EvaluatorLimits are the limits for policies.
type EvaluatorLimits struct {
	// Load limits the compilation of a policy's modules, Ask one decision, and Test a run of all its tests.
	Load, Ask, Test Limit
	// Rest is the maximum memory of an idle child in bytes. A child that takes more is replaced.
	Rest uint64
}

// StartBytes is the memory of a new child in bytes.
const StartBytes = 64 << 20

// Most returns the maximum memory, in bytes, of the given number of children, the same number of children with slow
// requests, and one spare child.
func (l EvaluatorLimits) Most(children int) int64 {
	return 2*int64(children)*int64(l.Rest+max(l.Load.Memory, l.Ask.Memory)) + StartBytes
}

// DefaultEvaluatorLimits returns limits that are ample for a policy of v1alpha1.MaxPolicyBytes. A typical decision
// takes a fifth of a millisecond.
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
// A child handles one request at a time, so that its resource usage can be attributed to that request. Namespaces take
// turns, and a namespace has one request at a time. If a request exceeds its limits, the Evaluator kills the child and
// repeats the request once in a new child. It blames the policy only if the request also fails there, where no other
// policy is loaded.
//
// A request that takes longer than usual gives up its turn and continues with the lowest CPU priority. The number of
// such requests is limited to the number of children, because each takes memory.
type Evaluator struct {
	// Executable is a binary that runs Main when it is started as a child.
	Executable string
	limits     EvaluatorLimits
	children   int
	slots      *turns.Limiter
	alone      alone // one request of each namespace at a time

	mu     sync.Mutex
	idle   []*process
	busy   int             // number of namespaces that have a turn, each with its own child
	slow   int             // number of requests that continue after they gave up their turn
	spare  *process        // a started child without any request yet; nil if there is none
	greedy map[string]bool // namespaces whose last request exceeded its limits
	closed bool
}

// NewEvaluator returns an Evaluator that executes the running binary, with at most the given number of children at
// once, not counting those with slow requests. If that number is more than 1, it also keeps one spare child. It starts
// children on demand.
func NewEvaluator(children int, limits EvaluatorLimits) *Evaluator {
	executable, _ := os.Executable() // if this fails, starting a child returns an error
	return &Evaluator{Executable: executable, limits: limits, children: children, slots: turns.New(children), greedy: map[string]bool{}}
}

// Close kills the idle children. A busy child is killed when its request ends.
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
// its limits. Any other error means that the policy could not be judged. It is policy.ErrOutdated if isCurrent, which
// may be nil, returned false when it was the namespace's turn.
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

// programOf returns the key of a policy in a child. It depends on everything that determines the policy's answers.
func programOf(p *policy.Policy) string { return p.Ref() + " " + p.Digest() }

// inTurn waits for the namespace's turn and calls do with a child. If that child ended and had earlier requests, it
// calls do once more with a new child.
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

// do runs a request on a child. If the request exceeds its limits or crashes the child, the namespace must wait before
// its next request, for as long as this request took. If the request exceeds its limits, the child of the namespace's
// next request has the lowest CPU priority from the start.
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

// turn is the turn of a namespace: the right to run one request.
type turn struct {
	of        *Evaluator
	namespace string
	endAlone  func()
	round     int           // for slots.Leave
	given     bool          // the turn was given up; guarded by the Evaluator's lock
	rest      time.Duration // how long the namespace must wait after the turn
}

// enter waits until the namespace has no other request in progress, and then for the namespace's turn.
func (e *Evaluator) enter(ctx context.Context, namespace string) (*turn, error) {
	endAlone, err := e.alone.enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	round, err := e.slots.Enter(ctx, turns.Looking, namespace)
	if err != nil {
		endAlone()
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy++
	return &turn{of: e, namespace: namespace, endAlone: endAlone, round: round}, nil
}

// give gives up the turn, unless as many requests as there are children have already done so. The request continues.
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

// end ends the turn, or the request that continued after it gave up the turn.
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
		t.endAlone()
		return
	}
	time.AfterFunc(t.rest, t.endAlone)
}

// acquire returns a child for a request. It avoids sharing a child between namespaces, because a request that exceeds
// its limits costs the child and all policies that it has loaded. In order of preference, it returns the child that the
// namespace used last, a new child if there may be more, a child that has loaded the program, or any other. If that
// child has the lowest priority because of another namespace's slow request, acquire replaces it with a new child.
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

// fresh returns the spare child or starts a new one. It then starts the next spare child, unless there may be only one
// child: the command line would pay for two.
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

// giveBack adds a child to the idle children, or kills it if it has grown too large or is not needed. It returns false
// if the child ended during the request, or its memory cannot be read.
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
