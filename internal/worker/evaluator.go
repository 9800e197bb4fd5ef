// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
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

// Limit bounds one request to a child that evaluates policies. CPU time and memory hold on Linux.
type Limit struct {
	// CPU time.
	CPU time.Duration
	// Usual is the CPU time that nearly all requests take less than; 0 if none is slow.
	Usual time.Duration
	// Memory in bytes, beyond what the child had before.
	Memory uint64
	// Wall is time by the clock. To go beyond it is no fault of a policy: the machine may be busy.
	Wall time.Duration
}

// EvaluatorLimits bound what a policy may take.
type EvaluatorLimits struct {
	// Load is for compiling its modules, Ask for one decision, Test for all its tests.
	Load, Ask, Test Limit
	// Rest is the memory of a child between requests, in bytes, beyond which it is replaced.
	Rest uint64
}

// StartBytes is the memory of a child that was asked nothing.
const StartBytes = 64 << 20

// Most returns the memory, in bytes, that so many children take at most: each of them and of those that are slow, and a spare one.
func (l EvaluatorLimits) Most(children int) int64 {
	return 2*int64(children)*int64(l.Rest+max(l.Load.Memory, l.Ask.Memory)) + StartBytes
}

// DefaultEvaluatorLimits are ample for a policy of v1alpha1.MaxPolicyBytes. A usual decision takes a fifth of a millisecond.
func DefaultEvaluatorLimits() EvaluatorLimits {
	return EvaluatorLimits{
		Load: Limit{CPU: 2 * time.Second, Usual: 100 * time.Millisecond, Memory: 192 << 20, Wall: 20 * time.Second},
		Ask:  Limit{CPU: 250 * time.Millisecond, Usual: 20 * time.Millisecond, Memory: 96 << 20, Wall: 5 * time.Second},
		Test: Limit{CPU: time.Minute, Memory: 512 << 20, Wall: 2 * time.Minute},
		Rest: 256 << 20,
	}
}

// Evaluator loads and asks policies with modules of their own in child processes, which live on from one question
// to the next. It's safe for concurrent use.
//
// A child has one request at a time, so what it takes is that request's. Namespaces take turns, and one
// namespace has one child at a time at most. A child that takes more than it may is killed, and what it was asked is
// asked once more in a fresh child: only what fails there, alone, is the policy's fault.
//
// A request that takes more than is usual gives its turn to the next and goes on when nobody else wants a CPU; as many such
// requests may be under way as others, and no more, for each takes memory.
type Evaluator struct {
	// Executable that runs Main when it is started as a child.
	Executable string
	limits     EvaluatorLimits
	children   int
	slots      *turns.Limiter

	mu     sync.Mutex
	idle   []*process
	busy   int      // namespaces whose turn it is, each with a child of its own
	slow   int      // namespaces that have given their turn to the next
	spare  *process // was never asked; nil while there is none
	asking map[string]chan struct{}
	greedy map[string]bool // namespaces whose last request took more than it may
	closed bool
}

// NewEvaluator returns an Evaluator that executes the running binary, at most as many children at once, and a
// spare one if there are several. None runs before there is something to ask.
func NewEvaluator(children int, limits EvaluatorLimits) (*Evaluator, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the running binary: %w", err)
	}
	return &Evaluator{Executable: executable, limits: limits, children: children, slots: turns.New(children), asking: map[string]chan struct{}{}, greedy: map[string]bool{}}, nil
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

// Load loads a policy, for what is known of its rules and what is wrong with it. A *policy.Excess means that loading took too
// much. Any other error means that it could not be tried: policy.ErrOutdated if isCurrent, which may be nil, returned false when it was the
// policy's turn.
func (e *Evaluator) Load(ctx context.Context, source policy.Source, isCurrent func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	p := policy.Elsewhere(source, policy.Facts{}, e)
	var answer loaded
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
		answer, err = child.request(ctx, evaluation{Program: programOf(p), Question: &q}, e.limits.Ask)
		return err
	})
	return answer, err
}

// Test is policy.Test in a child.
func (e *Evaluator) Test(ctx context.Context, source policy.Source, options policy.TestOptions) (policy.TestReport, []v1alpha1.Diagnostic, error) {
	var answer tested
	err := e.inTurn(ctx, source.Namespace, "", func(child *process) error {
		text, err := child.request(ctx, evaluation{Source: &source, Test: &options}, e.limits.Test)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		return err
	})
	var excess *policy.Excess
	if errors.As(err, &excess) {
		return policy.TestReport{}, []v1alpha1.Diagnostic{{Message: "the tests of the policy: " + excess.Message}}, nil
	}
	return answer.Report, answer.Diagnostics, err
}

// programOf is what a child knows a policy by: all that its answers depend on.
func programOf(p *policy.Policy) string { return p.Ref() + " " + p.Digest() }

// inTurn lets a child do something when it is the namespace's turn, and once more in a fresh one if that ended
// the child.
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

// do lets a child do something. If that takes more than it may, or makes the child crash, the namespace asks nothing more for as long as
// it took. After an excess, its next child comes last from the start.
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
	given     bool          // to the next; with the Evaluator's lock
	rest      time.Duration // until the namespace may ask again
}

// enter waits until the namespace has no other request under way, and for its turn.
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

// give gives the turn to the next, as long as few have done so. What is under way goes on.
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

// end ends the turn, and what goes on without one.
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

// acquire returns a child that nobody asks. A namespace that ends its child should end none of another: so it gets the one
// that it had last, else a fresh one as long as there may be more, else rather one that has the program. One that comes last
// for a CPU, as what another namespace asked took long, makes way for a fresh one.
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

// fresh returns a child that was never asked anything, and has the next one started, unless one is enough: a command would pay for two.
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
		return // whoever needs one finds out why
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.spare != nil {
		p.kill()
		return
	}
	e.spare = p
}

// giveBack returns a child to those that nobody asks. It tells whether the child is fit to be asked again, or was
// only replaced because it had grown.
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
