// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"errors"
	"time"
)

// Stage is a stage in the life of a runner.
type Stage string

const (
	// Connected means that the runner is known to GitHub.
	Connected Stage = "connected"
	// Working means that the runner took a job.
	Working Stage = "working"
)

// ErrKilled is the cause when the context of a process ends because the process is killed. The process must do nothing
// more.
var ErrKilled = errors.New("the process was killed")

// ReturnOutdatedEnv requests exit code 7 from the runner's image if GitHub rejects its version (see its run-helper.sh).
const ReturnOutdatedEnv = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"

// exitOutdated is that exit code.
const exitOutdated = 7

// crashing is how long a container runs that crashes before its runner connects.
const crashing = 50 * time.Millisecond

// ending is how a container ended, as the kubelet reports it.
type ending struct {
	exitCode int
	reason   string // derived from the exit code if empty
}

// process is the runner container's process.
type process struct {
	*actor
	alive    context.Context // ends with SIGTERM, or with the cause ErrKilled when it is killed
	die      context.CancelCauseFunc
	ended    chan ending   // the first value counts; the buffer has room for all senders
	reported chan struct{} // closed when the process is reported as running
}

// run starts the process, reports it as running, and waits for it, at most for the grace period of a deletion.
func (a *actor) run(c Container) (ending, error) {
	p := &process{actor: a, ended: make(chan ending, 3), reported: make(chan struct{})}
	p.alive, p.die = context.WithCancelCause(a.term)
	a.node.mu.Lock()
	a.now = p
	a.node.mu.Unlock()
	a.node.running.Go(func() { p.ended <- ending{exitCode: p.live(c)} })
	if err := a.report(a.status.running()); err != nil {
		return ending{}, err
	}
	close(p.reported)
	select {
	case end := <-p.ended:
		return end, nil
	case <-a.kill.Done():
	}
	select {
	case end := <-p.ended: // both happened at once: it ended in time
		return end, nil
	default:
		return ending{exitCode: exitKilled}, nil
	}
}

// live runs the process, with the fault that affects it.
func (p *process) live(c Container) (exitCode int) {
	switch {
	case p.suffers(CrashBeforeConnecting):
		p.struck(CrashBeforeConnecting)
		_ = pause(p.alive, crashing) // ends in either case
		return 1
	case p.suffers(VersionRefused):
		p.struck(VersionRefused)
		_ = pause(p.alive, crashing)
		if c.Env[ReturnOutdatedEnv] == "1" {
			return exitOutdated
		}
		return 0
	case p.suffers(NeverConnects):
		p.struck(NeverConnects)
		<-p.alive.Done()
		return exitTerminated
	}
	exitCode = p.node.options.Run(p.alive, c, p.reached)
	if p.suffers(HangsAfterJob) {
		p.struck(HangsAfterJob)
		<-p.kill.Done()
		return exitKilled
	}
	return exitCode
}

// reached triggers the fault that waits for a stage.
func (p *process) reached(s Stage) {
	if p.spent.Load() || p.fault == nil {
		return
	}
	then := p.crashes(s)
	if then == nil && (s == Working) == p.fault.InJob {
		then = p.ends(p.fault.Kind)
	}
	if then == nil {
		return
	}
	p.node.running.Go(func() {
		if pause(p.alive, p.fault.After) == nil {
			p.struck(p.fault.Kind)
			then()
		}
	})
}

// crashes returns the action of a fault that has its own stage; nil for other faults.
func (p *process) crashes(s Stage) func() {
	switch kind := p.fault.Kind; {
	case s == Connected && kind == CrashConnected:
		return func() { p.crash(ending{exitCode: exitSegmentationFault}) }
	case s == Working && kind == KilledInJob:
		return func() { p.crash(ending{exitCode: exitKilled, reason: "OOMKilled"}) }
	case s == Working && kind == ListenerKilled:
		return func() { p.crash(ending{}) }
	case s == Connected && kind == Evicted:
		return func() { p.outside(func(ctx context.Context) error { return p.node.deletePod(ctx, p.pod, nil) }) }
	}
	return nil
}

// crash ends the process, not the pod.
func (p *process) crash(end ending) {
	p.spent.Store(true)
	p.ended <- end
	p.die(ErrKilled)
}
