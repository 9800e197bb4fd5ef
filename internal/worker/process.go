// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

const (
	// policyCommand is the hidden command that evaluates policies.
	policyCommand = "policy-worker"
	// maxFrame is the maximum size of a request and of an answer in bytes.
	maxFrame = 16 << 20
	// look is the interval at which the resources of a request are checked; most requests end before the first check.
	// Slow requests are checked less often.
	look, lookAtSlow = 5 * time.Millisecond, 20 * time.Millisecond
	// startTime is how long a child may take to start.
	startTime = 30 * time.Second
)

// process is a child that evaluates policies, one request at a time.
type process struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      io.Reader
	over     chan struct{} // closed when it has ended
	stderr   *capped
	requests int
	has      map[string]bool // the programs that it has loaded
	rest     uint64          // its memory between requests; 0 before the first
	// namespace is the namespace of the last request. onSlow is called when a request takes longer than usual.
	namespace string
	onSlow    func()
	comesLast atomic.Bool // has the lowest priority since a slow request
}

// start starts a child and waits until it is ready, so that the resources for the start count against no request.
func start(executable string) (*process, error) {
	p := &process{cmd: exec.Command(executable, policyCommand), over: make(chan struct{}), stderr: &capped{limit: 4 << 10}, has: map[string]bool{}} //nolint:gosec,noctx // the running binary; it outlives the first caller
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = "/", []string{collectLater}, p.stderr
	isolate(p.cmd)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a child for policies: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a child for policies: %w", err)
	}
	p.in, p.out = in, out
	started := make(chan error, 1)
	go func() {
		defer close(p.over)
		runtime.LockOSThread() // never unlocked: the child ends with the thread, and inherits its lower priority
		_ = comeSecond()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // it is killed, or ends with its input; a request in progress then fails
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting a child for policies: %w", err)
	}
	late := time.AfterFunc(startTime, p.kill)
	defer late.Stop()
	if _, err := readFrame(p.out); err != nil {
		p.kill()
		return nil, fmt.Errorf("starting a child for policies: it ended: %s", p.firstError())
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// comeLast gives the child the lowest CPU priority.
func (p *process) comeLast() {
	p.comesLast.Store(comeLast(p.pid()) || p.comesLast.Load())
	p.onSlow()
}

// kill kills the child, and waits until it has ended.
func (p *process) kill() {
	if !p.isOver() {
		_ = killAll(p.cmd)
	}
	<-p.over
}

func (p *process) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// load makes the child load a policy.
func (p *process) load(ctx context.Context, of *policy.Policy, most Limit) (loaded, error) {
	source := of.Source()
	text, err := p.request(ctx, evaluation{Program: programOf(of), Source: &source}, most)
	if err != nil {
		return loaded{}, err
	}
	var answer loaded
	if err := json.Unmarshal(text, &answer); err != nil {
		return loaded{}, fmt.Errorf("reading a child's answer: %w", err)
	}
	p.has[programOf(of)] = len(answer.Diagnostics) == 0
	return answer, nil
}

// request sends a request and waits for the answer. The child is killed if it exceeds its limits.
func (p *process) request(ctx context.Context, r evaluation, most Limit) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	p.requests++
	w, err := p.watch(ctx, most)
	if err != nil {
		return nil, err
	}
	answer, err := exchange(p.in, p.out, text)
	excess := w.end()
	switch {
	case excess != nil:
		return nil, excess
	case err != nil:
		p.kill()
		return nil, p.diedOf(ctx, most)
	}
	if bytes.HasPrefix(answer, []byte(`{"error":`)) {
		var failed childError
		if err := json.Unmarshal(answer, &failed); err != nil {
			return nil, fmt.Errorf("reading a child's answer: %w", err)
		}
		return nil, errors.New(failed.Error)
	}
	return answer, nil
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

// crashError is the error of a child that panicked, which is a bug in Corral or OPA.
type crashError struct{ message string }

func (c *crashError) Error() string {
	return "the process that evaluates it ended by a fault of its own: " + c.message + ": simplify the rules changed last"
}

func tooMuchMemory(most Limit) error {
	return &policy.Excess{Message: fmt.Sprintf("it took more than %d MiB of memory", most.Memory>>20)}
}

// firstError returns the first line of its standard error: the Go runtime writes the reason for its end there.
func (p *process) firstError() string {
	return wording.FirstLine(strings.TrimSpace(string(p.stderr.kept)))
}

// watcher checks the resources of a request.
type watcher struct {
	timer  *time.Timer
	done   chan struct{}
	excess atomic.Pointer[error]
	looks  sync.WaitGroup
}

// watch kills the child when a request exceeds its limits or its caller has left.
func (p *process) watch(ctx context.Context, most Limit) (*watcher, error) {
	cpu, err := cpuOf(p.pid())
	if err != nil {
		return nil, err
	}
	memory := p.rest
	p.rest = 0 // the request makes it grow
	if memory == 0 {
		if memory, err = memoryOf(p.pid()); err != nil {
			return nil, err
		}
	}
	w := &watcher{done: make(chan struct{})}
	w.looks.Add(1)
	w.timer = time.AfterFunc(look, func() {
		defer w.looks.Done()
		if why := p.lookUntil(ctx, w.done, cpu, memory, most); why != nil {
			w.excess.Store(&why)
			p.kill()
		}
	})
	return w, nil
}

// end ends the checks. It returns why the child was killed, or nil.
func (w *watcher) end() error {
	close(w.done)
	if w.timer.Stop() {
		w.looks.Done()
	}
	w.looks.Wait()
	if why := w.excess.Load(); why != nil {
		return *why
	}
	return nil
}

// lookUntil returns why a child must be killed, or nil when the request is done.
func (p *process) lookUntil(ctx context.Context, done <-chan struct{}, cpuBefore time.Duration, memoryBefore uint64, most Limit) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	late := time.NewTimer(most.Wall)
	defer late.Stop()
	for {
		select {
		case <-done:
			return nil
		default:
		}
		taken, why := p.usage(cpuBefore, memoryBefore, most)
		if why != nil {
			return why
		}
		if most.Usual > 0 && taken > most.Usual {
			p.comeLast()
			tick.Reset(lookAtSlow)
		}
		select {
		case <-tick.C:
		case <-done:
			return nil
		case <-p.over:
			return nil
		case <-late.C:
			return lateError(most.Wall)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// usage returns the CPU time of a request, and an error if the child must be killed for its usage. A value that cannot
// be read now is read at the next check.
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

// exchange writes a request and reads the answer.
func exchange(in io.Writer, out io.Reader, request []byte) ([]byte, error) {
	if err := writeFrame(in, request); err != nil {
		return nil, err
	}
	return readFrame(out)
}

// writeFrame writes a text, preceded by its length.
func writeFrame(w io.Writer, text []byte) error {
	if len(text) > maxFrame {
		return fmt.Errorf("%d bytes are more than %d", len(text), maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))) //nolint:gosec // checked above
	_, err := w.Write(append(frame, text...))
	return err
}

// readFrame reads a text that is preceded by its length.
func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("%d bytes are more than %d", n, maxFrame)
	}
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return text, err
}

// lateError is the error of a child that did not answer in time. It is a policy.ErrLate.
type lateError time.Duration

func (e lateError) Error() string {
	return fmt.Sprintf("there was no answer within %s", time.Duration(e))
}

// Is implements the interface of errors.Is.
func (e lateError) Is(target error) bool { return target == policy.ErrLate }
