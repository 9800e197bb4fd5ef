// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package nodeplay

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	ended    chan ending   // buffered; the first of what ends the process counts
	reported chan struct{} // closed once it is reported to run
}

// run starts the process, reports that it runs, and waits for it, but no longer than the grace period of a deletion.
func (a *actor) run(c Container) (ending, error) {
	p := &process{actor: a, ended: make(chan ending, 2), reported: make(chan struct{})}
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
	if p.spent.Load() {
		return
	}
	var then func()
	switch {
	case s == Connected && p.suffers(CrashConnected):
		then = func() { p.crash(ending{exitCode: exitSegmentationFault}) }
	case s == Working && p.suffers(KilledInJob):
		then = func() { p.crash(ending{exitCode: exitKilled, reason: "OOMKilled"}) }
	case s == Working && p.suffers(ListenerKilled):
		then = func() { p.crash(ending{}) }
	case s == Connected && p.suffers(Evicted):
		then = p.evict
	default:
		return
	}
	p.node.running.Go(func() {
		if pause(p.alive, p.fault.After) == nil {
			p.struck(p.fault.Kind)
			then()
		}
	})
}

// crash ends the process, not the pod.
func (p *process) crash(end ending) {
	p.spent.Store(true)
	p.ended <- end
	p.die(ErrKilled)
}

// evict deletes the pod in somebody else's name, who sees it run.
func (p *process) evict() {
	select {
	case <-p.reported:
	case <-p.alive.Done():
	}
	err := p.persistently(func(ctx context.Context) error {
		return p.node.client.CoreV1().Pods(p.pod.Namespace).Delete(ctx, p.pod.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(p.pod.UID)),
		})
	})
	p.complain(err)
}
