// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"cmp"
	"io"
	"net/http"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/golang-jwt/jwt/v5"

	"github.com/corral-dev/corral/sim/githubsim/runnerwire"
)

// runnerCaller finds the registered runner with the call's credential.
func (s *Server) runnerCaller(r *http.Request) (*runner, answer) {
	rn := s.runners.byCredential[bearer(r)]
	if rn == nil {
		return nil, restError(http.StatusUnauthorized,
			"The runner registration has been deleted from the server, please re-configure.")
	}
	return rn, answer{}
}

// namedSession returns the session in a call: simulated runners send it in a header, real ones in the query of their
// polls.
func namedSession(r *http.Request) string {
	return cmp.Or(r.Header.Get(runnerwire.HeaderSession), r.URL.Query().Get("sessionId"))
}

// sessionRunner is runnerCaller for calls that require the runner's session.
func (s *Server) sessionRunner(r *http.Request) (*runner, answer) {
	rn, refusal := s.runnerCaller(r)
	if rn == nil {
		return nil, refusal
	}
	if rn.session == "" || rn.session != namedSession(r) {
		return nil, restError(http.StatusConflict, "The session is not that of the runner.")
	}
	rn.lastSeen = s.now()
	return rn, answer{}
}

// runnerToken returns the credential to a runner that proves possession of the configuration's key.
func (s *Server) runnerToken(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(r.PostFormValue("client_assertion"), &claims, func(*jwt.Token) (any, error) { return &jitKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"PS256"}), jwt.WithAudience(s.baseURL(r)+runnerwire.PathToken), jwt.WithExpirationRequired(), jwt.WithTimeFunc(s.now))
	if err != nil || s.runners.byCredential[claims.Subject] == nil || r.PostFormValue("grant_type") != "client_credentials" {
		return answer{status: http.StatusBadRequest, body: map[string]string{"error": "invalid_client"}}
	}
	return ok(map[string]any{"access_token": claims.Subject, "token_type": "bearer", "expires_in": 3000})
}

// tooOld reports whether a runner's version, if it sends one, is older than the oldest supported one.
func tooOld(version, oldest string) bool {
	least, err := semver.NewVersion(oldest)
	if err != nil || version == "" {
		return false
	}
	v, err := semver.NewVersion(version)
	return err != nil || v.LessThan(least)
}

// tooOldError is the refusal of actions/runner's BrokerErrorKind.
func tooOldError() answer {
	return answer{status: http.StatusForbidden, body: map[string]any{
		"source": "actions-broker-listener", "errorKind": "RunnerVersionTooOld", "statusCode": http.StatusForbidden,
		"errorMessage": "Runner version is deprecated and cannot receive messages.",
	}}
}

func (s *Server) runnerJoins(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	rn, refusal := s.runnerCaller(r)
	if rn == nil {
		return refusal
	}
	if rn.session != "" {
		return restError(http.StatusConflict, "A session for this runner already exists.")
	}
	rn.session, rn.everSeen, rn.lastSeen = s.newID(), true, s.now()
	if rn.persistent {
		delete(s.excused, rn.name)
	}
	s.setOnline(rn, true)
	s.watchRunner(rn, rn.session)
	return created(runnerwire.Session{SessionID: rn.session})
}

// silence returns how long a runner may be silent.
func (s *Server) silence(rn *runner) time.Duration {
	if rn.job != nil && rn.job.State == JobRunning {
		return s.opts.LostAfter
	}
	return s.opts.SessionExpiry
}

// watchRunner ends the runner's session after it has been silent for too long.
func (s *Server) watchRunner(rn *runner, session string) {
	left := rn.lastSeen.Add(s.silence(rn)).Sub(s.now())
	if rn.polls > 0 {
		left = s.silence(rn)
	}
	s.after(left, func() {
		switch {
		case rn.gone || rn.session != session:
		case rn.polls == 0 && !rn.lastSeen.Add(s.silence(rn)).After(s.now()):
			s.runnerEnds(rn, "fell silent")
		default:
			s.watchRunner(rn, session)
		}
	})
}

// runnerEnds handles the end of a runner's process from the service's point of view. The registration remains.
func (s *Server) runnerEnds(rn *runner, how string) {
	rn.session = ""
	rn.scaleSet.free.remove(rn)
	rn.wake()
	s.setOnline(rn, false)
	j := rn.job
	switch {
	case j == nil:
	case j.State != JobRunning:
		s.returnJob(rn)
	default:
		s.blame(rn, j, "busy runner ended: %s %s with job %s", rn.name, how, j.ID)
		left := rn.lastSeen.Add(s.opts.LostAfter).Sub(s.now())
		s.after(left, func() { s.lose(rn, j) })
	}
}

// lose fails the job of a runner that has disappeared.
func (s *Server) lose(rn *runner, j *job) {
	if rn.job != j {
		return
	}
	s.setJob(rn, nil)
	s.blame(rn, j, "job %s is lost: no communication with runner %s", j.ID, rn.name)
	s.finish(j, ResultFailed)
}

func (s *Server) runnerLeaves(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	find := s.sessionRunner
	if namedSession(r) == "" {
		find = s.runnerCaller // the real runner's last call contains no session
	}
	rn, refusal := find(r)
	if rn == nil {
		return refusal
	}
	s.runnerEnds(rn, "left")
	return noContent()
}

