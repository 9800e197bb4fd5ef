// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"errors"
	"time"
)

// Stage is how far a runner has come.
type Stage string

const (
	// Connected is a runner that GitHub knows of.
	Connected Stage = "connected"
	// Working is a runner that took a job.
	Working Stage = "working"
)

// ErrKilled is the cause of the end of the context of a process that is killed. It can do nothing more.
var ErrKilled = errors.New("the process was killed")

// ReturnOutdatedEnv asks the runner's image for exit code 7 when GitHub refuses its version (its run-helper.sh).
const ReturnOutdatedEnv = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"

// exitOutdated is that exit code.
const exitOutdated = 7

// crashing is how long a container runs that crashes before its runner connects.
const crashing = 50 * time.Millisecond

// ending is how a container ended, in the kubelet's words.
type ending struct {
	exitCode int
	reason   string // derived from the exit code when empty
}

// process is the runner container's process.
type process struct {
	*actor
	alive    context.Context // ends with SIGTERM, and with ErrKilled as its cause when it is killed
	die      context.CancelCauseFunc
	ended    chan ending   // the first of what ends the process counts; room for all that may
	reported chan struct{} // closed once it is reported to run
}

// run starts the process, reports that it runs, and waits for it, but no longer than the grace period of a deletion.
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
	case end := <-p.ended: // both at once: it did end in time
		return end, nil
	default:
		return ending{exitCode: exitKilled}, nil
	}
}

// live is the process's life, with the fault that strikes it.
func (p *process) live(c Container) (exitCode int) {
	switch {
	case p.suffers(CrashBeforeConnecting):
		p.struck(CrashBeforeConnecting)
		_ = pause(p.alive, crashing) // it ends either way
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

// reached lets the fault strike that waits for a stage.
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

// crashes returns what strikes the process at a stage, of the faults that have a stage of their own; nil for none.
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
