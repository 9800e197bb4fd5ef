// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package simrunner simulates the process of a GitHub Actions runner against the simulated GitHub: it connects with its
// JIT configuration, waits for a job, runs or simulates it, reports the result and exits.
package simrunner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

// Exit codes of the runner's own program, Runner.Listener.
const (
	// ExitOK: the job is done, whatever its result, or the process was asked to stop.
	ExitOK = 0
	// ExitTerminated: the registration is unknown, the configuration is unreadable, or the server is unreachable.
	ExitTerminated = 1
	// ExitSessionConflict: another process uses the same configuration.
	ExitSessionConflict = 5
	// ExitOutdated: GitHub refuses the runner's version.
	ExitOutdated = 7
	// ExitKilled: the process was killed, without reporting anything.
	ExitKilled = 137
)

// Hooks are called as a runner progresses. Each may be nil; only Script may block.
type Hooks struct {
	// Connected is called once the server knows the process.
	Connected func()
	// Working is called once the runner has a job.
	Working func()
	// Script runs the script of a job until it or ctx ends, and returns the end of its output. Without this hook such a
	// job fails.
	Script func(ctx context.Context, script string) (log string, err error)
	// Transport is the network; nil for the process's own.
	Transport *http.Transport
}

func tell(hook func()) {
	if hook != nil {
		hook()
	}
}

const (
	callTimeout = 2 * time.Minute
	maxAnswer   = 1 << 20
	leaveWithin = 5 * time.Second
	firstDelay  = 250 * time.Millisecond
	maxRetries  = 6
	// conflictDelay is the time to the next attempt to open a session.
	conflictDelay = 250 * time.Millisecond
)

// ContainerExitCode returns the exit code of the runner image's wrapper scripts (run.sh, run-helper.sh) for an exit
// code of Runner.Listener: 0, except for a refused version if the environment asks for that code.
func ContainerExitCode(code int, returnsOutdated bool) int {
	if code == ExitOutdated && returnsOutdated {
		return code
	}
	return ExitOK
}

// Run simulates the whole life of a runner. It returns the exit code of Runner.Listener and, if that is not 0, the
// reason.
//
// If ctx ends while the runner waits, it closes its session and returns 0; the registration remains. If ctx ends while
// a job runs, the job is abandoned and the session closed. If ctx ends with a custom cause (see
// [context.WithCancelCause]), the process is killed: it closes nothing and reports nothing.
func Run(ctx context.Context, jitConfig string) (exitCode int, err error) {
	return Hooks{}.Run(ctx, jitConfig)
}

// Run is [Run] with hooks.
func (h Hooks) Run(ctx context.Context, jitConfig string) (exitCode int, err error) {
	return h.run(ctx, jitConfig, false)
}

func (h Hooks) run(ctx context.Context, jitConfig string, persistent bool) (exitCode int, err error) {
	config, err := runnerwire.Decode(jitConfig)
	if err != nil {
		return ExitTerminated, err
	}
	client, end := h.client()
	defer end()
	p := &process{
		base:       strings.TrimSuffix(config.Settings.ServerURLV2, runnerwire.PathBroker),
		credential: config.ClientID(),
		http:       client,
		hooks:      h,
		persistent: persistent,
	}
	err = p.live(ctx)
	var refused *refusal
	switch {
	case killed(ctx):
		return ExitKilled, context.Cause(ctx)
	case err == nil, ctx.Err() != nil:
		return ExitOK, nil
	case errors.As(err, &refused) && refused.status == http.StatusConflict:
		return ExitSessionConflict, err
	default:
		return ExitTerminated, err
	}
}

func (h Hooks) client() (*http.Client, func()) {
	transport := cmp.Or(h.Transport, http.DefaultTransport.(*http.Transport)).Clone()
	return &http.Client{Transport: transport, Timeout: callTimeout}, transport.CloseIdleConnections
}

type process struct {
	base       string
	credential string
	session    string
	http       *http.Client
	hooks      Hooks
	persistent bool // it runs one job after another
}

// killed reports whether ctx ended with a custom cause.
func killed(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), ctx.Err())
}

// outlasting returns a context for calls that must be made even if ctx ends, except by a kill.
func outlasting(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	context.AfterFunc(ctx, func() {
		if killed(ctx) {
			cancel()
		}
	})
	return longer, cancel
}

// refusal is an answer that a retry cannot change.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.status, r.message) }

func (p *process) live(ctx context.Context) error {
	err := p.join(ctx)
	for p.persistent && isConflict(err) && ctx.Err() == nil { // the session of the previous process has to expire
		time.Sleep(conflictDelay)
		err = p.join(ctx)
	}
	if err != nil {
		return err
	}
	tell(p.hooks.Connected)
	for {
		work, err := p.nextJob(ctx)
		if err != nil {
			p.leave(ctx)
			return err
		}
		if work == nil {
			continue
		}
		tell(p.hooks.Working)
		done, err := p.work(ctx, *work)
		if err != nil {
			p.leave(ctx)
			return err
		}
		if err := p.complete(ctx, done); err != nil || !p.persistent {
			return err
		}
		if ctx.Err() != nil {
			p.leave(ctx)
			return nil
		}
	}
}

func isConflict(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.status == http.StatusConflict
}

// join opens the session. If ctx ends in the meantime, it waits a little longer for the answer, because a session with
// an unknown id could not be closed.
func (p *process) join(ctx context.Context) error {
	joining, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveWithin, cancel) })()
	var session runnerwire.Session
	if _, err := p.call(joining, http.MethodPost, runnerwire.PathSession, nil, &session); err != nil {
		return fmt.Errorf("opening the runner's session: %w", err)
	}
	p.session = session.SessionID
	return nil
}