// drain reads a body to its end. Only then does the server notice that the caller of a held call has left.
func drain(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// runnerPolls holds the runner's call until it has a job.
func (s *Server) runnerPolls(r *http.Request) answer {
	drain(r)
	if tooOld(r.URL.Query().Get("runnerVersion"), s.opts.OldestRunner) {
		return tooOldError()
	}
	rn, delivered, a := s.lineUp(r)
	if delivered == nil {
		return a
	}
	hold := time.NewTimer(s.opts.Hold)
	defer hold.Stop()
	left := false
	select {
	case <-delivered:
	case <-hold.C:
	case <-r.Context().Done():
		left = true
	case <-s.done:
	}
	return s.stepOut(rn, namedSession(r), left)
}

// lineUp returns the runner's job, or queues the runner.
func (s *Server) lineUp(r *http.Request) (*runner, chan struct{}, answer) {
	s.lock()
	defer s.unlock()
	rn, refusal := s.sessionRunner(r)
	if rn == nil {
		return nil, nil, refusal
	}
	s.setOnline(rn, true)
	if rn.job == nil && len(rn.scaleSet.waiting) > 0 {
		s.handOver(rn.scaleSet, rn)
	}
	if rn.isOrdered() {
		return nil, nil, jobMessage(rn.job)
	}
	rn.wake() // a second poll ends the first
	delivered := make(chan struct{})
	rn.delivered = delivered
	rn.polls++
	rn.scaleSet.free.push(rn)
	if rn.scaleSet.solo != nil {
		s.dispatch(rn.scaleSet)
	}
	return rn, delivered, answer{}
}

// isOrdered reports whether the runner's process still has to do the runner's job. A job that was lost before the
// process restarted does not count.
func (rn *runner) isOrdered() bool {
	return rn.job != nil && (!rn.persistent || rn.job.State != JobRunning)
}

func jobMessage(j *job) answer { return ok(runnerwire.JobMessage{JobID: j.ID, Name: j.Name}) }

// stepOut ends a runner's poll, with a job if there is one by now.
func (s *Server) stepOut(rn *runner, session string, left bool) answer {
	s.lock()
	defer s.unlock()
	rn.polls--
	rn.lastSeen = s.now()
	if rn.gone || rn.session != session {
		return restError(http.StatusUnauthorized, "The runner registration or its session has ended.")
	}
	if rn.polls == 0 {
		rn.scaleSet.free.remove(rn)
	}
	switch {
	case left && rn.polls == 0: // with another poll its process is still there
		s.setOnline(rn, false)
		if rn.job != nil && rn.job.State != JobRunning {
			s.returnJob(rn)
		}
		return answer{}
	case rn.isOrdered():
		return jobMessage(rn.job)
	default:
		return accepted()
	}
}

// runnerStarts handles the acknowledgement: from now on no other runner can get the job.
func (s *Server) runnerStarts(r *http.Request) answer {
	s.lock()
	defer s.unlock()
	rn, refusal := s.sessionRunner(r)
	if rn == nil {
		return refusal
	}
	j := rn.job
	if j == nil {
		return restError(http.StatusNotFound, "The job is gone.")
	}
	if j.State != JobRunning {
		j.setState(JobRunning)
		j.Started, j.RunnerID, j.Runner = s.now(), rn.id, rn.name
		j.Starts++
		if j.Starts > 1 {
			s.breach("job %s was run twice, the second time by runner %s", j.ID, rn.name)
		}
		s.tell(j, "JobStarted")
		s.emitJob(j, "in_progress")
		s.watchRunner(rn, rn.session)
	}
	return ok(runnerwire.Work{Script: j.spec.Script, DurationMillis: j.spec.Duration.Milliseconds(), Result: j.spec.Result})
}

// runnerRenews is held while the job runs. It ends early if the job is cancelled.
func (s *Server) runnerRenews(r *http.Request) answer {
	drain(r)
	rn, j, refusal := s.beginRenewal(r)
	if j == nil {
		return refusal
	}
	defer s.endRenewal(rn)
	hold := time.NewTimer(min(s.opts.Hold, s.opts.LostAfter/3))
	defer hold.Stop()
	select {
	case <-j.cancel:
		return ok(runnerwire.Renewal{Cancelled: true})
	case <-hold.C:
	case <-s.done:
	case <-r.Context().Done():
		return answer{}
	}
	return ok(runnerwire.Renewal{})
}

func (s *Server) beginRenewal(r *http.Request) (*runner, *job, answer) {
	s.lock()
	defer s.unlock()
	rn, refusal := s.sessionRunner(r)
	if rn == nil {
		return nil, nil, refusal
	}
	if rn.job == nil || rn.job.State != JobRunning {
		return nil, nil, restError(http.StatusNotFound, "The job is gone.")
	}
	rn.polls++
	return rn, rn.job, answer{}
}

func (s *Server) endRenewal(rn *runner) {
	s.lock()
	defer s.unlock()
	rn.polls--
	rn.lastSeen = s.now()
}

// runnerCompletes ends the job and, unless the runner is persistent, its registration.
func (s *Server) runnerCompletes(r *http.Request) answer {
	var body runnerwire.Completion
	if err := decode(r, &body); err != nil || body.Result == "" {
		return restError(http.StatusBadRequest, "Problems parsing JSON")
	}
	s.lock()
	defer s.unlock()
	rn, refusal := s.sessionRunner(r)
	if rn == nil {
		return refusal
	}
	j := rn.job
	if j == nil || j.State != JobRunning {
		return restError(http.StatusNotFound, "The job is gone.")
	}
	s.setJob(rn, nil)
	if !rn.persistent {
		s.removeRunner(rn)
	}
	j.Log = body.Log
	if j.cutShort {
		body.Result = j.spec.Result
	}
	s.finish(j, body.Result)
	return noContent()
}
