// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// policyCommand is the hidden command that evaluates policies.
	policyCommand = "policy-worker"
	// maxMessage is the maximum size of a request and of an answer in bytes.
	maxMessage = 16 << 20
	// look is the interval between checks of the resources that a request uses; most requests end before the first check.
	// lookAtSlow is the interval for slow requests.
	look, lookAtSlow = 5 * time.Millisecond, 20 * time.Millisecond
	// startTime is how long a child may take to start.
	startTime = 30 * time.Second
)

// process is a child that evaluates policies, one request at a time.
type process struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      io.Reader
	over     context.Context // ends when the process has ended
	stderr   *capped
	requests int
	has      map[string]bool // the policies that it has loaded, by programOf
	rest     uint64          // its memory after the last request; 0 if unknown
	// namespace is the namespace of the current or last request. onSlow is called when the process gets the lowest CPU
	// priority.
	namespace string
	onSlow    func()
	comesLast atomic.Bool // true once it has the lowest CPU priority
}

// start starts a child and waits until it is ready, so that the resources for the start do not count for any request.
func start(executable string) (*process, error) {
	p := &process{cmd: exec.Command(executable, policyCommand), stderr: &capped{limit: 4 << 10}, has: map[string]bool{}} //nolint:gosec,noctx // the running binary; it outlives the first caller
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = "/", []string{collectLater}, p.stderr
	isolate(p.cmd)
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, fmt.Errorf("starting a child for policies: %w", err)
	}
	p.in, p.out = in, out
	over, ended := context.WithCancel(context.Background())
	p.over = over
	started := make(chan error, 1)
	inBackground(func() {
		defer ended()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the child ends when it is killed or its input ends; a request in progress then fails
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting a child for policies: %w", err)
	}
	late := time.AfterFunc(startTime, p.kill)
	defer late.Stop()
	if err := json.NewDecoder(p.out).Decode(&response{}); err != nil {
		p.kill()
		return nil, fmt.Errorf("starting a child for policies: it ended: %s", p.firstError())
	}
	return p, nil
}

// inBackground calls do on a thread of its own, whose lower priority the children that do starts inherit. The kernel
// kills a child when the thread that started it ends, even if this process continues, so do has to wait for its children.
func inBackground(do func()) {
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		_ = comeSecond()
		do()
	}()
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// comeLast gives the child the lowest CPU priority, and calls onSlow.
func (p *process) comeLast() {
	p.comesLast.Store(comeLast(p.pid()) || p.comesLast.Load())
	p.onSlow()
}

// kill kills the child, and waits until it has ended.
func (p *process) kill() {
	if !p.isOver() {
		_ = killAll(p.cmd)
	}
	<-p.over.Done()
}

func (p *process) isOver() bool { return p.over.Err() != nil }

// load makes the child load a policy.
func (p *process) load(ctx context.Context, of *policy.Policy, most Limit) (response, error) {
	source := of.Source()
	r, err := p.request(ctx, evaluation{Program: programOf(of), Source: &source}, most)
	if err == nil {
		p.has[programOf(of)] = len(r.Diagnostics) == 0
	}
	return r, err
}

// request sends a request and waits for the answer. The child is killed if it exceeds its limits.
func (p *process) request(ctx context.Context, asked evaluation, most Limit) (r response, err error) {
	text, err := json.Marshal(asked)
	if err == nil && len(text) > maxMessage {
		err = fmt.Errorf("%d bytes are more than %d", len(text), maxMessage)
	}
	if err != nil {
		return r, fmt.Errorf("encoding a request: %w", err)
	}
	p.requests++
	cpu, err := cpuOf(p.pid())
	if err != nil {
		return r, err
	}
	memory := p.rest
	p.rest = 0 // the value is no longer valid, because the request makes the child grow
	if memory == 0 {
		if memory, err = memoryOf(p.pid()); err != nil {
			return r, err
		}
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if _, err = p.in.Write(text); err == nil {
			err = json.NewDecoder(io.LimitReader(p.out, maxMessage)).Decode(&r)
		}
	}()
	excess := p.watch(ctx, answered, cpu, memory, most)
	if excess != nil {
		p.kill()
	}
	<-answered
	switch {
	case excess != nil:
		return r, excess
	case err != nil:
		p.kill()
		return r, p.diedOf(ctx, most)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// diedOf returns the reason why a child ended during a request.
func (p *process) diedOf(ctx context.Context, most Limit) error {
	message := p.firstError()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isOutOfMemory(message):
		return tooMuchMemory(most)
	case strings.Contains(message, stackExceeds):
		return &policy.Excess{Message: "it recurses too deeply: " + message}
	case message != "":
		return &crashError{message}
	}
	return fmt.Errorf("the process that evaluates it was killed from outside (%s)", p.cmd.ProcessState)
}

// crashError is the error for a child that panicked, which is a bug in Corral or OPA.
type crashError struct{ message string }

func (c *crashError) Error() string {
	return "the process that evaluates it ended by a fault of its own: " + c.message + ": simplify the rules changed last"
}

func tooMuchMemory(most Limit) error {
	return &policy.Excess{Message: fmt.Sprintf("it took more than %d MiB of memory", most.Memory>>20)}
}

// firstError returns the first line of the child's standard error, where the Go runtime writes why it ended the
// process.
func (p *process) firstError() string {
	return wording.FirstLine(strings.TrimSpace(string(p.stderr.kept)))
}

// watch waits until a request is answered, and then returns nil. If the request exceeds its limits, or ctx ends, it
// returns the reason, and the caller must kill the child. It lowers the priority of the child if the request takes
// longer than usual.
func (p *process) watch(ctx context.Context, answered <-chan struct{}, cpuBefore time.Duration, memoryBefore uint64, most Limit) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	late := time.NewTimer(most.Wall)
	defer late.Stop()
	for {
		select {
		case <-answered:
			return nil
		case <-late.C:
			return fmt.Errorf("%w within %s", policy.ErrLate, most.Wall)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		taken, why := p.usage(cpuBefore, memoryBefore, most)
		if why != nil {
			return why
		}
		if most.Usual > 0 && taken > most.Usual {
			p.comeLast()
			tick.Reset(lookAtSlow)
		}
	}
}

// usage returns the CPU time that a request has used, and an error if the request exceeds its limits. It ignores a
// value that cannot be read, because the next check reads it again.
func (p *process) usage(cpuBefore time.Duration, memoryBefore uint64, most Limit) (time.Duration, error) {
	cpu, err := cpuOf(p.pid())
	if err == nil && cpu-cpuBefore > most.CPU {
		return 0, &policy.Excess{Message: fmt.Sprintf("it took more than %s of CPU time", most.CPU)}
	}
	if memory, err := memoryOf(p.pid()); err == nil && memory > memoryBefore+most.Memory {
		return 0, tooMuchMemory(most)
	}
	return cpu - cpuBefore, nil // negative if the reading failed
}