// nextJob waits for a job and acknowledges it; nil if there was none yet or if it was cancelled in between.
func (p *process) nextJob(ctx context.Context) (*runnerwire.Work, error) {
	var message runnerwire.JobMessage
	status, err := p.call(ctx, http.MethodGet, runnerwire.PathMessage, nil, &message)
	if err != nil {
		return nil, fmt.Errorf("waiting for a job: %w", err)
	}
	if status == http.StatusAccepted {
		return nil, nil
	}
	var work runnerwire.Work
	_, err = p.call(ctx, http.MethodPost, runnerwire.PathAcknowledge, nil, &work)
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("acknowledging job %s: %w", message.JobID, err)
	}
	return &work, nil
}

// work runs the job, renewing its lock in the meantime, and returns the result.
func (p *process) work(ctx context.Context, work runnerwire.Work) (runnerwire.Completion, error) {
	if work.DurationMillis <= 0 && work.Script == "" {
		return runnerwire.Completion{Result: work.Result}, nil
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.renew(working) }()
	over := make(chan *runnerwire.Completion, 1)
	go func() { over <- p.carryOut(working, work) }()
	select {
	case done := <-over:
		if done != nil {
			stop()
			<-ended //nolint:errcheck // the job is over: the result of the renewals is irrelevant
			return *done, nil
		}
		return abandoned(<-ended)
	case err := <-ended:
		stop()
		<-over
		return abandoned(err)
	}
}

// abandoned returns the result of a job whose renewals ended before it did.
func abandoned(err error) (runnerwire.Completion, error) {
	if err != nil {
		return runnerwire.Completion{}, fmt.Errorf("renewing the job's lock: %w", err)
	}
	return runnerwire.Completion{Result: "canceled"}, nil
}

// carryOut runs the job's script, or waits for the job's duration; nil if ctx ended earlier.
func (p *process) carryOut(ctx context.Context, work runnerwire.Work) *runnerwire.Completion {
	if work.Script != "" {
		return p.runScript(ctx, work.Script)
	}
	timer := time.NewTimer(time.Duration(work.DurationMillis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return &runnerwire.Completion{Result: work.Result}
	case <-ctx.Done():
		return nil
	}
}

func (p *process) runScript(ctx context.Context, script string) *runnerwire.Completion {
	if p.hooks.Script == nil {
		return &runnerwire.Completion{Result: "failed", Log: "this runner runs no scripts"}
	}
	log, err := p.hooks.Script(ctx, script)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return &runnerwire.Completion{Result: "failed", Log: log + "\n" + err.Error()}
	default:
		return &runnerwire.Completion{Result: "succeeded", Log: log}
	}
}

// renew keeps the job's lock until ctx ends; nil means that the job was cancelled.
func (p *process) renew(ctx context.Context) error {
	for {
		var renewal runnerwire.Renewal
		if _, err := p.call(ctx, http.MethodPost, runnerwire.PathRenew, nil, &renewal); err != nil {
			return err
		}
		if renewal.Cancelled {
			return nil
		}
	}
}

// complete reports the result. Once sent, it must arrive even if ctx ends.
func (p *process) complete(ctx context.Context, done runnerwire.Completion) error {
	ctx, cancel := outlasting(ctx, callTimeout)
	defer cancel()
	_, err := p.call(ctx, http.MethodPost, runnerwire.PathComplete, done, nil)
	if err != nil {
		return fmt.Errorf("reporting the result: %w", err)
	}
	return nil
}

// leave closes the session if that is still possible.
func (p *process) leave(ctx context.Context) {
	if killed(ctx) {
		return
	}
	ctx, cancel := outlasting(ctx, leaveWithin)
	defer cancel()
	_, _ = p.once(ctx, http.MethodDelete, runnerwire.PathSession, nil, nil) // it expires otherwise
}

// call makes a call and retries a few times after network errors, 5xx and 429.
func (p *process) call(ctx context.Context, method, path string, body, into any) (int, error) {
	delay := firstDelay
	for retry := 0; ; retry++ {
		status, err := p.once(ctx, method, path, body, into)
		var refused *refusal
		if err == nil || ctx.Err() != nil || retry == maxRetries || errors.As(err, &refused) {
			return status, p.forgive(err, retry, path)
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
		delay *= 2
	}
}

// forgive ignores the error of a repeated report if the registration is gone, because that means that the first report
// has arrived.
func (p *process) forgive(err error, retry int, path string) error {
	var refused *refusal
	gone := http.StatusUnauthorized
	if p.persistent {
		gone = http.StatusNotFound // of the job
	}
	if retry > 0 && path == runnerwire.PathComplete && errors.As(err, &refused) && refused.status == gone {
		return nil
	}
	return err
}

func (p *process) once(ctx context.Context, method, path string, body, into any) (int, error) {
	payload, err := json.Marshal(body)
	if err != nil {
		return 0, fmt.Errorf("encoding the body of %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(payload))
	if err != nil {
		return 0, fmt.Errorf("making the request for %s: %w", path, err)
	}
	req.Header.Set("Authorization", "Bearer "+p.credential)
	req.Header.Set(runnerwire.HeaderSession, p.session)
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or given up
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return resp.StatusCode, read(resp.StatusCode, content, into)
}

// read classifies an answer as success, refusal or a temporary error.
func read(status int, content []byte, into any) error {
	switch {
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		return fmt.Errorf("the server answered %d", status)
	case status >= http.StatusBadRequest:
		var body struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(content, &body) // without a message the status has to suffice
		return &refusal{status: status, message: body.Message}
	case into == nil || len(content) == 0:
		return nil
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return nil
}
