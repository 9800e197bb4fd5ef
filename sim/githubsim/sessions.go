// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// session is the exclusive right to poll a scale set's queue.
type session struct {
	id       string
	owner    string
	scaleSet *scaleSet
	lastSeen time.Time
	polls    int // currently held
}

type sessionBody struct {
	SessionID   string       `json:"sessionId"`
	OwnerName   string       `json:"ownerName"`
	ScaleSet    scaleSetBody `json:"runnerScaleSet"`
	QueueURL    string       `json:"messageQueueUrl"`
	AccessToken string       `json:"messageQueueAccessToken"`
	Statistics  *Statistics  `json:"statistics"`
}

func (s *Server) sessionBody(r *http.Request, ss *scaleSet) sessionBody {
	stats := s.shown(ss)
	query := url.Values{"scaleSetId": {strconv.Itoa(ss.id)}, "sessionId": {ss.session.id}}
	body := sessionBody{
		SessionID: ss.session.id, OwnerName: ss.session.owner, ScaleSet: s.body(ss, s.baseURL(r)), Statistics: &stats,
		QueueURL: s.baseURL(r) + queuePath + "?" + query.Encode(),
		AccessToken: s.sign(queueAudience, s.opts.QueueTokenTTL, serviceClaims{
			Tenant: ss.scope.tenant, Session: ss.session.id, Epoch: s.identities.queueEpoch,
		}),
	}
	switch alteration(r) {
	case AlterEmptyQueueURL:
		body.QueueURL = ""
	case AlterSessionOwner:
		body.OwnerName = "another"
	case AlterNoStatistics:
		body.Statistics = nil
	}
	return body
}

func (s *Server) createSession(r *http.Request, ss *scaleSet) answer {
	var body struct {
		OwnerName string `json:"ownerName"`
	}
	if err := decode(r, &body); err != nil || body.OwnerName == "" {
		return serviceError(http.StatusBadRequest, "ArgumentException", "A session needs an owner's name.")
	}
	if ss.session != nil {
		return s.sessionConflict(ss)
	}
	s.openSession(ss, body.OwnerName)
	return ok(s.sessionBody(r, ss))
}

// sessionConflict refuses a session with github.com's message: the current one (actions-runner-controller's issue
// 4285), or the previous one (its issue 3351).
func (s *Server) sessionConflict(ss *scaleSet) answer {
	const exception = "RunnerScaleSetSessionConflictException"
	if s.opts.SessionOwners {
		return serviceError(http.StatusConflict, exception, "The runner scale set %s already has an active session for owner %s.", ss.name, ss.session.owner)
	}
	return serviceError(http.StatusConflict, exception, "The actions runner scaleset %s already has an active session.", ss.name)
}

func (s *Server) openSession(ss *scaleSet, owner string) {
	ss.session = &session{id: s.newID(), owner: owner, scaleSet: ss, lastSeen: s.now()}
	s.watchSession(ss.session)
}

// watchSession ends the session after it has been unused for long enough.
func (s *Server) watchSession(se *session) {
	left := se.lastSeen.Add(s.opts.SessionExpiry).Sub(s.now())
	if se.polls > 0 {
		left = s.opts.SessionExpiry
	}
	s.after(left, func() {
		switch {
		case se.scaleSet.session != se:
		case se.polls == 0 && !se.lastSeen.Add(s.opts.SessionExpiry).After(s.now()):
			s.endSession(se.scaleSet)
		default:
			s.watchSession(se)
		}
	})
}

// endSession ends the scale set's session, if it has one, and with it the announced capacity. Jobs that were offered
// and not acquired return to the queue; messages stay.
func (s *Server) endSession(ss *scaleSet) {
	if ss.session == nil {
		return
	}
	ss.session, ss.capacity = nil, 0
	for _, j := range ss.queue.offered {
		s.requeue(j)
	}
	clear(ss.queue.offered)
	ss.queue.wakeAll()
	s.dispatchAll()
}

// sessionOf returns the session in the path.
func sessionOf(r *http.Request, ss *scaleSet) (*session, answer) {
	id := r.PathValue("sid")
	if ss.session == nil || ss.session.id != id {
		return nil, serviceError(http.StatusBadRequest, "RunnerScaleSetSessionExpiredException",
			"The session identifier %s is not valid.", id)
	}
	return ss.session, answer{}
}

func (s *Server) refreshSession(r *http.Request, ss *scaleSet) answer {
	se, refusal := sessionOf(r, ss)
	if se == nil {
		return refusal
	}
	se.lastSeen = s.now()
	return ok(s.sessionBody(r, ss))
}

func (s *Server) deleteSession(r *http.Request, ss *scaleSet) answer {
	if se, refusal := sessionOf(r, ss); se == nil {
		return refusal
	}
	s.endSession(ss)
	return noContent()
}

// ExpireSession ends a scale set's session as if it had been unused. It returns false if there was none.
func (s *Server) ExpireSession(scaleSetID int) bool {
	s.lock()
	defer s.unlock()
	ss := s.scaleSets.byID[scaleSetID]
	if ss == nil || ss.session == nil {
		return false
	}
	s.endSession(ss)
	return true
}

// StealSession replaces a scale set's session with a session of another owner that never polls. It blocks others until
// it expires or is deleted. It returns false if there is no such scale set.
func (s *Server) StealSession(scaleSetID int, owner string) bool {
	s.lock()
	defer s.unlock()
	ss := s.scaleSets.byID[scaleSetID]
	if ss == nil {
		return false
	}
	s.endSession(ss)
	s.openSession(ss, owner)
	return true
}
